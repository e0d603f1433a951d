"""Whether the raylets under a run's nodes are still there."""

import socket


class LostNodeError(Exception):
    """In one line, for a person."""


class Raylets:
    """The raylets under a run's nodes, looked at by their ports: Ray itself takes 15 s to notice one that was killed.

    Only a refused connection counts, twice in a row: then the host is there and the raylet is not. A host that does not
    answer may be cut off for a while, and is left to Ray.
    """

    def __init__(self, places: list[dict[str, str]]) -> None:
        self._places = [place for place in places if place.get("port")]
        self._refused: set[str] = set()

    def check(self) -> None:
        refused = {place["id"] for place in self._places if _refuses(place["address"], int(place["port"]))}
        for place in self._places:
            if place["id"] in refused & self._refused:
                raise LostNodeError(f"Node {place['host']} was lost: no raylet at {place['address']}:{place['port']}.")
        self._refused = refused


def _refuses(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1.0).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
