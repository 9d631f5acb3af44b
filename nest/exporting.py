"""From a plan to the files of other tools, through registered exporters."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from nest import planner
from nest.catalogue.names import unknown_name
from nest.errors import InputError
from nest.files import structure
from nest.hooks.protocols import Exporter
from nest.hooks.registry import Registry, registry
from nest.planner import Source
from nest.report.limits import limits_text
from nest.spec import PlanDocument, Problem
from nest.units import format_bytes


@frozen
class Exported:
    """What exporters made of a plan.

    Attributes:
        files: contents by file name, in the order of the exporters.
        warnings: what to think of before the files are used, a sentence each.
    """

    files: Mapping[str, str]
    warnings: tuple[str, ...]


def export(plan: Source | PlanDocument, to: tuple[str, ...], *, plugins: Registry | None = None) -> Exported:
    """The files of the exporters called `to` for a plan whose numbers hold.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        to: names of exporters.
        plugins: registered exporters and the like; left out, those installed.

    Raises:
        InputError: there is no such exporter; the plan cannot be read, is infeasible or does not hold; an exporter
            refuses it; or two exporters give files of one name.
    """
    known = plugins or registry()
    known.run(lambda: [_exporter(name, known) for name in to])  # A slip is told before work is done.
    read = planner.read_plan(plan)
    if read.status == "infeasible":
        why = read.diagnosis or "no reason is given"
        raise InputError(f"the plan is infeasible, so there is nothing to export: {why}")
    report = planner.check(plan, plugins=known)
    if not report.ok:
        raise InputError(f"the plan does not hold, so it is not exported: {report.disagreements[0]}")
    files: dict[str, str] = {}
    for name in dict.fromkeys(to):
        # One that fails is set aside, which ends here: no other would give what was asked for.
        made = known.run(lambda name=name: _exporter(name, known).export(read))  # type: ignore[misc]
        clash = next((file for file in made if files.get(file, made[file]) != made[file]), None)
        if clash is not None:
            raise InputError(f"{name!r} gives a file {clash!r}, as another exporter does; export to one at a time.")
        files |= made
    return Exported(files, _warnings(read))


def exporters(plan: PlanDocument | None = None, *, plugins: Registry | None = None) -> list[dict[str, Any]]:
    """Name, one line on what it writes, limits in a line, reasons and distribution of every exporter, by name.

    Args:
        plan: limits are those for its problem; None: for a small transformer.
        plugins: registered exporters; left out, those installed.
    """
    known = plugins or registry()
    problem = structure(_ANY_PROBLEM if plan is None else plan.problem, Problem)
    return known.run(lambda: [_row(each, problem, known) for _, each in sorted(known.exporters().items())])


_ANY_PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 8, "hidden": 64, "ffn": 256, "heads": 8, "vocab": 1024}},
    "training": {"global_batch": 8, "sequence_length": 128},
    "cluster": {"levels": [{"fanout": 8, "bandwidth": 1e9}]},
}
"""Stands for what people plan where limits are listed without a plan: limits hang on a model and a training."""


def _row(exporter: Exporter, problem: Problem, known: Registry) -> dict[str, Any]:
    limits = exporter.limits(problem) if hasattr(exporter, "limits") else None
    distribution, version = known.origin("exporters", exporter.name)
    return {
        "name": exporter.name,
        "summary": str(getattr(exporter, "summary", "")),
        "limits": limits_text(limits),
        "rules": {} if limits is None else dict(limits.constraints),
        "distribution": distribution,
        "version": version,
    }


def _exporter(name: str, known: Registry) -> Exporter:
    exporters = known.exporters()
    if name in exporters:
        return exporters[name]
    if name in known.absent("exporters"):
        raise InputError(f"the exporter {name!r} is faulty and was set aside; `nest plugins doctor` says more.")
    raise unknown_name("--to", "exporter", name, exporters)


def _warnings(plan: PlanDocument) -> tuple[str, ...]:
    """What to think of before the files of `plan` are used."""
    if plan.fits:
        return ()
    stage = max(range(len(plan.stages)), key=lambda index: _needed(plan, index))
    needed = format_bytes(_needed(plan, stage))
    capacity = plan.summary.get("memory_capacity")
    told = f" of the {format_bytes(capacity)} there are" if isinstance(capacity, (int, float)) else ""
    return (
        f"the plan does not fit into memory: stage {stage + 1} is taken to need {needed}{told} on a device; "
        "it may run out of memory as exported.",
    )


def _needed(plan: PlanDocument, stage: int) -> float:
    record = plan.stages[stage]
    return record.memory if record.upper_memory is None else record.upper_memory
