"""Whether the raylets under a run's nodes are still there."""

import socket


class LostNodeError(Exception):
    """In one line, for a person; `nodes` are the run's own numbers of those that are lost."""

    def __init__(self, message: str, *, nodes: frozenset[int]) -> None:
        super().__init__(message)
        self.nodes = nodes


class Raylets:
    """The raylets under a run's nodes, looked at by their ports: Ray itself takes 15 s to notice one that was killed.

    Only a refused connection counts, twice in a row: then the host is there and the raylet is not. A host that does not
    answer may be cut off for a while, and is left to Ray.
    """

    def __init__(self, places: list[dict[str, str]]) -> None:
        self._places = {number: place for number, place in enumerate(places) if place.get("port")}
        self._refused: set[int] = set()

    def check(self) -> None:
        refused = {number for number, place in self._places.items() if _refuses(place["address"], int(place["port"]))}
        lost = refused & self._refused
        self._refused = refused
        if lost:
            place = self._places[min(lost)]
            raise LostNodeError(
                f"Node {place['host']} was lost: no raylet at {place['address']}:{place['port']}.",
                nodes=frozenset(lost),
            )


def _refuses(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1.0).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass  # no answer is no refusal
    return False
