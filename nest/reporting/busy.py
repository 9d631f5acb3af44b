"""What stages do over the whole batch, second by second: nothing is left out here."""

from collections.abc import Sequence
from itertools import pairwise

import numpy
from attrs import field, frozen

from nest.reporting.task_table import STYLES, TaskTable, Times


@frozen(eq=False)
class Busy:
    """Seconds that every stage spends on tasks of every style in equal parts of the batch.

    Attributes:
        edges: of the parts, seconds from the beginning of the batch. Shape `(parts + 1,)`.
        seconds: shape `(stages, styles, parts)`, styles as in `STYLES`.
    """

    edges: Times = field(repr=False)
    seconds: Times = field(repr=False)

    @property
    def totals(self) -> Times:
        """Seconds of every stage and style in the whole batch. Shape `(stages, styles)`."""
        return numpy.asarray(self.seconds.sum(axis=2))

    def shares(self, groups: Sequence[tuple[int, int]]) -> Times:
        """Share of each part in which the stages of a group do anything, on average. Shape `(groups, parts)`.

        Args:
            groups: of stages: the first, and the one after the last.
        """
        lengths = numpy.diff(self.edges)
        told = [self.seconds[first:last].sum(axis=(0, 1)) / (last - first) for first, last in groups]
        return numpy.divide(told, lengths, out=numpy.zeros((len(told), len(lengths))), where=lengths > 0)


def busy(table: TaskTable, parts: int) -> Busy:
    """What each stage does in equal parts of the time from the beginning of the batch to the end of its last task.

    Args:
        table: of the batch.
        parts: how many.
    """
    edges = numpy.linspace(0.0, table.end_of_all, parts + 1)
    seconds = numpy.zeros((table.stages, len(STYLES), parts))
    bounds = numpy.searchsorted(table.stage, numpy.arange(table.stages + 1)).tolist()
    for stage, (first, last) in enumerate(pairwise(bounds)):
        styles, starts, ends = (column[first:last] for column in (table.style, table.start, table.end))
        for style in numpy.unique(styles).tolist():
            chosen = styles == style
            seconds[stage, style] = numpy.diff(_until(edges, starts[chosen], ends[chosen]))
    return Busy(edges, seconds)


def _until(times: Times, starts: Times, ends: Times) -> Times:
    """Seconds spent on tasks that follow each other, from the beginning until each of `times`."""
    done = numpy.concatenate([[0.0], numpy.cumsum(ends - starts)])
    finished = numpy.searchsorted(ends, times, side="right")
    begun = numpy.searchsorted(starts, times, side="right")
    running = numpy.where(begun > finished, times - starts[numpy.minimum(finished, len(starts) - 1)], 0.0)
    return done[finished] + running


def groups(stages: int, rows: int) -> tuple[tuple[int, int], ...]:
    """All stages in at most `rows` runs of neighbours, as even as can be: the first, and the one after the last."""
    rows = min(stages, rows)
    return tuple((row * stages // rows, (row + 1) * stages // rows) for row in range(rows))
