"""`nest simulate` as a person calls it."""

import json
import os
import re
from pathlib import Path

import pytest

import nest
from nest.spec import PlanDocument
from tests.command_line import call
from tests.measured import profile
from tests.simulate.uniform_plans import uniform_plan


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(uniform_plan(3, "1f1b").to_dict()))
    return str(path)


def test_the_table_says_what_json_says(
    plan: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "simulate", plan) == 0
    shown = capsys.readouterr().out
    assert call(monkeypatch, "simulate", plan, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert f"{told['batch_time']:.3g} s" in shown
    assert re.search("difference +none", shown)
    assert len(told["stages"]) == len(json.loads(Path(plan).read_text())["stages"])
    assert told["disturbed"] is None
    assert all(stage["memory"][0][0] == 0.0 for stage in told["stages"])


def test_disturbances_are_shown(plan: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("simulate", plan, "--jitter", "0.1", "--runs", "9", "--seed", "4", "--slow-device", "1=1.5")
    assert call(monkeypatch, *arguments) == 0
    shown = capsys.readouterr().out
    assert "jitter 0.1 (seed 4) and stage 1 of replica 0 slowed 1.5x" in shown
    assert "9 runs:" in shown
    assert "99 %" in shown
    assert call(monkeypatch, "simulate", plan, "--slow-device", "1/0=1.5") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" %) than planned")


def test_a_trace_is_written(plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "trace.json"
    assert call(monkeypatch, "simulate", plan, "--trace", str(target)) == 0
    first = target.read_bytes()
    assert json.loads(first)["traceEvents"]
    assert call(monkeypatch, "simulate", plan, "--trace", str(target)) == 0
    assert target.read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--slow-device", "2"], "STAGE[/REPLICA]=FACTOR"),
        (["--slow-device", "2=fast"], "STAGE[/REPLICA]=FACTOR"),
        (["--slow-device", "1=2", "--slow-device", "1=3"], "twice"),
        (["--slow-device", "99=2"], "there is no stage 99"),
        (["--runs", "5"], "--jitter"),
        (["--seed", "0"], "--jitter"),
        (["--jitter", "-1"], "jitter"),
        (["--trace", "/nowhere/trace.json"], "no folder"),
    ],
)
def test_slips_are_told(
    plan: str, arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "simulate", plan, *arguments) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""


def test_infeasible_and_wrong_plans_are_not_replayed(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(Path(plan).read_text())
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({**document, "batch_time": 1.0}))
    assert call(monkeypatch, "simulate", str(wrong)) == 2
    assert "fails its check" in capsys.readouterr().err
    empty = dict.fromkeys(("batch_time", "throughput", "candidate", "data_parallel", "micro_batches"))
    infeasible = {**document, **empty, "status": "infeasible", "stages": [], "fits": False, "diagnosis": "too large"}
    wrong.write_text(json.dumps(infeasible))
    assert call(monkeypatch, "simulate", str(wrong)) == 1
    assert "too large" in capsys.readouterr().err


def test_a_plan_may_come_through_a_pipe(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `nest simulate <(nest solve problem.yaml --json)`: what was read once is gone."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(Path(plan).read_bytes())
    try:
        assert call(monkeypatch, "simulate", f"/dev/fd/{reading}") == 0
    finally:
        os.close(reading)


def test_a_peak_above_what_a_device_has_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: of a stage that only keeps 100 bytes a micro-batch, and one with 149 bytes of weights, either device
    holds both, two micro-batches of the first and one of the second. The plan counts each stage twice.
    """
    for memory, told in (("320 B", True), ("350 B", False)):
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(two_stages_on_a_device(memory).to_dict()))
        assert call(monkeypatch, "simulate", str(path)) == 0
        shown = capsys.readouterr().out
        assert "350 B" in shown
        assert "301 B" in shown
        assert ("Simulated memory exceeds the 320 B of a device on stage 1, 2" in shown) == told


def two_stages_on_a_device(memory: str) -> PlanDocument:
    """Two stages that both devices hold, the first of which keeps much and the second of which has the weights."""
    kept, state = [100.0, 1.0], {"weights": [0.0, 149.0]}
    problem = {
        "nest": 1,
        "profile": profile([1.0] * 2, [2.0] * 2, state=state, kept={"first": kept, "more": kept}),
        "training": {"global_batch": 8, "schedule": "dualpipe"},
        "cluster": {"levels": [{"name": "node", "fanout": 2, "bandwidth": 1.0, "latency": 0.0}], "memory": memory},
    }
    return nest.evaluate(problem, fix={"pp": 2})


def test_a_trace_does_not_take_the_place_of_the_plan(
    plan: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path(plan).read_bytes()
    for arguments in (["simulate", plan, "--trace", plan], ["report", plan, "-o", plan], ["verify", plan, "-o", plan]):
        assert call(monkeypatch, *arguments) == 2
        assert "would overwrite the input" in capsys.readouterr().err
        assert Path(plan).read_bytes() == before
    assert call(monkeypatch, "solve", plan, "--output", plan) == 2
    assert "would overwrite the input" in capsys.readouterr().err
