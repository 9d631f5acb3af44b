"""What a proof by another solver found, as a record and in sentences."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from nest.report.text.layout import WIDE, Screen, Tone, opening, paragraph
from nest.spec import PlanDocument
from nest.units import format_seconds

_TONES = {"proved": Tone.GOOD, "refuted": Tone.BAD, "open": Tone.FAIR}


@frozen
class Verdict:
    """The answer of `nest verify`.

    Attributes:
        verification: what a plan document states under `verification`.
        batch_time: seconds of the plan that was to be proved; None when it says that there is none.
        better: the best plan found, when refuted.
    """

    verification: dict[str, Any]
    batch_time: float | None
    better: PlanDocument | None = None

    @property
    def status(self) -> str:
        """`proved`, `refuted` or `open`."""
        return str(self.verification["status"])

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain mappings, lists and numbers."""
        better = None if self.better is None else self.better.to_dict()
        return {**self.verification, "batch_time": self.batch_time, "better": better}


def verdict_text(verification: Mapping[str, Any], screen: Screen = WIDE) -> str:
    """A proof's summary in sentences, fitted to a screen."""
    bound, found = verification["bound"], verification["better_batch_time"]
    effort = (
        f"CP-SAT of OR-Tools {verification['version']}: {verification['models']} models; bounds settled "
        f"{verification['pruned']} of {verification['cases']} cases; {verification['seconds']:.1f} s."
    )
    if verification["status"] == "proved":
        told = (
            "Proved: there is no plan."
            if bound is None
            else f"Proved: no plan is better by more than {verification['tolerance']:g} of the step time."
        )
    elif verification["status"] == "refuted":
        told = f"Refuted: a better plan takes {format_seconds(found)}."
        if verification["gap"] is not None and verification["gap"] <= 2 * verification["tolerance"]:
            told += f" No plan is better than that by more than {verification['tolerance']:g} of it."
    else:
        told = f"Open: {verification['reason']}."
        if verification["gap"] is not None:
            told += f" No plan takes less than {format_seconds(bound)}; the gap is {verification['gap']:.3%}."
    begin, _, rest = told.partition(":")
    lines = [opening(f"{begin}:", _TONES[verification["status"]], rest, screen), paragraph(effort, screen)]
    if verification.get("free") is not None:
        lines.insert(1, paragraph(_free(verification["free"]), screen))
    if verification.get("certificate") is not None:
        lines.append(paragraph(certificate_text(verification["certificate"]), screen))
    return "\n".join(lines)


def certificate_text(certificate: Mapping[str, Any]) -> str:
    """What a schedule's certificate says (`nest.plan.Certificate.to_dict`)."""
    name, stages = f"the schedule {certificate['schedule']!r}", certificate["stages"]
    if not certificate["computed"]:
        return f"Not replayed: {certificate['reason']}; what {name} says of times and memory is taken as it is."
    return (
        f"Replayed: M = {certificate['micro_batches']}, A + B s = {certificate['equal_stages']:.10g} and the "
        f"micro-batches in flight in {stages} stage{'s' * (stages != 1)} follow from the order of {name}."
    )


def _free(free: Mapping[str, Any]) -> str:
    """What keeping blocks in pipeline order costs."""
    if free["status"] == "proved":
        return "Blocks in pipeline order cost nothing: no plan with blocks anywhere, in any order, is better."
    if free["status"] == "refuted":
        least = "" if free["settled"] else "at least "
        found = format_seconds(free["better_batch_time"])
        return f"Blocks in pipeline order cost {least}{free['cost']:.3%}: with blocks anywhere a plan takes {found}."
    return f"What blocks in pipeline order cost is open: {free['reason']}."
