"""The pipeline timeline: what every stage does when, drawn from a replay.

A long batch is drawn in three parts that follow from its numbers of stages and micro-batches: warm-up, two steady
periods, and drain.
"""

from collections.abc import Iterator, Sequence

import numpy

from nest.errors import InputError
from nest.instance import copies_of
from nest.public.planning import Replay, replay, schedule_of
from nest.tolerances import AGREEMENT
from nest.units import format_seconds, percent
from nest_page.memory_over_time import memory_over_time_figure
from nest_page.records import Cell, Drawing, Figure, Key, Section, Subject, Table
from nest_page.svg import NARROW, WIDTHS
from nest_page.task_table import STYLES, Busy, TaskTable, busy
from nest_page.timeline_drawing import MOST_ROWS, PARTS, Window, Windows, drawn, placing, room, strip, strip_keys

MOST_PASSES = 100
"""Passes of a stage up to which the whole batch is shown: a pass is then some 10 px wide."""

MOST_PASSES_CUT = 200
"""Passes of a stage that are shown where not all of warm-up and drain can be: some 5 px each."""

MOST_BOXES = 7500
"""Tasks drawn at most; each takes some 25 bytes."""

FEWER_ROWS = (MOST_ROWS, 24, 16, 12)
"""Numbers of rows tried, where that lets windows stay whole."""

PHASES = ("warm-up", "two steady periods", "drain")

SMALL = 5e-5
"""Shares below which a difference is said to be none worth a number."""

_REASONS = {
    "passes": "takes passes to have other shares of a stage's time",
    "stages": "sums up over all stages what fills and drains the pipeline",
}
"""Why the closed form differs, by the part of the difference (`nest.simulate.replay`)."""


def timeline(subject: Subject) -> Section:
    """The section: a replay of the plan, drawn; of a schedule that cannot be replayed, the reason."""
    name, title = "timeline", "Timeline"
    try:
        timeline_replay = replay(subject.instance, subject.solution)
    except InputError as error:
        return Section(name, title, paragraphs=(f"nest cannot simulate this plan: {error}",))
    trace = "Every pass of the batch, for Perfetto (ui.perfetto.dev): `nest simulate PLAN --trace trace.json`."
    priced = subject.priced
    copies = copies_of(schedule_of(subject.instance, subject.solution))
    planned = [stage.memory for stage in priced.stages]
    figures = batch_figures(timeline_replay, priced.device_memory, planned, copies)
    return Section(name, title, paragraphs=(trace,), figures=figures)


def batch_figures(replay: Replay, capacity: float, planned: Sequence[float], copies: int = 1) -> tuple[Figure, Figure]:
    """The timeline of a batch, and the memory of its stages over the same time.

    Args:
        replay: of the plan, as planned.
        capacity: bytes of a device.
        planned: bytes that the plan counts for each stage.
        copies: how many times a device holds parameters.
    """
    table = TaskTable.of(replay.timeline.tasks, len(replay.stages), copies)
    windows = windows_of(table)
    return timeline_figure(replay, table, windows), memory_over_time_figure(replay, windows, capacity, planned)


def windows_of(table: TaskTable) -> Windows:
    """Choose windows of a batch, so that at most `MOST_BOXES` tasks are drawn."""
    everything = ((0.0, table.end_of_all),)
    rows = _chosen_stages(table.stages, MOST_ROWS)
    if table.most_passes() <= MOST_PASSES and _boxes(table, everything, rows) <= MOST_BOXES:
        return Windows(rows, everything)
    wanted = _phases(table)
    for count in FEWER_ROWS:
        rows = _chosen_stages(table.stages, count)
        if _boxes(table, wanted, rows) <= MOST_BOXES:
            return Windows(rows, wanted)
    return Windows(rows, _cut(table, wanted, rows), cut=True)


