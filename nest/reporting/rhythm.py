"""Whether a batch repeats itself: what may be left out of a timeline, and what can be said of it."""

from collections.abc import Sequence

import numpy
from attrs import frozen

from nest.reporting.task_table import TaskTable, Times
from nest.tolerances import DRAWN

ENOUGH = 0.5
"""Share of the batch that repeats itself by which a step is good enough: further ones are not tried."""

LEAST_REPEATS = 4
"""Periods below which leaving out a repetition gains nothing."""


@frozen
class Rhythm:
    """How the tasks of a batch follow those of earlier micro-batches.

    Attributes:
        step: a task is held against the same task of the micro-batch this much earlier.
        distance: seconds from that task; not a number where there is none. Shape `(tasks,)`.
        stretches: from and to, in seconds: times in which no stage changes its distance, of `LEAST_REPEATS` periods or
            more; in order.
    """

    step: int
    distance: Times
    stretches: tuple[tuple[float, float], ...]

    def share(self, table: TaskTable) -> float:
        """The share of the batch that the stretches take."""
        whole = sum(end - start for start, end in self.stretches)
        return whole / table.end_of_all if table.end_of_all else 0.0

    def period(self, table: TaskTable, start: float, end: float) -> float:
        """The longest distance of the tasks that start in an interval, in seconds; 0 where there is none."""
        told = self.distance[(table.start >= start) & (table.start < end) & ~numpy.isnan(self.distance)]
        return float(told.max()) if len(told) else 0.0


def rhythm(table: TaskTable, steps: Sequence[int]) -> Rhythm:
    """The rhythm with the first step by which most of the batch repeats itself, or else the one that explains the most.

    Args:
        table: of the batch.
        steps: in micro-batches, those to try.
    """
    found = []
    for step in steps:
        found.append(_rhythm(table, step))
        if found[-1].share(table) > ENOUGH:
            return found[-1]
    # Rounding must not prefer one of two steps that explain as much.
    return max(found, key=lambda each: round(each.share(table), 6))


def _rhythm(table: TaskTable, step: int) -> Rhythm:
    distance = distances(table, step)
    changes = _changes(table, distance)
    found = Rhythm(step, distance, ())
    stretches = []
    for start, end in zip(changes[:-1].tolist(), changes[1:].tolist(), strict=True):
        # Far more changes than stretches: only what is long beside the batch is looked at.
        if end - start < table.end_of_all / 1000:
            continue
        period = found.period(table, start, end)
        if period and end - start >= LEAST_REPEATS * period:
            stretches.append((start, end))
    return Rhythm(step, distance, tuple(stretches))


def distances(table: TaskTable, step: int) -> Times:
    """Seconds from the same task of the micro-batch `step` earlier to each; not a number where there is none.

    Args:
        table: of the batch.
        step: in micro-batches.
    """
    runs, batches = int(table.run.max(initial=0)) + 1, int(table.micro_batch.max(initial=0)) + 1
    names = (table.stage * runs + table.run) * batches + table.micro_batch
    earlier = names - step
    order = numpy.argsort(names, kind="stable")
    place = numpy.searchsorted(names, earlier, sorter=order)
    place = order[numpy.minimum(place, len(order) - 1)]
    there = (table.micro_batch >= step) & (names[place] == earlier)
    return numpy.where(there, table.start - table.start[place], numpy.nan)


def _changes(table: TaskTable, distance: Times) -> Times:
    """Seconds at which some stage begins to keep another distance, and both ends of the batch; in order."""
    before = numpy.concatenate([[numpy.nan], distance[:-1]])
    same = numpy.isclose(distance, before, rtol=DRAWN, atol=0.0)
    same[1:] &= table.stage[1:] == table.stage[:-1]
    last = numpy.concatenate([table.stage[1:] != table.stage[:-1], [True]])
    return numpy.unique(numpy.concatenate([[0.0], table.start[~same], table.end[last], [table.end_of_all]]))


@frozen
class LeftOut:
    """A part of the batch that a timeline does not show.

    Attributes:
        start: seconds from the beginning of the batch.
        end: seconds.
        tasks: that start in it, of all stages.
        unlike: of these tasks, those that do not follow the same task of `step` micro-batches earlier at the distance
            that is usual for their stage in this part.
        step: in micro-batches.
        least: seconds; the shortest distance usual for a stage.
        most: seconds; the longest.
    """

    start: float
    end: float
    tasks: int
    unlike: int
    step: int
    least: float
    most: float


def left_out(table: TaskTable, told: Rhythm, start: float, end: float) -> LeftOut:
    """What can be said of a part of the batch.

    Args:
        table: of the batch.
        told: its rhythm.
        start: seconds from the beginning of the batch.
        end: seconds.
    """
    inside = (table.start >= start) & (table.start < end)
    usual, alike = [], 0
    for stage in range(table.stages):
        own = told.distance[inside & (table.stage == stage)]
        own = own[~numpy.isnan(own)]
        if len(own):
            usual.append(float(numpy.median(own)))
            alike += int(numpy.isclose(own, usual[-1], rtol=DRAWN, atol=0.0).sum())
    total = int(inside.sum())
    return LeftOut(start, end, total, total - alike, told.step, min(usual, default=0.0), max(usual, default=0.0))
