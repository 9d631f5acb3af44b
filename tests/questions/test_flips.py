"""Flips: on one side the plan is the best, on the other another one is, by whoever solves and prices."""

import pytest
from attrs import evolve

from nest import planner
from nest.hooks.registry import registry
from nest.questions.binding import needed_memory
from nest.questions.flips import LESS, MORE, PRECISION, Turn, flip, signature, turns
from nest.questions.kept import kept_time
from nest.questions.parameters import with_memory
from nest.questions.solver import Solver
from nest.spec import PlanDocument, Problem
from tests.oracle.brute_force import solve
from tests.oracle.check import plan_of, same
from tests.oracle.price import price, violations
from tests.questions.small import solved


def oracle_kept(problem: Problem, plan: PlanDocument) -> float | None:
    """What the oracle says the plan takes on another problem; None: it is none, or does not fit."""
    written, decided = problem.to_dict(), plan_of(plan.to_dict())
    if violations(written, decided):
        return None
    priced = price(written, decided)
    return float(priced["batch_time"]) if priced["fits"] else None


@pytest.mark.parametrize(
    ("kind", "seeds", "parameters"),
    [
        ("plain", range(8, 13), {"bandwidth", "memory", "global batch"}),
        ("chunked", range(7), {"memory", "global batch"}),
    ],
)
def test_flips_are_confirmed_by_solving_on_both_sides(kind: str, seeds: range, parameters: set[str]) -> None:
    flipped: dict[str, int] = {}
    for plan, problem, solver in solved(seeds, kind):
        for turn in turns(plan, problem, solver.plugins):
            found = flip(plan, problem, turn, solver)
            assert found.proved
            assert found.precise
            here = turn.parameter.changed(problem, found.same_at)
            kept, best = oracle_kept(here, plan), planner.solve(here)
            if signature(best, registry()) == signature(plan, registry()):
                assert same(best.batch_time, solve(here.to_dict()).batch_time)
            else:
                assert same(kept, best.batch_time)  # A tie.
            if found.changed_at is None:
                continue
            flipped[found.parameter.partition(" of ")[0]] = flipped.get(found.parameter.partition(" of ")[0], 0) + 1
            there = turn.parameter.changed(problem, found.changed_at)
            kept, answer, best = oracle_kept(there, plan), solve(there.to_dict()), planner.solve(there)
            assert same(best.batch_time, answer.batch_time)
            assert signature(best, registry()) != signature(plan, registry())
            assert answer.batch_time is None or kept is None or kept > answer.batch_time * (1 + 1e-12)
            assert found.outcome is not None
            assert (found.outcome.plan is None) == (answer.batch_time is None)
            assert (found.changed_at < found.value) == (turn.direction == LESS)
            if not turn.parameter.multiple_of:
                low, high = sorted((found.same_at, found.changed_at))
                assert high / low <= 1 + PRECISION
    assert parameters <= set(flipped)


def test_with_less_memory_a_plan_stays_the_best_as_long_as_it_fits() -> None:
    flipped = 0
    for plan, problem, solver in solved(range(5)):
        found = next(
            flip(plan, problem, each, solver)
            for each in turns(plan, problem, solver.plugins)
            if each.parameter.unit == "bytes" and each.direction == LESS
        )
        if found.changed_at is not None:
            flipped += 1
            assert found.kept is None
            assert found.changed_at < needed_memory(plan)
    assert flipped


def test_without_a_plan_the_least_memory_is_looked_for() -> None:
    asked = 0
    for plan, problem, solver in solved(range(16), feasible=False):
        for turn in turns(plan, problem, solver.plugins):
            assert (turn.parameter.unit, turn.direction) == ("bytes", MORE)
            found = flip(plan, problem, turn, solver)
            least = solve(problem.to_dict()).reachable_memory
            if found.changed_at is None:
                assert least is None or least > found.same_at * (1 - 1e-9)
                continue
            asked += 1
            assert found.same_at < least <= found.changed_at * (1 + 1e-9)
            assert found.changed_at <= found.same_at * (1 + PRECISION)
    assert asked


@pytest.mark.parametrize(("kind", "seed", "parameter"), [("chunked", 37, "global batch")])
def test_a_plan_that_is_the_best_again_farther_away_is_noticed(kind: str, seed: int, parameter: str) -> None:
    plan, problem, solver = next(solved(range(seed, seed + 1), kind))
    turn = next(
        each
        for each in turns(plan, problem, solver.plugins)
        if each.parameter.name == parameter and each.direction == MORE
    )
    found = flip(plan, problem, turn, solver)
    beyond = turn.parameter.changed(problem, 4 * turn.parameter.value)
    far = planner.solve(beyond)
    tie = same(oracle_kept(beyond, plan), far.batch_time)
    assert tie or signature(far, registry()) == signature(plan, registry())
    assert found.changed_at is not None
    there = turn.parameter.changed(problem, found.changed_at)
    kept, best = oracle_kept(there, plan), solve(there.to_dict()).batch_time
    assert kept > best * (1 + 1e-9)


@pytest.mark.slow
def test_what_dealing_layers_anew_brings_is_told() -> None:
    dealt = 0
    for plan, problem, solver in solved(range(1, 30, 7)):
        for turn in turns(plan, problem, solver.plugins):
            found = flip(plan, problem, turn, solver)
            here = turn.parameter.changed(problem, found.same_at)
            kept, best = oracle_kept(here, plan), solve(here.to_dict()).batch_time
            assert (found.same_kept is None) == (kept is None)
            if kept is not None:
                assert found.same_kept == pytest.approx(kept / best - 1, abs=1e-9)
            dealt += found.same_kept is None or found.same_kept > 1e-6
    assert dealt


def test_nothing_is_said_of_a_direction_in_which_nothing_can_be_asked() -> None:
    for plan, problem, solver in solved(range(5)):
        for turn in turns(plan, problem, solver.plugins):
            found = flip(plan, problem, turn, solver)
            assert found.same_at != found.value or found.changed_at is not None


def test_a_tie_is_no_change() -> None:
    plan, problem, _ = next(solved(range(20)))

    class Tied(Solver):
        """Says that another order of ranks is the best, which takes the same time."""

        def plan(self, problem: Problem, asking: str = "", start: PlanDocument | None = None) -> PlanDocument | None:
            time = kept_time(problem, plan_asked, registry())
            return evolve(plan_asked, rank_order=other, batch_time=time)

    plan_asked = plan
    other = "dp-inner" if plan.rank_order == "pp-inner" else "pp-inner"
    turn = next(t for t in turns(plan, problem, registry()) if t.parameter.unit == "bytes/s")
    found = flip(plan, problem, Turn(turn.parameter, MORE), Tied(registry()))
    assert found.changed_at is None


def test_what_more_memory_implies_of_less_is_not_solved_and_changes_no_flip(monkeypatch: pytest.MonkeyPatch) -> None:
    spared = 0
    for plan, problem, _ in solved(range(8, 12)):
        for turn in turns(plan, problem, registry()):
            if turn.parameter.name != "memory":
                continue
            quick, thorough = Solver(), Solver()
            monkeypatch.setattr(
                thorough,
                "within",
                lambda asked, _, memory, __, asking="", start=None, solver=thorough: solver.plan(
                    with_memory(asked, memory), asking, start
                ),
            )
            found, expected = flip(plan, problem, turn, quick), flip(plan, problem, turn, thorough)
            assert found.to_dict() == expected.to_dict()
            assert quick.solves <= thorough.solves
            spared += thorough.solves - quick.solves
    assert spared
