"""Derives every number of a plan document again and compares."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import asdict, evolve, fields, frozen

from nest.errors import InputError
from nest.instance import Instance, Solution
from nest.plan.certificate import Certificate, certify_plan
from nest.plan.document import document, solution_of
from nest.plan.evaluate import PricedPlan, evaluate
from nest.plan.layout import schedule_of
from nest.plan.legality import permission_violations, structure_violations
from nest.spec import CandidateSummary, PlanDocument, StageRecord, Training
from nest.tolerances import AGREEMENT, PROOF


@frozen
class CheckReport:
    """Result of a check."""

    disagreements: tuple[str, ...]  # A sentence each; empty if the plan holds.
    compared: int  # Numbers and names compared.
    certificate: Certificate | None = None  # Of the schedule; None: not requested.
    notes: tuple[str, ...] = ()  # On oddities that are no disagreement, a sentence each.

    @property
    def ok(self) -> bool:
        """True if the plan holds."""
        return not self.disagreements

    def with_(self, other: "CheckReport") -> "CheckReport":
        """Merge two reports."""
        both = (*self.disagreements, *other.disagreements)
        return evolve(self, disagreements=both, compared=self.compared + other.compared)


Comparison = tuple[str, Any, Any, float]
"""A place, the stated and the derived value, and the size of the numbers that it is a difference of."""

WITHOUT_A_PLAN = ("nest", "status", "problem", "verification", "diagnosis", "statistics", "plugins")
"""Keys of a document without a plan."""

PROOFS = ("proved", "refuted", "open")  # Outcomes of a proof.
Figures = Callable[[Solution, PricedPlan], Mapping[str, Any]]  # Derives the `summary` of a plan.


def check(instance: Instance, plan: PlanDocument, figures: Figures | None = None) -> CheckReport:
    """Check that every number of `plan` follows from its decisions and its problem.

    Only a plan from a search (with a lower bound) must satisfy the lists and constraints of its problem: others may be
    priced regardless. Claims of searches about themselves are not checked (docs/reference/plan.md, "What is checked");
    `check_contender` checks other plans in a document.

    Args:
        instance: the plan's problem in numbers.
        figures: derives the plan's `summary`; None: skip the summary.
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
        unknown=plan.unknown,
    )
    comparisons = _comparisons(plan, fresh)
    if figures is not None:
        comparisons += _common("summary", plan.summary, figures(solution, priced), priced.batch_time)
    faults = (*_disagreements(comparisons), *_promises(plan, fresh, priced.admitted), *_proof_faults(plan))
    return CheckReport(faults, len(comparisons))


def check_contender(
    instance: Instance,
    place: str,
    stated: Mapping[str, Any],
    other: PlanDocument,
    describe: Figures,
    least: float = 0.0,
) -> CheckReport:
    """Check that another plan in a document is a plan of its problem, and that its figures follow.

    Args:
        instance: the problem in numbers, with the candidates of the other plan.
        place: such as `runner_up`.
        stated: its figures.
        other: its document; only the decisions are read.
        describe: derives the figures.
        least: least seconds it may take if the document's own plan is the best.
    """
    try:
        solution = solution_of(instance, other)
    except InputError as error:
        return CheckReport((f"{place} is not a plan of the problem: {error}",), 1)
    broken = structure_violations(instance, solution) or permission_violations(instance, solution)
    if broken:
        return CheckReport(tuple(f"{place} is not a plan: {sentence}." for sentence in broken), len(broken))
    priced = evaluate(instance, solution)
    derived = dict(describe(solution, priced))
    fresh = document(instance, solution, priced, status="feasible", lower_bound=None, problem={})
    candidates = (_taking_part(other.candidate), _taking_part(fresh.candidate))
    comparisons = _common(place, _open(stated), _open(derived), 0.0)
    comparisons.append((f"{place}.decisions.candidate", *candidates, 0.0))
    disagreements = _disagreements(comparisons)
    if not priced.admitted:
        disagreements.append(f"{place} needs more memory than the search admits.")
    if priced.batch_time < least * (1 - AGREEMENT):
        disagreements.append(f"{place} is faster, {_short(priced.batch_time)} s, than the plan, {_short(least)} s.")
    return CheckReport(tuple(disagreements), len(comparisons))


