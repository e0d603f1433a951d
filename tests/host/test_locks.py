"""Locks between processes."""

import os
import threading
from pathlib import Path

from stoker.host.locks import locked, try_lock


def test_lock_is_one_holders_at_a_time(tmp_path: Path) -> None:
    first = try_lock(tmp_path / "lock")
    assert first is not None

    assert try_lock(tmp_path / "lock") is None
    os.close(first)
    second = try_lock(tmp_path / "lock")

    assert second is not None
    os.close(second)


def test_who_waits_for_a_lock_is_asked_to_say_so_and_gets_it(tmp_path: Path) -> None:
    held = try_lock(tmp_path / "lock")
    assert held is not None
    waits, has = threading.Event(), threading.Event()

    def wait() -> None:
        with locked(tmp_path / "lock", on_wait=waits.set):
            has.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert waits.wait(60)
    assert not has.is_set()
    os.close(held)
    thread.join(60)

    assert has.is_set()
    with locked(tmp_path / "lock", on_wait=lambda: (_ for _ in ()).throw(AssertionError("nobody has it"))):
        pass
