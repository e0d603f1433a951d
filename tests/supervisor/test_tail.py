"""Output files become blocks of whole lines, whatever user code writes."""

from pathlib import Path

import pytest

from stoker.run_dir import RunDir
from stoker.supervisor.spool import Entry, Position
from stoker.supervisor.tails import output as tail_module
from stoker.supervisor.tails.output import OutputTail

REPLICA = "chief-0"


class Output:
    """A stream's file, and a tail on it."""

    def __init__(self, run_dir: RunDir) -> None:
        self.run_dir = run_dir
        self.path = run_dir.output("chief-0", "stdout")
        self.path.parent.mkdir(parents=True)
        self.path.touch()
        self.tail = OutputTail(run_dir, replica=REPLICA, stream="stdout")
        self.entries: list[Entry] = []

    def write(self, data: bytes) -> list[str]:
        """Append, and read what comes of it."""
        with self.path.open("ab") as file:
            file.write(data)
        return self.read()

    def read(self) -> list[str]:
        texts = []
        while True:
            entry = self.tail.read()
            if entry is not None:
                self.entries.append(entry)
                texts.append(entry.event["text"])
            if not self.tail.has_more:
                return texts

    def finish(self) -> str | None:
        entry = self.tail.finish()
        return None if entry is None else str(entry.event["text"])

    def reopen(self, position: Position) -> None:
        self.tail.close()
        self.tail = OutputTail(self.run_dir, replica=REPLICA, stream="stdout", position=position)


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(RunDir(tmp_path))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partial lines are overdue at once."""
    monkeypatch.setattr(tail_module, "PARTIAL_S", 0.0)


def test_lines_read_together_are_one_block(output: Output) -> None:
    assert output.write(b"one\ntwo\nthree\n") == ["one\ntwo\nthree"]
    assert output.entries[0].event["count"] == 3
    assert output.entries[0].position == Position("logs/chief-0.stdout", 14, False)


def test_line_waits_for_its_end(output: Output) -> None:
    assert output.write(b"one\ntw") == ["one"]
    assert output.write(b"o") == []
    assert output.write(b"\n") == ["two"]


def test_empty_lines_are_lines(output: Output) -> None:
    assert output.write(b"\n\na\n\n") == ["\n\na\n"]
    assert output.entries[0].event["count"] == 4


def test_line_without_end_is_given_when_no_more_will_come(output: Output) -> None:
    assert output.write(b"one\nlast words") == ["one"]
    assert output.finish() == "last words"
    assert output.finish() is None


def test_unfinished_line_is_shown_when_it_is_overdue(output: Output, impatient: None) -> None:
    assert output.write(b"Continue? ") == ["Continue? "]
    assert output.write(b"yes\nnext\n") == ["yes\nnext"]


def test_end_of_a_line_that_was_shown_is_no_line(output: Output, impatient: None) -> None:
    assert output.write(b"working...") == ["working..."]
    assert output.write(b"\n") == []
    assert output.write(b"next\n") == ["next"]
    assert output.write(b"working...") == ["working..."]
    assert output.write(b"\n\nafter an empty line\n") == ["\nafter an empty line"]


def test_reading_goes_on_exactly_where_a_dead_supervisor_was(output: Output, impatient: None) -> None:
    output.write(b"one\ntw")
    assert [entry.event["text"] for entry in output.entries] == ["one"]

    output.reopen(output.entries[-1].position)

    assert output.read() == ["tw"], "read again: it was in no event"
    output.reopen(output.entries[-1].position)
    assert output.write(b"\nthree\n") == ["three"], "the end of a line that is in the spool"


def test_line_that_never_ends_is_cut_into_pieces(output: Output) -> None:
    pieces = output.write(b"x" * 1_000_000)
    pieces.append(output.finish() or "")

    assert "".join(pieces) == "x" * 1_000_000
    assert max(map(len, pieces)) <= tail_module.BLOCK_BYTES + tail_module.PARTIAL_BYTES


def test_characters_are_not_torn_when_a_long_line_is_cut(output: Output) -> None:
    text = "é€😀" * 100_000

    pieces = output.write(text.encode())
    pieces.append(output.finish() or "")

    assert "".join(pieces) == text


def test_bytes_that_are_not_utf8_are_replaced(output: Output) -> None:
    assert output.write(b"caf\xe9 \xff\xfe ok\n") == ["caf\ufffd \ufffd\ufffd ok"]


def test_many_lines_are_a_few_blocks(output: Output) -> None:
    lines = [f"line {number}" for number in range(100_000)]

    blocks = output.write("".join(line + "\n" for line in lines).encode())

    assert "\n".join(blocks).split("\n") == lines
    assert sum(entry.event["count"] for entry in output.entries) == len(lines)
    assert len(blocks) < 10


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"10%\r20%\r30%\n", "30%"),
        (b"\r10%\r20%\r30%\n", "30%"),
        (b"10%\r20%\r\n", "20%"),
        (b"a\r\nb\r\n", "a\nb"),
        (b"before\n1\r2\nafter\n", "before\n2\nafter"),
    ],
)
def test_progress_bar_is_its_last_state(output: Output, written: bytes, shown: str) -> None:
    assert output.write(written) == [shown]


def test_progress_bar_is_shown_now_and_then_though_it_is_never_idle(output: Output, impatient: None) -> None:
    assert output.write(b"\r10%\r20%") == ["20%"]
    assert output.write(b"\r30%") == ["30%"]
    assert output.write(b"\r100%\ndone\n") == ["100%\ndone"]


def test_every_byte_is_echoed_as_it_comes(output: Output) -> None:
    seen: list[bytes] = []
    output.tail.echo = seen.append

    output.write(b"a\rb")
    output.write(b"\xff\n")

    assert b"".join(seen) == b"a\rb\xff\n"


def test_levels_are_in_the_event(output: Output) -> None:
    output.write(b"fine\nERROR: not fine\n")

    assert output.entries[0].event["levels"] == {1: "ERROR"}
