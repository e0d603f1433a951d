"""The gateway's port. Light: a supervisor opens it, and most never start what is behind it."""

import socket


def listen(port: int = 0) -> socket.socket:
    """A socket on loopback, on a free port if none is given."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(512)  # clients open dozens of connections at once
    except OSError:
        listening.close()
        raise
    return listening


def url_of(listening: socket.socket) -> str:
    return f"http://127.0.0.1:{listening.getsockname()[1]}"
