"""The pipeline timeline: what every stage does when, drawn from a replay."""

from collections.abc import Iterator, Sequence

from nest.reporting.batch_strip import PARTS, strip
from nest.reporting.batch_strip import keys as strip_keys
from nest.reporting.busy import Busy, busy
from nest.reporting.memory_over_time import memory_over_time_figure
from nest.reporting.records import Cell, Drawing, Figure, Key, Table
from nest.reporting.rhythm import LeftOut
from nest.reporting.svg import NARROW, WIDTHS
from nest.reporting.task_table import STYLES, TaskTable
from nest.reporting.timeline_drawing import drawn, placing, room
from nest.reporting.windows import Shown, shown
from nest.simulate.replay import Replay
from nest.tolerances import AGREEMENT
from nest.units import format_bytes, format_seconds

SMALL = 5e-5
"""Shares below which a difference is said to be none worth a number."""

_REASONS = {
    "passes": "takes passes to have other shares of a stage's time",
    "stages": "fills and drains the pipeline with the whole time of every stage",
    "synchronisation": "lets all stages synchronise at the end",
}


def batch_figures(replay: Replay, capacity: float, planned: Sequence[float]) -> tuple[Figure, Figure]:
    """The timeline of a batch, and the memory of its stages over the same time.

    Args:
        replay: of the plan, as planned.
        capacity: bytes of a device.
        planned: bytes that the plan counts for each stage.
    """
    table = TaskTable.of(replay.timeline.tasks, len(replay.stages))
    found = shown(table, steps(replay))
    return timeline_figure(replay, table, found), memory_over_time_figure(replay, found, capacity, planned)


def timeline_figure(replay: Replay, table: TaskTable, found: Shown) -> Figure:
    """The figure: the batch as a strip where it is too long to be drawn whole, its parts in detail, and a table.

    Args:
        replay: of the plan, as planned.
        table: its tasks.
        found: what is shown of them.
    """
    parts = busy(table, PARTS)
    idle = [_share(stage.idle, replay.batch_time) for stage in replay.stages]
    sizes = [[*_detail(table, found, idle, width)] for width in WIDTHS]
    keys = [Key(STYLES[style][1], f"task-{STYLES[style][0]}") for style in table.used_styles()]
    keys.append(Key("idle", "idle"))
    if found.gaps:
        for drawings, width in zip(sizes, WIDTHS, strict=True):
            drawings.insert(0, strip(parts, found, width))
        keys += strip_keys()
    return Figure(
        "timeline",
        "What every stage does",
        " ".join([_times(replay, table), _idle(replay), *_parts(replay, found, table)]),
        tuple(sizes[0]),
        _stages(replay, parts, table),
        tuple(keys),
        (_windows(found, table),),
        tuple(map(tuple, sizes[1:])),
    )


def steps(replay: Replay) -> tuple[int, ...]:
    """Micro-batches after which a schedule may repeat itself: one, a few, or one for every stage."""
    return tuple(dict.fromkeys((1, len(replay.stages), 2, 3)))


def _share(seconds: float, whole: float) -> float:
    return seconds / whole if whole > 0 else 0.0


def _detail(table: TaskTable, found: Shown, idle: Sequence[float], width: float) -> Iterator[Drawing]:
    """The parts of the batch side by side, or below each other on a narrow drawing, at one scale."""
    what = "The whole batch" if not found.gaps else f"{len(found.windows)} parts of the batch"
    used = ", ".join(STYLES[style][1] for style in table.used_styles())
    told = (
        f"{what}, a row for each of {len(found.stages)} stages, time from left to right. Coloured and patterned boxes "
        f"are {used}; what is not covered is idle; behind a row stands its idle share. The table below has the "
        "seconds of each stage."
    )
    title = "What every stage does, task by task"
    if width >= NARROW or not found.gaps:
        place = placing(found, room(width))
        yield Drawing(width, place.height, drawn(table, found, place, idle), title, told)
        return
    longest = max(end - start for start, end in found.windows)
    for index, window in enumerate(found.windows):
        gap = found.gaps[index - 1] if index else None
        before = f"after {format_seconds(gap.end - gap.start)} left out" if gap is not None else ""
        part = Shown(found.stages, (window,), (), found.cut)
        place = placing(part, room(width), longest)
        body = drawn(table, part, place, idle, before)
        yield Drawing(width, place.height, body, f"{title}: part {index + 1} of {len(found.windows)}", told)


