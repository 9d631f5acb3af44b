"""The tasks of a replay in columns: half a million of them are looked at as fast as a few."""

from collections.abc import Sequence
from itertools import pairwise

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.public.planning import Task

Times = NDArray[numpy.float64]
"""Seconds from the beginning of the batch."""

Numbers = NDArray[numpy.int64]

Chosen = NDArray[numpy.bool_]

NONE = -1
"""Micro-batch of what happens once per batch."""

STYLES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("forward", "forward", ("forward",)),
    ("backward", "backward", ("backward",)),
    ("inputs", "backward, gradients of inputs", ("input-gradients",)),
    ("weights", "backward, gradients of weights", ("weight-gradients",)),
    ("recompute", "recomputation", ("recompute",)),
    ("message", "messages between stages", ("receive-activations", "receive-gradients")),
    ("collective", "collectives over replicas (gradients, ZeRO)", ("reduce-gradients", "gather-weights")),
    ("update", "optimizer step", ("update",)),
    ("wait", "waiting for a busy port", ("wait-for-port",)),
)
"""Drawing styles of tasks: name, legend, and the kinds of `Task`."""

STYLE_OF = {kind: number for number, (_, _, kinds) in enumerate(STYLES) for kind in kinds}

PASSES = tuple(STYLE_OF[kind] for kind in ("forward", "backward", "input-gradients", "weight-gradients"))
"""Styles of what passes compute."""

NUMBERED = tuple(number for number, (name, _, _) in enumerate(STYLES) if name in ("forward", "backward", "inputs"))
"""Styles of tasks that carry the number of their micro-batch."""


@frozen(eq=False)
class TaskTable:
    """Tasks, one in every row of every column, sorted by stage and time.

    Attributes:
        stages: how many there are.
        stage: from 0. Shape `(tasks,)`, like all columns.
        style: number of the style in `STYLES`.
        micro_batch: from 0; `NONE` for what happens once per batch.
        part: chunk of the stage, from 0; of devices that hold parameters twice 1 for what belongs to the stage that
            they hold of the pipeline against the first, else 0.
        start: seconds.
        end: seconds.
        end_of_all: seconds; when the last task of any stage ends.
    """

    stages: int
    stage: Numbers = field(repr=False)
    style: Numbers = field(repr=False)
    micro_batch: Numbers = field(repr=False)
    part: Numbers = field(repr=False)
    start: Times = field(repr=False)
    end: Times = field(repr=False)
    end_of_all: float

    @classmethod
    def of(cls, tasks: Sequence[Task], stages: int, copies: int = 1) -> "TaskTable":
        """The tasks of a replay; on each stage they follow each other.

        `copies`: how many times a device holds parameters (`nest.instance.copies_of`).
        """
        stage = numpy.array([task.stage for task in tasks], dtype=numpy.int64)
        start = numpy.array([task.start for task in tasks], dtype=numpy.float64)
        end = numpy.array([task.end for task in tasks], dtype=numpy.float64)
        batch = numpy.array(
            [NONE if task.micro_batch is None else task.micro_batch for task in tasks], dtype=numpy.int64
        )
        part = numpy.array([task.chunk for task in tasks], dtype=numpy.int64)
        if copies > 1:
            part = numpy.maximum(batch, 0) * copies // max(int(batch.max(initial=NONE)) + 1, 1)
        order = numpy.lexsort((end, start, stage))
        return cls(
            stages,
            stage[order],
            numpy.array([STYLE_OF[task.kind] for task in tasks], dtype=numpy.int64)[order],
            batch[order],
            part[order],
            start[order],
            end[order],
            float(end.max()) if len(end) else 0.0,
        )

    def within(self, start: float, end: float) -> Chosen:
        """Select tasks that run at some time of an interval. Shape `(tasks,)`."""
        return (self.start < end) & (self.end > start)

    @property
    def micro_batches(self) -> int:
        """Of the batch."""
        return int(self.micro_batch.max(initial=NONE)) + 1

    @property
    def parts(self) -> int:
        """Chunks of a stage, or copies."""
        return int(self.part.max(initial=0)) + 1

    def passes(self, stage: int) -> Times:
        """When the passes of a stage begin to compute, in order; they are counted by what they compute."""
        starts: Times = self.start[(self.stage == stage) & numpy.isin(self.style, PASSES)]
        return starts

    def kinds(self, stage: int) -> Numbers:
        """Passes of a stage in order: a number for each style in each part."""
        passes = (self.stage == stage) & numpy.isin(self.style, PASSES)
        numbers: Numbers = self.style[passes] * self.parts + self.part[passes]
        return numbers

    def most_passes(self) -> int:
        """Passes of the stage that has the most."""
        return int(numpy.bincount(self.stage[numpy.isin(self.style, PASSES)], minlength=1).max())

    def used_styles(self) -> tuple[int, ...]:
        """Numbers of the styles that some task has, in the order of `STYLES`."""
        return tuple(sorted(set(self.style.tolist())))


@frozen(eq=False)
class Busy:
    """Seconds that every stage spends on tasks of every style in equal parts of the batch.

    Attributes:
        edges: of the parts, seconds from the beginning of the batch. Shape `(parts + 1,)`.
        seconds: shape `(stages, styles, parts)`, styles as in `STYLES`.
    """

    edges: Times = field(repr=False)
    seconds: Times = field(repr=False)

    def shares(self, groups: Sequence[tuple[int, int]]) -> Times:
        """Share of each part in which the stages of a group do anything, on average. Shape `(groups, parts)`.

        Args:
            groups: of stages: the first, and the one after the last.
        """
        lengths = numpy.diff(self.edges)
        seconds = [self.seconds[first:last].sum(axis=(0, 1)) / (last - first) for first, last in groups]
        return numpy.divide(seconds, lengths, out=numpy.zeros((len(seconds), len(lengths))), where=lengths > 0)


def busy(table: TaskTable, parts: int) -> Busy:
    """Work of each stage in equal parts of the time, from the start of the batch to the end of its last task."""
    edges = numpy.linspace(0.0, table.end_of_all, parts + 1)
    seconds = numpy.zeros((table.stages, len(STYLES), parts))
    bounds = numpy.searchsorted(table.stage, numpy.arange(table.stages + 1)).tolist()
    for stage, (first, last) in enumerate(pairwise(bounds)):
        styles, starts, ends = (column[first:last] for column in (table.style, table.start, table.end))
        for style in sorted(set(styles.tolist())):
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
