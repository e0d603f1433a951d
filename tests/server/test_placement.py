"""Sizes: what slots, tiers and machine types come to on a pool, and what a pool refuses."""

import pytest

from stoker.errors import UsageError
from stoker.schema.job import Resources, RoleSpec, Share
from stoker.schema.launch import Role
from stoker.schema.pool import Pool
from stoker.server.scheduling.placement import replicas_for


def a_pool(**changes: object) -> Pool:
    return Pool(name="local", capacity=Share(cpus=8, memory_gb=16, gpus=0)).with_(**changes)


def test_one_slot_is_one_chief() -> None:
    (chief,) = replicas_for(Resources(), a_pool())

    assert (chief.name, chief.rank, chief.cpus) == ("chief-0", 0, 1.0)


def test_slots_are_a_chief_and_workers_with_consecutive_ranks() -> None:
    replicas = replicas_for(Resources(slots=3, cpus=2), a_pool())

    assert [(r.name, r.rank, r.cpus) for r in replicas] == [
        ("chief-0", 0, 2.0),
        ("worker-0", 1, 2.0),
        ("worker-1", 2, 2.0),
    ]


def test_parameter_servers_and_evaluators_have_no_rank() -> None:
    replicas = replicas_for(Resources(tier="standard-1"), a_pool())

    assert [r.name for r in replicas if r.rank is None] == ["ps-0", "ps-1", "ps-2"]
    assert [r.rank for r in replicas if r.rank is not None] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("spelling", ["BASIC", "basic", "Basic"])
def test_tiers_are_spelled_as_people_spell_them(spelling: str) -> None:
    assert len(replicas_for(Resources(tier=spelling), a_pool())) == 1


def test_processes_of_a_tier_or_of_several_machines_share_one_machine() -> None:
    two = a_pool(capacity=Share(cpus=2, memory_gb=16, gpus=0))
    machine = RoleSpec(machine="n1-standard-8")
    custom = Resources(roles={Role.CHIEF: machine, Role.WORKER: machine.with_(count=4), Role.PS: RoleSpec(count=0)})

    assert [replica.cpus for replica in replicas_for(Resources(tier="STANDARD_1"), two)] == [0.25] * 8
    assert [replica.cpus for replica in replicas_for(custom, two)] == [0.4] * 5
    with pytest.raises(UsageError, match="needs 4 CPUs"):  # which somebody asked for
        replicas_for(Resources(roles={Role.CHIEF: RoleSpec(cpus=2), Role.WORKER: RoleSpec(cpus=2)}), two)


def test_a_tier_the_pool_can_never_hold_is_refused_with_what_it_has() -> None:
    four = a_pool(capacity=Share(cpus=4, memory_gb=16, gpus=0))
    with pytest.raises(UsageError, match=r"PREMIUM_1 needs 31 CPUs.*'local' has 4 CPUs.*can never hold"):
        replicas_for(Resources(tier="PREMIUM_1"), four)


def test_a_pools_owner_can_change_what_a_tier_means() -> None:
    small = a_pool(tiers={"PREMIUM_1": {Role.CHIEF: RoleSpec(), Role.WORKER: RoleSpec(count=1)}})

    assert len(replicas_for(Resources(tier="PREMIUM_1"), small)) == 2


def test_an_unknown_tier_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="no scale tier BASIC_TPU. It has: BASIC, BASIC_GPU, PREMIUM_1, STANDARD_1"):
        replicas_for(Resources(tier="BASIC_TPU"), a_pool())


def test_a_machine_type_is_a_size_and_shrinks_to_the_pool() -> None:
    roles = {Role.CHIEF: RoleSpec(machine="n1-highmem-16")}

    (chief,) = replicas_for(Resources(roles=roles), a_pool())

    assert chief.cpus == 8


def test_accelerators_a_pool_lacks_are_refused_and_the_way_out_is_named() -> None:
    roles = {Role.CHIEF: RoleSpec(machine="n1-standard-8", gpus=2)}

    with pytest.raises(UsageError, match="2 GPUs.*ignore_accelerators = true"):
        replicas_for(Resources(roles=roles), a_pool())

    (chief,) = replicas_for(Resources(roles=roles), a_pool(ignore_accelerators=True))
    assert chief.gpus == 0


def test_fractions_of_a_gpu_add_up() -> None:
    pool = a_pool(capacity=Share(cpus=8, gpus=1))

    replicas = replicas_for(Resources(slots=10, cpus=0, gpus=0.1), pool)

    assert Share.total(replicas).gpus == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        (Resources(slots=2, slot_is_gpu=True), [1.0, 1.0]),
        (Resources(cpus=4, slot_is_gpu=True), [4.0]),  # one process that has all the slots
        (Resources(slots=2), [0.0, 0.0]),
    ],
)
def test_slots_of_determined_are_gpus_where_there_are_any(resources: Resources, gpus: list[float]) -> None:
    with_gpus = a_pool(capacity=Share(cpus=8, memory_gb=16, gpus=8))

    assert [replica.gpus for replica in replicas_for(resources, with_gpus)] == gpus
    assert {replica.gpus for replica in replicas_for(resources, a_pool())} == {0.0}
    assert {r.gpus for r in replicas_for(resources, with_gpus.with_(ignore_accelerators=True))} == {0.0}