def _open(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of another plan without its candidate, whose degrees of 1 depend on the installed plug-ins."""
    decisions = {name: value for name, value in stated["decisions"].items() if name != "candidate"}
    return {**stated, "decisions": decisions}


def _disagreements(comparisons: Iterable[Comparison]) -> list[str]:
    return [
        f"{place} is {_short(stated)}, recomputed {_short(derived)}."
        for place, stated, derived, unit in comparisons
        if not _agree(stated, derived, unit)
    ]


def certified(report: CheckReport, instance: Instance, plan: PlanDocument, training: Training) -> CheckReport:
    """Add the certificate of a plan's schedule and its faults to a report; one with faults stays.

    Args:
        plan: feasible.
        training: of its problem.
    """
    if not report.ok:
        return report
    certificate = certify_plan(plan, schedule_of(instance, solution_of(instance, plan)), training)
    faults = [f"The schedule {certificate.schedule!r} {fault}." for fault in certificate.faults]
    stated = (plan.verification or {}).get("certificate")
    if stated is not None:
        faults += _disagreements(_common("verification.certificate", stated, certificate.to_dict(), 0.0))
    return evolve(report, disagreements=tuple(faults), certificate=certificate)


def _check_absence(plan: PlanDocument) -> CheckReport:
    """Check that a document without a plan states none."""
    names = [field.name for field in fields(PlanDocument) if field.name not in WITHOUT_A_PLAN]
    stated = [name for name in names if getattr(plan, name) not in (None, False, (), {})]
    faults = [f"The status is infeasible, but {name} is given." for name in stated]
    return CheckReport(tuple(faults), len(faults))


def _common(place: str, stated: Any, derived: Any, batch_time: float) -> list[Comparison]:
    """Compare the common entries of two summaries."""
    if isinstance(stated, Mapping) and isinstance(derived, Mapping):
        return [
            pair
            for name in stated
            if name in derived
            for pair in _common(f"{place}.{name}", stated[name], derived[name], batch_time)
        ]
    if isinstance(stated, list) and isinstance(derived, list) and len(stated) == len(derived):
        numbered = enumerate(zip(stated, derived, strict=True))
        return [pair for index, both in numbered for pair in _common(f"{place}[{index}]", *both, batch_time)]
    # Parts of the step time are differences, and of that size when they are 0; so are shares, of 1.
    parts = (".time_shares.", ".collectives[")
    unit = batch_time if any(part in place for part in parts) else 0.0 if place.endswith("batch_time") else 1.0
    return [(place, stated, derived, unit)]


def _comparisons(plan: PlanDocument, fresh: PlanDocument) -> list[Comparison]:
    names = ("batch_time", "throughput", "fits", "micro_batches", "violates")
    pairs: list[Comparison] = [(name, getattr(plan, name), getattr(fresh, name), 0.0) for name in names]
    if plan.batch_time_range is not None:
        derived_range = asdict(fresh.batch_time_range) if fresh.batch_time_range is not None else {}
        for key, value in asdict(plan.batch_time_range).items():
            pairs.append((f"batch_time_range.{key}", value, derived_range.get(key), 0.0))
    if plan.fit_probability is not None:
        pairs.append(("fit_probability", plan.fit_probability, fresh.fit_probability, 0.0))
    pairs.append(("candidate", _taking_part(plan.candidate), _taking_part(fresh.candidate), 0.0))
    fields = ("devices", "time", "sync_time", "memory", "in_flight", "level_in", "level_out")
    for index, (stated, derived) in enumerate(zip(plan.stages, fresh.stages, strict=True)):
        pairs += [(f"stages[{index}].{name}", getattr(stated, name), getattr(derived, name), 0.0) for name in fields]
        pairs += [(f"stages[{index}].pool", stated.pool, derived.pool, 0.0)] if derived.pool is not None else []
        pairs += _differences(f"stages[{index}]", stated, derived)
    return pairs


def _differences(place: str, stated: StageRecord, derived: StageRecord) -> list[Comparison]:
    """Compare a stage's memory limit, memory parts (to the precision of the whole) and traffic, if given."""
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
    """Drop degrees of 1: unused strategies depend on the installed plug-ins."""
    if candidate is None:
        return None
    return evolve(
        candidate,
        degrees={name: degree for name, degree in candidate.degrees.items() if degree > 1},
        micro_batch=candidate.micro_batch or candidate.samples,
    )


def _promises(plan: PlanDocument, fresh: PlanDocument, admitted: bool) -> list[str]:
    """Check the status's claims beyond the numbers."""
    faults = []
    bound, time = plan.lower_bound, fresh.batch_time
    if plan.status in ("optimal", "near-optimal") and not admitted:
        faults.append(f"The status is {plan.status}, but a stage needs more memory than the search admits.")
    if plan.status == "optimal":
        if not (_agree(bound, time) or _within_proof(bound, time)):
            faults.append(f"The status is optimal, but lower_bound is {_short(bound)} and batch_time {_short(time)}.")
    elif bound is None or time is None:
        pass
    elif plan.status == "near-optimal" and plan.fastest is None:
        faults.append("The status is near-optimal, but fastest is missing.")
    elif bound > time * (1 + AGREEMENT):
        faults.append(f"lower_bound {_short(bound)} exceeds batch_time {_short(time)}.")
    if plan.fastest is not None and plan.fastest.batch_time > (time or 0.0) * (1 + AGREEMENT):
        faults.append("fastest takes longer than the plan.")
    if plan.safer is not None and (plan.safer.fit_probability or 0.0) <= (fresh.fit_probability or 0.0):
        faults.append("safer is not more likely to fit than the plan.")
    return faults


def _proof_faults(plan: PlanDocument) -> list[str]:
    """Faults of a proof's record compared with its own numbers and the plan's."""
    # Of a plan that is simpler than the fastest it is proved that none is faster than that one.
    proof, time = plan.verification, plan.lower_bound if plan.status == "near-optimal" else plan.batch_time
    if proof is None or time is None:
        return []
    faults = _claim_faults("verification", proof, time)
    better = proof.get("better_batch_time")
    if better is not None and not _agree(better, time):
        faults.append(f"verification.better_batch_time is {_short(better)}, but the plan takes {_short(time)}.")
    free = proof.get("free")
    if isinstance(free, Mapping):
        faults += _claim_faults("verification.free", free, time)
        least = free.get("better_batch_time") or time
        cost = None if free.get("status") == "open" and least == time else time / least - 1
        if not _agree(free.get("cost"), cost, 1.0):
            faults.append(f"verification.free.cost is {_short(free.get('cost'))}, recomputed {_short(cost)}.")
    return faults


def _claim_faults(place: str, proof: Mapping[str, Any], time: float) -> list[str]:
    """Faults of one proof's claims on a plan that takes `time`."""
    status, better, bound = proof.get("status"), proof.get("better_batch_time"), proof.get("bound")
    best = time if better is None else better
    derived = best / bound - 1 if bound else 0.0 if best == 0 else None
    faults = []
    if status not in PROOFS:
        faults.append(f"{place}.status is {status!r}; it must be one of {', '.join(PROOFS)}.")
    if (status == "refuted") != (better is not None):
        faults.append(f"{place}.status is {status!r}, but better_batch_time is {better}.")
    if (status == "proved") != (proof.get("reason") is None and better is None):
        faults.append(f"{place}.status is {status!r}, but reason is {proof.get('reason')!r}.")
    if proof.get("settled") != (proof.get("reason") is None):
        faults.append(f"{place}.settled is {proof.get('settled')!r}, but reason is {proof.get('reason')!r}.")
    if not _agree(proof.get("gap"), derived, PROOF):
        faults.append(f"{place}.gap is {_short(proof.get('gap'))}, recomputed {_short(derived)}.")
    if bound and bound > best * (1 + AGREEMENT):
        faults.append(f"{place}.bound {_short(bound)} exceeds the step time {_short(best)}.")
    if status == "proved" and (derived is None or derived > 2 * PROOF):
        faults.append(f"{place}.status is proved, but the gap is {_short(derived)}.")
    return faults


def _agree(stated: Any, derived: Any, unit: float = 0.0) -> bool:
    numbers = isinstance(stated, (int, float)) and isinstance(derived, (int, float))
    # A file may hold a whole number that no float holds.
    if numbers and (isinstance(stated, float) or isinstance(derived, float)) and abs(stated) <= sys.float_info.max:
        return math.isclose(stated, derived, rel_tol=AGREEMENT, abs_tol=max(AGREEMENT * unit, sys.float_info.min))
    return bool(stated == derived)


def _within_proof(bound: float | None, time: float | None) -> bool:
    """True if a bound is as close as CP-SAT proves (PROBLEM.md section 5)."""
    return bound is not None and time is not None and 0 <= time - bound <= (PROOF + AGREEMENT) * time


def _short(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
