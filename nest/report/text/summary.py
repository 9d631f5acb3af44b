"""A plan as tables, and the result of a proof by another solver, as a record and in sentences."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nest.report.other_plans import ON_NETWORK, runner_up_text
from nest.report.plan_summary import COPIES, collectives_text, coverage_text
from nest.report.text.layout import WIDE, Screen, Tone, figures, opening, paragraph
from nest.spec import PlanDocument
from nest.units import format_seconds, listed, percent, three_digits


def summary(plan: PlanDocument, screen: Screen = WIDE) -> str:
    """Describe the whole plan; for an infeasible one its diagnosis."""
    from nest.report.text.first_screen import first_screen

    if plan.status == "infeasible":
        return first_screen(plan, screen)
    return "\n\n".join([first_screen(plan, screen, whole=True), *details(plan, screen)])


def details(plan: PlanDocument, screen: Screen = WIDE) -> list[str]:
    """Return the parts missing on the first screen of a feasible plan: stages, their memory, further notes."""
    from nest.report.text.stage_tables import memory_table, stage_table

    batch_time, notes = plan.batch_time or 0.0, list[str]()
    parts = [figures(_further(plan), screen), stage_table(plan, screen), memory_table(plan, screen)]
    notes += [collectives_text(plan.summary, batch_time), coverage_text(plan.summary)]
    notes.append(COPIES if plan.summary.get("copies", 1) > 1 else "")
    notes.append(ON_NETWORK if plan.placement is not None else "")
    searched = plan.lower_bound is not None and plan.problem.get("model") is not None
    if plan.runs_on is not None and searched and plan.fits:
        notes.append(_runs_on(plan.runs_on))
    if coarser := plan.statistics.get("block_batch_time"):
        notes.append(_coarser(coarser, plan.lower_bound or 0.0))
    if plan.runner_up is not None:
        notes.append(runner_up_text(plan.runner_up))
    parts += [paragraph(text, screen) for text in notes if text]
    parts += [opening("Constraint violated:", Tone.BAD, f" {text}", screen) for text in plan.violates]
    return [part for part in parts if part]


def _further(plan: PlanDocument) -> list[tuple[str, str]]:
    rows = [] if plan.throughput is None else [("samples/s", three_digits(plan.throughput))]
    return [*rows, ("idle share", percent(plan.summary["idle_share"]))] if "idle_share" in plan.summary else rows


def _runs_on(names: tuple[str, ...]) -> str:
    if not names:
        return "No framework can run this plan; `nest export PLAN --to NAME --nearest` exports the nearest one."
    return f"Exporters: {listed(names)}."


def _coarser(seconds: float, bound: float) -> str:
    """Note the cost of a proved plan, if cuts between layers leave a gap."""
    price = f", {percent(seconds / bound - 1)} above the lower bound" if bound > 0 else ""
    return f"With search.granularity: block, nest proves a best plan of {format_seconds(seconds)}{price}."


_TONES = {"proved": Tone.GOOD, "refuted": Tone.BAD, "open": Tone.FAIR}


class Verdict(NamedTuple):
    """The answer of `nest verify`."""

    verification: dict[str, Any]  # As in a plan document.
    batch_time: float | None  # Seconds of the plan to be proved; None: it says that there is none.
    better: PlanDocument | None = None  # The best plan found, when refuted.

    @property
    def status(self) -> str:
        """Return `proved`, `refuted` or `open`."""
        return str(self.verification["status"])

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain mappings, lists and numbers."""
        better = None if self.better is None else self.better.to_dict()
        return {**self.verification, "batch_time": self.batch_time, "better": better}


def verdict_text(verification: Mapping[str, Any], screen: Screen = WIDE) -> str:
    """Describe a proof's summary."""
    bound, better = verification["bound"], verification["better_batch_time"]
    effort = (
        f"OR-Tools CP-SAT {verification['version']}: {verification['models']} models; bounds settled "
        f"{verification['pruned']} of {verification['cases']} cases; {format_seconds(verification['seconds'])}."
    )
    if verification["status"] == "proved":
        sentence = (
            "Proved: no plan exists." if bound is None else f"Proved: no plan takes less than {format_seconds(bound)}."
        )
    elif verification["status"] == "refuted":
        sentence = f"Refuted: a better plan takes {format_seconds(better)}."
        if verification["gap"] is not None and verification["gap"] <= 2 * verification["tolerance"]:
            sentence += f" It is optimal to a relative {verification['tolerance']:g}."
    else:
        sentence = f"Not proved: {verification['reason']}."
        if verification["gap"] is not None:
            sentence += f" Lower bound {format_seconds(bound)}, gap {percent(verification['gap'])}."
    begin, _, rest = sentence.partition(":")
    lines = [opening(f"{begin}:", _TONES[verification["status"]], rest, screen), paragraph(effort, screen)]
    if verification.get("free") is not None:
        lines.insert(1, paragraph(_free(verification["free"]), screen))
    if verification.get("certificate") is not None:
        lines.append(paragraph(certificate_text(verification["certificate"]), screen))
    return "\n".join(lines)


def certificate_text(certificate: Mapping[str, Any]) -> str:
    """Describe a schedule's certificate (`nest.plan.certificate.Certificate.to_dict`)."""
    name = f"The schedule {certificate['schedule']!r}"
    if not certificate["computed"]:
        return f"{name} was not simulated: {certificate['reason']}. Step time and memory are as it states them."
    return f"{name} was simulated: step time and memory agree with the formula."


def _free(free: Mapping[str, Any]) -> str:
    if free["status"] == "proved":
        return "Device order is best: no other order of the stages gives a faster plan."
    if free["status"] == "refuted":
        least = "" if free["settled"] else "at least "
        time = format_seconds(free["better_batch_time"])
        return f"Stages in device order cost {least}{percent(free['cost'])}: another order takes {time}."
    return f"The cost of stages in device order is not proved: {free['reason']}."
