"""Lower bounds of what stages of several chunks take, from what each takes with any number of units."""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy
from numpy.typing import NDArray

from nest.instance import Array
from nest.solve.dp.chunk_stages import StagePrices


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
