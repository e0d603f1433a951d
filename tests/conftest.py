"""What must be so before any test, or anything a test imports, is loaded; and is put back after each."""

import os
import signal
from collections.abc import Iterator

import pytest

# gcsfs reads this one when it is imported, and any test of any folder may be the first to do so.
# With its default it asks Google by gRPC about each bucket, and waits a minute for the answer.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
# `nohup make test &` has these ignored, and so would everything have that a test starts. A handler that does nothing
# ignores them here too, but is not inherited: children begin with the defaults, as from a terminal.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)
_HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """A context handles SIGTERM where nobody else does: a handler left by one test would change the next."""
    yield
    for number, handler in _HANDLERS.items():
        signal.signal(number, handler)
