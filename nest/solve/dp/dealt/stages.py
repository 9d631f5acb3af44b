"""What the stages of an even split cost, choice by choice (PROBLEM.md section 4)."""

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from nest.instance import Array, Instance
from nest.solve.dp.candidate_sums import CandidateSums, candidate_sums
from nest.solve.dp.choices import Choice, ChoiceTable
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.dealt.places import Places, stage_times
from nest.solve.dp.dealt.split import Split
from nest.solve.dp.placement import replica_size
from nest.solve.dp.ports import UNKNOWN, Boundary, Ports
from nest.solve.dp.stages import stage_tables
from nest.solve.dp.zero import zero_tables

Best = tuple[Array, Array, NDArray[numpy.int64]]
"""Seconds per micro-batch (infinite where nothing is within limits), seconds once per batch, and the choice."""


@frozen(eq=False)
class DealtStages:
    """The stages in pipeline order; arrays of shape `(choices, stages)`.

    Attributes:
        choices: what a stage may choose, preferred first.
        time: seconds per micro-batch without the boundaries, infinite where memory does not suffice.
        sync: seconds once per batch, infinite where memory does not suffice.
        memory: bytes, the reserve included.
        ports: what more holds stages up (PROBLEM.md section 4, Ports), beside `time` and `sync`; None: nothing does.
    """

    choices: tuple[Choice, ...]
    time: Array
    sync: Array
    memory: Array
    ports: Ports | None = None

    @property
    def possible(self) -> bool:
        """Whether every stage has a choice that fits."""
        return bool(numpy.isfinite(self.time).any(axis=0).all())

    def best(self, front: Boundary, behind: Boundary, sync_limit: float) -> Best:
        """Of each stage the fastest choice within `sync_limit` seconds, of equals the one that synchronises fastest.

        `front` and `behind` are the boundaries that all stages have.
        """
        if self.ports is None:
            time, sync, choice = _best(self.time, self.sync, sync_limit)
            return stage_times(time, front.seconds, behind.seconds), sync, choice
        time = stage_times(self.time, front.seconds, behind.seconds)
        return _best(*self.ports.raised(time, self.sync, ..., front, behind), sync_limit)

    def anywhere(self, places: Places, sync_limit: float) -> Best:
        """`best` with every boundary at its cheapest, whatever its level."""
        least = places.crossing.min(axis=0)
        return self.best(Boundary(UNKNOWN, least), Boundary(UNKNOWN, numpy.roll(least, -1)), sync_limit)

    def everywhere(self, places: Places, sync_limit: float) -> Best:
        """`best` for each level in front and behind, as `Places` counts them. Shape `(levels, levels, stages)`."""
        crossing, behind = places.crossing, numpy.roll(places.crossing, -1, axis=1)
        shape = (len(crossing), len(crossing), places.stages)
        if self.ports is None:
            time, sync, choice = _best(self.time, self.sync, sync_limit)
            times = stage_times(time, crossing[:, None], behind[None])
            return times, numpy.broadcast_to(sync, shape), numpy.broadcast_to(choice, shape)
        front, back = (list(map(Boundary, places.levels, seconds)) for seconds in (crossing, behind))
        every = zip(*(self.best(one, other, sync_limit) for one in front for other in back), strict=True)
        time, sync, choice = (numpy.array(each).reshape(shape) for each in every)
        return time, sync, choice


def _best(time: Array, sync: Array, sync_limit: float) -> Best:
    """The best choices of shape `(stages,)` among times and synchronisation of shape `(choices, stages)`."""
    time = numpy.where(sync <= sync_limit, time, numpy.inf)
    ties = numpy.where(time == time.min(axis=0), sync, numpy.inf)
    choice = ties.argmin(axis=0)
    stages = numpy.arange(time.shape[1])
    return time[choice, stages], sync[choice, stages], choice


def split_sums(instance: Instance, candidate: int, split: Split, crossing: Array) -> CandidateSums:
    """A candidate summed over the stages of a split, `crossing` being the bytes that enter each chunk."""
    sums = candidate_sums(instance, instance.candidates[candidate], split.stage_sets())
    # Stages stash the inputs of all their chunks.
    return evolve(sums, cut=numpy.concatenate([[0.0], crossing.sum(axis=0)[::-1]]))


def dealt_stages(instance: Instance, configuration: Configuration, split: Split, sums: CandidateSums) -> DealtStages:
    """The stages of `configuration` with these layers."""
    cluster, pairs = instance.cluster, split.stage_sets().pairs
    size = replica_size(cluster, sums.candidate.width, configuration.replicas)
    zeros = sorted({choice.zero for choice in configuration.choices})
    replicas, order = configuration.replicas, configuration.rank_order
    shared = zero_tables(instance, sums, pairs, replicas, order, size, zeros, configuration.zero_degree)
    tables = stage_tables(instance, sums, pairs, shared, configuration.choices, configuration.micro_batches)
    schedule, count = configuration.schedule, split.stages
    flying = [schedule.in_flight(stage, count, configuration.micro_batches) for stage in range(1, count + 1)]
    # The sets count from the last stage.
    every = ChoiceTable.stacked(tables.tables, slice(None, None, -1))
    first, more = every.first, every.more
    memory = first + (numpy.array(flying) - 1) * more
    fits = memory <= tables.capacity
    time, sync = (numpy.where(fits, seconds, numpy.inf) for seconds in (every.time, every.sync))
    return DealtStages(tables.choices, time, sync, memory, every.ports)
