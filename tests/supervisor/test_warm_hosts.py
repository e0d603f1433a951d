"""Zygotes of hosts that share a home."""

import socket
import sys
from pathlib import Path

import pytest

from stoker.supervisor.warm.launcher import _ZygoteRequest


def test_each_host_has_a_zygote_of_its_own_where_they_share_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the second would wait for minutes for a socket on which nobody of its own kernel listens."""
    orders = []
    for host in ("node-1", "node-2"):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        orders.append(_ZygoteRequest(tmp_path, Path(sys.executable), {}, []))

    held = orders[0].lock()

    assert held is not None
    assert orders[1].lock() is not None, "the other host is not kept from starting one"
