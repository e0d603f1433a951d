"""Send a submission to the server: upload what it lacks, then the job.

Without the client's models: they are pydantic's, and importing them takes longer than the whole submission. The
server's answer is handed on unchanged, and the server validates what it is sent.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from stoker.client.connection import API, Connection
from stoker.errors import ConflictError, NotFoundError, ServerError
from stoker.host.home import Home
from stoker.submission.reading import JobValues
from stoker.submission.shipment import Shipment

JobRecord = dict[str, Any]  # schema/record.py's Job as JSON
_MAX_BASE = 110  # characters of a name, so that a number fits behind
_TRIES = 20


class SubmitClient:
    """One connection to this home's server, which is started if there is none."""

    def __init__(self, home: Home) -> None:
        self._connection = _connection(home)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def dry_run(self, shipment: Shipment) -> Any:
        """What would be started; nothing is uploaded or stored."""
        return self._connection.request("POST", f"{API}/jobs", json=shipment.values, params={"dry_run": True})

    def submit(self, shipment: Shipment) -> JobRecord:
        """Upload what the server lacks and store the job; it is refused before anything is uploaded."""
        missing = self._missing(shipment)
        if missing:
            self.dry_run(shipment)
            self._check_name_is_free(shipment.values)
        for route, file in missing.items():
            with file.open("rb") as body:
                self._connection.request("PUT", route, body=body)
        job: JobRecord = self._connection.request("POST", f"{API}/jobs", json=shipment.values)
        return job

    def submit_numbered(self, shipment: Shipment) -> JobRecord:
        """Store the job under its name and the next free number, which someone else may take meanwhile."""
        base = shipment.values["name"][:_MAX_BASE]
        page = self._connection.request("GET", f"{API}/jobs", params={"name": f"{base}_*", "limit": 10_000})
        number = next_number(base, [job["id"] for job in page["jobs"]])
        for tried in range(number, number + _TRIES):
            values: JobValues = {**shipment.values, "name": f"{base}_{tried}"}
            try:
                return self.submit(replace(shipment, values=values))
            except ConflictError:
                continue
        raise ConflictError(f"The names {base}_{number} to {base}_{number + _TRIES - 1} are all taken. Choose another.")

    def _missing(self, shipment: Shipment) -> dict[str, Path]:
        """Routes of what the server does not have, and the files that would go there."""
        files = {f"{API}/packages/{each.hash}/{quote(each.file.name)}": each.file for each in shipment.archives}
        if shipment.package is not None:
            files[f"{API}/packages/{shipment.package.hash}"] = shipment.package.file
        return {route: file for route, file in files.items() if not self._has(route)}

    def _has(self, path: str) -> bool:
        try:
            self._connection.request("HEAD", path)
        except NotFoundError:
            return False
        return True

    def _check_name_is_free(self, values: JobValues) -> None:
        """Code that the server has never seen cannot be the same job again."""
        try:
            self._connection.request("GET", f"{API}/jobs/{quote(values['name'], safe='')}")
        except NotFoundError:
            return
        raise ConflictError(
            f"There is a job {values['name']!r} already, with other code. Choose another name; people append the time,"
            f" like {values['name']}_$(date +%Y%m%d_%H%M%S)."
        )


def next_number(base: str, taken: Sequence[str]) -> int:
    """One more than the highest behind this name."""
    numbers = [name.removeprefix(f"{base}_") for name in taken if name.startswith(f"{base}_")]
    return max((int(number) for number in numbers if number.isdecimal()), default=0) + 1


def _connection(home: Home) -> Connection:
    address = home.server()
    if address is not None:
        connection = Connection(address)
        try:
            connection.request("GET", f"{API}/health")
            return connection
        except ServerError:
            connection.close()
    from stoker.client.client import connect

    return Connection(connect(home).address)
