"""Bound from room: how many equal layers fit in the memory and time of each stage.

Most layers of a transformer are equal. A stage that holds `n` of them in some mode takes at least `n` times the compute
of one, and needs at least `n` times its memory. So within some seconds a stage has room for a limited number, and no
plan is that fast if its stages, each in the mode with most room, cannot hold all layers (PROBLEM.md sections 3, 4 and
8). Collectives, messages, ports, gradient reduction and stashed inputs are left out.
"""

from __future__ import annotations

from math import inf, nan

import numpy
from attrs import define, field, frozen

from nest.instance import Candidate, Instance, chunks_of, copies_of, fullest_moments
from nest.reuse import remembered
from nest.tolerances import LIMIT_SLACK
from nest_cpsat.cases import Case, Mode, teams
from nest_cpsat.cuts import Floats, Integers
from nest_cpsat.first_blocks import pair_of
from nest_cpsat.stages import held_state, rows_of_state


@frozen(eq=False)
class _Least:
    """Least need of one layer by mode; arrays of shape `(modes, 1)`."""

    seconds: Floats  # Per micro-batch.
    kept: Floats  # Bytes with one micro-batch in flight; infinite if the mode cannot run.
    more: Floats  # Bytes of each further micro-batch.
    room: Floats  # Bytes of a device for such layers.


@define(slots=False)
class RoomBound:
    """Check whether the stages of a case have room for all layers."""

    instance: Instance
    _least: dict[object, _Least] = field(factory=dict)
    _flying: dict[object, Floats] = field(factory=dict)

    def excludes(self, case: Case, slowest: float) -> bool:
        """True if no plan of the case has all stages within `slowest` seconds per micro-batch."""
        count, flying = len(self._layers(case.candidates)), self._in_flight(case)
        rooms, together = [], 0.0
        for team, stages in teams(self.instance, case):
            held = numpy.concatenate([_most(self._needs(case, position), flying, slowest) for position in team])
            # No stage holds more than there are.
            own = numpy.clip(held.max(axis=0), 0, count)
            rooms.append(own)
            # A team has so many stages at most: at best those with the most room.
            together += float(numpy.sort(own)[::-1][:stages].sum())
        return min(float(numpy.maximum.reduce(rooms).sum()), together) < count

    @remembered
    def _layers(self, candidates: tuple[int, ...]) -> Integers:
        """Equal layers in all these candidates with most compute together."""
        used = [self.instance.candidates[each] for each in candidates]
        classes: dict[bytes, list[int]] = {}
        every = numpy.concatenate([_rows(each) for each in used])
        for layer in range(every.shape[1]):
            classes.setdefault(every[:, layer].tobytes(), []).append(layer)
        work = used[0].forward + used[0].backward
        return numpy.array(max(classes.values(), key=lambda each: len(each) * work[each[0]]))

    def _in_flight(self, case: Case) -> Floats:
        """Micro-batches that each chunk of a stage holds at one moment, at least 1. Shape `(stages,)`.

        NaN: some chunk holds none, so layers do not always keep a first micro-batch.
        """
        key = (case.schedule.name, chunks_of(case.schedule), case.stages, case.micro_batches)
        if key not in self._flying:
            every = (
                fullest_moments(case.schedule, stage, case.stages, case.micro_batches)
                for stage in range(1, case.stages + 1)
            )
            held = [max(map(min, moments)) for moments in every]
            self._flying[key] = numpy.array([each if each >= 1 else nan for each in held])
        return self._flying[key]

    def _needs(self, case: Case, position: int) -> _Least:
        index, modes = case.candidates[position], case.modes[position]
        copies = copies_of(case.schedule)
        modes = tuple(dict.fromkeys((pair_of(recompute), zero) for recompute, zero in modes))
        key = (case.candidates, index, modes, case.replicas, case.zero_degree, copies)
        if key not in self._least:
            layers, cluster = self._layers(case.candidates), self.instance.cluster_of(index)
            used = self.instance.candidates[index]
            every = numpy.array([self._of_mode(case, used, mode, layers, copies) for mode in modes]).T[:, :, None]
            capacity = cluster.memory * (1 + LIMIT_SLACK) - cluster.reserve
            self._least[key] = _Least(every[0], every[1], every[2], capacity - every[3])
        return self._least[key]

    def _of_mode(
        self, case: Case, used: Candidate, mode: Mode, layers: Integers, copies: int
    ) -> tuple[float, float, float, float]:
        """Seconds, kept bytes, bytes of further micro-batches, and bytes that a stage needs once."""
        recompute, zero = used.mode(mode[0]), self.instance.space.effective_zero(mode[1])
        work = used.forward + used.backward + recompute.extra
        kept = recompute.first
        for group in used.state:
            ranks = case.replicas * len(group.ranks)
            kept = kept + copies * held_state(rows_of_state(group), min(ranks, case.zero_degree or ranks), zero)
        once = float(recompute.peak[layers].min()) + (used.gathered if zero == 3 else 0.0)
        return float(work[layers].min()), float(kept[layers].min()), float(recompute.more[layers].min()), once


def _most(least: _Least, flying: Floats, slowest: float) -> Floats:
    """Layers that each stage has room for in its memory and in so many seconds. Shape `(modes, stages)`."""
    kept = least.kept + (flying - 1) * least.more
    with numpy.errstate(divide="ignore", invalid="ignore"):
        held = numpy.where(kept > 0, least.room / kept, inf)
        run = numpy.where(least.seconds > 0, slowest / least.seconds, inf)
    # Widened, as sums in floating point may have come out larger than they are.
    most: Floats = numpy.floor(numpy.minimum(held, run) * (1 + LIMIT_SLACK))
    return most


def _rows(candidate: Candidate) -> Floats:
    return numpy.concatenate([numpy.atleast_2d(each) for name, each in candidate.arrays() if name != "tensor_bytes"])
