"""The line that says how far something long is, and how long it still takes."""

import io
import itertools
import re
from threading import Event
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.cli import progress
from nest.cli.time_left import TimeLeft, at_most, rounded
from nest.instance import SearchProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    shown = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=shown))
    monkeypatch.setenv("COLUMNS", "40")
    ticks = itertools.count()
    monkeypatch.setattr("nest.cli.progress.time.monotonic", lambda: float(next(ticks)))
    return shown


@given(st.floats(0.001, 1000), st.floats(2, 1e4))
def test_what_goes_at_an_even_pace_is_told_exactly(pace: float, goal: float) -> None:
    left, told = TimeLeft(), None
    for second in range(12):
        told = left.tell(float(second), pace * second, goal + pace * 20)
        assert second >= 3 or told is None
    expected = (goal + pace * 20) / pace - 11
    assert told == (pytest.approx(expected) if expected <= 11 * 20 else None)


def test_nothing_is_told_where_the_pace_changes_or_little_is_done() -> None:
    doubling, tiny = TimeLeft(), TimeLeft()
    for second in range(20):
        assert doubling.tell(float(second), 2.0**second, 2.0**30) is None
        assert tiny.tell(float(second), second * 1e-6, 1.0) is None


def test_an_estimate_does_not_jump_and_counts_down() -> None:
    left, before = TimeLeft(), None
    for second in range(60):
        told = left.tell(float(second), second + (second % 2) * 0.2, 100.0)
        if second > 15 and before is not None and told is not None:
            assert abs(told - (before - 1)) < 2
        before = told
    assert before == pytest.approx(41, abs=2)


def test_a_new_beginning_forgets_the_old() -> None:
    left = TimeLeft()
    for second in range(10):
        left.tell(float(second), float(second), 20.0)
    assert left.tell(10.0, 0.0, 20.0) is None


def test_times_are_as_rough_as_they_are_known() -> None:
    told = [rounded(seconds) for seconds in (0.2, 8.4, 12.0, 57.0, 58.0, 300.0, 7200.0)]
    assert told == [f"about {each} left" for each in ("1 s", "8 s", "10 s", "55 s", "1 min", "5 min", "2.0 h")]
    assert (at_most(42.0), at_most(None), rounded(None)) == ("40 s left at most", None, None)


def test_a_line_waits_two_seconds_fits_the_terminal_and_goes_away(terminal: Terminal) -> None:
    line = progress.step_line()
    line.tell("solving with twice the bandwidth", 0, 12)
    assert terminal.getvalue() == ""
    for done in range(1, 12):
        line.tell("solving with twice the bandwidth of every level", done, 12)
    line.clear()
    told = terminal.getvalue().split("\r")
    assert max(map(len, told)) < 40
    assert [told[-2].strip(), told[-1]] == ["", ""] or told[-1].strip() == ""
    assert any(part.startswith("solving with twice") for part in told)


def test_the_walk_says_its_step_and_the_time_left(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    line = progress.step_line()
    for done in range(10):
        line.tell("solving", done, 12)
    assert "solving: 9 of 12, about 3 s left" in terminal.getvalue()
    line.tell("solving", 9, None)
    assert "solving: 9 done" in terminal.getvalue()
    for done in range(10):
        line.tell("searching", done, 12, at_most=True)
    assert "searching: 9 of at most 12, 3 s left at most" in terminal.getvalue()
    line.clear()


def test_the_search_says_what_it_knows_first(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    line = progress.ProgressLine("searching")
    for share in range(10):
        line(SearchProgress(None, 0.0, 0.0, float(share), share / 10))
    assert "pricing candidates: 90%, about 1 s left" in terminal.getvalue()
    for bound in range(10):
        line(SearchProgress(20.0, float(bound + 1), 0.5, 10.0))
    assert "50.0% explored, 10 s left at most, best 20 s" in terminal.getvalue()
    line.clear()


def test_the_proof_after_a_search_is_called_so_and_timed_by_itself(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    line = progress.ProgressLine("searching")
    for _ in range(5):
        line(SearchProgress(20.0, 10.0, 0.5, 10.0))
    assert "searching for 5 s" in terminal.getvalue()
    for _ in range(5):
        line(SearchProgress(20.0, 10.0, 0.5, 10.0, proving=True))
    assert "proving for 5 s" in terminal.getvalue()
    line.clear()


def test_what_tells_nothing_itself_says_how_long_it_takes(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    shown = Event()
    monkeypatch.setattr(terminal, "flush", shown.set)
    with progress.waiting("reading fabric.xml"):
        assert shown.wait(60)
    assert re.search(r"reading fabric.xml: \d+ s so far", terminal.getvalue())
    assert terminal.getvalue().split("\r")[-1].strip() == ""


def test_nothing_is_shown_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=shown))
    ticks = itertools.count()
    monkeypatch.setattr("nest.cli.progress.time.monotonic", lambda: float(next(ticks)))
    line = progress.step_line()
    for done in range(10):
        line.tell("solving", done, 12)
    line.clear()
    assert shown.getvalue() == ""
    with progress.progress_line("searching") as told:
        assert told is None
