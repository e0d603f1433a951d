"""What of a cluster is a pool's."""

from stoker.engines.ray.engine import ClusterNode
from stoker.schema.job import Share
from stoker.server.pools import usable


def a_node(name: str, **resources: float) -> ClusterNode:
    return ClusterNode(
        id=name, host=name, address="10.0.0.1", has=Share(cpus=8), free=Share(cpus=8), resources=resources
    )


def test_pool_with_custom_resources_counts_the_nodes_that_have_them() -> None:
    nodes = [a_node("plain"), a_node("small", a100=1), a_node("large", a100=4, nvme=1)]

    def names(**wanted: float) -> list[str]:
        return [node.id for node in usable(nodes, wanted)]

    assert names() == ["plain", "small", "large"]
    assert names(a100=1) == ["small", "large"]
    assert names(a100=2) == ["large"]
    assert names(a100=1, nvme=1) == ["large"]
    assert names(tpu=1) == []
