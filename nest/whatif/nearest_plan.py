"""The nearest plan that a framework can run, where it cannot run the plan itself."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from nest.deployment import violations
from nest.errors import InputError
from nest.formulate.decisions import Decision, decisions, open_problem
from nest.formulate.problem import carried_problem
from nest.formulate.target import limits_of
from nest.hooks.registry import Registry
from nest.spec import PlanDocument, Problem

Search = Callable[[Problem], PlanDocument]
"""Solves a problem."""

EVEN = "divided evenly"
"""The text of a decision that a plan does not list: its layers follow from the number of stages."""


@frozen
class Nearest:
    """A plan that a target can run in place of one that it cannot.

    Attributes:
        target: name of the exporter.
        plan: the nearest plan; the one asked about where the target can run it.
        reasons: why the target cannot run the one asked about, a sentence each; none: it can.
        changes: what the plan decides otherwise, the most important first: name, before, now.
        loss: by how much it takes longer than the one asked about, as a share of that; below 0: it is faster.
        best: step time of the best plan that the target can run, seconds.
        best_loss: by how much the nearest takes longer than that, as a share of it.
    """

    target: str
    plan: PlanDocument
    reasons: tuple[str, ...] = ()
    changes: tuple[tuple[str, str, str], ...] = ()
    loss: float = 0.0
    best: float | None = None
    best_loss: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """All but the plan itself in plain mappings, lists and numbers."""
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
    """The nearest plan to `plan` that a target can run; None where it can run none that is feasible.

    Decisions are kept in the order of `nest.formulate.decisions.decisions`: one is given up where no feasible plan
    of the target keeps it beside those kept before it. Of the plans that keep the same, the fastest is the nearest.

    Args:
        plan: feasible.
        target: name of an exporter that says what its framework can run.
        known: registered exporters and the like.
        search: solves a problem.

    Raises:
        InputError: there is no such target.
    """
    problem = carried_problem(plan, known)
    limits = limits_of(target, problem, known, "--nearest")
    reasons = tuple(violations(plan, limits, target))
    if not reasons:
        return Nearest(target, plan)
    free = open_problem(problem, plan, limits, target, known)
    plan_found = search(_most_decisions(free, decisions(plan, known), known))
    if plan_found.batch_time is None or plan.batch_time is None:
        return None
    best = search(free).batch_time
    return Nearest(
        target,
        plan_found,
        reasons,
        _changes(plan, plan_found, known),
        plan_found.batch_time / plan.batch_time - 1,
        best,
        None if best is None else plan_found.batch_time / best - 1,
    )


def _most_decisions(problem: Problem, wanted: Sequence[Decision], known: Registry) -> Problem:
    """`problem` narrowed to as many of the decisions as leave a plan, earlier ones before later ones."""
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
    """What two plans decide differently."""
    old = {each.name: each.text for each in decisions(before, known)}
    new = {each.name: each.text for each in decisions(now, known)}
    names = dict.fromkeys([*old, *new])
    values = [(name, old.get(name, EVEN), new.get(name, EVEN)) for name in names]
    return tuple(change for change in values if change[1] != change[2])
