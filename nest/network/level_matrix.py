"""The level of every two devices as a matrix (PROBLEM.md section 1), for networks that are no hierarchy."""

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance.pairs import Pairs
from nest.network.graph import Floats

MOST_CLASSES = 3
"""Levels of a matrix: PROBLEM.md section 1 names three (1 hop, 2 hops, remote)."""


@frozen(eq=False)
class LevelMatrix:
    """Levels of pairs; unlike the levels of a cluster they need not form groups.

    Attributes:
        names: the devices, in the order of rows and columns.
        bandwidth: of each level the least of its pairs, bytes per second and direction.
        latency: of each level the largest of its pairs, seconds.
        level: devices by devices, symmetric; -1 on the diagonal.
    """

    names: tuple[str, ...]
    bandwidth: tuple[float, ...]
    latency: tuple[float, ...]
    level: NDArray[numpy.int8]


def level_matrix(pairs: Pairs, *, by_hops: bool, most: int = MOST_CLASSES) -> LevelMatrix:
    """Every pair in one of at most `most` levels, nearest first, each as slow as the slowest of its pairs.

    By hops: 1 hop, 2 hops, ..., and all that is further in the last. By bandwidth: values in descending order, parted
    where neighbouring values differ by the largest factors.

    Raises:
        ValueError: hops are asked for and not known.
    """
    if by_hops and pairs.hops is None:
        raise ValueError("measured pairs have no hops")
    keys: Floats = (pairs.hops if by_hops else 1.0 / pairs.bandwidth).astype(numpy.float64)  # type: ignore[union-attr]
    apart = ~numpy.eye(pairs.size, dtype=bool)
    values = numpy.unique(keys[apart])
    starts = numpy.arange(min(most, len(values))) if by_hops else _parted(values, most)
    level = (numpy.searchsorted(values[starts], keys, side="right") - 1).astype(numpy.int8)
    numpy.fill_diagonal(level, -1)
    masks = [level == index for index in range(len(starts))]
    return LevelMatrix(
        names=pairs.names,
        bandwidth=tuple(float(pairs.bandwidth[mask].min()) for mask in masks),
        latency=tuple(float(pairs.latency[mask].max()) for mask in masks),
        level=level,
    )


def _parted(values: Floats, most: int) -> NDArray[numpy.int64]:
    """Where the groups of ascending `values` begin, parted at the largest ratios of neighbours."""
    ratios = values[1:] / values[:-1]
    cuts = numpy.sort(numpy.argsort(-ratios, kind="stable")[: most - 1]) + 1
    return numpy.concatenate([[0], cuts]).astype(numpy.int64)
