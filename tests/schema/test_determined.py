"""Determined's experiment files, of both dialects, become jobs with a search; bad ones are refused whole."""

from typing import Any

import pytest
import yaml

from stoker.compat.dialects import determined
from stoker.errors import ConfigError
from stoker.origin import Platform, TrainerSettings
from stoker.schema.job import JobSpec
from stoker.schema.search import Asha, AsyncHalving, Grid, Random, SearchSpec, Single
from stoker.search.preview import preview_search
from stoker.search.searcher import build_searcher
from stoker.submission.reading import Reading

SEED_GRID = """
entrypoint_script: python3 train.py
hyperparameters:
    global_batch_size:
        type: categorical
        vals: [16, 32, 64]
    learning_rate: 0.01
searcher:
    name: "grid"
    max_length:
        epochs: 20
"""

OLD_ADAPTIVE = """
name: mnist_adaptive
description: an example of the older dialect
labels: [vision, team-a]
data: {url: "https://example.com/mnist.tar.gz"}
hyperparameters:
  global_batch_size: {type: const, val: 64}
  learning_rate: {type: log, base: 10.0, minval: -4.0, maxval: 0.0}
  n_filters1: {type: int, minval: 8, maxval: 64}
  dropout1: {type: double, minval: 0.2, maxval: 0.8}
  optimizer: {type: categorical, vals: [adam, sgd]}
  nested: {depth: {type: int, minval: 1, maxval: 3}, width: 7}
searcher:
  name: adaptive_asha
  metric: validation_loss
  smaller_is_better: true
  max_trials: 16
  max_length: {batches: 937}
  stop_once: true
min_validation_period: {epochs: 1}
min_checkpoint_period: {batches: 0}
scheduling_unit: 50
optimizations: {aggregation_frequency: 4, average_aggregated_gradients: false, mixed_precision: O1}
entrypoint: model_def:MNistTrial
reproducibility: {experiment_seed: 7}
max_restarts: 2
resources: {slots_per_trial: 2, max_slots: 8, priority: 10, resource_pool: gpus, shm_size: 4G}
checkpoint_storage: {type: s3, bucket: b, secret_key: hidden, save_trial_best: 3}
environment:
  image: {cpu: a, cuda: b}
  environment_variables: {cpu: [A=1, B=x=y], cuda: [A=2]}
  registry_auth: {username: u, password: hidden}
bind_mounts: [{host_path: /data, container_path: /data}]
perform_initial_validation: true
"""

NEW = """
name: "core api, 0.38"
entrypoint: [python3, -m, determined.launch.torch_distributed, --, python3, train.py, --epochs, 3]
hyperparameters:
  lr: {type: log, base: 2, minval: -3, maxval: 1, count: 5}
searcher:
  name: adaptive_asha
  metric: accuracy
  smaller_is_better: false
  time_metric: epochs
  max_time: 1000
  max_trials: 64
  mode: conservative
  max_concurrent_trials: 8
  source_checkpoint_uuid: abc-def
preemption_timeout: 60
"""


def _read(text: str) -> Reading:
    return determined.read(yaml.safe_load(text), source="exp.yaml")


def _spec(text: str) -> JobSpec:
    return JobSpec.parse({"name": "given", **_read(text).values}, source="exp.yaml")


def _search(text: str) -> SearchSpec:
    search = _spec(text).search
    assert search is not None
    return search


def _problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        _read(text)
    return list(caught.value.problems)


def test_seed_grid_is_three_trials_of_twenty_epochs() -> None:
    spec = _spec(SEED_GRID)
    search = _search(SEED_GRID)
    searcher = build_searcher(search)
    asked = [searcher.ask() for _ in range(4)]

    assert spec.command == ("sh", "-c", "python3 train.py")
    assert spec.origin is not None
    assert spec.origin.trainer == TrainerSettings(max_length={"epochs": 20})
    assert isinstance(search.sampler, Grid)
    assert [s.hparams for s in asked if s is not None] == [
        {"global_batch_size": size, "learning_rate": 0.01} for size in (64, 32, 16)
    ]
    assert asked[3] is None


