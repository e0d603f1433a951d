"""What must be so before any test, or anything a test imports, is loaded; and is put back after each."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.leftovers import Leftovers

# gcsfs reads this one when it is imported, and any test of any folder may be the first to do so.
# With its default it asks Google by gRPC about each bucket, and waits a minute for the answer.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
# `nohup make test &` has these ignored, and so would everything have that a test starts. A handler that does nothing
# ignores them here too, but is not inherited: children begin with the defaults, as from a terminal.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)
_HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


# Each worker begins with some of these, longest first, so that none of them is all that is left to wait for.
LONGEST = (
    "tests/e2e/test_ray.py",
    "tests/ui/",
    "tests/e2e/test_packages.py",
    "tests/e2e/test_walk.py",
    "tests/templates/test_tutorials.py",
    "tests/e2e/test_search.py",
    "tests/e2e/test_kills.py",
    "tests/test_docs.py",
    "tests/e2e/test_job_run.py",
    "tests/recipes/tabular/test_template.py",
    "tests/compat/test_images.py",
    "tests/e2e/test_models.py",
)
LEFTOVERS = pytest.StashKey[Leftovers]()
LEFT = pytest.StashKey[list[str]]()
WITH_ALL = bool(os.environ.get("STOKER_TEST_ALL"))


def pytest_configure(config: pytest.Config) -> None:
    """In the process that gives the tests out, if there is one: its workers inherit what is set here."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    config.stash[LEFTOVERS] = Leftovers()
    config.stash[LEFTOVERS].begin()
    if getattr(config.option, "numprocesses", None):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same as a Ctrl-C: everything is ended


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    leftovers = session.config.stash.get(LEFTOVERS, None)
    if leftovers is not None and (left := leftovers.end()):
        session.config.stash[LEFT] = left
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left := config.stash.get(LEFT, None):
        terminalreporter.section("left behind by the tests, and removed now")
        for line in left:
            terminalreporter.line(line)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") and not WITH_ALL:
            item.add_marker(pytest.mark.skip(reason="takes long: `make test-all`"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = [item for hand in _deal(items, workers) for item in hand]


def _deal(items: list[pytest.Item], hands: int) -> list[list[pytest.Item]]:
    """As many runs of tests as there are workers: `--dist worksteal` gives each the next run of the same length."""
    dealt: list[list[pytest.Item]] = [[] for _ in range(hands)]
    for number, beginning in enumerate(LONGEST):
        dealt[number % hands] += [item for item in items if item.nodeid.startswith(beginning)]
    rest = [item for item in items if not item.nodeid.startswith(LONGEST)]
    size = -(-len(items) // hands)
    for hand in dealt:
        room = max(size - len(hand), 0)
        hand += rest[:room]
        del rest[:room]
    dealt[-1] += rest
    return dealt


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """A context handles SIGTERM where nobody else does: a handler left by one test would change the next."""
    yield
    for number, handler in _HANDLERS.items():
        signal.signal(number, handler)
