"""Which parts of a batch a timeline shows: its beginning, a piece of every rhythm, and its end."""

from collections.abc import Sequence
from itertools import pairwise

import numpy
from attrs import frozen

from nest.reporting.rhythm import LeftOut, Rhythm, left_out, rhythm
from nest.reporting.task_table import TaskTable

MOST_PASSES = 100
"""Passes of a stage up to which the whole batch is shown: a pass is then some 10 px wide."""

MOST_PASSES_CUT = 200
"""Passes of a stage that are shown where not all that does not repeat itself can be: some 5 px each."""

MOST_BOXES = 7500
"""Tasks drawn at most; each takes some 25 bytes."""

MOST_ROWS = 32
"""Stages drawn at most."""

FEWER_ROWS = (MOST_ROWS, 24, 16, 12)
"""Numbers of rows tried, where that lets windows stay whole."""

PIECE = 2.0
"""Periods of a rhythm that are shown in its midst, at least."""

PIECE_SHARE = 0.15
"""What is shown of a rhythm's midst, at least, beside all that does not repeat itself."""

MOST_STRETCHES = 2
"""Rhythms that are left out: of more, the shorter ones are drawn."""

MARGIN = 1.0
"""Periods of a rhythm that are shown where it begins and ends."""

Window = tuple[float, float]
"""From and to, in seconds from the beginning of the batch."""


@frozen
class Shown:
    """What a timeline shows.

    Attributes:
        stages: drawn, from 0, in order.
        windows: in order, apart from each other.
        gaps: what is left out between them.
        cut: whether windows were made shorter than what does not repeat itself.
    """

    stages: tuple[int, ...]
    windows: tuple[Window, ...]
    gaps: tuple[LeftOut, ...]
    cut: bool


def chosen_stages(stages: int, rows: int) -> tuple[int, ...]:
    """Stages spread evenly from the first to the last, from 0; all, where there are enough rows."""
    if stages <= rows:
        return tuple(range(stages))
    return tuple(round(row * (stages - 1) / (rows - 1)) for row in range(rows))


def shown(table: TaskTable, steps: Sequence[int]) -> Shown:
    """What to show of a batch, so that at most `MOST_BOXES` tasks are drawn.

    Args:
        table: of the batch.
        steps: in micro-batches; those by which it may repeat itself.
    """
    everything = ((0.0, table.end_of_all),)
    rows = chosen_stages(table.stages, MOST_ROWS)
    if table.most_passes() <= MOST_PASSES and _boxes(table, everything, rows) <= MOST_BOXES:
        return Shown(rows, everything, (), False)
    told = rhythm(table, steps)
    wanted = _wanted(table, told)
    for count in FEWER_ROWS:
        rows = chosen_stages(table.stages, count)
        if _boxes(table, wanted, rows) <= MOST_BOXES:
            return Shown(rows, wanted, _gaps(table, told, wanted), False)
    windows = _cut(table, wanted, rows)
    return Shown(rows, windows, _gaps(table, told, windows), True)


def _wanted(table: TaskTable, told: Rhythm) -> tuple[Window, ...]:
    """All that does not repeat itself, with a period before and after, and a piece of what does."""
    stretches = sorted(sorted(told.stretches, key=lambda each: each[0] - each[1])[:MOST_STRETCHES])
    irregular = table.end_of_all - sum(end - start for start, end in stretches)
    found, reached = [], 0.0
    for start, end in stretches:
        period = told.period(table, start, end)
        middle, piece = (start + end) / 2, max(PIECE * period, PIECE_SHARE * irregular)
        found.append((reached, start + MARGIN * period))
        found.append((max(middle - piece / 2, start), min(middle + piece / 2, end)))
        reached = end - MARGIN * period
    return _merged([*found, (reached, table.end_of_all)])


def _merged(windows: Sequence[Window]) -> tuple[Window, ...]:
    found: list[Window] = []
    for start, end in windows:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)


def _cut(table: TaskTable, wanted: Sequence[Window], rows: Sequence[int]) -> tuple[Window, ...]:
    """Windows of which the longest are made shorter until all can be drawn: the first keeps its beginning."""
    if len(wanted) < 2:
        third = table.end_of_all / 3
        wanted = ((0.0, third), (third, 2 * third), (2 * third, table.end_of_all))
    most = max(end - start for start, end in wanted)
    enough = table.end_of_all * MOST_PASSES_CUT / max(table.most_passes(), 1)
    while True:
        most *= 0.8
        windows = tuple(_shortened(each, most, index, len(wanted)) for index, each in enumerate(wanted))
        if sum(end - start for start, end in windows) <= enough and _boxes(table, windows, rows) <= MOST_BOXES:
            return windows


def _shortened(window: Window, most: float, index: int, count: int) -> Window:
    start, end = window
    if end - start <= most:
        return window
    if index == 0:
        return start, start + most
    if index == count - 1:
        return end - most, end
    middle = (start + end) / 2
    return middle - most / 2, middle + most / 2


def _boxes(table: TaskTable, windows: Sequence[Window], rows: Sequence[int]) -> int:
    here = numpy.isin(table.stage, rows)
    return sum(int((table.within(*window) & here).sum()) for window in windows)


def _gaps(table: TaskTable, told: Rhythm, windows: Sequence[Window]) -> tuple[LeftOut, ...]:
    return tuple(left_out(table, told, before[1], after[0]) for before, after in pairwise(windows))
