"""Lower bounds of what stages of several chunks take, from what each takes with any number of units."""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.solve.dp.chunk_stages import StagePrices
from nest.tolerances import LIMIT_SLACK


@frozen(eq=False)
class LeanUnits:
    """What units of each run between the first and the last of all take and need at least.

    Attributes:
        count: how many there are.
        seconds: of a unit that computes and recomputes least, per micro-batch. Shape `(modes,)`.
        first: bytes of its state, sharded as far as it may be, and of one micro-batch. Shape `(modes, runs)`.
        more: bytes of each further one. Shape `(modes, runs)`.
        peak: transient bytes, at least.
    """

    count: int
    seconds: Array
    first: Array
    more: Array
    peak: float

    def room(self, held: Array, spread: Array, room: float) -> Array:
        """How many units there is memory for, by mode and stage; infinite where none takes memory.

        Shape `(modes, stages)`. They are in the chunk that holds the fewest micro-batches, but for one in each other.

        Args:
            held: micro-batches that every chunk of a stage holds at one moment, at least. Shape `(stages, moments)`.
            spread: micro-batches that the other chunks hold beyond these, together. Shape `(stages, moments)`.
            room: bytes of a device.
        """
        needed = (self.first[..., None, None] + (held - 1) * self.more[..., None, None]).min(axis=1)
        left = numpy.maximum(room - self.peak - spread * self.more.min(axis=1)[:, None, None], 0.0)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            # Where a chunk holds less than one micro-batch, its inputs and the ends may count below zero.
            found: Array = numpy.where((needed > 0) & (held >= 1), left / needed, inf).min(axis=2)
        return found

    def hold(self, room: Array, time: Array) -> bool:
        """Whether stages that take so long at most, shape `(stages,)`, and have such `room` hold all units."""
        with numpy.errstate(divide="ignore", invalid="ignore"):
            fast = numpy.where(self.seconds[:, None] > 0, numpy.maximum(time, 0.0) / self.seconds[:, None], inf)
        each = numpy.floor(numpy.minimum(room, fast) * (1 + LIMIT_SLACK))
        return bool(each.max(axis=0).sum() >= self.count)


def least_of(
    prices: StagePrices, fits: NDArray[numpy.bool_] | None, seconds: Array, worth: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array], float]:
    """What a stage takes and synchronises at least, by point, and its least cost beyond what further units are worth.

    With either comes what it computes of these units.
    """
    further = numpy.array(prices.further, dtype=numpy.float64)
    where: Any = True if fits is None else fits
    time, cost, sync = (each.min(axis=0, where=where, initial=inf) for each in prices.at(None))
    return (time, further @ seconds), (sync, further @ seconds), float((cost - further @ worth).min())


def least_largest(stages: Sequence[tuple[Array, Array]], needed: float) -> float:
    """The least limit on all stages that leaves room for `needed`; infinite where none does.

    `stages` have for each point what it takes and what it adds.
    """
    distinct: dict[tuple[int, int], tuple[Array, Array, int]] = {}
    for values, added in stages:
        key = (id(values), id(added))
        distinct[key] = values, added, distinct.get(key, (values, added, 0))[2] + 1
    every = numpy.unique(numpy.concatenate([values for values, _, _ in distinct.values()]))
    every = every[numpy.isfinite(every)]

    def room(limit: float) -> float:
        return sum(
            times * float(added.max(where=values <= limit, initial=-inf)) for values, added, times in distinct.values()
        )

    if not len(every) or room(float(every[-1])) < needed:
        return inf
    low, high = 0, len(every) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if room(float(every[middle])) >= needed else (middle + 1, high)
    return float(every[low])
