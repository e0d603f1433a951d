"""The registry's part of the client: models, versions, aliases."""

from typing import Any
from urllib.parse import quote

from stoker.client.connection import API, Connection
from stoker.host.home import ServerAddress
from stoker.schema.job import Labels
from stoker.schema.registry import (
    ModelList,
    NewModel,
    NewVersion,
    Reference,
    RegisteredModel,
    SavedModel,
    Version,
    VersionList,
)

_COPY_TIMEOUT_S = 4 * 3600.0  # a version is copied while its request waits


class ModelCalls:
    """Methods of `Client`. A reference is `M`, `M:3`, `M@alias` or `M/versions/v1`."""

    address: ServerAddress

    def models(self) -> tuple[RegisteredModel, ...]:
        """By name."""
        return ModelList.model_validate(self._request("GET", "/models")).models

    def model(self, model: str) -> RegisteredModel:
        return RegisteredModel.model_validate(self._request("GET", _path(model)))

    def create_model(self, new: NewModel) -> RegisteredModel:
        return RegisteredModel.model_validate(self._request("POST", "/models", json=new.model_dump(mode="json")))

    def change_model(
        self, model: str, *, description: str | None = None, labels: Labels | None = None
    ) -> RegisteredModel:
        """Replace the description, the labels, or both."""
        changes = {"description": description, "labels": labels}
        return RegisteredModel.model_validate(self._request("PATCH", _path(model), json=changes))

    def delete_model(self, model: str) -> None:
        """ConflictError while it has versions."""
        self._request("DELETE", _path(model))

    def versions(self, model: str) -> tuple[Version, ...]:
        """Newest first."""
        return VersionList.model_validate(self._request("GET", _path(model, "versions"))).versions

    def version(self, which: str | Reference) -> Version:
        """The one that is meant; the default, if only the model is named."""
        return Version.model_validate(self._request("GET", _version_path(which)))

    def create_version(self, model: str, new: NewVersion) -> Version:
        """Copy a model into the registry; blocks until it is there, whole."""
        # Not by the kept connection: this takes as long as copying does, and must not be repeated.
        connection = Connection(self.address, timeout_s=_COPY_TIMEOUT_S)
        try:
            path = API + _path(model, "versions")
            return Version.model_validate(connection.request("POST", path, json=new.model_dump(mode="json")))
        finally:
            connection.close()

    def delete_version(self, which: str | Reference) -> None:
        """With its files. The default one can go only as the last."""
        self._request("DELETE", _version_path(which))

    def set_default(self, which: str | Reference) -> Version:
        return Version.model_validate(self._request("POST", f"{_version_path(which)}:setDefault"))

    def set_alias(self, which: str | Reference, alias: str) -> Version:
        """The alias names this version from now on, and no other."""
        meant = _reference(which)
        path = _path(meant.model, "aliases", alias)
        return Version.model_validate(self._request("PUT", path, json={"version": meant.word}))

    def delete_alias(self, model: str, alias: str) -> None:
        self._request("DELETE", _path(model, "aliases", alias))

    def saved_models(self, job: str) -> tuple[SavedModel, ...]:
        """What a job's runs said they saved, oldest first."""
        found = self._request("GET", f"/jobs/{quote(job, safe='')}/models")
        return tuple(SavedModel.model_validate(each) for each in found)

    def _request(self, method: str, path: str, *, params: Any = None, json: object = None) -> Any:
        raise NotImplementedError  # the client's


def _reference(which: str | Reference) -> Reference:
    return Reference.parse(which) if isinstance(which, str) else which


def _version_path(which: str | Reference) -> str:
    meant = _reference(which)
    return _path(meant.model, "versions", meant.word)


def _path(model: str, *rest: str) -> str:
    return "/".join(["/models", *(quote(part, safe="@") for part in (model, *rest))])
