"""`nest verify` and `nest solve --verify`: what they print, what they write, and the exit codes."""

import json
from pathlib import Path

import pytest

import nest
from tests.command_line import Caller

REPOSITORY = Path(__file__).resolve().parents[4]
EXAMPLE = str(REPOSITORY / "examples" / "measured-layers" / "problem.yaml")


@pytest.fixture
def plan(call: Caller, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    assert call("solve", EXAMPLE, "--output", path)[0] == 0
    return path


def slower(call: Caller, tmp_path: Path) -> Path:
    """A plan of the example that is not its best."""
    path = tmp_path / "slower.json"
    path.write_text(call("evaluate", EXAMPLE, "--fix", "pp=2", "--fix", "replicas=1", "--json")[1])
    return path


def test_the_best_plan_is_proved(call: Caller, plan: Path) -> None:
    code, out, err = call("verify", plan)
    assert (code, err) == (0, "")
    assert out.startswith("Proved: no plan takes less than")


@pytest.mark.longer
def test_a_slower_plan_is_refuted_by_one_that_checks(call: Caller, tmp_path: Path) -> None:
    """Better means: of the plans that keep the decisions taken."""
    worse, better = slower(call, tmp_path), tmp_path / "better.json"
    code, out, _ = call("verify", worse, "--output", better)
    assert code == 1
    assert "Refuted: a better plan takes" in out
    assert call("check", better)[0] == 0
    best = nest.solve(json.loads(worse.read_text())["problem"]).batch_time
    assert json.loads(better.read_text())["batch_time"] == pytest.approx(best, rel=2e-6)


def test_json_is_one_document(call: Caller, plan: Path, tmp_path: Path) -> None:
    code, out, _ = call("verify", plan, "--json", "--free")
    answer = json.loads(out)
    assert code == 0
    assert answer["status"] == "proved"
    assert answer["better"] is None
    assert answer["free"]["cost"] == 0.0
    code, out, _ = call("verify", slower(call, tmp_path), "--json")
    answer = json.loads(out)
    assert code == 1
    assert answer["status"] == "refuted"
    assert answer["better"]["batch_time"] < answer["batch_time"]


def test_a_plan_whose_numbers_are_wrong_is_refused(call: Caller, plan: Path) -> None:
    document = json.loads(plan.read_text())
    document["stages"][0]["memory"] *= 2
    plan.write_text(json.dumps(document))
    code, out, _ = call("verify", plan)
    assert code == 1
    assert "stages[0].memory" in out


@pytest.mark.longer
@pytest.mark.parametrize("flags", [["--verify"], ["--verify=free"], ["--verify", "--free", "--workers", "2"]])
def test_solve_verifies(call: Caller, tmp_path: Path, flags: list[str]) -> None:
    path = tmp_path / "plan.json"
    code, out, err = call("solve", EXAMPLE, *flags, "--output", path)
    assert (code, err) == (0, "")
    assert "Proved: no plan takes less than" in out
    assert ("Device order is best" in out) == (flags != ["--verify"])
    stated = json.loads(path.read_text())["verification"]
    assert stated["status"] == "proved"
    assert stated["solver"] == "cp-sat"
    assert ("free" in stated) == (flags != ["--verify"])
    assert call("check", path)[0] == 0
    assert call("verify", path)[0] == 0


@pytest.mark.longer
def test_that_there_is_no_plan_is_proved_too(call: Caller, tmp_path: Path) -> None:
    problem = tmp_path / "problem.yaml"
    problem.write_text(Path(EXAMPLE).read_text().replace("memory: 16 GB", "memory: 1 GB"))
    path = tmp_path / "plan.json"
    code, out, _ = call("solve", problem, "--verify", "--output", path)
    assert code == 1
    assert "Proved: no plan exists." in out
    assert call("verify", path)[0] == 0


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
def test_bad_usage(call: Caller, arguments: list[str], told: str) -> None:
    code, _, err = call(*arguments)
    assert code == 2
    assert told in err


def test_time_being_up_is_no_proof(call: Caller, plan: Path) -> None:
    code, out, _ = call("verify", plan, "--time-limit", "1e-9")
    assert code == 1
    assert "Not proved: " in out
