"""Where the nodes of a run are, by its placement group."""

from typing import Any

import ray
from ray.util import get_placement_group, placement_group_table


def find_group(name: str) -> Any:
    """A placement group that is not removed; None if there is none."""
    try:
        group = get_placement_group(name)
    except ValueError:
        return None
    return None if placement_group_table(group).get("state") == "REMOVED" else group


def places_of(name: str, num_nodes: int) -> list[dict[str, str]]:
    """The Ray node that each node of a run was given."""
    table = placement_group_table(find_group(name))["bundles_to_node_id"]
    nodes = {found["NodeID"]: found for found in ray.nodes()}
    found = [nodes[table[node]] for node in range(num_nodes)]
    return [
        {
            "id": one["NodeID"],
            "host": one["NodeManagerHostname"],
            "address": one["NodeManagerAddress"],
            "port": str(one["NodeManagerPort"]),
        }
        for one in found
    ]
