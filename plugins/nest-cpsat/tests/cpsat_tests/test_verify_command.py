"""`nest verify` and `nest solve --verify`: what they print, what they write, and the exit codes."""

import json
from pathlib import Path

import pytest

import nest
from tests.command_line import call

REPOSITORY = Path(__file__).resolve().parents[4]
EXAMPLE = str(REPOSITORY / "examples" / "measured-layers" / "problem.yaml")


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    assert call(monkeypatch, "solve", EXAMPLE, "--output", str(path)) == 0
    capsys.readouterr()
    return path


def slower(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    """A plan of the example that is not its best."""
    assert call(monkeypatch, "evaluate", EXAMPLE, "--fix", "pp=2", "--fix", "replicas=1", "--json") == 0
    path = tmp_path / "slower.json"
    path.write_text(capsys.readouterr().out)
    return path


def test_the_best_plan_is_proved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], plan: Path
) -> None:
    assert call(monkeypatch, "verify", str(plan)) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("Proved: no plan takes less than")


@pytest.mark.longer
def test_a_slower_plan_is_refuted_by_one_that_checks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Better means: of the plans that keep the decisions taken."""
    worse, better = slower(monkeypatch, capsys, tmp_path), tmp_path / "better.json"
    assert call(monkeypatch, "verify", str(worse), "--output", str(better)) == 1
    assert "Refuted: a better plan takes" in capsys.readouterr().out
    assert call(monkeypatch, "check", str(better)) == 0
    best = nest.solve(json.loads(worse.read_text())["problem"]).batch_time
    assert json.loads(better.read_text())["batch_time"] == pytest.approx(best, rel=2e-6)


def test_json_is_one_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], plan: Path, tmp_path: Path
) -> None:
    assert call(monkeypatch, "verify", str(plan), "--json", "--free") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "proved"
    assert answer["better"] is None
    assert answer["free"]["cost"] == 0.0
    assert call(monkeypatch, "verify", str(slower(monkeypatch, capsys, tmp_path)), "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "refuted"
    assert answer["better"]["batch_time"] < answer["batch_time"]


def test_a_plan_whose_numbers_are_wrong_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], plan: Path
) -> None:
    document = json.loads(plan.read_text())
    document["stages"][0]["memory"] *= 2
    plan.write_text(json.dumps(document))
    assert call(monkeypatch, "verify", str(plan)) == 1
    assert "stages[0].memory" in capsys.readouterr().out


@pytest.mark.longer
@pytest.mark.parametrize("flags", [["--verify"], ["--verify=free"], ["--verify", "--free", "--workers", "2"]])
def test_solve_verifies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, flags: list[str]
) -> None:
    path = tmp_path / "plan.json"
    assert call(monkeypatch, "solve", EXAMPLE, *flags, "--output", str(path)) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "Proved: no plan takes less than" in printed.out
    assert ("Device order is best" in printed.out) == (flags != ["--verify"])
    stated = json.loads(path.read_text())["verification"]
    assert stated["status"] == "proved"
    assert stated["solver"] == "cp-sat"
    assert ("free" in stated) == (flags != ["--verify"])
    assert call(monkeypatch, "check", str(path)) == 0
    assert call(monkeypatch, "verify", str(path)) == 0


@pytest.mark.longer
def test_that_there_is_no_plan_is_proved_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    problem = tmp_path / "problem.yaml"
    problem.write_text(Path(EXAMPLE).read_text().replace("memory: 16 GB", "memory: 1 GB"))
    path = tmp_path / "plan.json"
    assert call(monkeypatch, "solve", str(problem), "--verify", "--output", str(path)) == 1
    assert "Proved: no plan exists." in capsys.readouterr().out
    assert call(monkeypatch, "verify", str(path)) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["solve", EXAMPLE, "--free"], "--free needs --verify"),
        (["solve", EXAMPLE, "--verify=loose"], "--verify"),
        (["solve", EXAMPLE, "--verify", "--workers", "0"], "workers"),
        (["verify", EXAMPLE], "not a plan"),
        (["verify", "nowhere.json"], "nowhere.json"),
    ],
)
def test_bad_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert call(monkeypatch, *arguments) == 2
    assert told in capsys.readouterr().err


def test_time_being_up_is_no_proof(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], plan: Path
) -> None:
    assert call(monkeypatch, "verify", str(plan), "--time-limit", "1e-9") == 1
    assert "Not proved: " in capsys.readouterr().out
