"""`check` recomputes every number: an honest plan passes, any tampering is named."""

from typing import Any

import pytest

import nest

PROBLEM: dict[str, Any] = {
    "nest": 1, "training": {"global_batch": 8},
    "cluster": {
        "memory": 60.0,
        "levels": [
            {"name": "node", "fanout": 2, "bandwidth": 50.0, "latency": 0.01},
            {"name": "rack", "fanout": 2, "bandwidth": 5.0, "latency": 0.02},
        ],
    },
    "constraints": ["pp >= 2"],
    "profile": {
        "layers": ["a", "b", "c", "d"],
        "edges": [[0, 1], [1, 2], [2, 3]],
        "candidates": [
            {
                "name": "one", "width": 1, "samples": 1, "forward": [1, 2, 1.5, 1], "backward": [2, 4, 3, 2],
                "state": {
                    "dense": {
                        "ranks": [0], "weights": [2, 3, 2, 1], "gradients": [2, 3, 2, 1], "optimizer": [8, 12, 8, 4],
                        "update": [0.1, 0.2, 0.1, 0.1],
                    },
                },
                "recompute": {
                    "none": {"extra": [0, 0, 0, 0], "first": [3, 3, 3, 3], "more": [3, 3, 3, 3], "peak": [0, 0, 0, 0]},
                },
                "edge_bytes": [4, 6, 2],
            },
        ],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def honest() -> dict[str, Any]:
    return nest.solve(PROBLEM).to_dict()


def tampered(plan: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    import copy

    changed = copy.deepcopy(plan)
    target: Any = changed
    *steps, last = path.split(".")
    for step in steps:
        target = target[int(step) if step.isdigit() else step]
    target[int(last) if last.isdigit() else last] = value
    return changed


def test_an_honest_plan_passes(honest: dict[str, Any]) -> None:
    report = nest.check(honest)
    assert report.ok, report.disagreements
    assert report.compared > 10


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("batch_time", 1.0),
        ("throughput", 3.0),
        ("summary.idle_share", 10**200),
        ("lower_bound", 0.5),
        ("micro_batches", 3),
        ("fits", False),
        ("candidate.width", 2),
        ("stages.0.time", 0.1),
        ("stages.1.sync_time", 9.0),
        ("stages.0.memory", 1.0),
        ("stages.0.in_flight", 7),
        ("stages.0.level_out", -1),
        ("stages.1.level_in", -1),
        ("stages.0.upper_memory", 1.0),
        ("stages.0.bytes_out", 1.0),
        ("stages.1.devices", [3, 1]),
        ("stages.0.layers", ["a"]),
        ("data_parallel", 1),
        ("schedule", "gpipe"),
        ("rank_order", "sideways"),
        ("problem.constraints", ["pp == 1"]),
        ("problem.cluster.memory", 20.0),
        ("problem.training.global_batch", 16),
    ],
)
def test_a_tampered_plan_is_refused(honest: dict[str, Any], path: str, value: Any) -> None:
    assert not nest.check(tampered(honest, path, value)).ok


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("stages.0.layers", ["nowhere"], "nowhere"),
        ("stages.0.candidate", "two", "two"),
        ("stages.0.recompute", "half", "half"),
        ("stages.0.zero", 7, "zero"),
        ("data_parallel", 0, "data_parallel"),
    ],
)
def test_unknown_things_are_named(honest: dict[str, Any], path: str, value: Any, named: str) -> None:
    report = nest.check(tampered(honest, path, value))
    assert not report.ok
    assert named in report.disagreements[0]


def test_an_infeasible_plan_has_nothing_to_check() -> None:
    problem = tampered(PROBLEM, "cluster.memory", 5.0)
    plan = nest.solve(problem)
    assert plan.status == "infeasible"
    assert nest.check(plan.to_dict()).ok


def test_an_overfull_plan_is_priced_and_checked() -> None:
    problem = {**tampered(PROBLEM, "cluster.memory", 5.0), "fixed": {"pp": 2}}
    plan = nest.evaluate(problem)
    assert not plan.fits
    assert nest.check(plan.to_dict()).ok


def test_no_plan_is_called_optimal_that_does_not_fit() -> None:
    problem = {**tampered(PROBLEM, "cluster.memory", 5.0), "fixed": {"pp": 2}}
    written = nest.evaluate(problem).to_dict()
    report = nest.check({**written, "status": "optimal", "lower_bound": written["batch_time"]})
    assert [each for each in report.disagreements if "needs more memory" in each]


def test_a_bound_above_the_plan_is_refused_whatever_the_status(honest: dict[str, Any]) -> None:
    for share, holds in ((0.5, True), (1.0, True), (1.001, False)):
        stopped = {**honest, "status": "feasible", "lower_bound": share * honest["batch_time"]}
        assert nest.check(stopped).ok == holds


def test_where_there_is_no_plan_none_is_told(honest: dict[str, Any]) -> None:
    absent = nest.solve(tampered(PROBLEM, "cluster.memory", 5.0)).to_dict()
    for name in ("stages", "batch_time", "candidate", "data_parallel"):
        (told,) = nest.check({**absent, name: honest[name]}).disagreements
        assert name in told


def test_what_the_search_was_not_allowed_is_named(honest: dict[str, Any]) -> None:
    plan = {**tampered(honest, "problem.search", {"zero": [3]}), "runner_up": None}
    assert "ZeRO stage 1 is not among those allowed" in nest.check(plan).disagreements[0]
