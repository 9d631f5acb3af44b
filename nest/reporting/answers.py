"""What more or less of something is worth: questions that are answered by searches."""

from collections.abc import Collection

from nest.catalogue.names import unknown_name
from nest.questions.frontier import FrontierPoint, frontier
from nest.questions.sensitivity import Response, sensitivity
from nest.questions.solver import Solver
from nest.reporting.records import Cell, Section, Table
from nest.reporting.subject import Subject
from nest.units import format_bytes, format_seconds

PARTS = ("frontier", "sensitivity")
"""Parts of the page that take searches, and can be left out."""


def check_parts(without: Collection[str]) -> None:
    """Refuse names of no part.

    Raises:
        InputError: a part is called otherwise.
    """
    for name in without:
        if name not in PARTS:
            raise unknown_name("--without", "part of the page that takes searches", name, PARTS)


def answers(subject: Subject, solver: Solver, without: Collection[str]) -> tuple[Section, ...]:
    """The sections of the parts that are wanted.

    Args:
        subject: the plan.
        solver: of problems that differ from the plan's.
        without: parts that are left out.
    """
    found = []
    if "frontier" not in without:
        found.append(_frontier(frontier(subject.plan, solver)))
    if "sensitivity" not in without:
        found.append(_sensitivity(sensitivity(subject.plan, solver)))
    return tuple(found)


def _frontier(points: tuple[FrontierPoint, ...]) -> Section:
    header = ("at most devices", "memory of each", "used", "batch time", "throughput", "plan", "efficient")
    rows = tuple(
        (
            Cell(f"{point.devices:,}"),
            Cell(format_bytes(point.memory), point.memory),
            Cell("–") if point.devices_used is None else Cell(f"{point.devices_used:,}", float(point.devices_used)),
            Cell("none fits") if point.batch_time is None else Cell(format_seconds(point.batch_time), point.batch_time),
            Cell("–") if point.throughput is None else Cell(f"{point.throughput:.4g} samples/s", point.throughput),
            Cell(point.label or "–"),
            Cell("yes" if point.efficient else "no"),
        )
        for point in points
    )
    told = (
        "The fastest plan within limits on devices and on their memory, each found by a search. A plan that is "
        "efficient is beaten by none that needs no more of either."
    )
    table = Table("The fastest plans within limits", header, rows, (0, 5, 6))
    return Section("frontier", "Frontier", paragraphs=(told,), tables=(table,))


def _sensitivity(responses: tuple[Response, ...]) -> Section:
    header = ("what changes", "times", "this plan", "best plan then", "which", "another plan")
    rows = tuple(
        (
            Cell(each.parameter),
            Cell(f"{each.factor:g}", each.factor),
            Cell("does not fit") if each.kept is None else Cell(f"{each.kept:+.2%}", each.kept),
            Cell("none fits") if each.best is None else Cell(f"{each.best:+.2%}", each.best),
            Cell(each.label or "–"),
            Cell("yes" if each.changed else "no"),
        )
        for each in responses
    )
    told = (
        "The batch time against this plan's when one number of the problem changes: with this plan kept, and with the "
        "best plan then. Of another global batch, the time of a sample."
    )
    table = Table("Batch time when one number changes", header, rows, (0, 4, 5))
    return Section("sensitivity", "Sensitivity", paragraphs=(told,), tables=(table,))
