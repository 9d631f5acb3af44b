"""The batch time of every stage, by cause."""

from nest.report.evaluation import collectives_text
from nest.reporting.causes import TIME_CAUSES, time_causes
from nest.reporting.palette import cause_style
from nest.reporting.records import Cell, Drawing, Figure, Key, Table
from nest.reporting.stacked_bars import Bar, stacked_bars
from nest.reporting.subject import Subject
from nest.reporting.svg import WIDTHS
from nest.tolerances import AGREEMENT
from nest.units import format_seconds


def _busy(least: float, most: float, stages: int) -> str:
    """How much of the batch stages are busy, in words."""
    low, high = f"{least:.1%}", f"{most:.1%}"
    if stages == 1:
        return f"It is busy for {high} of the batch."
    return (
        f"All are busy for {high} of the batch."
        if low == high
        else f"Stages are busy for {low} to {high} of the batch."
    )


def time_figure(subject: Subject) -> Figure:
    """Bars as long as the batch, each stage's time by cause."""
    whole = subject.batch_time
    stages = time_causes(subject)
    used = [cause for cause in TIME_CAUSES if any(found[cause] > AGREEMENT * whole for found in stages)]
    busy = [1 - (found["bubble"] + found["waiting"]) / whole if whole else 0.0 for found in stages]
    bars = [
        Bar(str(index + 1), {cause: found[cause] for cause in used}, f"{share:.1%} busy")
        for index, (found, share) in enumerate(zip(stages, busy, strict=True))
    ]
    slowest = max(range(len(stages)), key=lambda index: subject.priced.stages[index].time)
    each = format_seconds(subject.priced.stages[slowest].time)
    slow = f"takes {each}" if len(stages) == 1 else f"is the slowest, {each}"
    told = f"Stage {slowest + 1} {slow} per micro-batch. {_busy(min(busy), max(busy), len(busy))}"

    def drawn(width: float) -> tuple[Drawing, ...]:
        height, body = stacked_bars(bars, TIME_CAUSES, format_seconds, width=width)
        return (Drawing(width, height, body, "Batch time of each stage, by cause", told),)

    wide, *narrower = map(drawn, WIDTHS)
    measured = subject.formulation.pricing is None
    caption = (
        f"The batch of {format_seconds(whole)} as each stage spends it; every bar adds up to it. "
        + ("Communication that hides under compute is not counted. " if "collectives" in used else "")
        + (f"{inside}. " if (inside := collectives_text(subject.summary, whole)) else "")
        + ("Layers were measured whole: collectives inside them are part of compute. " if measured else "")
        + told
    )
    header = ("stage", *(TIME_CAUSES[cause] for cause in used), "batch", "busy")
    rows = tuple(
        (
            Cell(str(index + 1)),
            *(Cell(format_seconds(found[cause]), found[cause]) for cause in used),
            Cell(format_seconds(whole), whole),
            Cell(f"{share:.1%}", share),
        )
        for index, (found, share) in enumerate(zip(stages, busy, strict=True))
    )
    keys = tuple(Key(TIME_CAUSES[cause], cause_style(cause)) for cause in used)
    table = Table("Batch time by cause", header, rows)
    return Figure("time", "Time of each stage", caption, wide, table, keys, narrower=tuple(narrower))
