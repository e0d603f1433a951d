"""Registered models: AI Platform's resource paths, with aliases besides."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, Response

from stoker.errors import UsageError
from stoker.schema.registry import (
    DEFAULT,
    AliasTarget,
    ModelChanges,
    ModelList,
    NewModel,
    NewVersion,
    Reference,
    RegisteredModel,
    SavedModel,
    Version,
    VersionList,
    checked_alias,
)
from stoker.server.registry.registry import Registry
from stoker.server.routes.replies import reply, reply_many
from stoker.server.store.store import Store


@dataclass(frozen=True, slots=True)
class ModelRoutes:
    """What the routes of models need. Copies are made in the request, which waits for them."""

    store: Store
    registry: Registry
    now: Callable[[], float]

    def router(self) -> APIRouter:
        router = APIRouter(tags=["models"])
        add = router.add_api_route
        add("/jobs/{job}/models", self.get_saved, methods=["GET"], response_model=list[SavedModel])
        add("/models", self.list_models, methods=["GET"], response_model=ModelList)
        add("/models", self.create_model, methods=["POST"], response_model=RegisteredModel, status_code=201)
        add("/models/{model}", self.get_model, methods=["GET"], response_model=RegisteredModel)
        add("/models/{model}", self.change_model, methods=["PATCH"], response_model=RegisteredModel)
        add("/models/{model}", self.delete_model, methods=["DELETE"], status_code=204)
        add("/models/{model}/aliases/{alias}", self.put_alias, methods=["PUT"], response_model=Version)
        add("/models/{model}/aliases/{alias}", self.delete_alias, methods=["DELETE"], status_code=204)
        versions = "/models/{model}/versions"
        add(versions, self.list_versions, methods=["GET"], response_model=VersionList)
        add(versions, self.create_version, methods=["POST"], response_model=Version, status_code=201)
        add(f"{versions}/{{version}}", self.get_version, methods=["GET"], response_model=Version)
        add(f"{versions}/{{version}}", self.delete_version, methods=["DELETE"], status_code=204)
        add(f"{versions}/{{version}}:setDefault", self.set_default, methods=["POST"], response_model=Version)
        return router

    def get_saved(self, job: str) -> Response:
        """The models that its runs said they saved, oldest first."""
        return reply_many(self.store.models.saved_models(job))

    def list_models(self) -> Response:
        """All models, by name."""
        return reply(ModelList(models=self.store.models.models()))

    def create_model(self, new: NewModel) -> Response:
        """A name to keep versions under."""
        return reply(self.store.models.add_model(new, now=self.now()), status=201)

    def get_model(self, model: str) -> Response:
        """A model: its default version and aliases."""
        return reply(self.store.models.model(model))

    def change_model(self, model: str, changes: ModelChanges) -> Response:
        """Replace the description, the labels, or both."""
        NewModel.parse({"name": model, "labels": changes.labels or {}}, source="The change")  # the rules of a new one
        return reply(self.store.models.change_model(model, description=changes.description, labels=changes.labels))

    def delete_model(self, model: str) -> Response:
        """Only one without versions."""
        self.store.models.remove_model(model)
        return Response(status_code=204)

    def list_versions(self, model: str) -> Response:
        """A model's versions, newest first."""
        return reply(VersionList(versions=self.store.models.versions(model)))

    def create_version(self, model: str, new: NewVersion) -> Response:
        """Copy a model from a place or from what a job left, and keep it. The first version is the default."""
        return reply(self.registry.create_version(model, new), status=201)

    def get_version(self, model: str, version: str) -> Response:
        """A version by its name, its number, or `@alias` (`@default` is one)."""
        return reply(self.store.models.version(Reference.of(model, version)))

    def delete_version(self, model: str, version: str) -> Response:
        """With its files. The default one goes only when it is the last."""
        self.registry.remove_version(Reference.of(model, version))
        return Response(status_code=204)

    def set_default(self, model: str, version: str) -> Response:
        """What is meant when no version is named."""
        return reply(self.store.models.set_default(Reference.of(model, version)))

    def put_alias(self, model: str, alias: str, target: AliasTarget) -> Response:
        """Let an alias name this version from now on."""
        if alias == DEFAULT:
            raise UsageError(f"{DEFAULT!r} is no alias to set. POST …/versions/VERSION:setDefault changes the default.")
        which = Reference.of(model, target.version)
        return reply(self.store.models.set_alias(model, checked_alias(alias), which))

    def delete_alias(self, model: str, alias: str) -> Response:
        """Forget this word for a version; the version stays."""
        self.store.models.remove_alias(model, alias)
        return Response(status_code=204)
