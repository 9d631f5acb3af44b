"""Memory of every stage by cause, against what a device has."""

from collections.abc import Mapping

from attrs import asdict

from nest.reporting.alignment import alike
from nest.reporting.palette import cause_style
from nest.reporting.records import Cell, Drawing, Figure, Key, Table
from nest.reporting.stacked_bars import Bar, Limit, stacked_bars
from nest.reporting.subject import Subject
from nest.reporting.svg import WIDTHS
from nest.tolerances import AGREEMENT
from nest.units import format_bytes

MEMORY_CAUSES: Mapping[str, str] = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "activations": "activations in flight",
    "transient": "transient",
    "communication": "communication buffers",
    "framework": "driver and libraries",
    "fragmentation": "fragmentation",
    "reserve": "reserve",
}
"""Causes of memory in the order they are drawn, and what they are called (nest.spec.MemoryBreakdown)."""


def memory_figure(subject: Subject) -> Figure:
    """Stacked bars against capacity, with what stages are taken to need."""
    stages = subject.priced.stages
    capacity = subject.priced.device_memory
    parts = [asdict(stage.parts) for stage in stages]
    used = [cause for cause in MEMORY_CAUSES if any(found[cause] > 0 for found in parts)]
    margin = any(stage.upper_memory > stage.memory * (1 + AGREEMENT) for stage in stages)
    sizes = [*(stage.memory for stage in stages), *(stage.upper_memory for stage in stages)]
    totals = alike([format_bytes(size) for size in sizes], sizes)
    bars = [
        Bar(
            str(index + 1),
            {cause: found[cause] for cause in used},
            told + (f" to {at_most}" if margin else ""),
            stage.upper_memory if margin else None,
            over,
        )
        for index, (stage, found, over, told, at_most) in enumerate(
            zip(stages, parts, subject.priced.overfull, totals[: len(stages)], totals[len(stages) :], strict=True)
        )
    ]
    limit = Limit(capacity, f"capacity {format_bytes(capacity)}")
    fullest = max(range(len(stages)), key=lambda index: stages[index].upper_memory)
    verb = "needs" if len(stages) == 1 else "is the fullest:"
    told = (
        f"Stage {fullest + 1} {verb} {format_bytes(stages[fullest].memory)} as estimated"
        + (f", {format_bytes(stages[fullest].upper_memory)} at most" if margin else "")
        + f", of the {format_bytes(capacity)} a device has."
    )

    def drawn(width: float) -> tuple[Drawing, ...]:
        height, body = stacked_bars(bars, MEMORY_CAUSES, format_bytes, 2.0, limit, width)
        title = "Memory of a device of each stage, by cause"
        return (Drawing(width, height, body, title, f"{told} {_crowded(subject)}"),)

    whole, *narrower = map(drawn, WIDTHS)
    caption = (
        "Memory of one device of each stage, by cause, against what a device has. "
        + ("The dashed box reaches to what a stage is taken to need, which has to fit. " if margin else "")
        + told
    )
    header = ("stage", *(MEMORY_CAUSES[cause] for cause in used), "memory", "taken to need", "of capacity")
    rows = tuple(
        (
            Cell(str(index + 1)),
            *(Cell(format_bytes(found[cause]), found[cause]) for cause in used),
            Cell(format_bytes(stage.memory), stage.memory),
            Cell(format_bytes(stage.upper_memory), stage.upper_memory),
            Cell(f"{stage.upper_memory / capacity:.1%}", stage.upper_memory / capacity),
        )
        for index, (stage, found) in enumerate(zip(stages, parts, strict=True))
    )
    keys = tuple(Key(MEMORY_CAUSES[cause], cause_style(cause)) for cause in used)
    table = Table("Memory of one device of each stage", header, rows)
    return Figure("memory", "Memory of each stage", caption, whole, table, keys, narrower=tuple(narrower))


def _crowded(subject: Subject) -> str:
    over = [str(index + 1) for index, over in enumerate(subject.priced.overfull) if over]
    return f"Over capacity: stages {', '.join(over)}." if over else "Every stage fits."
