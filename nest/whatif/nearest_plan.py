"""Nearest plan that a framework can run."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from nest.deployment import violations
from nest.errors import InputError
from nest.formulate.decisions import Decision, decisions, open_problem
from nest.formulate.problem import carried_problem
from nest.formulate.stack import on_stack_of
from nest.formulate.target import limits_of
from nest.hooks.registry import Registry
from nest.spec import PlanDocument, Problem

Search = Callable[[Problem], PlanDocument]  # Solves a problem.
FAR = 0.1  # Share by which the nearest plan may take longer than the best one of the target, which is exported instead.
EVEN = "divided evenly"  # Text of a decision that a plan does not list: layers follow from the number of stages.


@frozen
class Nearest:
    """Replacement for a plan that a target cannot run."""

    target: str  # Name of the exporter.
    plan: PlanDocument  # Nearest plan; the original if the target can run it.
    reasons: tuple[str, ...] = ()  # Why the target cannot run the original, a sentence each; empty: it can.
    changes: tuple[tuple[str, str, str], ...] = ()  # Changed decisions, the most important first: name, before, now.
    loss: float = 0.0  # Share by which it is slower than the original; below 0: it is faster.
    best: float | None = None  # Step time (s) of the best plan that the target can run.
    best_loss: float | None = None  # Share by which the nearest plan is slower than that.

    def to_dict(self) -> dict[str, Any]:
        """Convert all but the plan itself to plain mappings, lists and numbers."""
        return {
            "target": self.target,
            "reasons": list(self.reasons),
            "changes": [{"name": name, "before": before, "now": now} for name, before, now in self.changes],
            "batch_time": self.plan.batch_time,
            "loss": self.loss,
            "best_batch_time": self.best,
            "best_loss": self.best_loss,
        }


def nearest_plan(plan: PlanDocument, target: str, known: Registry, search: Search) -> Nearest | None:
    """Find the nearest plan that a target can run; None: it can run no feasible plan.

    Decisions are kept in the order of `nest.formulate.decisions.decisions`: one is given up if no feasible plan of the
    target keeps it along with those before. Of the plans that keep the same, the fastest is the nearest.

    Args:
        plan: feasible.
        target: name of an exporter with limits.

    Raises:
        InputError: there is no such target.
    """
    problem = carried_problem(plan, known)
    limits = limits_of(target, problem, known, "--nearest")
    reasons = tuple(violations(plan, limits, target))
    if not reasons:
        return Nearest(target, plan)
    free = open_problem(on_stack_of(problem, target, known), plan, limits, target, known)
    plan_found, fastest = search(_most_decisions(free, decisions(plan, known), known)), search(free)
    if plan_found.batch_time is None or plan.batch_time is None:
        return None
    best = fastest.batch_time
    if best is not None and plan_found.batch_time > best * (1 + FAR):
        plan_found = fastest
    return Nearest(
        target,
        plan_found,
        reasons,
        _changes(plan, plan_found, known),
        (plan_found.batch_time or 0.0) / plan.batch_time - 1,
        best,
        None if best is None or plan_found.batch_time is None else plan_found.batch_time / best - 1,
    )


def _most_decisions(problem: Problem, wanted: Sequence[Decision], known: Registry) -> Problem:
    """Narrow a problem to as many decisions as leave a plan, earlier ones first."""
    left = list(wanted)
    if not _feasible(problem, known):
        return problem
    while left and not _feasible(_narrowed(problem, left), known):
        # The first so many leave a plan, one more leaves none.
        low, high = 0, len(left)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _feasible(_narrowed(problem, left[:middle]), known) else (low, middle)
        problem, left = _narrowed(problem, left[:low]), left[high:]
    return _narrowed(problem, left)


def _narrowed(problem: Problem, decided: Sequence[Decision]) -> Problem:
    for decision in decided:
        problem = decision.keep(problem)
    return problem


def _feasible(problem: Problem, known: Registry) -> bool:
    from nest.formulate.instance import build_instance
    from nest.solve.solver import feasible

    try:
        return feasible(build_instance(problem, known))
    except InputError:  # No list of choices allows it, or the target lacks it.
        return False


def _changes(before: PlanDocument, now: PlanDocument, known: Registry) -> tuple[tuple[str, str, str], ...]:
    old = {each.name: each.text for each in decisions(before, known)}
    new = {each.name: each.text for each in decisions(now, known)}
    names = dict.fromkeys([*old, *new])
    values = [(name, old.get(name, EVEN), new.get(name, EVEN)) for name in names]
    return tuple(change for change in values if change[1] != change[2])
