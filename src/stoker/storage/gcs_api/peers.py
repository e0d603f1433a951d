"""Let in only processes of the same user: a port on loopback is open to everybody on the machine."""

import os
import socket

_TABLE = "/proc/net/tcp"


def is_same_user(connection: socket.socket) -> bool:
    """By the kernel's table of sockets, which tells whose the other end is. True where there is no such table."""
    try:
        mine, theirs = connection.getsockname(), connection.getpeername()
        owner = _owner(_as_in_table(theirs), _as_in_table(mine))
    except OSError:
        return not os.path.exists(_TABLE)  # the other end may be gone already: then nobody waits for an answer
    return owner == os.getuid()


def can_tell() -> bool:
    """Whether the table shows sockets of this kind here; in some sandboxes it is empty."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        with socket.create_connection(server.getsockname()) as client:
            accepted, _ = server.accept()
            with accepted:
                try:
                    return _owner(_as_in_table(client.getsockname()), _as_in_table(server.getsockname())) is not None
                except OSError:
                    return False


def _owner(local: str, remote: str) -> int | None:
    """The user of the socket with these two addresses; the line is `n: LOCAL REMOTE state … uid …`."""
    wanted = f": {local} {remote} "
    with open(_TABLE) as table:
        for line in table:
            if wanted in line:
                return int(line.split()[7])
    return None


def _as_in_table(address: tuple[str, int]) -> str:
    """The address in the machine's byte order, in hexadecimal."""
    number = int.from_bytes(socket.inet_aton(address[0]), "little")
    return f"{number:08X}:{address[1]:04X}"
