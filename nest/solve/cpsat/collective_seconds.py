"""What collectives of one kind take, of as many sizes as there are stages (PROBLEM.md section 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from nest.instance import CollectiveModel, Instance, Level, port_seconds
from nest.solve.cpsat.cuts import Floats

if TYPE_CHECKING:
    from collections.abc import Callable


def collective_seconds(
    instance: Instance, kind: str, sizes: Floats, shapes: tuple[tuple[int, ...], ...], members: int, rows: int
) -> Floats:
    """Seconds for each size, on the slowest of groups of these shapes and so many members; none for no bytes.

    Equal sizes, of which identical layers make many, are asked for once.

    Returns: of shape `(rows, *sizes.shape)`: the seconds; then, if there are more rows, those for which the port at
        each level is occupied, where it is for longest.
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
    """Seconds for each size, of all at once where the model can tell."""
    many: Callable[..., Floats] | None = getattr(model, "times", None)
    if many is not None:
        return many(kind, sizes, shape, levels, members=members)
    return numpy.array([float(model.time(kind, size, shape, levels, members=members)) for size in sizes.tolist()])
