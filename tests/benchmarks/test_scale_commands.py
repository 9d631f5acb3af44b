"""Commands that the scale benchmark times, in this tree and in another commit."""

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.scale import beside
from benchmarks.scale.beside import all_timed, timed
from benchmarks.scale.command import YARDSTICK, Command, Timing
from benchmarks.scale.commands import README, commands, smaller
from benchmarks.scale.problems import heterogeneous
from benchmarks.scale.processes import REPOSITORY
from benchmarks.scale.report import COMMAND_HEADINGS, closing, command_cells, markdown
from benchmarks.scale.switched_off import SAYS_NOTHING
from nest.io import read_mapping


def test_the_limits_are_those_agreed_on(shared: Path) -> None:
    limits = {each.name: each.limit for each in commands(shared)}
    assert limits["explain"] == limits["report"] == "8 s, 1000 MB"
    assert limits["solve-small"] == limits["solve-changed"] == "0.5 s"
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


def test_what_is_switched_off_is_where_it_is_looked_for() -> None:
    for place, attribute, _ in SAYS_NOTHING.values():
        module, _, owner = place.partition(":")
        held = import_module(module)
        assert callable(getattr(getattr(held, owner) if owner else held, attribute))
    assert {each.without for each in commands(REPOSITORY)} == {"", *SAYS_NOTHING}


def tree(folder: Path, text: str) -> Path:
    """A tree whose `nest` is a few lines."""
    (folder / "nest").mkdir(parents=True)
    (folder / "nest" / "__init__.py").touch()
    (folder / "nest" / "__main__.py").write_text(text)
    return folder


def asked(**options: object) -> Command:
    return Command("c", "something", ("solve", "{problem}"), {"problem": dict}, **options)  # type: ignore[arg-type]


def test_times_are_set_beside_those_of_another_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "REPOSITORY", tree(tmp_path / "here", "print('fine')"))
    other = tree(tmp_path / "there", "print('fine', *range(10**6))")
    timing = timed(asked(wanted="fine", cpu=1e9, memory=1e12), tmp_path, 2, 60, other, 0.5)
    assert timing.there is not None
    assert timing.there.cpu > timing.here.cpu
    assert timing.scaled == timing.here.cpu / 2
    assert timing.failures == ()
    row = dict(zip(COMMAND_HEADINGS, command_cells(timing), strict=True))
    assert float(row["CPU, clock, memory"].partition(",")[0]) < 1
    assert " | ".join(command_cells(timing)) in markdown({"date": "2026-01-01"}, [], [], [timing])


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("print('other')", "it does not say fine"),
        ("raise SystemExit('no plan')", "exit code 1: no plan"),
        ("while True: pass", "stopped after 0 s"),
    ],
)
def test_what_goes_wrong_is_told_here_and_not_compared_there(
    text: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = tree(tmp_path / "bad", text), tree(tmp_path / "good", "print('fine')")
    monkeypatch.setattr(beside, "REPOSITORY", bad)
    (tmp_path / "1").mkdir()
    timing = timed(asked(wanted="fine"), tmp_path / "1", 1, 0.3, None, 1.0)
    assert timing.wrong == wrong
    assert closing([], [timing]) == [f"c: {wrong}", "0 of 1 pass"]
    monkeypatch.setattr(beside, "REPOSITORY", good)
    (tmp_path / "2").mkdir()
    timing = timed(asked(wanted="fine"), tmp_path / "2", 1, 30 if "True" not in text else 1, bad, 1.0)
    assert (timing.wrong, timing.there) == ("", None)


def test_answers_are_kept_where_a_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEST_CACHE", "elsewhere")
    text = "import os; print(f\"<{os.environ.get('NEST_CACHE', '')[-11:]}>\")"
    monkeypatch.setattr(beside, "REPOSITORY", tree(tmp_path / "tree", text))
    (tmp_path / "1").mkdir()
    assert timed(asked(wanted="<>"), tmp_path / "1", 1, 60, None, 1.0).wrong == ""
    (tmp_path / "2").mkdir()
    assert timed(asked(wanted="c-here/kept>", keeps=True), tmp_path / "2", 1, 60, None, 1.0).wrong == ""


@pytest.mark.slow
def test_a_command_is_timed_here_and_in_a_commit() -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("this is no checkout, so that there is no commit to time")
    told: list[Timing] = []
    small = {"problem": lambda: heterogeneous(3, (4, 2), 8)}
    solve = Command(YARDSTICK, "three layers", ("solve", "{problem}", "--json"), small, wanted='"status": "optimal"')
    proof = ("solve", "{problem}", "--verify", "--json")
    without = Command("without", "its proof without room", proof, small, wanted='"status": "proved"', without="room")
    assert all_timed([solve, without], 1, 120, "HEAD", told.append) == told
    assert [each.wrong for each in told] == ["", ""]
    assert told[0].scaled == pytest.approx(2.0)
    assert told[0].there is not None
    assert told[1].there is None


def test_a_commit_that_is_none_is_told() -> None:
    with pytest.raises(ValueError, match="no-such-commit"):
        all_timed([], 1, 60, "no-such-commit", print)