def test_job_that_searches_nothing_is_a_plain_command() -> None:
    text = """
    entrypoint_script: python3 batch_inference.py
    hyperparameters: {a: 1, b: {c: [2]}}
    data: {trial_id: 777, batch_size: 64}
    resources: {slots: 8}
    """
    spec = _spec(text)

    assert spec.search is None
    assert spec.hparams == {"a": 1, "b": {"c": [2]}}
    assert spec.data["trial_id"] == 777
    assert (spec.resources.slots, spec.resources.slot_is_gpu, spec.resources.slots_in_all) == (8, True, 8)
    assert spec.restarts.max_restarts == 0


def test_slots_of_a_plain_entrypoint_are_all_its_one_process_has() -> None:
    resources = _spec("entrypoint: python3 train.py\nresources: {slots_per_trial: 4}").resources

    assert (resources.slots, resources.cpus, resources.slot_is_gpu, resources.slots_in_all) == (1, 4.0, True, 4)
    assert not _spec("entrypoint: python3 train.py\nresources: {slots_per_trial: 0}").resources.slot_is_gpu


def test_single_node_is_kept_and_no_longer_ignored() -> None:
    text = "entrypoint: python3 train.py\nresources: {slots_per_trial: 2, is_single_node: true}"

    assert _spec(text).resources.single_node
    assert not _spec("entrypoint: python3 train.py\nresources: {slots_per_trial: 2}").resources.single_node


def test_older_dialect_is_read_whole() -> None:
    reading = _read(OLD_ADAPTIVE)
    spec = _spec(OLD_ADAPTIVE)
    search = _search(OLD_ADAPTIVE)

    assert (spec.name, spec.pool, spec.seed, search.seed) == ("mnist_adaptive", "gpus", 7, 7)
    assert (spec.resources.slots, search.max_slots, spec.restarts.max_restarts) == (2, 8, 2)
    assert spec.labels == {"vision": "", "team-a": ""}
    assert spec.data["url"] == "https://example.com/mnist.tar.gz"
    assert spec.environment.variables == {"A": "2", "B": "x=y"}
    assert search.stopping == Asha(max_time=937, time_metric="batches")
    assert (search.metric, search.goal, search.group) == ("validation_loss", "minimize", "validation")
    assert (search.max_trials, search.max_concurrent_trials) == (16, 16)
    assert preview_search(search).ends == {58: 9, 234: 5, 937: 2}
    assert sorted(search.space) == sorted(yaml.safe_load(OLD_ADAPTIVE)["hyperparameters"])
    assert (search.space["learning_rate"].min, search.space["learning_rate"].max) == (1e-4, 1.0)
    assert reading.ignored == (
        "resources.shm_size",
        "environment.image",
        "environment.registry_auth",
        "optimizations.mixed_precision",
        "searcher.stop_once",
        "checkpoint_storage.type",
    )


def test_trainer_gets_its_settings_and_user_code_the_file_without_its_secrets() -> None:
    spec = _spec(OLD_ADAPTIVE)
    origin = spec.origin

    assert origin is not None
    assert origin.platform is Platform.DETERMINED
    assert origin.trainer.given() == {
        "max_length": {"batches": 937},
        "validation_period": {"epochs": 1},
        "reporting_period": {"batches": 50},
        "step_zero_validation": True,
        "aggregation_frequency": 4,
        "average_aggregated_gradients": False,
    }
    assert origin.document["checkpoint_storage"]["save_trial_best"] == 3
    assert origin.document["entrypoint"] == "model_def:MNistTrial"
    assert origin.document["searcher"]["max_length"] == {"batches": 937}
    assert "hidden" not in repr(spec)
    assert "data" not in origin.document


def test_users_data_are_the_users_alone() -> None:
    assert _spec("entrypoint: x\ndata: {stoker: 1, url: u}").data == {"stoker": 1, "url": "u"}


def test_legacy_trial_class_is_run_by_the_compatibility_layer() -> None:
    spec = _spec(OLD_ADAPTIVE)

    assert spec.command == ("python", "-m", "stoker.compat.determined", "--trial", "model_def:MNistTrial")
    assert any("model_def:MNistTrial names a trial class" in note for note in _read(OLD_ADAPTIVE).notes)


