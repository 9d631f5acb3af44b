"""Collective models: what `nest.instance.protocols.CollectiveModel` promises."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import isclose, isfinite, prod
from typing import Any

import numpy
from attrs import evolve, frozen

from nest.graph import COLLECTIVES
from nest.hooks.keywords import MEMBERS, fitted, takes
from nest.hooks.protocols import CollectiveModel
from nest.instance import Array, Level
from nest.testing.finding import Finding, Problems, Tally
from nest.tolerances import AGREEMENT

BYTES = (0.0, 1.0, 4096.0, 1e6, 1.5e6, 1e9, 1e12)
"""Sizes of buffers, ascending: from nothing over a number to more than a device holds."""

Shape = tuple[int, ...]

NETWORKS: tuple[tuple[tuple[Level, ...], tuple[tuple[Shape, int], ...]], ...] = (
    ((Level("node", 8, 4e11, 3e-6),), (((1,), 1), ((2,), 2), ((3,), 3), ((8,), 8))),
    (
        (Level("node", 8, 4e11, 3e-6, "nvlink4"), Level("spine", 4, 5e10, 5e-6, "infiniband-ndr")),
        (((1, 1), 1), ((8, 1), 8), ((1, 4), 4), ((2, 3), 6), ((2, 3), 4), ((8, 4), 32), ((8, 4), 25)),
    ),
    (
        (Level("node", 4, 9e11, 0.0), Level("leaf", 4, 5e10, 1e-5), Level("core", 8, 5e9, 1e-4)),
        (((1, 1, 1), 1), ((4, 1, 8), 32), ((4, 4, 8), 128), ((4, 4, 8), 14)),
    ),
)
"""Networks, innermost level first, each with sets of devices by shape and members (PROBLEM.md section 1).

One names its links. In some sets not all groups are as full as the fullest, so that members are fewer than the shape's.
"""


@frozen
class Asked:
    """One set of devices and one kind of collective, and the model to be asked about them.

    Attributes:
        model: under test.
        kind: of the collective.
        shape: of the set of devices.
        levels: the network.
        members: devices in the set.
    """

    model: CollectiveModel
    kind: str
    shape: Sequence[int]
    levels: Sequence[Level]
    members: int

    def time(self, size: float) -> float:
        """What the model says of so many bytes; it is told the members where it wants to know."""
        seconds: float = self._priced(self.model.time, size)
        return seconds

    def times(self, sizes: Array) -> Array:
        """The same of many sizes at once, for a model that offers it."""
        many: Callable[..., Array] = self.model.times  # type: ignore[attr-defined]
        seconds: Array = self._priced(many, sizes)
        return seconds

    def _priced(self, method: Callable[..., Any], size: Any) -> Any:
        return fitted(method, (MEMBERS,))(self.kind, size, self.shape, self.levels, members=self.members)


def check_collective_model(model: CollectiveModel) -> tuple[Finding, ...]:
    """Price every kind of collective, from nothing to a terabyte, among devices of one to three levels."""
    tally = Tally()
    counts = takes(model.time, MEMBERS)
    offers_times = getattr(model, "times", None) is not None
    for kind in COLLECTIVES:
        for levels, sets in NETWORKS:
            for shape, members in sets:
                asked = Asked(model, kind, shape, levels, members)
                uneven = f", {members} in all" if members < prod(shape) else ""
                where = f"{kind} among {'x'.join(map(str, shape))} devices{uneven}"
                tally.run("times are finite and not negative", where, _bad, asked)
                tally.run("it says the same every time", where, _unsteady, asked)
                tally.run("more bytes never take less time", where, _shrinking, asked)
                tally.run("no bytes cost nothing", where, _no_bytes, asked)
                if members == 1:
                    tally.run("one member costs nothing", where, _one_member, asked)
                else:
                    tally.run("bytes among several members take time", where, _free, asked)
                if counts and not uneven:
                    tally.run("left out, the members are those of the shape", where, _uncounted, asked)
                if offers_times:
                    tally.run("`times` agrees with `time`", where, _arrays, asked)
    return tally.findings()


def _bad(asked: Asked) -> Problems:
    for size in BYTES:
        seconds = asked.time(size)
        if not isinstance(seconds, int | float) or not isfinite(seconds) or seconds < 0:
            yield f"{size:g} bytes take {seconds!r} seconds"


def _unsteady(asked: Asked) -> Problems:
    again = evolve(asked, shape=list(asked.shape), levels=list(asked.levels))
    for size in BYTES:
        first, second = asked.time(size), again.time(size)
        if first != second:
            yield f"{size:g} bytes take {first!r} seconds, asked again {second!r}"


def _shrinking(asked: Asked) -> Problems:
    for less, more in pairwise(BYTES):
        before, after = asked.time(less), asked.time(more)
        if after < before * (1 - AGREEMENT):
            yield f"{more:g} bytes take {after:g} seconds, {less:g} bytes {before:g}"


def _no_bytes(asked: Asked) -> Problems:
    seconds = asked.time(0.0)
    if seconds != 0:
        yield f"to send nothing takes {seconds:g} seconds; plans never ask for it, others may"


def _one_member(asked: Asked) -> Problems:
    for size in BYTES:
        seconds = asked.time(size)
        if seconds != 0:
            yield f"one device, which sends nothing, takes {seconds:g} seconds for {size:g} bytes"


def _free(asked: Asked) -> Problems:
    if asked.time(BYTES[-1]) == 0:
        yield f"{BYTES[-1]:g} bytes take no time"


def _uncounted(asked: Asked) -> Problems:
    for size in BYTES:
        counted, left_out = asked.time(size), asked.model.time(asked.kind, size, asked.shape, asked.levels)
        if not isclose(counted, left_out, rel_tol=AGREEMENT):
            yield f"{size:g} bytes take {counted:g} seconds among {asked.members} members, {left_out:g} untold"


def _arrays(asked: Asked) -> Problems:
    found = asked.times(numpy.array(BYTES))
    if numpy.shape(found) != (len(BYTES),):
        yield f"`times` of {len(BYTES)} sizes has the shape {numpy.shape(found)}"
        return
    for size, seconds in zip(BYTES, numpy.asarray(found).tolist(), strict=True):
        single = asked.time(size)
        if not isclose(seconds, single, rel_tol=AGREEMENT):
            yield f"`times` says {seconds:g} seconds for {size:g} bytes, `time` says {single:g}"
