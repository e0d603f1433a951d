"""The registry behind its routes: what is taken of a job, what is refused, and what a crash leaves."""

import json
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from stoker.client.client import Client
from stoker.errors import ConfigError, ConflictError, NotFoundError, StokerError, UsageError
from stoker.host.home import Home
from stoker.predict import bundle
from stoker.predict.loading import load
from stoker.schema.event import Checkpoint, EventBatch, Metric, ModelSaved
from stoker.schema.job import JobSpec, Share
from stoker.schema.registry import NewModel, NewVersion, Reference
from stoker.search.base import Asked, Suggestion
from stoker.server.registry.registry import Registry
from stoker.server.store.store import Store
from stoker.server.store.values import NewJob, SearchBatch, SearchEntry
from stoker.storage import Storage
from tests.contracts.models import CARD
from tests.server.asking import API, ask
from tests.server.conftest import Served

PREDICTOR = "def predict(instances):\n    return [n + 1 for n in instances]\n"


def a_model(folder: Path, text: str = PREDICTOR) -> Path:
    folder.mkdir(parents=True)
    (folder / "predictor.py").write_text(text)
    return folder


def a_job(store: Store, name: str = "job", **fields: Any) -> str:
    spec = JobSpec(name=name, module="trainer.task", **fields)
    store.add_job(NewJob(spec=spec, owner="ada", pool="local", need=Share()), now=1.0)
    return f"{name}.1.1"


def register(client: Client, name: str | None = "v1", **source: Any) -> Any:
    if "taxi" not in [model.name for model in client.models()]:
        client.create_model(NewModel(name="taxi"))
    return client.create_version("taxi", NewVersion(name=name, **source))


@pytest.mark.slow
class TestRoutes:
    """By the client, on a real server."""

    def test_a_version_is_a_copy_that_predicts(self, client: Client, home: Home, tmp_path: Path) -> None:
        source = a_model(tmp_path / "m")

        version = register(client, origin=str(source), alias="production", metadata={"by": "ada"}, labels={"a": "b"})
        (source / "predictor.py").write_text("raise SystemExit")

        assert Path(version.url) == home.root / "models" / "taxi" / "v1"
        assert (version.is_default, version.aliases, version.labels) == (True, ("production",), {"a": "b"})
        assert (version.card.framework, version.card.metadata) == ("custom", {"by": "ada"})
        assert client.version("taxi@production") == client.version("taxi") == version
        assert load(version.url, trust_pickle=True, home=home).predict([1, 2]) == [2, 3]
        assert list((home.root / "models" / ".drafts").iterdir()) == []

    def test_versions_are_named_by_their_numbers_if_by_nothing_else(self, client: Client, tmp_path: Path) -> None:
        source = str(a_model(tmp_path / "m"))

        names = [register(client, name, origin=source).name for name in ("v2", None, None)]

        assert names == ["v2", "v3", "v4"]  # the first was number 1, and v2 is taken
        with pytest.raises(ConflictError, match="has a version 'v2' already"):
            register(client, "v2", origin=source)

    def test_a_deleted_version_takes_its_files_along(self, client: Client, home: Home, tmp_path: Path) -> None:
        source = str(a_model(tmp_path / "m"))
        first, second = register(client, "v1", origin=source), register(client, "v2", origin=source)

        with pytest.raises(ConflictError, match="is the default"):
            client.delete_version("taxi:v1")
        client.set_default("taxi:2")
        client.delete_version("taxi:v1")

        assert not Path(first.url).exists()
        assert Path(second.url).is_dir()
        assert [version.name for version in client.versions("taxi")] == ["v2"]

    def test_paths_are_those_of_ai_platform(self, served: Served, client: Client, tmp_path: Path) -> None:
        register(client, "v1", origin=str(a_model(tmp_path / "m")))

        assert ask(served, "GET", f"{API}/models").json["models"][0]["default_version"] == "v1"
        assert ask(served, "POST", f"{API}/models/taxi/versions/v1:setDefault").json["is_default"] is True
        assert ask(served, "GET", f"{API}/models/taxi/versions/@default").json["number"] == 1
        assert ask(served, "DELETE", f"{API}/models/taxi").status == 409
        assert ask(served, "DELETE", f"{API}/models/taxi/versions/1").status == 204
        assert ask(served, "DELETE", f"{API}/models/taxi").status == 204

    @pytest.mark.parametrize(
        ("new", "message"),
        [
            ({"name": "1st", "origin": "/m"}, "letters, digits and underscores"),
            ({"name": "v1"}, "give one of them"),
            ({"name": "v1", "origin": "/m", "job": "j"}, "give one of them"),
            ({"name": "v1", "origin": "/m", "trial": 1}, "is a number within a `job`"),
            ({"name": "v1", "origin": "m"}, "must be an absolute path or a URL"),
            ({"name": "v1", "origin": "/m", "alias": "default"}, "not 'default'"),
            ({"name": "v1", "job": "nobody"}, "No job 'nobody'"),
            ({"name": "v1", "origin": "gs://no-such-bucket/m"}, "gs://no-such-bucket/m"),
        ],
    )
    def test_bad_requests_are_refused_and_leave_nothing(
        self, served: Served, client: Client, home: Home, new: dict[str, Any], message: str
    ) -> None:
        client.create_model(NewModel(name="taxi"))

        answer = ask(served, "POST", f"{API}/models/taxi/versions", body=new)

        assert 400 <= answer.status < 500
        assert message in answer.body.decode()
        assert client.versions("taxi") == ()
        assert not (home.root / "models" / "taxi").exists()


