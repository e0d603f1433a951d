"""The port of the registry's part of a store; `tests/contracts/models.py` is the contract as tests."""

from typing import Protocol

from stoker.schema.job import Labels
from stoker.schema.registry import NewModel, Reference, RegisteredModel, SavedModel, Version


class ModelStore(Protocol):
    """Registered models. As with all of the store, every method is one transaction, and may be called from any thread.

    1. A model with versions has a default one: the first, until another is made it.
    2. The default cannot be removed while there are others.
    3. Numbers and names are of one version alone; numbers are never used again.
    4. What does not exist is NotFoundError; what the rules forbid is ConflictError; nothing changes then.
    """

    def add_model(self, new: NewModel, *, now: float) -> RegisteredModel: ...

    def model(self, name: str) -> RegisteredModel: ...

    def models(self) -> tuple[RegisteredModel, ...]:
        """By name."""
        ...

    def change_model(
        self, name: str, *, description: str | None = None, labels: Labels | None = None
    ) -> RegisteredModel: ...

    def remove_model(self, name: str) -> None:
        """ConflictError while it has versions."""
        ...

    def next_number(self, model: str) -> int:
        """A number for a version to come, taken for it alone."""
        ...

    def add_version(self, version: Version, *, alias: str | None = None) -> Version:
        """Make it visible. Its `is_default` and `aliases` are the store's to say."""
        ...

    def version(self, which: Reference) -> Version: ...

    def versions(self, model: str) -> tuple[Version, ...]:
        """Newest first."""
        ...

    def set_default(self, which: Reference) -> Version: ...

    def set_alias(self, model: str, alias: str, which: Reference) -> Version:
        """The alias moves to this version."""
        ...

    def remove_alias(self, model: str, alias: str) -> None: ...

    def check_removable(self, which: Reference) -> Version:
        """The version, if `remove_version` would remove it."""
        ...

    def remove_version(self, which: Reference) -> Version:
        """With its aliases."""
        ...

    def saved_models(self, job: str) -> tuple[SavedModel, ...]:
        """What a job's runs said they saved, oldest first."""
        ...
