"""The conductor: agreement of solver and pricing, determinism, and strategies that come from elsewhere."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from attrs import evolve

import nest
from nest import api
from nest.errors import InputError, InternalError
from nest.graph import Block
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import registry
from nest.hooks.spec import hook
from nest.instance import Result

REPOSITORY = Path(__file__).resolve().parent.parent
SMALL: dict[str, Any] = {
    "nest": 1,
    "model": {
        "transformer": {"layers": 4, "hidden": 1024, "ffn": 4096, "heads": 16, "vocab": 32000, "gated_mlp": False}
    },
    "training": {"global_batch": 16, "sequence_length": 1024, "micro_batch": [1, 2], "graphs": "iteration"},
    "cluster": {
        "device": "h100-sxm",
        "levels": [
            {"name": "node", "fanout": 4, "bandwidth": "450 GB/s", "latency": "3 us"},
            {"name": "rack", "fanout": 2, "bandwidth": "10 GB/s", "latency": "10 us"},
        ],
    },
}


class Halving:
    """A toy strategy: two devices share every operator, and nothing is ever sent."""

    name = "halving"
    after = ("tp",)

    def degrees(self, block: Block, context: StrategyContext) -> tuple[int, ...]:
        return (1, 2)

    def apply(self, block: Block, degree: int, context: StrategyContext) -> Block:
        graph = block.graph.map_operators(
            lambda operator: (evolve(operator, flops_per_point=operator.flops_per_point / degree),)
        )
        return block.with_axis(self.name, degree).applied(self.name, degree, graph)


def toy_distribution() -> ModuleType:
    module = ModuleType("toy_distribution")

    @hook
    def nest_strategies() -> list[Halving]:
        return [Halving()]

    module.nest_strategies = nest_strategies  # type: ignore[attr-defined]
    return module


@pytest.mark.longer
def test_a_strategy_from_elsewhere_changes_the_plan_and_no_file_of_the_solver() -> None:
    before = {path: path.read_bytes() for path in sorted((REPOSITORY / "nest" / "solve").rglob("*.py"))}
    problem = {**SMALL, "strategies": {"tp": [1], "cp": [1]}, "constraints": ["replicas == 1", "pp == 1"]}
    alone = api.solve(problem)
    together = api.solve(problem, plugins=registry([toy_distribution()]))
    assert alone.candidate is not None
    assert together.candidate is not None
    assert "halving" not in alone.candidate.degrees
    assert together.candidate.degrees["halving"] == 2
    assert together.candidate.width == 2
    assert together.batch_time is not None
    assert alone.batch_time is not None
    assert together.batch_time < alone.batch_time
    for path, content in before.items():
        assert b"halving" not in content
        assert path.read_bytes() == content


@pytest.mark.longer
def test_a_plan_with_a_foreign_strategy_checks_only_where_it_is_registered() -> None:
    known = registry([toy_distribution()])
    plan = api.solve({**SMALL, "constraints": ["halving == 2"]}, plugins=known)
    assert api.check(plan.to_dict(), plugins=known).ok
    with pytest.raises(InputError, match="halving"):
        api.check(plan.to_dict())


@pytest.mark.longer
def test_a_solver_that_promises_too_much_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from nest.solve import dp

    honest = dp.solve

    def boastful(*arguments: Any, **named: Any) -> Result:
        result = honest(*arguments, **named)
        return evolve(result, batch_time=result.batch_time * 0.999)

    monkeypatch.setattr(dp, "solve", boastful)
    with pytest.raises(InternalError, match="bug in nest"):
        api.solve(SMALL)


def test_the_framework_default_fills_the_cluster_with_replicas() -> None:
    plan = nest.evaluate(SMALL)
    assert plan.data_parallel == 8
    assert plan.rank_order == "dp-inner"
    assert [stage.zero for stage in plan.stages] == [0]
    assert plan.lower_bound is None


@pytest.mark.longer
def test_zero_3_between_slow_nodes_is_not_free_because_data_parallel_communication_overlaps() -> None:
    training = {**SMALL["training"], "overlap": {"data": True}}
    decided = {"replicas": 8, "pp": 1, "zero": 3, "micro_batch": 1}
    found, bare, all_shows = (
        nest.evaluate({**SMALL, "training": {**training, **more}}, fix=decided)
        for more in ({}, {"exposed": 0.0}, {"exposed": 1.0})
    )
    computed = found.summary["time_shares"]["compute"]
    # Even where nothing is said to show, its ports must send it.
    assert 1.5 * computed < (bare.batch_time or 0.0) <= (found.batch_time or 0.0) < (all_shows.batch_time or 0.0)


def test_a_decision_on_the_call_wins_over_the_file() -> None:
    plan = nest.evaluate({**SMALL, "fixed": {"pp": 2, "tp": 2}}, fix={"pp": 4})
    assert len(plan.stages) == 4
    assert plan.candidate is not None
    assert plan.candidate.degrees["tp"] == 2
    assert plan.stages[0].layers[0] == "embedding"
    assert plan.stages[-1].layers[-1] == "head"


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf"), "5", True])
def test_time_limits_that_make_no_sense_are_refused(limit: Any) -> None:
    with pytest.raises(InputError, match="time limit"):
        nest.solve(SMALL, time_limit=limit)


def test_fixed_decisions_bind_the_search() -> None:
    plan = nest.solve({**SMALL, "fixed": {"pp": 2, "zero": 1, "recompute": "full", "micro_batch": 2}})
    assert len(plan.stages) == 2
    assert {(stage.zero, stage.recompute) for stage in plan.stages} == {(1, "full")}
    assert plan.candidate is not None
    assert plan.candidate.samples == 2


@pytest.mark.parametrize(
    "decisions", [{"width": 4}, {"dp": 4, "replicas": 8}, {"replicas": 2, "micro_batches": 3}, {"devices": 4, "pp": 3}]
)
def test_decisions_that_contradict_each_other_are_refused(decisions: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="fixed is not a valid plan"):
        nest.evaluate(SMALL, fix=decisions)


def test_a_mixed_plan_is_found_checked_and_allowed_only_where_asked_for() -> None:
    from tests.plan.test_tampering import MIXED

    document = nest.solve(MIXED).to_dict()
    assert sorted(stage["candidate"] for stage in document["stages"]) == ["one", "two"]
    assert document["candidate"]["name"] == "two"
    assert nest.check(document).ok
    assert nest.solve({**MIXED, "search": {}}).status == "infeasible"
    document["problem"]["search"]["mixed"] = False
    assert "search.mixed" in str(nest.check(document))