@pytest.fixture
def registry(store: Store, home: Home) -> Registry:
    store.models.add_model(NewModel(name="taxi"), now=1.0)
    return Registry(store, home, None, lambda: 5.0)


class TestSources:
    """What is taken of a job."""

    def test_the_model_that_its_code_saved_comes_first(self, registry: Registry, store: Store, home: Home) -> None:
        run = a_job(store, job_dir=str(home.root / "jobdir"), args=("--data", "gs://rides/*.csv"), hparams={"lr": 0.1})
        saved = home.run_dir("job", 1, 1).models / "best"
        bundle.write(saved, CARD.with_(name="best", framework="custom"), lambda into: _fill(into))
        a_model(home.root / "jobdir" / "other")
        event = ModelSaved(seq=1, time=2.0, name="best", path=str(saved), framework="custom", metrics={"rmse": 1.0})
        store.append_events(run, EventBatch(events=(event,)), now=2.0)

        version = registry.create_version("taxi", NewVersion(job="job"))

        origin = version.card.origin
        assert (version.source, version.card.metrics["rmse"]) == (str(saved), 2.5)  # the card's own word wins
        assert (origin.job, origin.trial, origin.run, origin.hparams) == ("job", 1, run, {"lr": 0.1})
        assert origin.data == ("gs://rides/*.csv",)
        assert load(version.url, home=home).predict([1]) == [2]  # a job of this home wrote it: no yes is needed

    def test_a_bare_model_is_found_anywhere_under_the_job_dir(
        self, registry: Registry, store: Store, home: Home, tmp_path: Path
    ) -> None:
        a_job(store, job_dir="gs://models/job")
        storage = Storage(home.root)
        for key in ("logs/events", "export/model.joblib", "export/notes.txt"):
            with storage.open_url(f"gs://models/job/{key}", "wb") as file:
                file.write(b"x")

        version = registry.create_version("taxi", NewVersion(job="job"))

        assert version.source == "gs://models/job/export"
        assert [file.path for file in version.card.files] == ["model.joblib"]
        with storage.open_url("gs://models/job/second/model.bst", "wb") as file:
            file.write(b"x")
        with pytest.raises(ConflictError, match=r"several models under gs://models/job: .*export, .*second"):
            registry.create_version("taxi", NewVersion(job="job"))

    def test_the_best_checkpoint_is_taken_by_the_searched_metric(
        self, registry: Registry, store: Store, tmp_path: Path
    ) -> None:
        search = {"space": {"lr": {"type": "const", "value": 0.1}}, "sampler": "single", "metric": "loss"}
        spec = JobSpec.model_validate({"name": "job", "module": "m", "search": search})
        store.add_job(NewJob(spec=spec, owner="ada", pool="local", need=Share()), now=1.0)
        asked = Asked(suggestion=Suggestion(trial=1, hparams={"lr": 0.1}, seed=0))
        store.record_search("job", SearchBatch(entries=[SearchEntry(asked, hparams={"lr": 0.1})]), now=1.0)
        events: list[Any] = []
        for step, loss in [(1, 0.5), (2, 0.2), (3, 0.9)]:
            path = tmp_path / f"step-{step}"
            path.mkdir()
            (path / "weights").write_text(str(step))
            events.append(Metric(seq=len(events) + 1, time=1.0, step=step, group="validation", values={"loss": loss}))
            events.append(Checkpoint(seq=len(events) + 1, time=1.0, step=step, path=str(path)))
        store.append_events("job.1.1", EventBatch(events=tuple(events)), now=2.0)

        version = registry.create_version("taxi", NewVersion(job="job", trial=1))

        assert (version.card.framework, version.source) == ("checkpoint", str(tmp_path / "step-2"))
        assert version.card.origin.checkpoint == str(tmp_path / "step-2")
        assert (Path(version.url) / "weights").read_text() == "2"
        with pytest.raises(UsageError, match="is a checkpoint.*load_trial_from_checkpoint_path"):
            version.check_predicts()

    def test_a_job_that_left_nothing_says_what_was_looked_for(self, registry: Registry, store: Store) -> None:
        a_job(store)

        with pytest.raises(NotFoundError, match=r"left nothing to register: no model .*, no job-dir, no checkpoint"):
            registry.create_version("taxi", NewVersion(job="job"))


