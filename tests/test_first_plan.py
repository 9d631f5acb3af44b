"""The first plan: the simplest of those within a share of the fastest, what it is compared by, and plans beside it."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nest import api
from nest.documents.first_plan import COSTS_LITTLE, LIKELY, ORDER, Plan, with_first_plan
from nest.formulate.fixed_plan import fixed_plan
from nest.formulate.problem import decided_problem
from nest.hooks.registry import registry
from nest.instance import Instance, Solution
from nest.plan.evaluate import evaluate
from nest.plan.legality import permission_violations
from nest.solve.effort import Deadline
from nest.solve.solver import solve
from nest.spec import PlanDocument
from nest.tolerances import AGREEMENT
from tests.test_api import SMALL

MEASURED = Path(__file__).parents[1] / "examples" / "measured-layers" / "problem.yaml"

MIXING: dict[str, Any] = {
    "nest": 1,
    "model": "llama-2-13b",
    "training": {
        "global_batch": 128,
        "sequence_length": 4096,
        "micro_batch": [1],
        "schedule": "1f1b",
        "stack": "none",
        "memory_risk": 0.5,
    },
    "cluster": {
        "device": "a100-sxm-80g",
        "memory": "40 GB",
        "levels": [
            {"name": "node", "fanout": 8, "bandwidth": "300 GB/s", "link": "nvlink3"},
            {"name": "pod", "fanout": 4, "bandwidth": "25 GB/s", "link": "infiniband-hdr"},
        ],
        "reserve": "2 GiB",
    },
    "strategies": {"tp": [2], "sp": [False], "cp": [1]},
    "constraints": ["pp == 4"],
}


def problem(gigabytes: float, within: float | None = None, **training: Any) -> dict[str, Any]:
    levels = SMALL["cluster"]["levels"]
    cluster = {"device": "h100-sxm", "levels": levels, "memory": gigabytes * 1e9}
    return {**SMALL, "training": {**SMALL["training"], **training}, "cluster": cluster, "search": {"within": within}}


def test_stages_that_are_alike_are_the_first_plan_where_they_are_hardly_slower() -> None:
    fastest, first = (api.solve({**MIXING, "search": {"within": within}}) for within in (0, 0.01))
    assert {stage.zero for stage in fastest.stages} == {0, 1}
    assert fastest.status == "optimal"
    assert fastest.runs_on == ()
    assert len({stage.zero for stage in first.stages}) == 1
    assert "megatron" in (first.runs_on or ())
    assert first.status == "near-optimal"
    assert first.lower_bound == pytest.approx(fastest.batch_time, rel=1e-12)
    assert first.batch_time is not None
    assert fastest.batch_time is not None
    assert fastest.batch_time * (1 + AGREEMENT) < first.batch_time <= fastest.batch_time * 1.01
    assert first.fastest is not None
    assert first.fastest.batch_time == fastest.batch_time
    assert [stage.layers for stage in first.fastest.decisions.stages] == [stage.layers for stage in fastest.stages]
    assert api.check(first).ok


DECIDED: list[dict[str, Any]] = [
    {"pp": 2, "micro_batch": 1},
    {"pp": 2, "micro_batch": 1, "schedule": "interleaved", "chunks": 2},
    {"pp": 4, "zero": 1, "recompute": "full", "rank_order": "dp-inner"},
    {"pp": 2, "stages": [1, 3], "tp": 2, "micro_batch": 1},
    {"tp": 2, "cp": 2, "zero": 2, "recompute": "selective"},
    {"pp": 2, "replicas": 2, "zero": 3, "zero_degree": 1},
]


@pytest.mark.longer
@pytest.mark.parametrize("fixed", DECIDED)
@pytest.mark.parametrize("entry", ORDER, ids=lambda entry: entry.name.replace(" ", "-"))
def test_an_instance_with_less_of_an_entry_lacks_the_plans_that_have_more(entry: Any, fixed: dict[str, Any]) -> None:
    known, open_problem = registry(), {**problem(1.0), "search": {"target": "none", "zero_degree": ["all", 1]}}
    asked = decided_problem({**open_problem, "training": {**SMALL["training"], "memory_risk": 0.5}}, fixed, known)
    decided, solution, _ = fixed_plan(asked, known)
    schedules = tuple(known.schedules().values())
    schedules = (*(each for each in schedules if each.name != "interleaved"), *decided.space.schedules)
    space = evolve(
        decided.space, constraints=(), partition=None, recompute=None, zero=(0, 1, 2, 3), schedules=schedules
    )
    orders, degrees = ("pp-inner", "dp-inner"), (None, 1)
    assert decided.cluster.error is not None
    needed = max(stage.memory for stage in evaluate(decided, solution).stages)
    # 0.72 likely to fit: 5 steps below what is likely.
    room = decided.cluster.reserve + (needed - decided.cluster.reserve) * decided.cluster.error.factor(0.28)
    cluster = evolve(decided.cluster, device_memory=room).with_margin(0.0)
    instance = evolve(decided, cluster=cluster, space=evolve(space, rank_orders=orders, zero_degrees=degrees))
    priced = evaluate(instance, solution)
    amount = entry.amount(Plan(instance, solution))

    def allows(narrowed: Instance) -> bool:
        fits = all(stage.memory <= narrowed.cluster.memory for stage in priced.stages)
        fits = fits or narrowed.cluster.memory == instance.cluster.memory
        names = {each.name for each in narrowed.space.schedules}
        return fits and solution.schedule in names and not permission_violations(narrowed, solution)

    assert allows(entry.at_most(instance, amount))
    assert not any(allows(entry.at_most(instance, less)) for less in entry.less(instance, amount))
    assert all(allows(entry.more(instance, less)) for less in entry.less(instance, amount))
    beyond = entry.more(instance, amount)
    assert beyond is instance or not allows(beyond)


def amounts(instance: Instance, solution: Solution) -> tuple[int, ...]:
    plan = Plan(instance, solution)
    return tuple(entry.amount(plan) for entry in ORDER)


@pytest.mark.longer
@settings(max_examples=4)
@given(
    gigabytes=st.floats(1.0, 8.0),
    within=st.sampled_from([0.01, 0.05, 0.2]),
    target=st.sampled_from(["none", "megatron"]),
)
def test_the_first_plan_has_no_more_than_any_plan_that_is_as_fast(gigabytes: float, within: float, target: str) -> None:
    from nest.formulate.instance import formulate
    from nest.formulate.problem import whole_problem

    known = registry()
    asked = problem(gigabytes, memory_risk=0.5) | {"search": {"target": target, "within": within}}
    instance, _ = formulate(whole_problem(asked, known)[0], known)
    result = solve(instance)
    assume(result.status == "optimal")
    assert result.batch_time is not None
    assert result.solution is not None
    first = with_first_plan(instance, result, within, Deadline())
    assert first.solution is not None
    assert first.batch_time is not None
    least = amounts(instance, first.solution)
    assert result.batch_time <= first.batch_time <= result.batch_time * (1 + within) * (1 + AGREEMENT)
    assert least <= amounts(instance, result.solution)
    gaps = [result.solution]
    for _ in range(6):
        other = solve(instance, runner_up=False, besides=gaps)
        if other.solution is None or other.batch_time is None or other.batch_time > result.batch_time * (1 + within):
            break
        assert least <= amounts(instance, other.solution)
        gaps.append(other.solution)


def test_a_profile_has_no_share_unless_one_is_written() -> None:
    plan = api.solve(MEASURED)
    assert (plan.status, plan.fastest, plan.safer, plan.simpler) == ("optimal", None, None, None)
    layers = {**plan.problem, "search": {**plan.problem["search"], "within": 0.5}}
    assert api.solve(layers).status == "near-optimal"


@pytest.fixture(scope="module")
def with_others() -> dict[str, PlanDocument]:
    """A plan that names a safer and a simpler one, and one that names the fastest."""
    found: dict[str, PlanDocument] = {}
    for asked in (problem(3.0), {**MIXING, "search": {"within": 0.01}}):
        plan = api.solve(asked)
        for name in ("fastest", "safer", "simpler"):
            if getattr(plan, name) is not None:
                found.setdefault(name, plan)
    return found


def test_safer_plans_are_likely_to_fit_and_simpler_ones_simpler_and_both_cost_little(
    with_others: dict[str, PlanDocument],
) -> None:
    assert {"fastest", "safer", "simpler"} == set(with_others)
    for name, plan in with_others.items():
        other = getattr(plan, name)
        assert plan.batch_time is not None
        assert other.slower_by == pytest.approx(other.batch_time / plan.batch_time - 1)
        assert other.slower_by <= COSTS_LITTLE + AGREEMENT
        assert api.check(plan).ok, api.check(plan).disagreements
    safer = with_others["safer"]
    assert safer.safer is not None
    assert (safer.fit_probability or 0.0) < LIKELY - AGREEMENT
    assert (safer.safer.fit_probability or 0.0) >= LIKELY - AGREEMENT
    fastest = with_others["fastest"]
    assert fastest.fastest is not None
    assert fastest.fastest.batch_time == pytest.approx(fastest.lower_bound)


@pytest.mark.longer
@pytest.mark.parametrize("name", ["fastest", "safer", "simpler"])
@pytest.mark.parametrize(
    ("key", "value"), [("batch_time", 1e-3), ("slower_by", -0.9), ("fit_probability", 0.5), ("memory", 1.0)]
)
def test_a_changed_figure_of_another_plan_is_noticed(
    with_others: dict[str, PlanDocument], name: str, key: str, value: float
) -> None:
    document = with_others[name].to_dict()
    document[name] = {**document[name], key: value}
    assert any(name in each for each in api.check(document).disagreements)


def test_a_near_optimal_plan_that_does_not_tell_the_fastest_is_noticed(with_others: dict[str, PlanDocument]) -> None:
    document = {**with_others["fastest"].to_dict(), "fastest": None}
    assert "The status is near-optimal, but fastest is missing." in api.check(document).disagreements


def test_plans_in_the_place_of_faster_and_safer_ones_are_noticed(with_others: dict[str, PlanDocument]) -> None:
    slower, riskier = with_others["simpler"].to_dict(), with_others["fastest"].to_dict()
    slower["fastest"], riskier["safer"] = slower["simpler"], riskier["fastest"]
    assert "fastest takes longer than the plan." in api.check(slower).disagreements
    assert "safer is not more likely to fit than the plan." in api.check(riskier).disagreements


def test_a_near_optimal_plan_is_no_slower_than_its_share_allows(with_others: dict[str, PlanDocument]) -> None:
    plan = with_others["fastest"]
    assert plan.lower_bound is not None
    document = {**plan.to_dict(), "lower_bound": plan.lower_bound / 2}
    said = "The status is near-optimal, but batch_time is more than 1 % above lower_bound."
    assert said in api.check(document).disagreements
