"""Commands that the scale benchmark times, in this tree and in another commit."""

from pathlib import Path

import pytest
from attrs import evolve

from benchmarks.scale import beside
from benchmarks.scale.beside import all_timed, timed
from benchmarks.scale.command import YARDSTICK, Command, Least, Timing
from benchmarks.scale.commands import README, commands, smaller
from benchmarks.scale.problems import heterogeneous
from benchmarks.scale.processes import REPOSITORY
from benchmarks.scale.report import COMMAND_HEADINGS, closing, command_cells, markdown
from nest.io import read_mapping


def test_the_limits_are_those_agreed_on(shared: Path) -> None:
    limits = {each.name: each.limit for each in commands(shared)}
    assert limits["explain"] == limits["report"] == "8 s, 1000 MB"
    assert limits["solve-small"] == "0.5 s"
    assert limits["solve-deepseek-v3"] == limits["solve-layers-million"] == "5 s"
    assert limits["solve-blocks-million"] == "8 s, 600 MB"
    assert (limits["solve-bert32-64"], limits["solve-bert32-512"]) == ("3 s", "60 s")
    assert limits["proof-llama-70b"] == "10 s, 500 MB"
    assert limits["proof-deepseek-v3"] == "120 s"


def test_commands_have_names_of_their_own_and_files_of_their_own(tmp_path: Path) -> None:
    every = commands(tmp_path)
    names = [each.name for each in every]
    assert len({*names}) == len(names)
    assert names[0] == YARDSTICK
    for each in every:
        for arguments in (each.asked, *each.before):
            for argument in arguments:
                argument.format(folder="", **dict.fromkeys(each.problems, ""))


def test_the_changed_example_differs_in_one_number() -> None:
    original, changed = read_mapping(README).mapping, dict(smaller())
    assert original["cluster"]["memory"] == "80 GB"
    assert changed == {**original, "model": changed["model"], "cluster": {**original["cluster"], "memory": "72 GB"}}
    assert Path(changed["model"]).exists()


def tree(folder: Path, text: str) -> Path:
    """A tree whose `nest` is a few lines."""
    (folder / "nest").mkdir(parents=True)
    (folder / "nest" / "__init__.py").touch()
    (folder / "nest" / "__main__.py").write_text(text)
    return folder


def asked(**options: object) -> Command:
    return Command("c", "something", ("solve", "{problem}"), {"problem": dict}, **options)  # type: ignore[arg-type]


def test_a_command_is_timed_in_both_trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "REPOSITORY", tree(tmp_path / "here", "print('fine')"))
    other = tree(tmp_path / "there", "print('fine')")
    timing = timed(asked(wanted="fine", cpu=1e9, memory=1e12), tmp_path, 2, 600, other, 0.5)
    assert timing.there is not None
    assert timing.scaled == timing.here.cpu / 2
    assert timing.failures == ()


@pytest.mark.longer
def test_seconds_are_scaled_by_what_the_other_tree_takes_for_its_own_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as a number in the problem says: a second in the other tree's own, for both trees none in this one's."""
    text = "import sys, time\nend = float(open(sys.argv[2]).read())\nwhile time.process_time() < end: pass"
    for name, seconds in (("here", 0), ("there", 1)):
        tree(tmp_path / name, text)
        (tmp_path / name / "problem.json").write_text(str(seconds))
    monkeypatch.setattr(beside, "REPOSITORY", tmp_path / "here")
    command = evolve(asked(), problems={"problem": tmp_path / "here" / "problem.json"})
    yardstick = timed(command, tmp_path, 1, 600, tmp_path / "there", None)
    assert yardstick.there is not None
    assert yardstick.there.cpu < 1
    assert 1 < yardstick.factor <= 2


def test_rows_have_the_figures_of_this_tree_over_those_of_the_other() -> None:
    here, there = Least(3.0, 2.0, 4e8), Least(4.0, 8.0, 2e8)
    timing = Timing(asked(cpu=1, memory=3e8), here, there, 0.5, "")
    row = dict(zip(COMMAND_HEADINGS, command_cells(timing), strict=True))
    assert (row["CPU s"], row["scaled"], row["clock s"], row["memory MB"]) == ("3.00", "1.50", "2.00", "400")
    assert row["CPU, clock, memory"] == "0.75, 0.25, 2.00"
    assert timing.failures == ("CPU 1.5 s, scaled, is above 1 s", "400 MB is above 300 MB")
    assert " | ".join(command_cells(timing)) in markdown({"date": "2026-01-01"}, [], [], [timing])
    assert closing([], [timing])[-1] == "0 of 1 pass"


@pytest.mark.parametrize(
    ("text", "wrong", "timeout"),
    [
        ("print('other')", "it does not say fine", 600),
        ("raise SystemExit('no plan')", "exit code 1: no plan", 600),
        ("while True: pass", "stopped after 0 s", 0.3),
    ],
)
def test_what_goes_wrong_is_told(
    text: str, wrong: str, timeout: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "REPOSITORY", tree(tmp_path / "tree", text))
    timing = timed(asked(wanted="fine"), tmp_path, 1, timeout, None, 1.0)
    assert timing.wrong == wrong
    assert timing.failures == (wrong,)


def test_what_fails_in_the_other_tree_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "REPOSITORY", tree(tmp_path / "here", "print('fine')"))
    other = tree(tmp_path / "there", "raise SystemExit('no such option')")
    timing = timed(asked(wanted="fine"), tmp_path, 1, 600, other, 1.0)
    assert (timing.wrong, timing.there) == ("", None)
    assert command_cells(timing)[COMMAND_HEADINGS.index("CPU, clock, memory")] == "-"


def test_answers_are_kept_where_a_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEST_CACHE", "elsewhere")
    text = "import os; print(f\"<{os.environ.get('NEST_CACHE', '')[-11:]}>\")"
    monkeypatch.setattr(beside, "REPOSITORY", tree(tmp_path / "tree", text))
    (tmp_path / "1").mkdir()
    assert timed(asked(wanted="<>"), tmp_path / "1", 1, 600, None, 1.0).wrong == ""
    (tmp_path / "2").mkdir()
    assert timed(asked(wanted="c-here/kept>", keeps=True), tmp_path / "2", 1, 600, None, 1.0).wrong == ""


def test_each_run_meets_what_was_kept_before_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
import os, pathlib, sys
kept = pathlib.Path(os.environ["NEST_CACHE"])
kept.mkdir(exist_ok=True)
print("fine" if len(list(kept.iterdir())) == ("again" in sys.argv) else "kept")
(kept / str(os.getpid())).touch()
"""
    monkeypatch.setattr(beside, "REPOSITORY", tree(tmp_path / "tree", text))
    again = Command("c", "something", ("again",), {}, (("before",),), wanted="fine", keeps=True)
    assert timed(again, tmp_path, 3, 600, None, 1.0).wrong == ""


@pytest.mark.slow
def test_a_command_is_timed_here_and_in_a_commit() -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("this is no checkout, so that there is no commit to time")
    told: list[Timing] = []
    small = {"problem": lambda: heterogeneous(3, (4, 2), 8)}
    solve = Command(YARDSTICK, "three layers", ("solve", "{problem}", "--json"), small, wanted='"status": "optimal"')
    assert all_timed([solve], 1, 600, "HEAD", told.append) == told
    assert told[0].wrong == ""
    assert told[0].there is not None
    assert told[0].there.cpu * told[0].factor == pytest.approx(2.0)


def test_a_commit_that_is_none_is_told() -> None:
    with pytest.raises(ValueError, match="no-such-commit"):
        all_timed([], 1, 60, "no-such-commit", print)