def _times(replay: Replay, table: TaskTable) -> str:
    """The batch time beside the closed form."""
    difference = replay.batch_time - replay.closed_form
    form = replay.closed_form
    told = f"Replayed pass by pass, the batch takes {format_seconds(replay.batch_time)}"
    share = abs(difference) / form if form else 0.0
    if share < SMALL:
        told += f", as the plan's closed form says ({format_seconds(form)})."
    else:
        reasons = [why for name, why in _REASONS.items() if abs(getattr(replay.difference, name)) > SMALL * form]
        why = f", which {' and '.join(reasons)}" if reasons else ""
        told += (
            f", {format_seconds(abs(difference))} {'more' if difference > 0 else 'less'} ({share:.2%}) than the plan's "
            f"closed form says ({format_seconds(form)}){why}."
        )
    if table.end_of_all > replay.batch_time * (1 + AGREEMENT):
        told += (
            f" Stages begin and end it one after the other, over {format_seconds(table.end_of_all)}, which are drawn; "
            f"the next batch follows on each stage after {format_seconds(replay.batch_time)}."
        )
    return told


def _idle(replay: Replay) -> str:
    """How long stages wait."""
    idle = [_share(stage.idle, replay.batch_time) for stage in replay.stages]
    most, least = (pick(range(len(idle)), key=idle.__getitem__) for pick in (max, min))
    if f"{idle[most]:.1%}" == f"{idle[least]:.1%}":
        return f"{'The stage' if len(idle) == 1 else 'Every stage'} is idle for {idle[most]:.1%} of the batch."
    return (
        f"Stages are idle for {replay.idle_share:.1%} of the batch on average: stage {most + 1} for {idle[most]:.1%} "
        f"({format_seconds(replay.stages[most].idle)}), the longest, stage {least + 1} for {idle[least]:.1%}, the "
        "shortest."
    )


def _parts(replay: Replay, found: Shown, table: TaskTable) -> list[str]:
    """What is drawn, and what is left out."""
    told = (
        [f"The {replay.replicas} replicas all do the same at the same time; one is drawn."]
        if replay.replicas > 1
        else []
    )
    if len(found.stages) < table.stages:
        told.append(
            f"Of {table.stages} stages, {len(found.stages)} are drawn, spread evenly from the first to the last; "
            f"{'the strip and the table have' if found.gaps else 'the table has'} all."
        )
    if not found.gaps:
        return told
    seconds = sum(gap.end - gap.start for gap in found.gaps)
    told.append(
        f"The strip shows the whole batch; below it, {len(found.windows)} parts of it are drawn, all at the same "
        f"scale, and {format_seconds(seconds)} ({seconds / table.end_of_all:.1%}) between them are left out."
    )
    tasks, unlike = sum(gap.tasks for gap in found.gaps), sum(gap.unlike for gap in found.gaps)
    if not unlike:
        told.append(f"What is left out repeats itself: {_rhythm(found.gaps)}.")
    else:
        told.append(
            f"What is left out does not all repeat itself: {1 - unlike / tasks:.1%} of its {tasks:,} tasks follow the "
            f"same task of an earlier micro-batch at the distance that is usual for their stage; {_rhythm(found.gaps)}."
        )
    return told


def _rhythm(gaps: tuple[LeftOut, ...]) -> str:
    least, most = min(gap.least for gap in gaps), max(gap.most for gap in gaps)
    shortest, longest = format_seconds(least), format_seconds(most)
    every = shortest if shortest == longest else f"{shortest} to {longest}, depending on the stage and the part,"
    step = gaps[0].step
    later = "the next micro-batch" if step == 1 else f"the micro-batch {step} later"
    return f"every {every} a stage does the same for {later}"


def _stages(replay: Replay, parts: Busy, table: TaskTable) -> Table:
    """Seconds of every stage by what it does; a row adds up to the batch."""
    styles = table.used_styles()
    totals = parts.totals
    rows = []
    for index, stage in enumerate(replay.stages):
        seconds = [float(totals[index, style]) for style in styles]
        share = _share(stage.idle, replay.batch_time)
        rows.append(
            (
                Cell(str(index + 1), float(index + 1)),
                *(Cell(format_seconds(each), each) for each in seconds),
                Cell(format_seconds(stage.idle), stage.idle),
                Cell(f"{share:.1%}", share),
                Cell(format_bytes(stage.memory_peak), stage.memory_peak),
            )
        )
    header = ("stage", *(STYLES[style][1] for style in styles), "idle", "idle share", "memory peak")
    return Table("What every stage does in the batch, in all", header, tuple(rows))


def _windows(found: Shown, table: TaskTable) -> Table:
    """The batch from its beginning to its end: what is drawn and what is left out; the rows add up to it."""
    rows = []
    for index, (start, end) in enumerate(found.windows):
        rows.append(_part("drawn", start, end, ""))
        if index < len(found.gaps):
            gap = found.gaps[index]
            alike = "all" if not gap.unlike else f"{1 - gap.unlike / gap.tasks:.1%}" if gap.tasks else "none"
            rows.append(_part("left out", gap.start, gap.end, f"{gap.tasks:,} tasks, {alike} in a steady rhythm"))
    return Table("Parts of the batch", ("part", "from", "to", "takes", "what"), tuple(rows), words=(0, 4))


def _part(name: str, start: float, end: float, what: str) -> tuple[Cell, ...]:
    times = (Cell(format_seconds(each), each) for each in (start, end, end - start))
    return (Cell(name), *times, Cell(what))
