"""What the stages of an even split cost, choice by choice (PROBLEM.md section 4)."""

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from nest.instance import Array, Instance
from nest.solve.dp.choices import Choice
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.dealt.split import Split
from nest.solve.dp.placement import replica_size
from nest.solve.dp.stages import CandidateSums, candidate_sums, stage_tables, zero_tables


@frozen(eq=False)
class DealtStages:
    """The stages in pipeline order; arrays of shape `(choices, stages)`.

    Attributes:
        choices: what a stage may choose, preferred first.
        time: seconds per micro-batch without the boundaries, infinite where memory does not suffice.
        sync: seconds once per batch, infinite where memory does not suffice.
        memory: bytes, the reserve included.
    """

    choices: tuple[Choice, ...]
    time: Array
    sync: Array
    memory: Array

    @property
    def possible(self) -> bool:
        """Whether every stage has a choice that fits."""
        return bool(numpy.isfinite(self.time).any(axis=0).all())

    def best(self, sync_limit: float) -> tuple[Array, Array, NDArray[numpy.int64]]:
        """Of each stage the fastest choice within `sync_limit` seconds, of equals the one that synchronises fastest.

        Returns: seconds per micro-batch (infinite where nothing is within), seconds once per batch, the choice.
        """
        time = numpy.where(self.sync <= sync_limit, self.time, numpy.inf)
        ties = numpy.where(time == time.min(axis=0), self.sync, numpy.inf)
        choice = ties.argmin(axis=0)
        stages = numpy.arange(time.shape[1])
        return time[choice, stages], self.sync[choice, stages], choice


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
    tables = stage_tables(instance, sums, pairs, shared, configuration.choices)
    schedule, count = configuration.schedule, split.stages
    flying = [schedule.in_flight(stage, count, configuration.micro_batches) for stage in range(1, count + 1)]
    # The sets count from the last stage.
    first, more, time, sync = (
        numpy.array([getattr(table, name)[::-1] for table in tables.tables])
        for name in ("first", "more", "time", "sync")
    )
    memory = first + (numpy.array(flying) - 1) * more
    fits = memory <= tables.capacity
    return DealtStages(tables.choices, numpy.where(fits, time, numpy.inf), numpy.where(fits, sync, numpy.inf), memory)
