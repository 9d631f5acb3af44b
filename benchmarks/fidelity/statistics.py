"""Errors, and how well an order is predicted."""

from collections.abc import Sequence

import numpy
from attrs import frozen
from numpy.typing import NDArray

Array = NDArray[numpy.float64]


@frozen
class Errors:
    """How far predictions are from measurements.

    Attributes:
        count: predictions.
        mean: of absolute relative errors `|predicted / measured - 1|`.
        median: of them.
        bias: median of predicted over measured.
        worst: the largest absolute relative error.
    """

    count: int
    mean: float
    median: float
    bias: float
    worst: float


def errors(predicted: Array, measured: Array) -> Errors | None:
    """Errors of those that were predicted; None where none was.

    Args:
        predicted: not a number where there is no prediction.
        measured: above 0. Same shape.
    """
    told = ~numpy.isnan(predicted)
    if not told.any():
        return None
    ratio = predicted[told] / measured[told]
    off = numpy.abs(ratio - 1.0)
    return Errors(len(off), float(off.mean()), float(numpy.median(off)), float(numpy.median(ratio)), float(off.max()))


def ranks(values: Array) -> Array:
    """Ranks from 1, equal values sharing the mean of theirs."""
    _, place, counts = numpy.unique(values, return_inverse=True, return_counts=True)
    last = numpy.cumsum(counts)
    return numpy.asarray((last - (counts - 1) / 2.0)[place])


def rank_correlation(one: Array, other: Array) -> float | None:
    """Spearman's: the correlation of ranks; None where all of one side are equal, so that there is no order."""
    left, right = (each - each.mean() for each in (ranks(one), ranks(other)))
    size = float(numpy.sqrt((left**2).sum() * (right**2).sum()))
    return float((left * right).sum() / size) if size > 0 else None


def regret(predicted: Array, measured: Array) -> float:
    """Measured time of what is predicted best over that of the best, less 1; of several predicted best, the first."""
    return float(measured[int(numpy.argmin(predicted))] / measured.min() - 1.0)


def best_share(achieved: Sequence[float]) -> float:
    """The share `u` that makes the mean of `|x / u - 1|` over the achieved shares `x` least.

    `sum |x / u - 1| = sum x |1/u - 1/x|`, so `1/u` is the median of `1/x` with weights `x`: a share that was achieved.
    """
    return weighted_quantile(numpy.array(achieved), numpy.array(achieved))


def weighted_quantile(values: Array, weights: Array, share: float = 0.5) -> float:
    """The least value up to which at least `share` of the weight lies.

    Args:
        values: at least one.
        weights: above 0. Same shape.
    """
    order = numpy.argsort(values, kind="stable")
    below = numpy.cumsum(weights[order])
    return float(values[order][int(numpy.searchsorted(below, share * below[-1]))])
