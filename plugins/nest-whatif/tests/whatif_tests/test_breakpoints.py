"""Flips: on one side the plan is the best, on the other another one is, by whoever solves and prices."""

import pytest

from nest import api
from nest.hooks.registry import registry
from nest.report.plan_summary import needed_memory
from nest.spec import PlanDocument, Problem
from nest.tolerances import HARDLY_FASTER
from nest.whatif.parameters import with_memory
from nest.whatif.solver import Solver
from nest_whatif.breakpoints import LESS, MORE, PRECISION, breakpoint_of, sweeps
from nest_whatif.outcome import signature
from tests.oracle.brute_force import solve
from tests.oracle.check import plan_of, same
from tests.oracle.price import price, violations
from tests.whatif.small import solved


def oracle_kept(problem: Problem, plan: PlanDocument) -> float | None:
    """What the oracle says the plan takes on another problem; None: it is none, or does not fit."""
    written, decided = problem.to_dict(), plan_of(plan.to_dict())
    if violations(written, decided):
        return None
    priced = price(written, decided)
    return float(priced["batch_time"]) if priced["fits"] else None


@pytest.mark.longer
@pytest.mark.parametrize(
    ("kind", "seeds", "parameters"),
    [
        ("plain", range(8, 11), {"bandwidth", "memory", "global batch"}),
        ("chunked", range(4), {"memory", "global batch"}),
    ],
)
def test_flips_are_confirmed_by_solving_on_both_sides(kind: str, seeds: range, parameters: set[str]) -> None:
    flipped: dict[str, int] = {}
    for plan, problem, solver in solved(seeds, kind):
        for sweep in sweeps(plan, problem, solver.plugins):
            found = breakpoint_of(plan, problem, sweep, solver)
            assert found.proved
            assert found.precise
            here = sweep.parameter.changed(problem, found.same_at)
            kept, best = oracle_kept(here, plan), api.solve(here)
            if signature(best, registry()) == signature(plan, registry()):
                assert same(best.batch_time, solve(here.to_dict()).batch_time)
            else:
                assert kept is not None
                assert kept <= best.batch_time * (1 + HARDLY_FASTER + 1e-9)
            if found.changed_at is None:
                continue
            flipped[found.parameter.partition(" of ")[0]] = flipped.get(found.parameter.partition(" of ")[0], 0) + 1
            there = sweep.parameter.changed(problem, found.changed_at)
            kept, answer, best = oracle_kept(there, plan), solve(there.to_dict()), api.solve(there)
            assert same(best.batch_time, answer.batch_time)
            assert signature(best, registry()) != signature(plan, registry())
            assert answer.batch_time is None or kept is None or kept > answer.batch_time * (1 + HARDLY_FASTER - 1e-9)
            assert found.outcome is not None
            assert (found.outcome.plan is None) == (answer.batch_time is None)
            assert (found.changed_at < found.value) == (sweep.direction == LESS)
            if not sweep.parameter.multiple_of:
                low, high = sorted((found.same_at, found.changed_at))
                assert high / low <= 1 + PRECISION
    assert parameters <= set(flipped)


@pytest.mark.longer
def test_with_less_memory_a_plan_stays_the_best_as_long_as_it_fits() -> None:
    flipped = 0
    for plan, problem, solver in solved(range(5)):
        found = next(
            breakpoint_of(plan, problem, each, solver)
            for each in sweeps(plan, problem, solver.plugins)
            if each.parameter.unit == "bytes" and each.direction == LESS
        )
        if found.changed_at is not None:
            flipped += 1
            assert found.kept is None
            assert found.changed_at < needed_memory(plan)
    assert flipped


@pytest.mark.longer
def test_without_a_plan_the_least_memory_is_looked_for() -> None:
    asked = 0
    for plan, problem, solver in solved(range(16), feasible=False):
        for sweep in sweeps(plan, problem, solver.plugins):
            assert (sweep.parameter.unit, sweep.direction) == ("bytes", MORE)
            found = breakpoint_of(plan, problem, sweep, solver)
            least = solve(problem.to_dict()).reachable_memory
            if found.changed_at is None:
                assert least is None or least > found.same_at * (1 - 1e-9)
                continue
            asked += 1
            assert found.same_at < least <= found.changed_at * (1 + 1e-9)
            assert found.changed_at <= found.same_at * (1 + PRECISION)
    assert asked


@pytest.mark.longer
@pytest.mark.parametrize(("kind", "seed", "parameter"), [("chunked", 15, "global batch")])
def test_a_plan_that_is_the_best_again_farther_away_is_noticed(kind: str, seed: int, parameter: str) -> None:
    plan, problem, solver = next(solved(range(seed, seed + 1), kind))
    sweep = next(
        each
        for each in sweeps(plan, problem, solver.plugins)
        if each.parameter.name == parameter and each.direction == MORE
    )
    found = breakpoint_of(plan, problem, sweep, solver)
    beyond = sweep.parameter.changed(problem, 4 * sweep.parameter.value)
    far = api.solve(beyond)
    kept = oracle_kept(beyond, plan)
    hardly_slower = kept is not None and kept <= far.batch_time * (1 + HARDLY_FASTER + 1e-9)
    assert hardly_slower or signature(far, registry()) == signature(plan, registry())
    assert found.changed_at is not None
    there = sweep.parameter.changed(problem, found.changed_at)
    kept, best = oracle_kept(there, plan), solve(there.to_dict()).batch_time
    assert kept > best * (1 + HARDLY_FASTER - 1e-9)


@pytest.mark.longer
def test_what_more_memory_implies_of_less_is_not_solved_and_changes_no_flip(monkeypatch: pytest.MonkeyPatch) -> None:
    spared = 0
    for plan, problem, _ in solved(range(8, 12)):
        for sweep in sweeps(plan, problem, registry()):
            if sweep.parameter.name != "memory":
                continue
            quick, thorough = Solver(), Solver()
            monkeypatch.setattr(
                thorough,
                "within",
                lambda asked, _, memory, __, asking="", start=None, solver=thorough: solver.plan(
                    with_memory(asked, memory), asking, start
                ),
            )
            found, expected = breakpoint_of(plan, problem, sweep, quick), breakpoint_of(plan, problem, sweep, thorough)
            assert found.to_dict() == expected.to_dict()
            assert quick.solves <= thorough.solves
            spared += thorough.solves - quick.solves
    assert spared
