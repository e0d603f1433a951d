"""What every store must do for the registry; a class for each kind of store to inherit from."""

from datetime import UTC, datetime

import pytest

from stoker.errors import ConflictError, NotFoundError
from stoker.schema.bundle import ModelCard
from stoker.schema.event import EventBatch, ModelSaved
from stoker.schema.job import JobSpec, Share
from stoker.schema.registry import NewModel, Reference, Version
from stoker.server.store.store import Store
from stoker.server.store.values import NewJob

CARD = ModelCard(name="taxi", framework="sklearn", created=datetime(2026, 1, 1, tzinfo=UTC), metrics={"rmse": 2.5})


def with_model(store: Store, *versions: str, name: str = "taxi") -> None:
    store.models.add_model(NewModel(name=name), now=1.0)
    for version in versions:
        add(store, version, name=name)


def add(store: Store, version: str, *, name: str = "taxi", alias: str | None = None) -> Version:
    number = store.models.next_number(name)
    new = Version(model=name, name=version, number=number, url=f"/m/{version}", source="/s", created=2.0, card=CARD)
    return store.models.add_version(new, alias=alias)


class ModelStoreContract:
    """Needs a fixture `store`."""

    def test_a_model_is_kept_with_its_words(self, store: Store) -> None:
        made = store.models.add_model(NewModel(name="taxi", description="fares", labels={"team": "a"}), now=5.0)

        assert store.models.models() == (made,)
        assert (made.description, made.labels, made.created, made.default_version) == (
            "fares",
            {"team": "a"},
            5.0,
            None,
        )
        assert store.models.change_model("taxi", labels={}).labels == {}
        with pytest.raises(ConflictError, match="already"):
            store.models.add_model(NewModel(name="taxi"), now=6.0)

    def test_the_first_version_is_the_default_until_another_is_made_it(self, store: Store) -> None:
        with_model(store, "v1", "v2")

        assert store.models.version(Reference.parse("taxi")).name == "v1"
        assert store.models.set_default(Reference.parse("taxi:2")).is_default
        assert store.models.version(Reference.parse("taxi")).name == "v2"
        assert [(v.name, v.is_default) for v in store.models.versions("taxi")] == [("v2", True), ("v1", False)]

    def test_every_way_of_naming_a_version_leads_to_it(self, store: Store) -> None:
        with_model(store, "v1", "second")
        store.models.set_alias("taxi", "production", Reference.parse("taxi/versions/second"))

        for text in ("taxi:2", "taxi:second", "taxi@production", "taxi/versions/second", "models/taxi/versions/second"):
            found = store.models.version(Reference.parse(text))
            assert (found.name, found.number, found.aliases, found.card) == ("second", 2, ("production",), CARD)

    def test_an_alias_moves_and_goes(self, store: Store) -> None:
        with_model(store, "v1")
        add(store, "v2", alias="production")

        store.models.set_alias("taxi", "production", Reference.parse("taxi:v1"))
        assert store.models.model("taxi").aliases == {"production": "v1"}

        store.models.remove_alias("taxi", "production")
        with pytest.raises(NotFoundError, match="no alias 'production'"):
            store.models.version(Reference.parse("taxi@production"))

    def test_the_default_goes_only_as_the_last(self, store: Store) -> None:
        with_model(store, "v1")
        add(store, "v2", alias="canary")

        with pytest.raises(ConflictError, match="is the default"):
            store.models.remove_version(Reference.parse("taxi:v1"))
        with pytest.raises(ConflictError, match="has versions"):
            store.models.remove_model("taxi")
        store.models.remove_version(Reference.parse("taxi@canary"))
        store.models.remove_version(Reference.parse("taxi:v1"))
        assert store.models.model("taxi").default_version is None
        store.models.remove_model("taxi")
        assert store.models.models() == ()

    def test_a_number_is_never_given_twice(self, store: Store) -> None:
        with_model(store, "v1", "v2")
        store.models.remove_version(Reference.parse("taxi:2"))

        assert add(store, "v2").number == 3

    def test_a_name_is_of_one_version(self, store: Store) -> None:
        with_model(store, "v1")

        with pytest.raises(ConflictError, match="has a version 'v1' already"):
            add(store, "v1")

    def test_what_is_not_there_is_said_to_be_missing(self, store: Store) -> None:
        with_model(store)

        for text, message in [("taxi", "no version yet"), ("taxi:7", "no version 7"), ("other", "No model 'other'")]:
            with pytest.raises(NotFoundError, match=message):
                store.models.version(Reference.parse(text))

    def test_what_runs_say_they_saved_is_kept(self, store: Store) -> None:
        spec = JobSpec(name="job", module="trainer.task")
        store.add_job(NewJob(spec=spec, owner="ada", pool="local", need=Share()), now=1.0)
        event = ModelSaved(
            seq=1, time=3.0, name="best\0", path="/runs/m", framework="sklearn", metrics={"a": 1.0}, size_bytes=7
        )

        store.append_events("job.1.1", EventBatch(events=(event,)), now=4.0)
        store.append_events("job.1.1", EventBatch(events=(event,)), now=4.0)

        (saved,) = store.models.saved_models("job")
        assert (saved.run, saved.trial, saved.path, saved.metrics) == ("job.1.1", 1, "/runs/m", {"a": 1.0})
