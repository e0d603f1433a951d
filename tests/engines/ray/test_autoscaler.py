"""What is told of an autoscaler, from what it says of itself."""

import json

import pytest

from stoker.engines.ray import autoscaler
from stoker.engines.ray.autoscaler import Autoscaler

# As Ray 2.60 writes it, a node of one type being asked for, another coming up, and one that could not be had.
FIRST = {
    "autoscaler_report": {
        "active_nodes": {},
        "pending_nodes": [["10.0.0.7", "gpu", "setting-up"]],
        "pending_launches": {"plain": 2},
        "failed_nodes": [],
        "node_availability_summary": {
            "node_availabilities": {
                "gpu": {"node_type": "gpu", "is_available": True, "unavailable_node_information": None},
                "huge": {
                    "node_type": "huge",
                    "is_available": False,
                    "last_checked_timestamp": 1794839661,
                    "unavailable_node_information": {"category": "Quota", "description": "There is\nno quota left."},
                },
            }
        },
    },
    "load_metrics_report": {},
}


def word(report: object, monkeypatch: pytest.MonkeyPatch, *, group: str = "g") -> str:
    kept = None if report is None else json.dumps(report).encode()
    monkeypatch.setattr(autoscaler, "_ask", lambda: autoscaler._ask_first(kept))
    return Autoscaler().word(group)


def test_first_autoscaler_says_what_it_starts_and_what_it_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert word(FIRST, monkeypatch) == "; the cluster is starting nodes: 1 gpu, 2 plain"
    failed = {"autoscaler_report": {**FIRST["autoscaler_report"], "pending_nodes": [], "pending_launches": {}}}
    assert word(failed, monkeypatch) == "; the cluster could not start a node: huge: There is no quota left."


@pytest.mark.parametrize("report", [None, {}, {"autoscaler_report": None}])
def test_cluster_without_an_autoscaler_has_nothing_to_say(report: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert word(report, monkeypatch) == ""


def test_run_waits_without_the_autoscalers_word_where_it_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise AttributeError("another Ray")

    monkeypatch.setattr(autoscaler, "_ask", fail)

    assert Autoscaler().word("g") == ""