def test_newer_dialect_is_read_whole() -> None:
    spec = _spec(NEW)
    search = _search(NEW)

    assert spec.name == "core_api_0_38"
    assert spec.command == ("python3", "train.py", "--epochs", "3")
    assert spec.limits.grace_s == 60
    assert spec.restarts.max_restarts == 5
    assert search.stopping == Asha(max_time=1000, time_metric="epochs", mode="conservative")
    assert (search.goal, search.max_concurrent_trials) == ("maximize", 8)
    assert search.warm_start is not None
    assert search.warm_start.checkpoint == "abc-def"
    assert (search.space["lr"].min, search.space["lr"].max, search.space["lr"].base) == (0.125, 2.0, 2.0)
    assert _read(NEW).notes == ("the job is called core_api_0_38: 'core api, 0.38' is not a word",)


@pytest.mark.parametrize(
    ("entrypoint", "command"),
    [
        ("python3 train.py", ["sh", "-c", "python3 train.py"]),
        ("[python3, train.py, --n, 3]", ["python3", "train.py", "--n", "3"]),
        ("python3 -m determined.launch.torch_distributed python3 t.py -x", ["sh", "-c", "python3 t.py -x"]),
        ("python3 -m determined.launch.torch_distributed --standalone -- python3 t.py", ["sh", "-c", "python3 t.py"]),
        ("[python, -m, determined.launch.torch_distributed, python3, t.py]", ["python3", "t.py"]),
        (
            "cd sub && python3 -m determined.launch.torch_distributed python3 t.py",
            ["sh", "-c", "cd sub && python3 t.py"],
        ),
        (
            "python3 -m determined.launch.torch_distributed --trial model_def:Trial",
            ["sh", "-c", "python3 -m determined.launch.torch_distributed --trial model_def:Trial"],
        ),
    ],
)
def test_entrypoint_becomes_a_command(entrypoint: str, command: list[str]) -> None:
    assert _read(f"entrypoint: {entrypoint}\nsearcher: {{name: single, metric: loss}}").values["command"] == command


@pytest.mark.parametrize(
    ("searcher", "sampler", "stopping"),
    [
        ("{name: single, metric: loss}", Single(), None),
        ("{name: random, metric: loss, max_trials: 4, max_length: {epochs: 3}}", Random(), None),
        ("{name: grid, metric: loss, max_concurrent_trials: 0}", Grid(), None),
        (
            "{name: async_halving, metric: l, num_rungs: 3, max_trials: 9, time_metric: e, max_time: 81, divisor: 3}",
            Random(),
            AsyncHalving(num_rungs=3, max_time=81, time_metric="e", divisor=3),
        ),
        (
            "{name: async_halving, metric: l, num_rungs: 2, max_trials: 9, max_length: {epochs: 12}}",
            Random(),
            AsyncHalving(num_rungs=2, max_time=12, time_metric="epochs"),
        ),
        (
            "{name: adaptive_asha, metric: l, max_trials: 9, max_length: 50, bracket_rungs: [2, 1]}",
            Random(),
            Asha(max_time=50, bracket_rungs=(2, 1)),
        ),
        (
            "{name: adaptive_asha, metric: l, max_trials: 9, max_length: {records: 6400}}",
            Random(),
            Asha(max_time=100, time_metric="batches"),
        ),
    ],
)
def test_searcher_becomes_a_sampler_and_a_rule(searcher: str, sampler: Any, stopping: Any) -> None:
    search = _search(f"entrypoint: x\nhyperparameters: {{global_batch_size: 64}}\nsearcher: {searcher}")

    assert search.sampler == sampler
    if stopping is not None:
        assert search.stopping == stopping


def test_priorities_keep_their_order() -> None:
    def priority(theirs: int) -> int:
        return int(_read(f"entrypoint: x\nresources: {{priority: {theirs}}}").values["priority"])

    ours = [priority(theirs) for theirs in range(1, 100)]
    assert ours == sorted(ours, reverse=True)
    assert len(set(ours)) == 99
    assert (ours[0], ours[98]) == (1000, 0)
    assert _read("entrypoint: x").values["priority"] == priority(42)


