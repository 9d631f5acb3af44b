"""The memory risk: what a search admits, what fits, and the likeliest plan where none is likely enough."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.errors import InputError
from nest.formulate.instance import build_instance
from nest.formulate.risk import EVEN_ODDS, LIKELIER, LIKELIER_WITHIN, RISK
from nest.hooks.registry import registry
from nest.io import structure
from nest.plan.evaluate import PricedPlan, evaluate
from nest.plan.legality import permission_violations, structure_violations
from nest.spec import PlanDocument, Problem
from nest_studies.sweep.monotone import contradictions
from nest_studies.sweep.points import read_points
from tests.seeds import few
from tests.solve.every_plan import plans

MODEL: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 2, "hidden": 512, "ffn": 2048, "heads": 4, "vocab": 1000}},
    "training": {
        "global_batch": 8,
        "sequence_length": 1024,
        "micro_batch": [1],
        "schedule": ["1f1b"],
        "stack": "none",
        "graphs": "iteration",  # So small a model would wait for its host alone.
    },
    "search": {"zero": [0, 1], "target": "none"},
    "strategies": {"tp": [1, 2], "cp": [1]},
    "cluster": {"device": "a100-sxm-80g", "levels": [{"fanout": 2, "link": "nvlink3"}]},
}

DECIDED = {"tp": 1, "pp": 1, "dp": 2}


@cache
def least() -> float:
    """Bytes of the fullest stage of the plan that needs the fewest."""
    return min(max(stage.memory for stage in each.stages) for each in every(1e9))


def every(memory: float) -> list[PricedPlan]:
    """Every legal plan, whatever memory it needs."""
    instance = build_instance(structure(problem(memory), Problem), registry())
    legal = (each for each in plans(instance) if not structure_violations(instance, each))
    return [evaluate(instance, each) for each in legal if not permission_violations(instance, each)]


def problem(memory: float, **training: Any) -> dict[str, Any]:
    asked = {**MODEL["training"], **training}
    return {**MODEL, "training": asked, "cluster": {**MODEL["cluster"], "memory": memory}}


@pytest.fixture(scope="module")
def tight() -> float:
    """Bytes of a device on which no plan is 80 % likely to fit, and several are more likely than not to."""
    return least() * 1.16


@pytest.fixture(scope="module")
def daring(tight: float) -> PlanDocument:
    return nest.solve(problem(tight))


@pytest.mark.parametrize("more", few([1.001, 1.03, 1.16, 1.22], 1.16))
def test_where_nothing_is_that_likely_a_likelier_plan_near_the_optimum_of_even_odds_is_taken(more: float) -> None:
    written = problem(least() * more)
    plan = nest.solve(written)
    priced = every(least() * more)
    assert max(each.fit_probability for each in priced) < 1 - RISK
    optimum = min(each.batch_time for each in priced if each.fit_probability >= EVEN_ODDS - 1e-9)
    near = [each for each in priced if each.batch_time <= optimum * (1 + LIKELIER_WITHIN)]
    likeliest = max(each.fit_probability for each in near)
    assert plan.lower_bound == pytest.approx(optimum, rel=1e-9)
    assert likeliest - LIKELIER - 2e-9 <= plan.fit_probability <= likeliest + 2e-9
    # Step time is given up for something only.
    fastest = max(each.fit_probability for each in near if each.batch_time <= optimum * (1 + 1e-9))
    assert plan.batch_time <= optimum * (1 + 1e-9) or plan.fit_probability >= fastest + LIKELIER - 2e-9
    assert plan.status == ("optimal" if plan.batch_time == pytest.approx(optimum, rel=1e-9) else "near-optimal")
    assert plan.fits
    report = nest.check(plan)
    assert report.ok, report.disagreements


def test_the_likeliest_is_not_always_the_fastest(daring: PlanDocument, tight: float) -> None:
    fastest = nest.solve(problem(tight, memory_risk=0.5))
    assert daring.status == "near-optimal"
    assert (daring.fit_probability or 0.0) > (fastest.fit_probability or 0.0)
    assert (daring.batch_time or 0.0) > (fastest.batch_time or 0.0)


@pytest.mark.parametrize(("more", "asked"), [(1.3, {"memory_risk": 0.17}), (1.26, {"memory_risk": 0.22})])
def test_a_simpler_plan_keeps_to_a_risk_between_the_steps_that_count(more: float, asked: dict[str, float]) -> None:
    plan = nest.solve(problem(least() * more, **asked))
    assert plan.fit_probability is not None
    assert plan.fit_probability >= 1 - asked["memory_risk"] - 1e-9
    assert nest.check(plan).ok


@pytest.mark.parametrize("risk", [0.2, 0.05])
def test_a_risk_that_is_written_is_kept_to(tight: float, risk: float) -> None:
    plan = nest.solve(problem(tight, memory_risk=risk))
    assert plan.status == "infeasible"
    assert "including a margin of " in (plan.diagnosis or "")


@pytest.mark.longer
def test_what_cannot_fit_is_diagnosed_at_even_odds() -> None:
    plan, even = nest.solve(problem(least() * 0.9)), nest.solve(problem(least() * 0.9, memory_risk=0.5))
    assert plan.status == "infeasible"
    assert plan.diagnosis == even.diagnosis
    assert "memory_risk" not in plan.problem["training"]
    assert nest.check(plan).ok
    assert nest.verify(plan).verification["status"] == "proved"


@pytest.mark.parametrize("training", few([{}, {"memory_risk": 0.1}, {"memory_risk": 0.9}], {"memory_risk": 0.1}))
def test_a_decided_plan_fits_where_it_is_more_likely_than_not_to(training: dict[str, float]) -> None:
    """Whatever risk the search accepts: people ask about plans that no search would take."""
    needed = nest.evaluate({**problem(80e9), "fixed": DECIDED}).stages[0].memory
    for share, fits in ((0.93, False), (0.999, False), (1.001, True), (1.07, True), (1.3, True)):
        plan = nest.evaluate({**problem(needed * share, **training), "fixed": DECIDED})
        assert plan.fits is fits
        assert ((plan.fit_probability or 0.0) >= 0.5) is fits
        report = nest.check(plan)
        assert report.ok, report.disagreements
        assert not nest.check({**plan.to_dict(), "fits": not fits}).ok


@pytest.mark.longer
def test_a_proof_is_of_plans_that_the_search_admits() -> None:
    needed = nest.evaluate({**problem(80e9), "fixed": DECIDED}).stages[0].memory
    at_60_percent = nest.evaluate({**problem(needed * 1.07), "fixed": DECIDED})
    assert 0.55 < (at_60_percent.fit_probability or 0.0) < 0.65
    assert nest.verify(at_60_percent).verification["status"] in ("proved", "refuted")
    cautious = nest.evaluate({**problem(needed * 1.07, memory_risk=0.1), "fixed": DECIDED})
    assert cautious.fits
    with pytest.raises(InputError, match=r"less than training\.memory_risk requires"):
        nest.verify(cautious)


@pytest.mark.longer
def test_a_plan_that_is_faster_for_being_less_likely_to_fit_refutes_nothing(tmp_path: Path) -> None:
    memory = least() * 1.3
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(nest.solve(problem(memory, memory_risk=0.5)).to_dict()))
    found = nest.compare(problem(memory), planners=[], plans=[path])
    (entry,) = found.others
    assert entry.plan is not None
    assert (entry.plan.batch_time or 0.0) < (found.ours.lower_bound or 0.0)
    assert entry.plan.fits
    assert not entry.counts


def test_more_memory_may_take_longer_where_less_has_only_unlikely_plans(tmp_path: Path) -> None:
    (tmp_path / "problem.json").write_text(json.dumps(problem(1e9)))
    study = tmp_path / "study.json"
    study.write_text(json.dumps({"nest": 1, "base": "problem.json", "vary": {"cluster.memory": [1e9, 2e9]}}))
    points = read_points(study)

    def rows(*likely: float) -> list[dict[str, Any]]:
        times = [1.0, 1.5]
        return [
            {"status": "optimal", "batch_time": time, "lower_bound": time, "fit_probability": each, "cluster.memory": 0}
            for time, each in zip(times, likely, strict=True)
        ]

    assert list(contradictions(points, rows(0.6, 0.85))) == []
    for likely in ((0.85, 0.85), (0.6, 0.6), (0.85, 0.6)):
        assert len(list(contradictions(points, rows(*likely)))) == 1
