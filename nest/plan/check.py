"""Re-derives every number of a plan document and compares."""

import math
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.instance import Instance
from nest.plan.document import document, solution_of
from nest.plan.evaluate import evaluate
from nest.plan.legality import permission_violations, structure_violations
from nest.spec import PlanDocument

TOLERANCE = 1e-9
"""Relative difference below which two numbers agree (PROBLEM.md section 5)."""


@frozen
class CheckReport:
    """What a check found.

    Attributes:
        disagreements: a sentence each; empty when the plan holds.
        compared: numbers and names compared.
    """

    disagreements: tuple[str, ...]
    compared: int

    @property
    def ok(self) -> bool:
        """Whether the plan holds."""
        return not self.disagreements


def check(instance: Instance, plan: PlanDocument) -> CheckReport:
    """Whether every number of `plan` follows from its decisions and its problem.

    Only a plan that a search found (it has a lower bound) must keep to the lists and constraints of its problem: people
    also price plans that do not.
    """
    if plan.status == "infeasible":
        return CheckReport((), 0)
    try:
        solution = solution_of(instance, plan)
    except InputError as error:
        return CheckReport((f"Not a plan of its problem: {error}",), 1)
    broken = structure_violations(instance, solution)
    if plan.lower_bound is not None and not broken:
        broken = permission_violations(instance, solution)
    if broken:
        return CheckReport(tuple(f"Not a plan: {sentence}." for sentence in broken), len(broken))
    fresh = document(
        instance,
        solution,
        evaluate(instance, solution),
        status=plan.status,
        lower_bound=plan.lower_bound,
        problem=plan.problem,
    )
    comparisons = _comparisons(plan, fresh)
    found = [
        f"{place} is {_shown(stated)}, recomputed {_shown(derived)}."
        for place, stated, derived in comparisons
        if not _agree(stated, derived)
    ]
    return CheckReport((*found, *_promises(plan, fresh)), len(comparisons))


def _comparisons(plan: PlanDocument, fresh: PlanDocument) -> list[tuple[str, Any, Any]]:
    names = ("batch_time", "throughput", "fits", "micro_batches", "candidate")
    pairs = [(name, getattr(plan, name), getattr(fresh, name)) for name in names]
    fields = ("devices", "time", "sync_time", "memory", "in_flight", "level_in", "level_out")
    for index, (stated, derived) in enumerate(zip(plan.stages, fresh.stages, strict=True)):
        pairs += [(f"stages[{index}].{name}", getattr(stated, name), getattr(derived, name)) for name in fields]
    return pairs


def _promises(plan: PlanDocument, fresh: PlanDocument) -> list[str]:
    """What the status claims beyond the numbers."""
    found = []
    bound, time = plan.lower_bound, fresh.batch_time
    if plan.status == "optimal":
        if not _agree(bound, time):
            found.append(f"The status is optimal, but lower_bound is {_shown(bound)} and batch_time {_shown(time)}.")
        if not fresh.fits:
            found.append("The status is optimal, but a stage needs more memory than a device has.")
    elif bound is not None and time is not None and bound > time * (1 + TOLERANCE):
        found.append(f"lower_bound {_shown(bound)} exceeds batch_time {_shown(time)}.")
    return found


def _agree(stated: Any, derived: Any) -> bool:
    if isinstance(stated, float) and isinstance(derived, (int, float)):
        return math.isclose(stated, derived, rel_tol=TOLERANCE, abs_tol=1e-300)
    return bool(stated == derived)


def _shown(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