def test_everything_wrong_is_named_at_once_with_its_path() -> None:
    problems = _problems(
        """
        name: x
        entrypoint: python3 t.py
        labels: {a: b}
        hyperparameters:
          ok: {type: log, base: 10, minval: -3, maxval: 0, count: 2}
          range: {type: int, minval: 3, maxval: 3, count: 2}
          uncounted: {type: int, minval: 1, maxval: 3}
          empty: {type: categorical, vals: []}
          odd: {type: uniform, minval: 0, maxval: 1}
          flat: {type: log, base: 1, minval: 0, maxval: 1, count: 2}
          extra: {type: double, minval: 0, maxval: 1, count: 2, step: 3}
          ours: {type: double, min: 0, max: 1, count: 2}
          net: {deep: {type: double, minval: 0, count: 1}}
        searcher: {name: grid, max_length: {batches: 1, epochs: 2}, max_trial: 3}
        resources: {priority: 0, slots_per_trial: -1, gpu: 1}
        max_restarts: -1
        checkpoint_storage: {type: ftp}
        environment: {environment_variables: [GOOD=1, BAD]}
        optimizations: {aggregation_frequency: 0}
        bind_mount: []
        """
    )

    assert [problem.split(":")[0] for problem in problems] == [
        "labels",
        "searcher.max_length",
        "searcher.max_trial",
        "hyperparameters.range.maxval",
        "hyperparameters.empty.vals",
        "hyperparameters.odd.type",
        "hyperparameters.flat.base",
        "hyperparameters.extra.step",
        "hyperparameters.ours.minval",
        "hyperparameters.ours.maxval",
        "hyperparameters.ours.min",
        "hyperparameters.ours.max",
        "hyperparameters.net.deep.maxval",
        "resources.slots_per_trial",
        "resources.priority",
        "resources.gpu",
        "max_restarts",
        "checkpoint_storage",
        "optimizations.aggregation_frequency",
        "environment.environment_variables.1",
        "bind_mount",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("searcher: {name: single}", "(top): say what to run"),
        ("entrypoint: x\nentrypoint_script: y", "(top): say what to run"),
        ("entrypoint: x\nsearcher: {metric: loss}", "searcher: must be the name of a searcher, or a map with `name`"),
        (
            "entrypoint: x\nsearcher: {name: hyperband}",
            "searcher: no such searcher: hyperband. There are",
        ),
        ("entrypoint: x\nsearcher: {name: custom}", "searcher: the 'custom' searcher was removed from Determined"),
        ("entrypoint: x\nsearcher: {name: random, metric: a}", "searcher.max_trials: is required"),
        (
            "entrypoint: x\nsearcher: {name: adaptive_asha, metric: a, max_trials: 3, time_metric: e}",
            "searcher.max_time: is required (or, in the older dialect, max_length)",
        ),
        (
            "entrypoint: x\nsearcher: {name: adaptive_asha, metric: a, max_trials: 3, max_time: 9}",
            "searcher.max_time: needs time_metric: what is it the time of?",
        ),
        (
            "entrypoint: x\nsearcher: {name: adaptive_asha, max_trials: 3, time_metric: e, max_time: 9}",
            "searcher.metric: is required",
        ),
        (
            "entrypoint: x\nsearcher: {name: single, source_trial_id: 3, source_checkpoint_uuid: a}",
            "searcher.source_checkpoint_uuid: give source_trial_id or source_checkpoint_uuid",
        ),
        (
            "entrypoint: x\nsearcher: {name: adaptive_asha, metric: a, max_trials: 3, max_length: {records: 9}}",
            "searcher.max_length.records: records become batches by hyperparameters.global_batch_size",
        ),
        (
            "entrypoint: x\nsearcher: {name: grid}\nhyperparameters: {n: {type: double, minval: 0, maxval: 1}}",
            "hyperparameters.n.count: a grid needs to know how many points to try",
        ),
        (
            "entrypoint: x\nhyperparameters: {n: {type: double, minval: 0, maxval: 1}}",
            "hyperparameters.n: varies, but there is no `searcher` to vary it",
        ),
        (
            "entrypoint: x\nsearcher: {name: single}\nhyperparameters: {a-b: 1, a_b: 2}",
            "hyperparameters.a_b: clashes with a-b",
        ),
        (
            "entrypoint: x\nsearcher: {name: single}\nresources: {slots_per_trial: 4, max_slots: 2}",
            "resources.max_slots: is less than one trial needs, which is 4 (got 2)",
        ),
        ("entrypoint: x\nmin_validation_period: {hours: 3}", "min_validation_period.hours: no such field"),
        ("entrypoint: x\ncheckpoint_storage: {type: gcs}", "checkpoint_storage.bucket: is required"),
    ],
)
def test_mistake_is_refused_in_words(text: str, problem: str) -> None:
    problems = _problems(text)

    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_dialect_is_known_by_its_own_fields() -> None:
    assert determined.is_dialect({"entrypoint": "x"})
    assert determined.is_dialect({"name": "x", "searcher": {}})
    assert not determined.is_dialect({"name": "x", "module": "trainer.task", "resources": {"slots": 1}})
    assert not determined.is_dialect({"trainingInput": {}})


