"""`nest compare`."""

import json
from pathlib import Path

import pytest

from nest_whatif.comparison import Comparison
from planners_tests.instances import FOR_POOLS, PLANNERS, problem
from tests.command_line import call


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(problem(2e9, zero=(0, 1))))
    return str(path)


def test_the_table(file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "compare", file, "--evaluations", "20", "--seed", "2") == 0
    told = capsys.readouterr().out
    lines = told.splitlines()
    assert lines[0].split()[:4] == ["planner", "step", "time", "vs"]
    assert [line.split()[0] for line in lines[2:15]] == ["nest", *PLANNERS]
    assert "mcmc: 20 plans priced, seed 2." in lines
    assert lines[-1].startswith("Optimal plan: ")


def test_options_of_the_command_are_those_of_its_planners(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "compare", file, "--planner", "random", "--evaluations", "3", "--seed", "2") == 0
    assert "random: 3 plans priced, seed 2." in capsys.readouterr().out.splitlines()


def test_json_says_the_same(file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "compare", file, "--planner", "manual", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    (other,) = told["others"]
    assert other["name"] == "manual"
    assert other["relative"] == pytest.approx(other["batch_time"] / told["plan"]["batch_time"])
    assert other["plan"]["problem"] == told["plan"]["problem"]


@pytest.mark.longer
def test_what_does_not_fit_says_by_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(problem(1e6)))
    assert call(monkeypatch, "compare", str(path), "--planner", "alpa-e") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["nest", "no", "plan"]
    assert "no, by " in lines[3]
    assert any(line.startswith("nest: no feasible plan. ") for line in lines)


@pytest.mark.longer
def test_a_plan_that_beats_ours_is_an_internal_error(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refuting = Comparison.faster
    monkeypatch.setattr(Comparison, "refuting", property(lambda self: self.others[:1]))
    assert refuting is not None
    assert call(monkeypatch, "compare", file, "--planner", "manual") == 1
    told = capsys.readouterr()
    assert "manual" in told.out
    assert "internal error: the plan of manual takes" in told.err


def test_the_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "compare", "--list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["planners"]
    assert [row["name"] for row in rows] == [*PLANNERS, *FOR_POOLS]
    assert call(monkeypatch, "compare", "--list") == 0
    assert "Megatron-LM's rules of thumb" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "needs a problem file"),
        (("{}", "--planner", "best"), "there is no planner called 'best'"),
        (("{}", "--planner", "mcmc:speed=2"), "planner 'mcmc' has no option 'speed'; it has evaluations, seed."),
        (("{}", "--planner", "manual:speed=2"), "planner 'manual' takes no options."),
        (("{}", "--planner-time-limit", "0"), "the time limit of planners is 0.0"),
        (("{}", "--nodes", "2"), "--nodes, --devices-per-node, --part and --for need --from"),
        (("{}", "--plan", "{}"), "this is a problem, not a plan"),
        (("{}", "--evaluations", "-1"), "number of evaluations is -1"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...],
    told: str,
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, "compare", *(each.format(file) if each == "{}" else each for each in arguments)) == 2
    assert told in capsys.readouterr().err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two problems, the second without a plan, and a file that is none."""
    found = tmp_path / "problems"
    found.mkdir()
    (found / "b.json").write_text(json.dumps(problem(2e9, zero=(0, 1))))
    (found / "notes.txt").write_text("no problem")
    return found


def test_a_folder_tells_why_there_is_no_plan(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.yaml").write_text(json.dumps(problem(1e6)))
    (folder / "a.json").write_text(json.dumps(problem(1e6)))
    assert call(monkeypatch, "compare", str(folder), "--planner", "alpa-e") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["planner", "a.json", "a.yaml", "b.json"]
    assert lines[2].split() == ["nest", "-", "-", "1.000", "1.000", "1.000", "2"]
    assert lines[5].startswith("nest, a.json and a.yaml: ")
    assert lines[6].startswith("alpa-e, a.json and a.yaml: its plan needs ")


def test_a_folder_without_problems_and_one_with_a_broken_one_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a.json").write_text('{"nest": 1')
    assert call(monkeypatch, "compare", str(folder), "--planner", "manual") == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "a.json" in told.err
    for file in folder.glob("*.json"):
        file.unlink()
    assert call(monkeypatch, "compare", str(folder)) == 2
    assert "has no problem files (.yaml, .yml, .json, .toml)" in capsys.readouterr().err
