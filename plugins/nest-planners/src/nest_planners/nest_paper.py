"""The algorithm that the NEST paper publishes (arXiv 2603.06798; scai-tech/Nest, `device_placement.cpp`).

Written anew from its description; plugins/nest-planners/README.md says what is kept and what is not.
"""

from collections.abc import Iterator
from math import inf, log2

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from nest.hooks.planning import PlannerContext, Proposal
from nest.instance import Array, Candidate, Instance, Solution, StageDecision
from nest_planners.shapes import Units, modes, partition, permitted, requested_counts, units
from nest_planners.tables import StageTable, cut_bytes, plain_schedules, stage_table
from nest_planners.views import Believed, first_that_fits, flat, usable_devices

ORDER = "pp-inner"
"""Replicas lie side by side, each in one piece."""


class NestPaper:
    """A dynamic program per width over (level, layers, stages), with every stage at the first free devices.

    Inside blocks it knows one bandwidth; between stages the levels. One placement serves all levels of an entry, and an
    entry is replaced where the sum over the levels is less. The first boundary is priced at the innermost level, and
    the first cut decided with the gradients in front of it.
    """

    name = "nest-paper"
    summary = "the dynamic program that the NEST paper publishes, with what it leaves out"

    def plan(self, instance: Instance, context: PlannerContext) -> Proposal:
        """The plan of least batch time by its own model that fits."""
        inside = flat(instance, context).candidates
        seen = evolve(instance, candidates=tuple(_without_ports(each) for each in inside))
        ranked = list(_Program(seen).ranked(sharded=False))
        # ZeRO is reached only where nothing fits without, and the first that fits is taken.
        return first_that_fits(context, ranked or _Program(seen).ranked(sharded=True), "it predicts {:.4g} s.")


def _without_ports(candidate: Candidate) -> Candidate:
    """The candidate of a planner that knows no ports, which are those of the network it was priced on."""
    silent = tuple(evolve(mode, busy=None) for mode in candidate.recompute)
    return evolve(candidate, busy=None, recompute=silent)