def test_names_and_labels_of_free_text_become_words() -> None:
    reading = _read(
        'name: "3D unet: run #7"\nlabels: ["Team A", "7", ok]\nentrypoint: x\nresources: {slots_per_trial: 0}'
    )

    assert reading.values["name"] == "experiment_3D_unet_run_7"
    assert reading.values["labels"] == {"team-a": "", "ok": ""}
    assert reading.notes == (
        "the job is called experiment_3D_unet_run_7: '3D unet: run #7' is not a word",
        "label 'Team A' is kept as 'team-a'",
        "no label '7'",
        "slots_per_trial is 0: each trial gets one process and one CPU",
    )


def test_hyperparameters_in_the_job_may_not_be_fixed_twice() -> None:
    values = {**_read(SEED_GRID).values, "name": "x", "hparams": {"learning_rate": 1}}

    with pytest.raises(ConfigError, match=r"search.space.learning_rate: clashes with hparams, which fixes its value"):
        JobSpec.parse(values, source="exp.yaml")


FIRST_DIALECT = """
description: of 2020
data:
labels:
hyperparameters: {global_batch_size: 64, lr: {type: double, minval: 0.1, maxval: 1.0}, nothing: }
searcher: {name: SEARCHER, metric: loss, max_steps: 9}
batches_per_step: 20
min_validation_period: 3
min_checkpoint_period: 5
entrypoint: model_def:MNistTrial
"""


def test_steps_are_batches_and_empty_fields_absent() -> None:
    values = determined.read(yaml.safe_load(FIRST_DIALECT.replace("SEARCHER", "single")), source="f").values
    trainer = values["origin"]["trainer"]
    assert trainer["max_length"] == {"batches": 180}
    assert trainer["validation_period"] == {"batches": 60}
    assert trainer["checkpoint_period"] == {"batches": 100}
    assert trainer["reporting_period"] == {"batches": 20}
    assert values["labels"] == {}
    assert values["search"]["space"]["nothing"]["value"] is None


def test_searchers_that_are_gone_run_as_their_successors() -> None:
    text = FIRST_DIALECT.replace("SEARCHER", "adaptive_simple, max_trials: 16, mode: aggressive")
    reading = determined.read(yaml.safe_load(text), source="f")
    assert reading.values["search"]["max_trials"] == 16
    assert reading.values["search"]["stopping"]["max_time"] == 180
    assert any("run as adaptive_asha" in note for note in reading.notes)
    text = FIRST_DIALECT.replace("SEARCHER", "adaptive, mode: aggressive, max_rungs: 3, step_budget: 45")
    # 16 trials of 3 rungs cost 1 + 2 * 3/4 of a 16th each: 2.5 full lengths; the budget is 5 of them.
    assert determined.read(yaml.safe_load(text), source="f").values["search"]["max_trials"] == 32
    text = FIRST_DIALECT.replace("SEARCHER", "sync_halving, num_rungs: 3, step_budget: 45, train_stragglers: true")
    assert determined.read(yaml.safe_load(text), source="f").values["search"]["stopping"]["name"] == "async_halving"
