"""Talk to a stoker server from Python.

from stoker.client import connect

client = connect()
job = client.submit(spec)
for block in client.follow(job.id):
    print(block.text)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.client.client import Client, connect
    from stoker.client.connection import Connection

__all__ = ["Client", "Connection", "connect"]


def __getattr__(name: str) -> Any:
    """The client's models are pydantic's and take long to import, so only those who use them wait for them."""
    if name == "Connection":
        from stoker.client.connection import Connection  # noqa: PLC0415

        return Connection
    if name in __all__:
        from stoker.client import client  # noqa: PLC0415

        return getattr(client, name)
    raise AttributeError(f"module 'stoker.client' has no attribute {name!r}")
