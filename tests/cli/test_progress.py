"""The line that says how far something long is, and how long it still takes."""

import io
import itertools
import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from nest.cli import progress
from nest.instance import SearchProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What was shown, without what moves the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", self.getvalue()).replace("\r", "\n").split("\n")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal of 100 columns, and a clock that goes on by a second whenever somebody looks at it."""
    shown, ticks = Terminal(), itertools.count()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=shown))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    yield shown
    progress.clear_line()


def test_times_are_as_rough_as_they_are_known() -> None:
    told = [progress.rounded(seconds) for seconds in (0.2, 8.4, 12.0, 57.0, 58.0, 300.0, 7200.0)]
    assert told == ["1 s", "8 s", "10 s", "55 s", "1 min", "5 min", "2.0 h"]


def test_a_line_waits_two_seconds_fits_the_terminal_and_goes_away(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    line = progress.StepLine()
    line.tell("solving with twice the bandwidth", 0, 12)
    assert terminal.getvalue() == ""
    for done in range(1, 12):
        line.tell("solving with twice the bandwidth of every level", done, 12)
    line.clear()
    assert any(part.startswith("solving with twice") for part in terminal.lines)
    assert max(map(len, terminal.lines)) <= 40
    assert terminal.getvalue().endswith("\x1b[1A\x1b[2K")  # One line up, and erased.


def test_the_walk_says_its_step_and_the_time_left(terminal: Terminal) -> None:
    line = progress.StepLine()
    for done in range(10):
        line.tell("solving", done, 12)
    line.clear()
    assert re.search(r"solving: 9 of 12, about \d+ s left, \d+ s so far", terminal.getvalue())
    for done in range(10):
        line.tell("searching", done, 12, at_most=True)
    line.clear()
    assert re.search(r"searching: 9 of at most 12, at most \d+ s left", terminal.getvalue())
    line.tell("solving", 9, None)
    line.clear()
    assert "solving: 9 done" in terminal.getvalue()


def test_the_search_says_what_it_knows_first(terminal: Terminal) -> None:
    line = progress.ProgressLine("searching")
    for share in range(10):
        line(SearchProgress(None, 0.0, 0.0, float(share), share / 10))
    line.clear()
    assert re.search(r"pricing candidates: 90 %, about \d+ s left", terminal.getvalue())
    for bound in range(10):
        line(SearchProgress(20.0, float(bound + 1), 0.5, 10.0))
    line.clear()
    assert re.search(r"searching: 50\.0 % explored, at most \d+ s left, best 20 s, gap 100\.0 %", terminal.getvalue())


def test_the_proof_after_a_search_is_called_so_and_timed_by_itself(terminal: Terminal) -> None:
    line = progress.ProgressLine("searching")
    for _ in range(40):
        line(SearchProgress(20.0, 10.0, 0.5, 10.0))
    line(SearchProgress(20.0, 10.0, 0.5, 10.0, proving=True))
    line.clear()
    so_far = [int(seconds) for seconds in re.findall(r"proving: .*?(\d+) s so far", terminal.getvalue())]
    assert so_far
    assert max(so_far) < 20


def test_two_lines_are_one(terminal: Terminal) -> None:
    search, steps = progress.ProgressLine("searching"), progress.StepLine()
    for _ in range(5):
        search(SearchProgress(20.0, 10.0, 0.5, 10.0))
        steps.tell("pricing another plan", 1, 2)
    progress.clear_line()
    assert "pricing another plan: 1 of 2" in terminal.getvalue()


def test_nothing_is_shown_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, ticks = io.StringIO(), itertools.count()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=shown))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    line = progress.StepLine()
    for done in range(10):
        line.tell("solving", done, 12)
    line.clear()
    assert shown.getvalue() == ""
    with progress.progress_line("searching") as told:
        assert told is None
