"""Collective models: what `nest.instance.protocols.CollectiveModel` promises."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import isclose, isfinite, prod

import numpy

from nest.graph import COLLECTIVES
from nest.hooks.protocols import CollectiveModel
from nest.instance import Array, Level
from nest.testing.finding import Finding, Problems, Tally
from nest.tolerances import AGREEMENT

BYTES = (0.0, 1.0, 4096.0, 1e6, 1.5e6, 1e9, 1e12)
"""Sizes of buffers, ascending: from nothing over a number to more than a device holds."""

Network = tuple[Level, ...]

NETWORKS: tuple[tuple[Network, tuple[tuple[int, ...], ...]], ...] = (
    ((Level("node", 8, 4e11, 3e-6),), ((1,), (2,), (3,), (8,))),
    (
        (Level("node", 8, 4e11, 3e-6, "nvlink4"), Level("spine", 4, 5e10, 5e-6, "infiniband-ndr")),
        ((1, 1), (8, 1), (1, 4), (2, 3), (8, 4)),
    ),
    (
        (Level("node", 4, 9e11, 0.0), Level("leaf", 4, 5e10, 1e-5), Level("core", 8, 5e9, 1e-4)),
        ((1, 1, 1), (4, 1, 8), (4, 4, 8)),
    ),
)
"""Networks, innermost level first, each with shapes of sets of devices (PROBLEM.md section 1). One names its links."""


def check_collective_model(model: CollectiveModel) -> tuple[Finding, ...]:
    """Price every kind of collective, from nothing to a terabyte, among devices of one to three levels."""
    tally = Tally()
    many = getattr(model, "times", None)
    for kind in COLLECTIVES:
        for levels, shapes in NETWORKS:
            for shape in shapes:
                where = f"{kind} among {'x'.join(map(str, shape))} devices"
                tally.run("times are finite and not negative", where, _bad, model, kind, shape, levels)
                tally.run("it says the same every time", where, _unsteady, model, kind, shape, levels)
                tally.run("more bytes never take less time", where, _shrinking, model, kind, shape, levels)
                if prod(shape) == 1:
                    tally.run("one member costs nothing", where, _one_member, model, kind, shape, levels)
                if many is not None:
                    tally.run("`times` agrees with `time`", where, _arrays, model, many, kind, shape, levels)
    return tally.findings()


def _bad(model: CollectiveModel, kind: str, shape: Sequence[int], levels: Network) -> Problems:
    for size in BYTES:
        seconds = model.time(kind, size, shape, levels)
        if not isinstance(seconds, int | float) or not isfinite(seconds) or seconds < 0:
            yield f"{size:g} bytes take {seconds!r} seconds"


def _unsteady(model: CollectiveModel, kind: str, shape: Sequence[int], levels: Network) -> Problems:
    for size in BYTES:
        first, second = model.time(kind, size, shape, levels), model.time(kind, size, list(shape), list(levels))
        if first != second:
            yield f"{size:g} bytes take {first!r} seconds, asked again {second!r}"


def _shrinking(model: CollectiveModel, kind: str, shape: Sequence[int], levels: Network) -> Problems:
    for less, more in pairwise(BYTES):
        before, after = (model.time(kind, size, shape, levels) for size in (less, more))
        if after < before * (1 - AGREEMENT):
            yield f"{more:g} bytes take {after:g} seconds, {less:g} bytes {before:g}"


def _one_member(model: CollectiveModel, kind: str, shape: Sequence[int], levels: Network) -> Problems:
    for size in BYTES:
        seconds = model.time(kind, size, shape, levels)
        if seconds != 0:
            yield f"one device, which sends nothing, takes {seconds:g} seconds for {size:g} bytes"


def _arrays(
    model: CollectiveModel, many: Callable[..., Array], kind: str, shape: Sequence[int], levels: Network
) -> Problems:
    found = many(kind, numpy.array(BYTES), shape, levels)
    if numpy.shape(found) != (len(BYTES),):
        yield f"`times` of {len(BYTES)} sizes has the shape {numpy.shape(found)}"
        return
    for size, seconds in zip(BYTES, numpy.asarray(found).tolist(), strict=True):
        single = model.time(kind, size, shape, levels)
        if not isclose(seconds, single, rel_tol=AGREEMENT):
            yield f"`times` says {seconds:g} seconds for {size:g} bytes, `time` says {single:g}"
