"""The tasks of a replay in columns: half a million of them are looked at as fast as a few."""

from collections.abc import Sequence

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.simulate.timeline import Task

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
"""How tasks are drawn: name of the style, what legends call it, and the kinds of `Task` it is for."""

STYLE_OF = {kind: number for number, (_, _, kinds) in enumerate(STYLES) for kind in kinds}

NUMBERED = tuple(number for number, (name, _, _) in enumerate(STYLES) if name in ("forward", "backward", "inputs"))
"""Styles of tasks that carry the number of their micro-batch."""


@frozen(eq=False)
class TaskTable:
    """Tasks, one in every row of every column, sorted by stage and time.

    Attributes:
        stages: how many there are.
        stage: from 0. Shape `(tasks,)`, like all columns.
        style: number of the style in `STYLES`.
        run: number of the kind of pass, kind of piece and chunk: tasks that differ only in the micro-batch share it.
        micro_batch: from 0; `NONE` for what happens once per batch.
        start: seconds.
        end: seconds.
        end_of_all: seconds; when the last task of any stage ends.
    """

    stages: int
    stage: Numbers = field(repr=False)
    style: Numbers = field(repr=False)
    run: Numbers = field(repr=False)
    micro_batch: Numbers = field(repr=False)
    start: Times = field(repr=False)
    end: Times = field(repr=False)
    end_of_all: float

    @classmethod
    def of(cls, tasks: Sequence[Task], stages: int) -> "TaskTable":
        """The tasks of a replay; on each stage they follow each other.

        Args:
            tasks: in the order of each stage.
            stages: how many there are.
        """
        numbers: dict[tuple[str | None, str, int], int] = {}
        stage = numpy.array([task.stage for task in tasks], dtype=numpy.int64)
        start = numpy.array([task.start for task in tasks], dtype=numpy.float64)
        end = numpy.array([task.end for task in tasks], dtype=numpy.float64)
        run = [numbers.setdefault((task.run, task.kind, task.chunk), len(numbers)) for task in tasks]
        order = numpy.lexsort((end, start, stage))
        return cls(
            stages,
            stage[order],
            numpy.array([STYLE_OF[task.kind] for task in tasks], dtype=numpy.int64)[order],
            numpy.array(run, dtype=numpy.int64)[order],
            numpy.array([NONE if task.micro_batch is None else task.micro_batch for task in tasks], dtype=numpy.int64)[
                order
            ],
            start[order],
            end[order],
            float(end.max()) if len(end) else 0.0,
        )

    def within(self, start: float, end: float) -> Chosen:
        """Which tasks run at some time of an interval. Shape `(tasks,)`."""
        return (self.start < end) & (self.end > start)

    def most_passes(self) -> int:
        """Passes of the stage that has the most, counted by what they compute. 0 without any."""
        computing = numpy.isin(self.style, [STYLE_OF[kind] for kind in _PASSES])
        return int(numpy.bincount(self.stage[computing], minlength=1).max()) if computing.any() else 0

    def used_styles(self) -> tuple[int, ...]:
        """Numbers of the styles that some task has, in the order of `STYLES`."""
        return tuple(int(number) for number in numpy.unique(self.style))


_PASSES = ("forward", "backward", "input-gradients", "weight-gradients")