def _phases(table: TaskTable) -> tuple[Window, ...]:
    """Warm-up, two steady periods and drain, told apart by the passes of the last stage; those that touch are one.

    The pipeline is full when the last stage has worked on as many micro-batches as there are stages, and it drains
    while it works on as many last ones.
    """
    starts = table.passes(table.stages - 1)
    each = max(len(starts) // max(table.micro_batches, 1), 1)
    period, fill, middle = _period(table, each), each * table.stages, len(starts) // 2

    def at(place: int) -> float:
        return 0.0 if place <= 0 else float(starts[place]) if place < len(starts) else table.end_of_all

    windows = [(0.0, at(fill)), (at(middle - period), at(middle + period)), (at(len(starts) - fill), table.end_of_all)]
    merged: list[Window] = windows[:1]
    for start, end in windows[1:]:
        if start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def _period(table: TaskTable, each: int) -> int:
    """Passes of the last stage after which it does the same with later micro-batches; `each` run of a micro-batch.

    With several chunks that may be as many micro-batches as there are stages, else it is one.
    """
    kinds = table.kinds(table.stages - 1)
    middle = len(kinds) // 2
    for period in range(each, each * table.stages if table.parts > 1 else 0, each):
        if period <= middle and (kinds[middle - period : middle] == kinds[middle : middle + period]).all():
            return period
    return each * (table.stages if table.parts > 1 else 1)


def _chosen_stages(stages: int, rows: int) -> tuple[int, ...]:
    """Stages spread evenly from the first to the last, from 0; all, where there are enough rows."""
    if stages <= rows:
        return tuple(range(stages))
    return tuple(round(row * (stages - 1) / (rows - 1)) for row in range(rows))


def _cut(table: TaskTable, wanted: Sequence[Window], rows: Sequence[int]) -> tuple[Window, ...]:
    """Windows of which the longest are made shorter until all can be drawn: the first keeps its beginning."""
    if len(wanted) < 2:
        third = table.end_of_all / 3
        wanted = ((0.0, third), (third, 2 * third), (2 * third, table.end_of_all))
    most = max(end - start for start, end in wanted)
    enough = table.end_of_all * MOST_PASSES_CUT / max(table.most_passes(), 1)
    while True:
        most *= 0.8
        windows = []
        for index, (start, end) in enumerate(wanted):
            less = max(end - start - most, 0.0)
            before = 0.0 if index == 0 else less if index == len(wanted) - 1 else less / 2
            windows.append((start + before, end - (less - before)))
        if sum(end - start for start, end in windows) <= enough and _boxes(table, windows, rows) <= MOST_BOXES:
            return tuple(windows)


def _boxes(table: TaskTable, windows: Sequence[Window], rows: Sequence[int]) -> int:
    here = numpy.isin(table.stage, rows)
    return sum(int((table.within(*window) & here).sum()) for window in windows)


def timeline_figure(replay: Replay, table: TaskTable, windows: Windows) -> Figure:
    """The figure: the batch as a strip where it is too long to be drawn whole, its parts in detail, and a table."""
    parts = busy(table, PARTS)
    idle = [_share(stage.idle, replay.batch_time) for stage in replay.stages]
    keys = [Key(STYLES[style][1], f"task-{STYLES[style][0]}") for style in table.used_styles()]
    keys += [Key("idle", "idle"), *(strip_keys() if windows.gaps else ())]
    return Figure(
        "timeline",
        "What every stage does",
        " ".join([_times(replay, table), _idle(replay), *_chunks(replay, table), *_parts(replay, windows, table)]),
        tuple(
            (*([strip(parts, windows, width)] if windows.gaps else []), *_detail(table, windows, idle, width))
            for width in WIDTHS
        ),
        _stages(replay, parts, table),
        tuple(keys),
        (_windows(windows, table),),
    )


def _share(seconds: float, whole: float) -> float:
    return seconds / whole if whole > 0 else 0.0


def _detail(table: TaskTable, windows: Windows, idle: Sequence[float], width: float) -> Iterator[Drawing]:
    """The parts of the batch side by side, or below each other on a narrow drawing, at one scale."""
    what = "The whole batch" if not windows.gaps else f"{len(windows.windows)} parts of the batch"
    used = ", ".join(STYLES[style][1] for style in table.used_styles())
    description = (
        f"{what}, a row for each of {len(windows.stages)} stages, time from left to right. Coloured and patterned "
        f"boxes are {used}; what is not covered is idle; behind a row stands its idle share. The table below has the "
        "seconds of each stage."
    )
    title = "What every stage does, task by task"
    if width >= NARROW or not windows.gaps:
        place = placing(windows, room(width))
        yield Drawing(width, place.height, drawn(table, windows, place, idle), title, description)
        return
    longest = max(end - start for start, end in windows.windows)
    for index, window in enumerate(windows.windows):
        before = f"after {format_seconds(window[0] - windows.windows[index - 1][1])} left out" if index else ""
        part = Windows(windows.stages, (window,), windows.cut)
        place = placing(part, room(width), longest)
        body = drawn(table, part, place, idle, before)
        yield Drawing(width, place.height, body, f"{title}: part {index + 1} of {len(windows.windows)}", description)


def _times(replay: Replay, table: TaskTable) -> str:
    """The step time beside the closed form."""
    form, difference = replay.closed_form, replay.batch_time - replay.closed_form
    text = f"Simulated pass by pass, the step takes {format_seconds(replay.batch_time)}"
    share = abs(difference) / form if form else 0.0
    if share < SMALL:
        text += f", as in the formula ({format_seconds(form)})."
    else:
        reasons = [why for name, why in _REASONS.items() if abs(getattr(replay.difference, name)) > SMALL * form]
        text += (
            f", {format_seconds(abs(difference))} {'more' if difference > 0 else 'less'} ({percent(share)}) than the "
            f"formula ({format_seconds(form)}){', which ' if reasons else ''}{' and '.join(reasons)}."
        )
    if table.end_of_all > replay.batch_time * (1 + AGREEMENT):
        text += (
            f" Stages begin and end it one after the other, over {format_seconds(table.end_of_all)}, which are drawn; "
            f"the next batch follows on each stage after {format_seconds(replay.batch_time)}."
        )
    return text


def _idle(replay: Replay) -> str:
    """Idle time of stages, in words."""
    idle = [_share(stage.idle, replay.batch_time) for stage in replay.stages]
    most, least = (pick(range(len(idle)), key=idle.__getitem__) for pick in (max, min))
    if f"{percent(idle[most])}" == f"{percent(idle[least])}":
        return f"{'The stage' if len(idle) == 1 else 'Every stage'} is idle for {percent(idle[most])} of the batch."
    return (
        f"Stages are idle for {percent(replay.idle_share)} of the step on average: stage {most + 1} for "
        f"{percent(idle[most])} ({format_seconds(replay.stages[most].idle)}), the longest, stage {least + 1} for "
        f"{percent(idle[least])}, the shortest."
    )


def _chunks(replay: Replay, table: TaskTable) -> Iterator[str]:
    """Explain how chunks look, or the two stages of a device."""
    if replay.chunks > 1:
        yield (
            f"A stage runs {replay.chunks} chunks: the later the chunk, the higher the dark foot of its boxes; those "
            "of the first have none."
        )
    elif table.parts > 1:
        yield (
            "Every device holds two stages, its own and, of the pipeline that runs against the first, the one as far "
            "from the other end: boxes of that have a dark foot."
        )


def _parts(replay: Replay, windows: Windows, table: TaskTable) -> Iterator[str]:
    """Describe the drawn parts and those left out."""
    if replay.replicas > 1:
        yield f"The {replay.replicas} replicas are equal; one is drawn."
    if len(windows.stages) < table.stages:
        yield (
            f"Of {table.stages} stages, {len(windows.stages)} are drawn, spread evenly from the first to the last; "
            f"{'the strip and the table have' if windows.gaps else 'the table has'} all."
        )
    if windows.gaps:
        seconds = sum(end - start for start, end in windows.gaps)
        named = f": {PHASES[0]}, {PHASES[1]} and {PHASES[2]}" if _is_named(windows) else ""
        yield (
            f"The strip shows the whole step; below it, {len(windows.windows)} parts at the same scale{named}. "
            f"{format_seconds(seconds)} ({percent(seconds / table.end_of_all)}) between them are left out."
        )


def _is_named(windows: Windows) -> bool:
    """Return whether the windows are the whole phases of the batch."""
    return len(windows.windows) == len(PHASES) and not windows.cut


def _stages(replay: Replay, parts: Busy, table: TaskTable) -> Table:
    """Seconds of every stage by what it does; a row adds up to the batch."""
    styles, totals = table.used_styles(), parts.seconds.sum(axis=2)
    rows = tuple(
        (
            Cell(str(index + 1), float(index + 1)),
            *(Cell.seconds(float(totals[index, style])) for style in styles),
            Cell.seconds(stage.idle),
            Cell.share(_share(stage.idle, replay.batch_time)),
            Cell.size(stage.memory_peak),
        )
        for index, stage in enumerate(replay.stages)
    )
    header = ("stage", *(STYLES[style][1] for style in styles), "idle", "idle share", "memory peak")
    return Table("What every stage does in the batch, in all", header, rows)


def _windows(windows: Windows, table: TaskTable) -> Table:
    """The batch from its beginning to its end: what is drawn and what is left out; the rows add up to it."""
    names = PHASES if _is_named(windows) else ("drawn",) * len(windows.windows)
    parts = [(window, name, "") for window, name in zip(windows.windows, names, strict=True)]
    for start, end in windows.gaps:
        tasks = int(((table.start >= start) & (table.start < end)).sum())
        parts.append(((start, end), "left out", f"{tasks:,} tasks"))
    rows = tuple(
        (Cell(name), *map(Cell.seconds, (start, end, end - start)), Cell(what))
        for (start, end), name, what in sorted(parts, key=lambda part: part[0])
    )
    return Table("Parts of the batch", ("part", "from", "to", "takes", "what"), rows, words=(0, 4))
