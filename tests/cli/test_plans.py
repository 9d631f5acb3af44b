"""Plan documents: the same bytes from every format, and no tampering that `nest check` does not name."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from nest.cli import app
from tests.io.test_round_trip import as_yaml
from tests.seeds import few

REPOSITORY = Path(__file__).resolve().parent.parent.parent
DESCRIBED: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 1024, "ffn": 4096, "heads": 16, "vocab": 32000}},
    "training": {"global_batch": 16, "sequence_length": 1024, "micro_batch": [1, 2]},
    "cluster": {
        "device": "h100-sxm",
        "levels": [
            {"name": "node", "fanout": 4, "bandwidth": "450 GB/s", "latency": "3 us"},
            {"name": "rack", "fanout": 2, "bandwidth": "10 GB/s", "latency": "10 us"},
        ],
    },
    "constraints": ["pp == 2", "zero == 1", "tp == 2", "sp == 2"],
}


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["nest", *arguments])
    with pytest.raises(SystemExit) as stop:
        app.main()
    printed = capsys.readouterr()
    assert all("the constraint `" in line for line in printed.err.splitlines())
    return int(stop.value.code or 0), printed.out


@pytest.fixture(scope="module")
def plan() -> dict[str, Any]:
    import nest

    found = nest.solve(DESCRIBED).to_dict()
    assert len(found["stages"]) == 2
    return found


TAMPERED: list[tuple[str, Any, str]] = [
    ("batch_time", 0.5, "batch_time is 0.5, recomputed"),
    ("throughput", 1.0, "throughput is 1, recomputed"),
    ("lower_bound", 0.001, "The status is optimal, but lower_bound is 0.001"),
    ("fits", False, "fits is False, recomputed True"),
    ("micro_batches", 99, "micro_batches is 99"),
    ("data_parallel", 1, "batch_time is "),
    ("data_parallel", 64, "not aligned"),
    ("rank_order", "sideways", "rank_order is 'sideways'"),
    ("schedule", "gpipe", "'gpipe'"),
    ("candidate.width", 64, "candidate is "),
    ("candidate.name", "tp99", "tp99"),
    ("stages.0.time", 1.0, "stages[0].time is 1, recomputed"),
    ("stages.1.sync_time", 1.0, "stages[1].sync_time is 1, recomputed"),
    ("stages.0.memory", 5.0, "stages[0].memory is 5, recomputed"),
    ("stages.0.in_flight", 9, "stages[0].in_flight is 9"),
    ("stages.0.level_out", -1, "stages[0].level_out is -1"),
    ("stages.1.level_in", -1, "stages[1].level_in is -1"),
    ("stages.0.devices", [0, 1], "stages[0].devices is"),
    ("stages.1.devices", [0, 2], "block"),
    ("stages.0.zero", 2, "constraint `zero == 1` does not hold"),
    ("stages.0.zero", 7, "stages[0].zero is 7"),
    ("stages.0.recompute", "half", "stages[0].recompute is 'half'"),
    ("stages.0.candidate", "tp99", "stages[0].candidate is 'tp99'"),
    ("stages.0.layers", ["embedding"], "every layer exactly once"),
    ("stages.0.layers", ["nowhere"], "stages[0].layers names 'nowhere'"),
    ("stages", [], "lacks decisions"),
    ("summary.model_flops_utilisation", 0.99, "summary.model_flops_utilisation is 0.99"),
    ("summary.idle_share", 0.99, "summary.idle_share is 0.99"),
    ("summary.devices_used", 3, "summary.devices_used is 3"),
    ("summary.time_shares.compute", 3.0, "summary.time_shares.compute is 3"),
    ("status", "infeasible", "The status is infeasible, but batch_time is given"),
    ("problem.cluster.levels.1.bandwidth", 1e9, "recomputed"),
    ("problem.training.global_batch", 32, "recomputed"),
    ("problem.training.micro_batch", [4], "which the problem does not offer"),
    ("problem.strategies", {"tp": [4]}, "which the problem does not offer"),
    ("problem.strategies", {"sp": [False]}, "which the problem does not offer"),
    ("problem.constraints", ["pp == 1"], "constraint `pp == 1` does not hold"),
]


@pytest.mark.parametrize(
    ("place", "value", "told"), few(TAMPERED, *TAMPERED[::6]), ids=[f"{row[0]}={row[1]}" for row in TAMPERED]
)
def test_tampering_is_named(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    plan: dict[str, Any],
    place: str,
    value: Any,
    told: str,
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    assert call(monkeypatch, capsys, "check", str(path))[0] == 0
    changed = copy.deepcopy(plan)
    *steps, last = [int(step) if step.isdigit() else step for step in place.split(".")]
    target: Any = changed
    for step in steps:
        target = target[step]
    assert target[last] != value
    target[last] = value
    path.write_text(json.dumps(changed))
    code, out = call(monkeypatch, capsys, "check", str(path))
    assert code == 1
    assert told in out


def test_plans_check_in_every_format(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, plan: dict[str, Any]
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(as_yaml(plan))
    assert call(monkeypatch, capsys, "check", str(path))[0] == 0


def test_a_plan_whose_problem_cannot_be_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, plan: dict[str, Any]
) -> None:
    changed = copy.deepcopy(plan)
    changed["problem"]["cluster"]["device"] = "h100"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(changed, indent=1))
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if '"device": "h100"' in text)
    monkeypatch.setattr("sys.argv", ["nest", "check", str(path)])
    with pytest.raises(SystemExit) as stop:
        app.main()
    printed = capsys.readouterr()
    assert (stop.value.code, printed.out) == (2, "")
    assert printed.err.startswith(f"nest: {path}:{line}: problem.cluster.device: there is no device called 'h100'.")