class _Program:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._pieces: Units = units(instance)
        self._devices = usable_devices(instance)
        orders = instance.space.rank_orders
        self._order = ORDER if ORDER in orders else orders[0]
        self._schedule = plain_schedules(instance)[0]

    def ranked(self, sharded: bool) -> Iterator[Believed]:
        """The best plan of each candidate and recompute mode by the paper's bound."""
        instance = self._instance
        for index in requested_counts(instance):
            candidate = instance.candidates[index]
            allowed = modes(instance, candidate)
            for mode in allowed:
                for zero, shards in self._sharding(candidate) if sharded else ((min(instance.space.zero), 1),):
                    found = self._best(index, candidate, mode, allowed[0], zero, shards)
                    if found is not None:
                        yield found
                        if sharded:
                            break

    def _sharding(self, candidate: Candidate) -> Iterator[tuple[int, int]]:
        """ZeRO stages and devices that share, in the order in which the program tries them."""
        shards = 2
        while candidate.width * shards <= self._devices:
            for zero in sorted(set(self._instance.space.zero) - {0}):
                yield zero, shards
            shards *= 2

    def _best(
        self, index: int, candidate: Candidate, mode: str, last_mode: str, zero: int, shards: int
    ) -> Believed | None:
        """The plan of least batch time by the paper's bound, for all numbers of replicas."""
        instance, width = self._instance, candidate.width * shards
        most = min(len(self._pieces), self._devices // width)
        first, last = (
            stage_table(instance, self._pieces, candidate, candidate.mode(name), zero, shards)
            for name in (mode, last_mode)
        )
        chains = _chains(instance, self._pieces, candidate, first, last, width, most)
        best: tuple[float, int, int, int] | None = None
        gradients = [sum(float(g.gradients[list(u)].sum()) for g in candidate.state) for u in self._pieces]
        ends = numpy.concatenate([[0.0], numpy.cumsum(gradients)])
        # The first stage's boundary is always taken to lie at the innermost level.
        for stages in range(1, most + 1):
            table = last if stages == 1 else first
            fitting = table.fits(stages)[0]
            behind = chains.value[stages - 1, :, 0]
            load = numpy.maximum(table.time[0] + chains.leaving[0], behind)
            load = numpy.where(fitting, load, inf)[1:]
            if load.min() == inf:
                continue
            for replicas in range(1, self._devices // (stages * width) + 1):
                micro_batches = instance.micro_batches(candidate, replicas * shards)
                if micro_batches is None or not permitted(instance, candidate, replicas * shards, stages):
                    continue
                per_pipeline = self._devices // replicas
                times = load * (micro_batches + stages - 1) + _tree(instance, replicas, per_pipeline, ends[1:])
                cut = int(times.argmin())
                if best is None or times[cut] < best[0]:
                    best = float(times[cut]), replicas, stages, cut + 1
        if best is None:
            return None
        time, replicas, stages, cut = best
        cuts = chains.cuts(cut, stages - 1)
        split = partition(self._pieces, (cut, *cuts)[: stages - 1])
        decisions = tuple(
            StageDecision(layers, index, mode if place < stages - 1 else last_mode, zero, place * candidate.width)
            for place, (layers,) in enumerate(split)
        )
        solution = Solution(
            replicas * shards, self._order, self._schedule.name, decisions, 1, instance.space.zero_degrees[0]
        )
        return time, solution


@frozen(eq=False)
class _Chains:
    """The table `dp` of the program: entry `[s, i, l]` is of the units from `i` on as the last `s` stages.

    Attributes:
        value: the least largest load where what enters comes over level `l`, shape `(stages + 1, units + 1, levels)`.
        following: where the second of these stages begins, shape `(stages + 1, units + 1)`.
        leaving: seconds in which gradients come back over each level at each cut, shape `(levels, units + 1)`.
    """

    value: Array
    following: NDArray[numpy.int64]
    leaving: Array

    def cuts(self, start: int, stages: int) -> tuple[int, ...]:
        """The starts of the stages behind the first, if stages hold the units from `start` on."""
        found = []
        for left in range(stages, 1, -1):
            start = int(self.following[left, start])
            found.append(start)
        return tuple(found)


def _chains(
    instance: Instance, pieces: Units, candidate: Candidate, first: StageTable, last: StageTable, width: int, most: int
) -> _Chains:
    levels = instance.cluster.levels
    cut = cut_bytes(instance, pieces, candidate)
    # A pipeline's messages take the narrowest bandwidth and the largest latency up to their level, twice above level 0.
    narrowest = numpy.minimum.accumulate([level.bandwidth for level in levels])
    latencies = numpy.maximum.accumulate([level.latency for level in levels])
    message = numpy.where(cut > 0, latencies[:, None] + cut[None, :] / narrowest[:, None], 0.0)
    message[1:] *= 2
    count = len(pieces)
    value = numpy.full((most + 1, count + 1, len(levels)), inf)
    value[0, count] = 0.0
    following = numpy.zeros((most + 1, count + 1), dtype=numpy.int64)
    for stages in range(1, most):
        table = last if stages == 1 else first
        cost = numpy.where(table.fits(stages), table.time, inf)
        # The last stage is on the first devices, each one in front of it at the next: the placement says the level.
        level = 0 if stages == 1 else instance.cluster.level((stages - 2) * width, (stages - 1) * width)
        own, taken = value[stages], following[stages]
        for end in range(2, count + 1):  # The program tries the longest rest first.
            load = cost[:end, end, None] + message[:, :end].T + (message[level, end] if end < count else 0.0)
            reached = numpy.maximum(load, value[stages - 1, end, level])
            # Accepted where the sum over the levels is less, then merged level by level.
            with numpy.errstate(invalid="ignore"):
                better = numpy.isfinite(reached[:, 0]) & ~((own[:end] - reached).sum(axis=1) <= 0)
            own[:end][better] = numpy.minimum(own[:end], reached)[better]
            taken[:end][better] = end
    return _Chains(value, following, message)


def _tree(instance: Instance, replicas: int, apart: int, size: Array) -> Array:
    """Seconds of the program's all-reduce: halving and doubling at the innermost level, up and down a tree above.

    Args:
        instance: the problem.
        replicas: that reduce.
        apart: devices from one replica to the next.
        size: bytes of the first stage's gradients, for each first cut.
    """
    if replicas == 1:
        return numpy.zeros(len(size))
    levels = instance.cluster.levels[: instance.cluster.level(0, (replicas - 1) * apart) + 1]
    halvings = int(log2(replicas))
    steps = (levels[0].latency + size / 2**step / levels[0].bandwidth for step in range(halvings))
    total = sum(steps, numpy.zeros(len(size)))
    below = numpy.zeros(len(size))
    for level in levels[1:]:
        total = total + 2 * (level.latency + size / level.bandwidth) + below
        below = below + total
    return total
