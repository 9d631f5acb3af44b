"""Seconds of collectives of one kind, for an array of sizes (PROBLEM.md section 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from nest.instance import CollectiveModel, Instance, Level, port_seconds
from nest_cpsat.cuts import Floats

if TYPE_CHECKING:
    from collections.abc import Callable


def collective_seconds(
    instance: Instance, kind: str, sizes: Floats, shapes: tuple[tuple[int, ...], ...], members: int, rows: int
) -> Floats:
    """Seconds for each size on the slowest group of these shapes and so many members; 0 for 0 bytes.

    Equal sizes, common among identical layers, are priced once.

    Returns: shape `(rows, *sizes.shape)`: seconds; then, for further rows, seconds that the port at each level is
        occupied at most.
    """
    different, place = numpy.unique(sizes, return_inverse=True)
    model, levels, some = instance.collectives, instance.cluster.levels, different > 0
    times = numpy.zeros((rows, len(different)))
    if some.any():
        every = [_seconds(model, kind, different[some], shape, levels, members) for shape in shapes]
        times[0, some] = numpy.maximum.reduce(every)
    if rows > 1:
        ports = [port_seconds(model, kind, different, shape, levels, members) for shape in shapes]
        times[1:] = numpy.maximum.reduce(ports)
    return times[:, place]


def _seconds(
    model: CollectiveModel, kind: str, sizes: Floats, shape: tuple[int, ...], levels: tuple[Level, ...], members: int
) -> Floats:
    many: Callable[..., Floats] | None = getattr(model, "times", None)
    if many is not None:
        return many(kind, sizes, shape, levels, members=members)
    return numpy.array([float(model.time(kind, size, shape, levels, members=members)) for size in sizes.tolist()])
