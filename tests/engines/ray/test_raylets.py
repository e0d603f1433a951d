"""Looking at raylets by their ports, with real sockets."""

import socket

import pytest

from stoker.engines.ray.raylets import LostNodeError, Raylets


def listener(port: int = 0) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def places(port: int) -> list[dict[str, str]]:
    return [{"id": "a", "host": "node-a", "address": "127.0.0.1", "port": str(port)}]


def test_raylet_that_refuses_twice_in_a_row_is_lost() -> None:
    with listener() as raylet:
        port = raylet.getsockname()[1]
        raylets = Raylets(places(port))
        raylets.check()
    raylets.check()

    with pytest.raises(LostNodeError, match=rf"Node node-a was lost: no raylet at 127.0.0.1:{port}\.") as lost:
        raylets.check()
    assert lost.value.nodes == {0}


def test_raylet_that_is_back_is_not_lost() -> None:
    with listener() as raylet:
        port = raylet.getsockname()[1]
    raylets = Raylets(places(port))
    raylets.check()
    with listener(port):
        raylets.check()
    raylets.check()


def test_runs_started_before_ports_were_noted_are_left_to_ray() -> None:
    raylets = Raylets([{"id": "a", "host": "node-a", "address": "127.0.0.1"}])
    raylets.check()
    raylets.check()
