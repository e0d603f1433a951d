"""What a cluster's own autoscaler says of a run that waits: the nodes it starts for it, could not start, or never can.

Ray has two autoscalers (KubeRay and `ray up` have the second); each tells it in a place of its own.
"""

import json
import logging
import time
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger(__name__)

_FRESH_S = 1.0  # hundreds of runs may wait, and each of them is asked after
_FIRST_KEY = b"__autoscaling_status"


@dataclass(frozen=True)
class _Said:
    starting: dict[str, int]  # by type of node
    failures: list[str]  # of nodes that it could not start, the newest first
    hopeless: frozenset[str]  # placement groups for which it can start nothing


class Autoscaler:
    """Asked at most once in a while."""

    def __init__(self) -> None:
        self._said = _Said({}, [], frozenset())
        self._asked = 0.0

    def word(self, group: str) -> str:
        """To be added to what a placement group, by its id in hex, waits for; empty if there is nothing to say."""
        if time.monotonic() - self._asked > _FRESH_S:
            self._ask_again()
        said = self._said
        if group in said.hopeless:
            return "; its autoscaler can start no node for it: none of its kinds would do, or it has as many as it may"
        if said.starting:
            kinds = ", ".join(f"{count} {name}" for name, count in sorted(said.starting.items()))
            return f"; the cluster is starting {'a node' if sum(said.starting.values()) == 1 else 'nodes'}: {kinds}"
        return f"; the cluster could not start a node: {said.failures[0]}" if said.failures else ""

    def _ask_again(self) -> None:
        self._asked = time.monotonic()
        try:
            self._said = _ask()
        except Exception:  # noqa: BLE001 -- parts of Ray that other versions may not have; a run waits without them too
            logger.exception("the autoscaler cannot be asked")
            self._said = _Said({}, [], frozenset())


def _ask() -> _Said:
    from ray._private.worker import global_worker  # noqa: PLC0415 -- as above
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply  # noqa: PLC0415

    status = GetClusterStatusReply()
    status.ParseFromString(global_worker.gcs_client.get_cluster_status())
    state = status.autoscaling_state
    if not state.autoscaler_state_version:
        return _ask_first(global_worker.gcs_client.internal_kv_get(_FIRST_KEY, None))
    starting: dict[str, int] = {}
    for request in state.pending_instance_requests:
        starting[request.ray_node_type_name] = starting.get(request.ray_node_type_name, 0) + request.count
    for instance in state.pending_instances:
        starting[instance.ray_node_type_name] = starting.get(instance.ray_node_type_name, 0) + 1
    failed = sorted(state.failed_instance_requests, key=lambda request: request.failed_ts, reverse=True)
    return _Said(
        starting,
        [_one_line(request.ray_node_type_name, request.reason) for request in failed],
        # Their details are ID:STRATEGY|STATE.
        frozenset(request.details.partition(":")[0] for request in state.infeasible_gang_resource_requests),
    )


def _ask_first(kept: bytes | None) -> _Said:
    """Of the first autoscaler, which does not say what it can never start; nothing where there is none."""
    report: dict[str, Any] = (json.loads(kept).get("autoscaler_report") if kept else None) or {}
    starting = {str(name): int(count) for name, count in (report.get("pending_launches") or {}).items()}
    for _, name, _ in report.get("pending_nodes") or ():
        starting[name] = starting.get(name, 0) + 1
    known = ((report.get("node_availability_summary") or {}).get("node_availabilities") or {}).values()
    failed = [found for found in known if found.get("unavailable_node_information")]
    failed.sort(key=lambda found: found.get("last_checked_timestamp", 0.0), reverse=True)
    words = [
        _one_line(found.get("node_type", "a node"), found["unavailable_node_information"].get("description", ""))
        for found in failed
    ]
    return _Said(starting, words, frozenset())


def _one_line(kind: str, reason: str) -> str:
    return f"{kind}: {' '.join(reason.split())[:200]}"
