"""Ports: what holds a stage up beside its time, and whether the levels of its boundaries matter (PROBLEM.md section 4).

A boundary adds its seconds to a stage's time, and at most as much to one port. So where no port of a stage is occupied
for longer than the stage takes without boundaries, none is with them, and boundaries only add up. Which stages that is
not so for is known here: theirs alone are priced for each pair of levels (docs/explanation/proofs.md, "Ports").
"""

from collections.abc import Sequence
from typing import Any

import numpy
from attrs import fields, frozen
from numpy.typing import NDArray

from nest.instance import Array

UNKNOWN = -1
"""Stands for the level of a boundary that may be any: it is on no port, and the figures are lower bounds."""


@frozen(eq=False)
class Boundary:
    """A boundary of some stages.

    Attributes:
        level: its level, or `UNKNOWN`.
        seconds: that each stage takes to receive over it, shape `(stages,)`, or one number for all.
    """

    level: int
    seconds: Array | float


@frozen(eq=False)
class Ports:
    """The ports of one choice for every kind of stage; arrays of shape `(kinds,)` or `(levels, kinds)`.

    In tables of several choices there is one more dimension, in front of `kinds`.

    Attributes:
        busy: seconds per micro-batch for which a port at each level is occupied, without boundaries.
        once: seconds once per batch if nothing of it hides, the optimizer step included.
        used: levels over which something that may hide is sent once per batch.
        floor: seconds per micro-batch at least, whatever the boundaries.
        slow: where some port is occupied for longer than the stage takes without boundaries.
        held: where what is sent once per batch may be held up by what is sent per micro-batch.
        micro_batches: how many a port is free in (`M`); None: nothing is held up, for a bound from below.
    """

    busy: Array
    once: Array
    used: NDArray[numpy.bool_]
    floor: Array
    slow: NDArray[numpy.bool_]
    held: NDArray[numpy.bool_]
    micro_batches: int | None

    @classmethod
    def of(
        cls,
        busy: Array,
        time: Array,
        sync: Array,
        once: Array,
        used: NDArray[numpy.bool_],
        micro_batches: int | None,
    ) -> "Ports":
        """The ports of stages that take `time` and `sync` seconds without them; `used` is false where nothing hides."""
        floor = numpy.maximum(time, busy.max(axis=0))
        held = numpy.zeros(len(time), dtype=bool)
        if micro_batches is not None and used.any():
            # A port is free for that long at least, as the time of a stage never falls below what its ports need.
            free = numpy.where(used, numpy.maximum(time - busy, 0.0), numpy.inf).min(axis=0)
            held = once - micro_batches * free > sync
        return cls(busy, once, used, floor, floor > time, held, micro_batches)

    @property
    def tight(self) -> NDArray[numpy.bool_]:
        """Where times or synchronisation depend on more than the sum of the boundaries' seconds."""
        tight: NDArray[numpy.bool_] = self.slow | self.held
        return tight

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """All arrays."""
        return [self.busy, self.once, self.used, self.floor, self.slow, self.held]

    def at(self, index: Any) -> "Ports":
        """The same of some of the numbers, as arrays without the dimension of levels are indexed."""
        by_level = (slice(None), *index) if isinstance(index, tuple) else (slice(None), index)
        return Ports(
            self.busy[by_level],
            self.once[index],
            self.used[by_level],
            self.floor[index],
            self.slow[index],
            self.held[index],
            self.micro_batches,
        )

    @classmethod
    def stacked(cls, every: "Sequence[Ports]", kinds: slice = slice(None)) -> "Ports":
        """The ports of several choices in one."""
        arrays = {
            each.name: numpy.stack([getattr(ports, each.name)[..., kinds] for ports in every], axis=-2)
            for each in fields(cls)
            if each.name != "micro_batches"
        }
        return cls(**arrays, micro_batches=every[0].micro_batches)

    def raised(self, time: Array, sync: Array, kinds: Any, *boundaries: Boundary) -> tuple[Array, Array]:
        """`t_i` and `y_i` of stages of these kinds.

        Args:
            time: seconds per micro-batch without ports, with the boundaries.
            sync: seconds once per batch without ports.
            kinds: which kind each stage is of, as arrays are indexed.
            boundaries: of these stages.
        """
        if any(boundary.level == UNKNOWN for boundary in boundaries):
            return numpy.maximum(time, self.floor[kinds]), sync
        loads = []
        for level, busy in enumerate(self.busy):
            load = busy[kinds]
            for boundary in boundaries:
                if boundary.level == level:
                    load = load + boundary.seconds
            loads.append(load)
        time = numpy.maximum(time, numpy.maximum.reduce(loads))
        if self.micro_batches is None or not self.held[kinds].any():
            return time, sync
        least = numpy.full(time.shape, numpy.inf)
        for load, used in zip(loads, self.used, strict=True):
            numpy.minimum(least, time - load, out=least, where=used[kinds])
        return time, numpy.maximum(sync, self.once[kinds] - self.micro_batches * least)
