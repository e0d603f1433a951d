"""The way of a submission to the server, without the client's models.

Those are pydantic's, and importing them takes longer than the whole submission. What the server answers is printed as
it came; what it must check it checks.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stoker.client.connection import API, Connection
from stoker.errors import ConflictError, NotFoundError, ServerError
from stoker.host.home import Home
from stoker.submission.shipment import Shipment
from stoker.terminal.output import say


class Door:
    """One connection to this home's server, which is started if there is none."""

    def __init__(self, home: Home) -> None:
        self._connection = _connection(home)

    def dry_run(self, shipment: Shipment) -> Any:
        """What would be started; nothing is uploaded or stored."""
        return self._connection.request("POST", f"{API}/jobs", json=shipment.values, params={"dry_run": True})

    def submit(self, shipment: Shipment) -> dict[str, Any]:
        """Upload what the server lacks and store the job; it is refused before anything is uploaded."""
        missing = self._missing(shipment)
        if missing:
            self.dry_run(shipment)
            self._check_name_is_free(shipment.values)
        for route, file in missing.items():
            with file.open("rb") as body:
                self._connection.request("PUT", route, body=body)
        job: dict[str, Any] = self._connection.request("POST", f"{API}/jobs", json=shipment.values)
        for note in job.get("notes", ()):
            say(note)
        return job

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

    def _check_name_is_free(self, values: Mapping[str, Any]) -> None:
        """Code that the server has never seen cannot be the same job again."""
        try:
            self._connection.request("GET", f"{API}/jobs/{quote(values['name'], safe='')}")
        except NotFoundError:
            return
        raise ConflictError(
            f"There is a job {values['name']!r} already, with other code. Choose another name; people append the time,"
            f" like {values['name']}_$(date +%Y%m%d_%H%M%S)."
        )


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
