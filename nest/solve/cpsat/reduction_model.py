"""What a stage's replicas send each other, in the model of a case placed on a network (PROBLEM.md sections 1 and 4)."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

import numpy
from attrs import define, field, frozen

from nest.instance import Candidate, Instance, Level, ParameterGroup, Ring

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest.solve.cpsat.cuts import Floats, Integers
    from nest.solve.cpsat.link_model import LinkModel
    from nest.solve.cpsat.scaling import Scale
    from nest.solve.cpsat.stages import Parts

MOST_SETS = 300
"""Sets of devices over which one collective may run, up to which each is listed with its rings."""

Seat = tuple[int, int]
"""A replica, and a rank of its block."""

Seats = tuple[Seat, ...]
"""Those that one collective runs over."""


class TooManySetsError(Exception):
    """There are too many sets of devices to list."""


@frozen(eq=False)
class Call:
    """A collective that groups of a stage's ranks run side by side, of which the slowest counts.

    Attributes:
        kind: `all_reduce`, `reduce_scatter` or `all_gather`.
        groups: the seats of each.
        sizes: bytes of one call, for each choice of the stage; 0: it makes none.
        times: how often each choice makes it.
        exposed: share of its seconds that shows, for each choice.
        often: whether it runs in every micro-batch; else once per batch.
    """

    kind: str
    groups: tuple[Seats, ...]
    sizes: Floats
    times: Floats
    exposed: Floats
    often: bool


def calls(
    instance: Instance,
    candidate: Candidate,
    parts: Parts,
    replicas: int,
    degree: int | None,
    stage: Integers,
    zero: Integers,
) -> Iterator[Call]:
    """The calls of the table of ZeRO stages (PROBLEM.md section 4).

    Args:
        instance: the problem.
        candidate: of the stage.
        parts: what its stages are made of.
        replicas: `d`.
        degree: ranks over which ZeRO shards at most; None: all.
        stage: for each choice, its index in `Cuts`.
        zero: for each choice, the ZeRO stage by which it sends.
    """
    space = instance.space
    often = numpy.full(len(zero), space.often_exposed)
    once = space.exposed * space.synchronisation * numpy.where(zero > 0, space.sharded_synchronisation, 1.0)
    single = numpy.ones(len(zero))
    for group, sums in zip(candidate.state, parts.state, strict=True):
        whole, shards, replicates = _groups(group, candidate.width, replicas, degree)
        weights, gradients = sums["weights"][stage], sums["gradients"][stage]
        pieces = numpy.maximum(sums["pieces"][stage], 1.0) if "pieces" in sums else single
        yield Call("all_reduce", whole, numpy.where(zero == 0, gradients, 0.0), single, once, often=False)
        if replicates:
            share = numpy.where(zero > 0, gradients / len(shards[0]), 0.0)
            yield Call("all_reduce", replicates, share, single, once, often=False)
        yield Call("reduce_scatter", shards, numpy.where(zero == 1, gradients, 0.0), single, once, often=False)
        yield Call("reduce_scatter", shards, numpy.where(zero >= 2, gradients / pieces, 0.0), pieces, often, often=True)
        within = (zero > 0) & (zero < 3)
        yield Call("all_gather", shards, numpy.where(within, weights, 0.0), single, once, often=False)
        yield Call("all_gather", shards, numpy.where(zero == 3, weights / pieces, 0.0), 2 * pieces, often, often=True)


def _groups(
    group: ParameterGroup, width: int, replicas: int, degree: int | None
) -> tuple[tuple[Seats, ...], tuple[Seats, ...], tuple[Seats, ...]]:
    """All seats that hold the same parameters, of every rank; those that shard them; and those that hold one shard."""
    whole = [tuple((replica, rank) for replica in range(replicas) for rank in ranks) for ranks in _sets(group, width)]
    count = len(whole[0])
    if degree is None or count <= degree:
        return tuple(whole), tuple(whole), ()
    shards = [seats[first : first + degree] for seats in whole for first in range(0, count, degree)]
    return tuple(whole), tuple(shards), tuple(seats[place::degree] for seats in whole for place in range(degree))


def _sets(group: ParameterGroup, width: int) -> list[tuple[int, ...]]:
    """The sets of ranks of a block that hold the same parameters each, that of `ranks` first."""
    found: list[tuple[int, ...]] = []
    free = set(range(width))
    for step in range(width):
        moved = tuple(rank + step for rank in group.ranks)
        if free.issuperset(moved):
            free.difference_update(moved)
            found.append(moved)
    return found


@define(eq=False)
class ReductionModel:
    """The collectives over the replicas of one stage, in a CP-SAT model.

    Attributes:
        model: of OR-Tools.
        instance: the problem, with its network.
        cells: for each replica and rank of the stage, and each device, whether it lies there.
        taken: for each choice of the stage whether it is taken.
        scale: how seconds become integers.
    """

    model: CpModel
    instance: Instance
    cells: Sequence[Sequence[Sequence[IntVar]]]
    taken: Sequence[IntVar]
    scale: Scale
    _sets: dict[Seats, dict[tuple[int, ...], IntVar]] = field(factory=dict)
    _calls: list[Call] = field(factory=list)

    def add(self, call: Call, longest: int) -> IntVar | None:
        """The ticks that a call takes, of stage time or of time once per batch; None: it takes none.

        Raises:
            TooManySetsError: it may run over too many sets of devices.
        """
        if not call.sizes.any() or len(call.groups[0]) == 1:
            return None
        self._calls.append(call)
        rows: dict[tuple[int, ...], tuple[list[IntVar], list[int]]] = {}
        known: dict[tuple[tuple[float, float], ...], tuple[int, ...]] = {}
        for seats in call.groups:
            for devices, literal in self._lying(seats).items():
                rings = self._rings(devices)
                figures = tuple((ring.latency, ring.bandwidth) for ring in rings)
                if figures not in known:
                    known[figures] = tuple(self._ticks(call, rings))
                rows.setdefault(known[figures], ([], list(known[figures])))[0].append(literal)
        taken = self.model.new_int_var(0, longest, "")
        for literals, ticks in rows.values():
            used = literals[0]
            if len(literals) > 1:
                used = self.model.new_bool_var("")
                for literal in literals:
                    self.model.add_implication(literal, used)
            load = sum(count * choice for count, choice in zip(ticks, self.taken, strict=True) if count)
            self.model.add(taken >= load).only_enforce_if(used)
        return taken

    def load(self, links: LinkModel, stage: int) -> None:
        """Let the links carry what runs in every micro-batch."""
        for call in (each for each in self._calls if each.often):
            for seats in call.groups:
                for devices, literal in self._lying(seats).items():
                    rings = self._rings(devices)
                    fastest = self._seconds(call, rings).argmin(axis=0)
                    for index, ring in enumerate(rings):
                        sizes = numpy.where(fastest == index, call.sizes * call.times, 0.0)
                        if sizes.any():
                            shares = dict(zip(ring.links.tolist(), ring.shares.tolist(), strict=True))
                            links.add_ring(stage, literal, shares, self.taken, sizes)

    def _lying(self, seats: Seats) -> dict[tuple[int, ...], IntVar]:
        """For each set of devices whether these seats lie there."""
        if seats not in self._sets:
            devices = range(self.instance.cluster.size)
            if comb(len(devices), len(seats)) > MOST_SETS:
                raise TooManySetsError
            chosen = {each: self.model.new_bool_var("") for each in combinations(devices, len(seats))}
            self.model.add_exactly_one(chosen.values())
            for device in devices:
                on = sum(self.cells[replica][rank][device] for replica, rank in seats)
                self.model.add(sum(literal for each, literal in chosen.items() if device in each) == on)
            self._sets[seats] = chosen
        return self._sets[seats]

    def _rings(self, devices: tuple[int, ...]) -> tuple[Ring, ...]:
        assert self.instance.network is not None
        return self.instance.network.model.rings(devices)

    def _seconds(self, call: Call, rings: Sequence[Ring]) -> Floats:
        """Seconds of one call on each ring, for each choice. Shape `(rings, choices)`."""
        assert self.instance.network is not None
        price, members = self.instance.network.collectives.time, len(call.groups[0])
        levels = [(Level("ring", members, ring.bandwidth, ring.latency),) for ring in rings]
        sizes, place = numpy.unique(call.sizes, return_inverse=True)
        rows = [
            [price(call.kind, size, (members,), level, members) if size else 0.0 for size in sizes.tolist()]
            for level in levels
        ]
        return numpy.array(rows)[:, place.reshape(-1)]

    def _ticks(self, call: Call, rings: Sequence[Ring]) -> list[int]:
        """Ticks that show of all calls of each choice on the best of the rings."""
        seconds = self._seconds(call, rings).min(axis=0) * call.times * call.exposed
        ticks = self.scale.ticks if call.often else self.scale.sync_ticks
        return [ticks(each) for each in seconds.tolist()]
