"""Data-parallel communication in the model of a case on a network (PROBLEM.md sections 1 and 4)."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

import numpy
from attrs import define, frozen

from nest.instance import Instance, Level, ParameterGroup, PlacedNetwork
from nest.reuse import remembered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest_cpsat.bounds import Choices
    from nest_cpsat.cases import Case
    from nest_cpsat.cuts import Floats
    from nest_cpsat.placement import Term
    from nest_cpsat.scaling import Scale
    from nest_cpsat.stage_cost_cache import StageCostCache

MOST_SETS = 300  # Most device sets of one collective that are listed with their rings.
Seat = tuple[int, int]  # Replica and rank of its block.
Seats = tuple[Seat, ...]  # Ranks of one collective.


class TooManySetsError(Exception):
    """Too many device sets to list."""


@frozen(eq=False)
class Call:
    """A collective that groups of a stage's ranks run in parallel; the slowest counts."""

    kind: str  # `all_reduce`, `reduce_scatter` or `all_gather`.
    groups: tuple[Seats, ...]
    sizes: Floats  # Bytes of one call, by choice of the stage; 0: no call.
    times: Floats  # Number of calls, by choice.
    waited: Floats  # Seconds beyond the collective model, by choice.
    exposed: float  # Share of its seconds that compute cannot hide.
    often: bool  # It runs in every micro-batch; else once per batch.


def calls(instance: Instance, case: Case, book: StageCostCache, choices: Choices) -> Iterator[Call]:
    """Calls of a stage by choice, from the table of ZeRO stages (PROBLEM.md section 4)."""
    space, candidate = instance.space, instance.candidates[case.candidates[0]]
    modes, stage = book.costs(case, case.candidates[0]).modes, choices.stage
    zero = numpy.array([space.effective_zero(modes[mode][1]) for mode in choices.mode.tolist()], dtype=numpy.int64)
    single = numpy.ones(len(zero))
    waited = space.synchronisation * numpy.where(zero > 0, space.sharded_synchronisation, 1.0)
    for group, sums in zip(candidate.state, book.parts(case.candidates[0]).state, strict=True):
        whole, shards, replicates = _groups(group, candidate.width, case.replicas, case.zero_degree)
        weights, gradients = sums["weights"][stage], sums["gradients"][stage]
        pieces = numpy.maximum(sums["pieces"][stage], 1.0) if "pieces" in sums else single
        once = [
            ("all_reduce", whole, numpy.where(zero == 0, gradients, 0.0)),
            ("reduce_scatter", shards, numpy.where(zero == 1, gradients, 0.0)),
            ("all_gather", shards, numpy.where((zero > 0) & (zero < 3), weights, 0.0)),
        ]
        if replicates:
            once.append(("all_reduce", replicates, numpy.where(zero > 0, gradients / len(shards[0]), 0.0)))
        for kind, groups, sizes in once:
            yield Call(kind, groups, sizes, single, waited, space.exposed, often=False)
        scattered, gathered = (
            numpy.where(zero >= 2, gradients / pieces, 0.0),
            numpy.where(zero == 3, weights / pieces, 0.0),
        )
        yield Call("reduce_scatter", shards, scattered, pieces, single, space.often_exposed, often=True)
        yield Call("all_gather", shards, gathered, 2 * pieces, single, space.often_exposed, often=True)


def own_seconds(instance: Instance, case: Case, book: StageCostCache, choices: Choices) -> tuple[Floats, Floats]:
    """Seconds of compute per micro-batch, and of the optimizer step, by choice of a stage."""
    candidate, parts, stage = case.candidates[0], book.parts(case.candidates[0]), choices.stage
    chosen = [book.costs(case, candidate).modes[mode] for mode in choices.mode.tolist()]
    extra = [parts.recompute[recompute]["extra"][each] for (recompute, _), each in zip(chosen, stage, strict=True)]
    sharded = numpy.array([instance.space.effective_zero(zero) > 0 for _, zero in chosen], dtype=bool)
    update = numpy.zeros(len(choices))
    for group, sums in zip(instance.candidates[candidate].state, parts.state, strict=True):
        count = len(group.ranks) * case.replicas
        update += sums["update"][stage] / numpy.where(sharded, min(count, case.zero_degree or count), 1)
    return parts.compute[stage] + numpy.array(extra), update


