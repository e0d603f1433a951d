"""What runs ask of a Ray cluster, without one."""

import pytest

from stoker.engines.ray import amounts


@pytest.mark.parametrize(
    ("parts", "together"),
    [
        ([], 0),
        ([0.5], 0.5),
        ([0.3, 0.3, 0.3], 0.9),
        ([0.5, 0.5], 1),
        ([0.5, 0.5, 0.5], 2),  # Ray gives no one and a half
        ([0.6, 0.6, 0.6, 0.6], 4),  # no process has its part on two
        ([1, 0.5], 2),
        ([2, 1], 3),
    ],
)
def test_parts_of_gpus_are_put_together_as_ray_gives_them(parts: list[float], together: float) -> None:
    assert amounts.gpus(parts) == together


def test_bundle_has_what_its_replicas_need_and_what_the_pool_takes_of_each_node() -> None:
    replicas = [{"cpus": 1.5, "memory_gb": 0.5, "gpus": 0.5, "gpu_resource": "accelerator_type:T4"}, {}]

    assert amounts.bundle(replicas, {"scratch": 1.0}) == {
        "CPU": 2.5,
        "GPU": 0.5,
        "memory": 5e8,
        "scratch": 1.0,
        "accelerator_type:T4": 0.001,
    }
    assert amounts.bundle([{"cpus": 0}], {}) == {"CPU": 0.001}, "Ray refuses a bundle of nothing"


def test_shortage_is_told_in_words() -> None:
    told = amounts.shortage([{"CPU": 2, "memory": 5e8}] * 2, free={"CPU": 3.0}, has={"CPU": 6.0, "memory": 2e9})

    assert told == (
        "waits for 4 CPU, 1 GB of memory on 2 nodes; free on the cluster: 3 CPU of 6, 0 GB of memory of 2 GB"
    )
