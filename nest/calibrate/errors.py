"""How far a link is from measurements, by table, kind and size."""

from collections.abc import Iterable, Mapping, Sequence

import numpy
from attrs import frozen

from nest.calibrate.collectives import grouped
from nest.calibrate.measurement import Measurement
from nest.catalogue import Link
from nest.instance import CollectiveModel

SIZES = ((0.0, "below 256 KiB"), (2.0**18, "256 KiB to 16 MiB"), (2.0**24, "16 MiB on"))
"""Least bytes of each range of sizes: where latency counts, where both do, and where bandwidth does."""

ALL = "all"


@frozen
class Errors:
    """Relative errors of predictions.

    Attributes:
        count: how many.
        median: of their absolute values.
        most: the 90th percentile of their absolute values.
        bias: the median with its sign.
    """

    count: int
    median: float
    most: float
    bias: float


def errors(
    measurements: Sequence[Measurement], link: Link, model: CollectiveModel
) -> dict[tuple[str, str, str], Errors]:
    """Errors of `link` by table, kind and range of sizes; `all` stands for all of one of these."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for table in dict.fromkeys(each.table for each in measurements):
        for group in grouped([each for each in measurements if each.table == table], link):
            off = (group.predicted(link, model) / group.seconds - 1.0).tolist()
            for size, error in zip(group.bytes.tolist(), off, strict=True):
                for key in _keys(table, group.kind, size):
                    found.setdefault(key, []).append(error)
    order = {name: index for index, (_, name) in enumerate((*SIZES, (0.0, ALL)))}
    return {key: _errors(found[key]) for key in sorted(found, key=lambda key: (key[0] == ALL, *key[:2], order[key[2]]))}


def _keys(table: str, kind: str, size: float) -> Iterable[tuple[str, str, str]]:
    reach = next(name for least, name in reversed(SIZES) if size >= least)
    return ((table, kind, reach), (table, kind, ALL), (ALL, kind, reach), (ALL, kind, ALL), (ALL, ALL, ALL))


def _errors(values: list[float]) -> Errors:
    off = numpy.array(values)
    size = numpy.abs(off)
    return Errors(len(values), float(numpy.median(size)), float(numpy.quantile(size, 0.9)), float(numpy.median(off)))


def cells(
    before: Mapping[tuple[str, str, str], Errors], after: Mapping[tuple[str, str, str], Errors]
) -> list[tuple[str, ...]]:
    """Rows of a table: table, kind, range of sizes, count, and median and 90th percentile, before and after."""
    return [
        (*key, str(found.count), *(f"{_share(errors.median)} {_share(errors.most)}" for errors in (before[key], found)))
        for key, found in after.items()
    ]


def _share(value: float) -> str:
    return f"{100 * value:>4.0f} %" if value >= 0.1 else f"{100 * value:>4.1f} %"
