"""Replicas on the nodes of a cluster."""

import pytest

from stoker.errors import StokerError, UsageError
from stoker.schema.job import Resources, Share
from stoker.schema.pool import Pool, RayPool
from stoker.server.scheduling.placement import replicas_for


def a_cluster(*cpus: float, placement: str = "pack", **fields: object) -> Pool:
    nodes = tuple(Share(cpus=amount) for amount in cpus)
    ray = RayPool.model_validate({"address": "head:6379", "placement": placement})
    values = {"name": "cluster", "engine": "ray", "capacity": Share(cpus=sum(cpus)), "nodes": nodes, "ray": ray}
    return Pool.model_validate({**values, **fields})


def nodes_of(pool: Pool, **resources: object) -> list[int]:
    return [replica.node for replica in replicas_for(Resources.model_validate(resources), pool)]


def test_replicas_fill_the_largest_nodes_first() -> None:
    assert nodes_of(a_cluster(2, 4), slots=6) == [0, 0, 0, 0, 1, 1]


def test_replicas_are_spread_where_the_pool_says_so() -> None:
    assert nodes_of(a_cluster(2, 2, 2, placement="spread"), slots=2) == [0, 1]


def test_tier_with_parameter_servers_becomes_processes_on_several_nodes() -> None:
    nodes = nodes_of(a_cluster(4, 4), tier="STANDARD_1")

    assert len(nodes) == 8
    assert set(nodes) == {0, 1}
    assert nodes[0] == 0, "the chief is on the first"


def test_process_that_no_node_can_hold_is_refused_in_words() -> None:
    with pytest.raises(UsageError, match=r"no node of pool 'cluster'.*2 nodes have 2 CPUs"):
        nodes_of(a_cluster(2, 2), slots=1, cpus=3)


def test_job_that_wants_one_node_is_on_one_or_is_refused_in_words() -> None:
    pool = a_cluster(2, 4, placement="spread")

    assert nodes_of(pool, slots=4, single_node=True) == [0, 0, 0, 0]
    with pytest.raises(UsageError, match=r"5 CPUs.* on one node .*2 nodes have 2 CPUs"):
        nodes_of(pool, slots=5, single_node=True)
    assert set(nodes_of(pool, slots=5)) == {0, 1}


def test_cluster_that_grows_takes_what_it_cannot_hold_yet_up_to_its_limit() -> None:
    pool = a_cluster(2, autoscale=True, max_nodes=3)

    assert nodes_of(pool, slots=6) == [0, 0, 1, 1, 2, 2]
    with pytest.raises(UsageError, match="can never hold it"):
        nodes_of(pool, slots=7)


def test_cluster_that_grows_does_not_grow_beyond_what_may_be_taken_of_it() -> None:
    pool = a_cluster(2, autoscale=True, max_nodes=3, most=Share(cpus=4))

    with pytest.raises(UsageError, match="can never hold it"):
        nodes_of(pool, slots=5)


def test_cluster_that_has_no_node_yet_takes_any_job_and_leaves_it_to_the_cluster_what_goes_together() -> None:
    pool = a_cluster(autoscale=True, max_nodes=2)

    assert nodes_of(pool, slots=3) == [0, 1, 2]
    assert nodes_of(pool, slots=3, single_node=True) == [0, 0, 0]
    roles = {"chief": {"machine": "n1-standard-8"}}
    assert replicas_for(Resources.model_validate({"roles": roles}), pool)[0].cpus == 8
    with pytest.raises(UsageError, match="can never hold it"):
        nodes_of(pool.with_(most=Share(cpus=2)), slots=3)


def test_cluster_whose_owner_says_how_large_its_nodes_are_is_taken_at_the_word() -> None:
    pool = a_cluster(1, autoscale=True, max_nodes=2, largest_node=Share(cpus=4, gpus=1))

    assert nodes_of(pool, slots=1, gpus=1) == [0]
    assert nodes_of(pool, slots=4, single_node=True) == [0, 0, 0, 0]
    roles = {"chief": {"machine": "n1-standard-8"}}
    assert replicas_for(Resources.model_validate({"roles": roles}), pool)[0].cpus == 4
    hint = r"may grow to 8 CPUs, 2 GPUs and can never hold it\..* largest_node = .* under \[pools\.cluster\]"
    with pytest.raises(UsageError, match=hint):
        nodes_of(pool, slots=1, gpus=3)
    assert nodes_of(pool.with_(max_nodes=1), slots=2, cpus=2) == [0, 0], "the small one may go"
    with pytest.raises(UsageError, match=r"has or can start have 4 CPUs, 1 GPU\..* largest_node = "):
        nodes_of(pool, slots=1, cpus=5)


def test_kind_of_gpu_becomes_the_resource_that_the_owner_named_or_is_refused() -> None:
    pool = a_cluster(2, nodes=[Share(cpus=2, gpus=2)], capacity=Share(cpus=2, gpus=2), gpu_types={"T4": "marked:T4"})

    def resource(kind: str | None, pool: Pool) -> str | None:
        roles = {"chief": {"gpus": 1, "gpu_type": kind}}
        return replicas_for(Resources.model_validate({"roles": roles}), pool)[0].gpu_resource

    assert (resource("T4", pool), resource(None, pool)) == ("marked:T4", None)
    with pytest.raises(UsageError, match=r"has no GPUs called K80\. It has: T4\."):
        resource("K80", pool)
    assert resource("K80", pool.with_(gpu_types={})) is None, "an owner who says nothing has any"


def test_cluster_that_does_not_answer_says_so() -> None:
    with pytest.raises(StokerError, match="Nothing answers"):
        nodes_of(a_cluster(2, trouble="Nothing answers at head:6379"), slots=1)
