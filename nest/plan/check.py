"""Re-derives every number of a plan document and compares."""

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from attrs import asdict, evolve, frozen

from nest.errors import InputError
from nest.instance import Instance, Solution
from nest.plan.document import document, solution_of
from nest.plan.evaluate import PricedPlan, evaluate
from nest.plan.legality import permission_violations, structure_violations
from nest.spec import CandidateSummary, PlanDocument, StageRecord
from nest.tolerances import AGREEMENT


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


Figures = Callable[[Solution, PricedPlan], Mapping[str, Any]]
"""Derives the `summary` of a plan."""


def check(instance: Instance, plan: PlanDocument, figures: Figures | None = None) -> CheckReport:
    """Whether every number of `plan` follows from its decisions and its problem.

    Only a plan that a search found (it has a lower bound) must keep to the lists and constraints of its problem: people
    also price plans that do not. What the search says of itself (`statistics`, `runner_up`, `verification`) does not
    follow from the plan and is not looked at.

    Args:
        instance: the plan's problem in numbers.
        plan: as written.
        figures: derives the plan's `summary`; left out, the summary is not looked at.
    """
    if plan.status == "infeasible":
        return _check_absence(plan)
    try:
        solution = solution_of(instance, plan)
    except InputError as error:
        return CheckReport((f"Not a plan of its problem: {error}",), 1)
    broken = structure_violations(instance, solution)
    if plan.lower_bound is not None and not broken:
        broken = permission_violations(instance, solution)
    if broken:
        return CheckReport(tuple(f"Not a plan: {sentence}." for sentence in broken), len(broken))
    priced = evaluate(instance, solution)
    fresh = document(
        instance,
        solution,
        priced,
        status=plan.status,
        lower_bound=plan.lower_bound,
        problem=plan.problem,
    )
    comparisons = _comparisons(plan, fresh)
    if figures is not None:
        comparisons += _common("summary", plan.summary, figures(solution, priced), priced.batch_time)
    found = [
        f"{place} is {_shown(stated)}, recomputed {_shown(derived)}."
        for place, stated, derived, unit in comparisons
        if not _agree(stated, derived, unit)
    ]
    return CheckReport((*found, *_promises(plan, fresh)), len(comparisons))


def _check_absence(plan: PlanDocument) -> CheckReport:
    """Whether a document that says there is no plan states none."""
    names = ("batch_time", "lower_bound", "throughput", "candidate", "data_parallel", "micro_batches")
    stated = [name for name in names if getattr(plan, name) is not None] + (["stages"] if plan.stages else [])
    found = [f"The status is infeasible, but {name} is given." for name in stated]
    return CheckReport(tuple(found), len(found))


Comparison = tuple[str, Any, Any, float]
"""A place, what is stated there, what is derived, and how large the numbers were that it is a difference of."""


def _common(place: str, stated: Any, derived: Any, batch_time: float) -> list[Comparison]:
    """What two summaries both say."""
    if isinstance(stated, Mapping) and isinstance(derived, Mapping):
        return [
            pair
            for name in stated
            if name in derived
            for pair in _common(f"{place}.{name}", stated[name], derived[name], batch_time)
        ]
    # Parts of the batch time are differences, and of that size when they are 0.
    return [(place, stated, derived, batch_time if ".time_shares." in place else 1.0)]


def _comparisons(plan: PlanDocument, fresh: PlanDocument) -> list[Comparison]:
    names = ("batch_time", "throughput", "fits", "micro_batches", "violates")
    pairs: list[Comparison] = [(name, getattr(plan, name), getattr(fresh, name), 0.0) for name in names]
    pairs.append(("candidate", _taking_part(plan.candidate), _taking_part(fresh.candidate), 0.0))
    fields = ("devices", "time", "sync_time", "memory", "in_flight", "level_in", "level_out")
    for index, (stated, derived) in enumerate(zip(plan.stages, fresh.stages, strict=True)):
        pairs += [(f"stages[{index}].{name}", getattr(stated, name), getattr(derived, name), 0.0) for name in fields]
        pairs += _told(f"stages[{index}]", stated, derived)
    return pairs


def _told(place: str, stated: StageRecord, derived: StageRecord) -> list[Comparison]:
    """What a stage's memory is compared with and made of, and what it sends, as far as it is told.

    Parts are differences of the memory's size.
    """
    pairs: list[Comparison] = []
    if stated.upper_memory is not None:
        pairs.append((f"{place}.upper_memory", stated.upper_memory, derived.upper_memory, 0.0))
    if stated.bytes_out is not None:
        pairs.append((f"{place}.bytes_out", stated.bytes_out, derived.bytes_out, 0.0))
    if stated.memory_breakdown is not None and derived.memory_breakdown is not None:
        parts = asdict(derived.memory_breakdown)
        pairs += [
            (f"{place}.memory_breakdown.{name}", getattr(stated.memory_breakdown, name), part, derived.memory)
            for name, part in parts.items()
        ]
    return pairs


def _taking_part(candidate: CandidateSummary | None) -> CandidateSummary | None:
    """The candidate without degrees of 1: which strategies take no part depends on the plug-ins there are."""
    if candidate is None:
        return None
    return evolve(
        candidate,
        degrees={name: degree for name, degree in candidate.degrees.items() if degree > 1},
        micro_batch=candidate.micro_batch or candidate.samples,
    )


def _promises(plan: PlanDocument, fresh: PlanDocument) -> list[str]:
    """What the status claims beyond the numbers."""
    found = []
    bound, time = plan.lower_bound, fresh.batch_time
    if plan.status == "optimal":
        if not _agree(bound, time):
            found.append(f"The status is optimal, but lower_bound is {_shown(bound)} and batch_time {_shown(time)}.")
        if not fresh.fits:
            found.append("The status is optimal, but a stage needs more memory than a device has.")
    elif bound is not None and time is not None and bound > time * (1 + AGREEMENT):
        found.append(f"lower_bound {_shown(bound)} exceeds batch_time {_shown(time)}.")
    return found


def _agree(stated: Any, derived: Any, unit: float = 0.0) -> bool:
    numbers = isinstance(stated, (int, float)) and isinstance(derived, (int, float))
    if numbers and (isinstance(stated, float) or isinstance(derived, float)):
        return math.isclose(stated, derived, rel_tol=AGREEMENT, abs_tol=max(AGREEMENT * unit, sys.float_info.min))
    return bool(stated == derived)


def _shown(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