def _groups(
    group: ParameterGroup, width: int, replicas: int, degree: int | None
) -> tuple[tuple[Seats, ...], tuple[Seats, ...], tuple[Seats, ...]]:
    """Ranks with equal parameters, ranks that shard them, and ranks with equal shards."""
    whole = [tuple((replica, rank) for replica in range(replicas) for rank in ranks) for ranks in _sets(group, width)]
    count = len(whole[0])
    if degree is None or count <= degree:
        return tuple(whole), tuple(whole), ()
    shards = [seats[first : first + degree] for seats in whole for first in range(0, count, degree)]
    return tuple(whole), tuple(shards), tuple(seats[place::degree] for seats in whole for place in range(degree))


def _sets(group: ParameterGroup, width: int) -> list[tuple[int, ...]]:
    """Sets of a block's ranks with equal parameters, `ranks` first."""
    found: list[tuple[int, ...]] = []
    free = set(range(width))
    for step in range(width):
        moved = tuple(rank + step for rank in group.ranks)
        if free.issuperset(moved):
            free.difference_update(moved)
            found.append(moved)
    return found


def ring_seconds(network: PlacedNetwork, kind: str, devices: Sequence[int], size: float) -> Floats:
    """Seconds of a collective of so many bytes on each ring over some devices."""
    members = len(devices)
    rings = network.model.rings(devices)
    levels = [(Level("ring", members, ring.bandwidth, ring.latency),) for ring in rings]
    return numpy.array([network.collectives.time(kind, size, (members,), level, members) for level in levels])


@define(eq=False, slots=False)
class ReductionModel:
    """Data-parallel collectives of one stage in a CP-SAT model."""

    model: CpModel
    instance: Instance
    cells: Sequence[Sequence[Sequence[IntVar]]]  # Placement indicators by replica and rank of the stage, and device.
    taken: Sequence[IntVar]  # Indicators of the stage's choices.
    scale: Scale

    def add(self, call: Call, share: float, longest: int) -> Term:
        """Ticks of a share of a call, in stage time or time per batch.

        Raises:
            TooManySetsError: too many device sets.
        """
        if not call.sizes.any() or len(call.groups[0]) == 1:
            return 0
        rows: dict[tuple[int, ...], list[IntVar]] = {}
        known: dict[tuple[tuple[float, float], ...], tuple[int, ...]] = {}
        for seats in call.groups:
            for devices, literal in self._lying(seats).items():
                figures = self._figures(devices)
                if figures not in known:
                    known[figures] = self._ticks(call, devices, share)
                rows.setdefault(known[figures], []).append(literal)
        taken = self.model.new_int_var(0, longest, "")
        for ticks, literals in rows.items():
            used = literals[0]
            if len(literals) > 1:
                used = self.model.new_bool_var("")
                for literal in literals:
                    self.model.add_implication(literal, used)
            load = sum(count * choice for count, choice in zip(ticks, self.taken, strict=True) if count)
            self.model.add(taken >= load).only_enforce_if(used)
        return taken

    @remembered
    def _lying(self, seats: Seats) -> dict[tuple[int, ...], IntVar]:
        """Indicators of the device sets of some ranks."""
        devices = range(self.instance.cluster.size)
        if comb(len(devices), len(seats)) > MOST_SETS:
            raise TooManySetsError
        chosen = {each: self.model.new_bool_var("") for each in combinations(devices, len(seats))}
        self.model.add_exactly_one(chosen.values())
        for device in devices:
            on = sum(self.cells[replica][rank][device] for replica, rank in seats)
            self.model.add(sum(literal for each, literal in chosen.items() if device in each) == on)
        return chosen

    def _figures(self, devices: tuple[int, ...]) -> tuple[tuple[float, float], ...]:
        assert self.instance.network is not None
        return tuple((ring.latency, ring.bandwidth) for ring in self.instance.network.model.rings(devices))

    def _ticks(self, call: Call, devices: tuple[int, ...], share: float) -> tuple[int, ...]:
        """Ticks of all calls of each choice on the best ring over some devices."""
        assert self.instance.network is not None
        network = self.instance.network
        sizes, place = numpy.unique(call.sizes, return_inverse=True)
        every = [
            float(ring_seconds(network, call.kind, devices, size).min()) if size else 0.0 for size in sizes.tolist()
        ]
        seconds = numpy.array(every)[place.reshape(-1)] * call.times * call.waited * share
        ticks = self.scale.ticks if call.often else self.scale.sync_ticks
        return tuple(ticks(each) for each in seconds.tolist())
