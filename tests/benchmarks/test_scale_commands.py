"""Commands that the scale benchmark times, in this tree and in another commit."""

from pathlib import Path

import pytest

from benchmarks.scale import beside
from benchmarks.scale.beside import timed
from benchmarks.scale.command import YARDSTICK, Command, Least, Timing
from benchmarks.scale.commands import commands
from benchmarks.scale.report import COMMAND_HEADINGS, closing, command_cells, markdown


def test_commands_have_names_of_their_own_and_files_of_their_own(tmp_path: Path) -> None:
    every = commands(tmp_path)
    names = [each.name for each in every]
    assert len({*names}) == len(names)
    assert names[0] == YARDSTICK
    for each in every:
        for arguments in (each.asked, *each.before):
            for argument in arguments:
                argument.format(folder="", **dict.fromkeys(each.problems, ""))


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