class TestFiles:
    """Whole, or not there."""

    def test_a_tampered_bundle_is_refused_with_the_files_name(self, registry: Registry, tmp_path: Path) -> None:
        source = tmp_path / "m"
        bundle.write(source, CARD.with_(framework="custom"), _fill)
        (source / "predictor.py").write_text("print('other')")

        with pytest.raises(ConfigError, match=r"predictor\.py: changed") as caught:
            registry.create_version("taxi", NewVersion(name="v1", origin=str(source)))

        assert str(source) in str(caught.value)
        assert not (registry.home.root / "models" / "taxi").exists()

    def test_a_copy_that_was_broken_off_is_never_seen(
        self, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = str(a_model(tmp_path / "m"))
        monkeypatch.setattr(registry.store.models, "add_version", _power_cut)
        with pytest.raises(_PowerCut):
            registry.create_version("taxi", NewVersion(name="v1", origin=source))
        (registry.home.root / "models" / ".drafts" / "left").mkdir(parents=True)
        monkeypatch.undo()

        assert registry.store.models.versions("taxi") == ()
        again = Registry(registry.store, registry.home, None, lambda: 6.0)
        version = again.create_version("taxi", NewVersion(name="v1", origin=source))
        assert bundle.read_verified(Path(version.url)) == version.card
        assert list((registry.home.root / "models" / ".drafts").iterdir()) == []

    def test_two_who_make_the_same_version_do_not_mix(
        self, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sources = [
            str(a_model(tmp_path / f"m{n}", f"def predict(i):\n    return [{n} for _ in i]\n")) for n in range(4)
        ]
        made: list[str] = []
        refused: list[StokerError] = []

        def create(origin: str) -> None:
            try:
                made.append(registry.create_version("taxi", NewVersion(name="v1", origin=origin)).source)
            except ConflictError as error:
                refused.append(error)

        threads = [threading.Thread(target=create, args=(source,)) for source in sources]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (len(made), len(refused)) == (1, 3)
        version = registry.store.models.version(Reference.parse("taxi:v1"))
        assert version.source == made[0]
        expected = sources.index(made[0])
        assert load(version.url, trust_pickle=True, home=registry.home).predict([0]) == [expected]

    def test_models_can_be_kept_in_a_bucket(self, store: Store, home: Home, tmp_path: Path) -> None:
        registry = Registry(store, home, "gs://kept/models", lambda: 5.0)
        store.models.add_model(NewModel(name="taxi"), now=1.0)

        version = registry.create_version("taxi", NewVersion(name="v1", origin=str(a_model(tmp_path / "m"))))

        assert version.url == "gs://kept/models/taxi/v1"
        assert load(version.url, trust_pickle=True, home=home).predict([4]) == [5]
        registry.remove_version(Reference.parse("taxi"))
        assert not Storage(home.root).exists("gs://kept/models/taxi/v1")

    def test_the_code_of_a_prediction_routine_comes_along(
        self, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        package = tmp_path / "routine_of_test-0.1" / "routine_of_test"
        package.mkdir(parents=True)
        (package.parent / "setup.py").write_text("from setuptools import setup\nsetup()\n")
        (package / "__init__.py").write_text(
            "from pathlib import Path\n"
            "class Routine:\n"
            "    def __init__(self, add): self.add = add\n"
            "    @classmethod\n"
            "    def from_path(cls, model_dir): return cls(int(Path(model_dir, 'add.txt').read_text()))\n"
            "    def predict(self, instances, **kwargs): return [n + self.add for n in instances]\n"
        )
        archive = tmp_path / "routine_of_test-0.1.tar.gz"
        with tarfile.open(archive, "w:gz") as file:
            file.add(package.parent, arcname=package.parent.name)
        model = tmp_path / "m"
        model.mkdir()
        (model / "add.txt").write_text("7")
        named = {"prediction_class": "routine_of_test.Routine", "package_uris": (str(archive),)}

        version = registry.create_version("taxi", NewVersion(name="v1", origin=str(model), **named))

        with pytest.raises(UsageError, match="--trust"):
            load(version.url, prediction_class=version.prediction_class, home=registry.home)
        routine = load(version.url, prediction_class=version.prediction_class, trust_pickle=True, home=registry.home)
        assert routine.predict([1]) == [8]
        assert bundle.read_verified(Path(version.url)) == version.card  # importing it left nothing behind

    def test_a_folder_of_too_many_files_is_no_model(self, registry: Registry, tmp_path: Path) -> None:
        source = a_model(tmp_path / "m")
        for number in range(1000):
            (source / str(number)).touch()

        with pytest.raises(UsageError, match="1001 files; a model has at most 1000"):
            registry.create_version("taxi", NewVersion(name="v1", origin=str(source)))


def _fill(into: Path) -> None:
    (into / "predictor.py").write_text(PREDICTOR)
    (into / "notes.json").write_text(json.dumps({"made": "by a test"}))


class _PowerCut(BaseException):
    """Nothing catches it, as nothing catches a kill."""


def _power_cut(*_: object, **__: object) -> None:
    raise _PowerCut
