"""Stages of pools: tables, boundaries and possible shares of the model."""

from collections.abc import Sequence
from math import inf

import numpy
from attrs import define, evolve, field

from nest.instance import Array
from nest.solve.dp.bounds import least_state
from nest.solve.dp.configurations import Configuration, Slots, replica_size, slots
from nest.solve.dp.members import Member, boundary_times
from nest.solve.dp.nodes import CutSearch
from nest.solve.dp.pairs import Pairs
from nest.solve.dp.places import NONE
from nest.solve.dp.stages import RecentTables, StageTables, stage_tables
from nest.solve.dp.sums import CandidateSums
from nest.tolerances import LIMIT_SLACK


@define(eq=False, repr=False)
class Curves:
    """Most of the model that a stage of one pool may hold, by its time.

    Without communication, and with state sharded as far as a choice allows: equal for both rank orders.
    """

    shares: Array  # Of the model by class of stages, in seconds of compute, shape `(classes,)`.
    # By recompute mode, seconds of a class, and its bytes of the first micro-batch and of each other.
    modes: Sequence[tuple[Array, Array, Array]]
    room: float  # Bytes of a device.
    _known: dict[float, tuple[Array, Array]] = field(factory=dict, init=False)

    @classmethod
    def of(cls, sums: CandidateSums, configuration: Configuration, pairs: Pairs, room: float) -> "Curves":
        """Curves of one pool's candidate, the only one of `configuration`, with so many bytes per device."""
        stages, state = pairs.distinct, least_state(sums, configuration)
        compute = sums.compute.over(stages)
        modes = []
        for name in dict.fromkeys(choice.recompute for choice in configuration.choices):
            mode = sums.modes[name]
            first = state[stages.larger] - state[stages.smaller] + mode.first.over(stages) + mode.peak.over(stages)
            modes.append((compute + mode.extra.over(stages), first * (1 - LIMIT_SLACK), mode.more.over(stages)))
        whole = float(sums.compute.whole[-1])
        return cls(compute / (whole if whole > 0 else 1.0), modes, room)

    def least(self, in_flight: float) -> Array:
        """Least seconds of each class; infinite if none fits with so many micro-batches in flight."""
        times = [
            numpy.where(first + (in_flight - 1) * more <= self.room, seconds, numpy.inf)
            for seconds, first, more in self.modes
        ]
        least: Array = numpy.min(times, axis=0)
        return least

    def largest(self, in_flight: float, times: Array) -> Array:
        """Largest share of a stage that fits memory with so many micro-batches in flight, within these times."""
        if in_flight not in self._known:
            time = self.least(in_flight)
            order = time.argsort(kind="stable")
            self._known[in_flight] = time[order], numpy.maximum.accumulate(numpy.append(0.0, self.shares[order]))
        sorted_times, shares = self._known[in_flight]
        largest: Array = shares[sorted_times.searchsorted(times, side="right")]
        return largest


def powers_of_two(in_flight: Sequence[float]) -> Array:
    """Round micro-batches in flight down to powers of 2, to compute few cases."""
    lowered: Array = 2.0 ** numpy.floor(numpy.log2(numpy.maximum(in_flight, 1.0)))
    return lowered


def most_covered(held: Sequence[Array], room: Sequence[int]) -> Array:
    """Most of the model that so many stages hold together, with at least one in each pool. Shape `(stages + 1, times)`.

    Stages with few micro-batches in flight hold most, so each pool is assumed to have those with fewest. Minus infinity
    if the pools cannot have so many stages.

    Args:
        held: most of a stage of each pool, by its rank in micro-batches in flight and by time, shape `(stages, times)`.
        room: most stages of each pool.
    """
    stages, times = held[0].shape
    covered = numpy.full((stages + 1, times), -numpy.inf)
    covered[0] = 0.0
    for each, most in zip(held, room, strict=True):
        together = numpy.full_like(covered, -numpy.inf)
        own = each.cumsum(axis=0)
        for count in range(1, min(most, stages) + 1):
            numpy.maximum(together[count:], covered[:-count] + own[count - 1], out=together[count:])
        covered = together
    return covered


@define(eq=False, repr=False)
class PoolTables(CutSearch):
    """Plans on several pools, with the known stages of each pool."""

    _tables: RecentTables[StageTables] = field(factory=RecentTables, init=False)

    def _widths(self, configuration: Configuration) -> list[int]:
        return [self.instance.candidates[index].width for index, _ in configuration.members]

    def _slots(self, configuration: Configuration, index: int) -> Slots:
        """Places of a candidate's blocks in its pool."""
        decided = (self.instance.candidates[index].width, configuration.replicas, configuration.rank_order)
        pool = self.instance.pool_of(index)
        return self.once(("slots", pool, *decided), lambda: slots(self.instance.cluster_of(index), *decided))

    def members(self, configuration: Configuration, time_limit: float) -> tuple[Member, ...]:
        """Stages of each pool that fit memory and take at most `time_limit` seconds per micro-batch."""
        tables = [self._fitting(configuration, place, time_limit) for place in range(len(configuration.members))]
        return self._made(configuration, tables)

    def all_members(self, configuration: Configuration, *, every_choice: bool = False) -> tuple[Member, ...]:
        """Every stage of each pool, fitting or not; with choices that help no closed form, too."""
        places = range(len(configuration.members))
        tables = [self._every_table(configuration, place, inf, every_choice=every_choice) for place in places]
        return self._made(configuration, tables)

    def _made(self, configuration: Configuration, tables: Sequence[StageTables]) -> tuple[Member, ...]:
        # Whatever the other stages use, each downset takes so long at least.
        every = [self.instance.candidates[index] for index, _ in configuration.members]
        quickest = self.downsets.sums(numpy.min([each.forward + each.backward for each in every], axis=0))
        return tuple(
            self._member(configuration, place, evolve(table, compute=quickest)) for place, table in enumerate(tables)
        )

    def _member(self, configuration: Configuration, place: int, tables: StageTables) -> Member:
        pools, index = self.instance.pools, configuration.members[place][0]
        assert pools is not None
        own, cut = self._slots(configuration, index), self.sums(index).cut
        cluster, pool = self.instance.cluster_of(index), self.instance.pool_of(index)
        levels = own.levels or (0,)
        times = [boundary_times(cut, cluster.levels[level]) for level in levels]
        links = []
        for other, _ in configuration.members:
            link = None if other == index else pools.link(pool, self.instance.pool_of(other))
            links.append(NONE if link is None else len(times))
            times += [] if link is None else [boundary_times(cut, link)]
        return Member(
            index,
            self.instance.candidates[index].width,
            tables,
            numpy.array(times),
            (*levels, *[len(cluster.levels)] * (len(times) - len(levels))),
            numpy.searchsorted(levels, own.steps),
            tuple(links),
        )

    def _fitting(self, configuration: Configuration, place: int, time_limit: float) -> StageTables:
        """Tables of one pool's stages that fit memory and are fast enough; kept for other configurations."""
        key = (
            *configuration.members[place],
            configuration.replicas,
            configuration.rank_order,
            configuration.zero_degree,
            configuration.copies,
            self.parted(configuration),
            self.instance.space.hides(configuration.schedule.name),
            configuration.stage_counts[-1] if self.instance.space.even else 0,
        )

        def made() -> tuple[StageTables, int]:
            tables = self._every_table(configuration, place, time_limit).within(time_limit)
            return tables, tables.bytes

        return self._tables.of(key, time_limit, made)[0].within(time_limit)

    def _lean(self, configuration: Configuration, place: int) -> Curves:
        """Most of the model that one pool's stages hold."""
        index, choices = configuration.members[place]
        own = evolve(configuration, members=(configuration.members[place],))
        cluster, pairs = self.instance.cluster_of(index), self.pairs(configuration)
        room = cluster.memory * (1 + LIMIT_SLACK) - cluster.reserve
        key = ("lean", index, choices, own.replicas, own.zero_degree, own.copies, pairs)
        return self.once(key, lambda: Curves.of(self.sums(index), own, pairs, room))

    def _every_table(
        self, configuration: Configuration, place: int, time_limit: float, *, every_choice: bool = False
    ) -> StageTables:
        """Tables of one pool's stages that compute for at most `time_limit` seconds."""
        index, choices = configuration.members[place]
        sums, seen = self.sums(index), self.instance.at(index)
        size = replica_size(seen.cluster, sums.candidate.width, configuration.replicas)
        pairs = self.pairs(configuration)
        if time_limit < inf:
            pairs = pairs.only_classes(sums.compute.over(pairs.distinct) <= time_limit)
        # The choices of the pool alone decide how far ZeRO may shard, and its devices where replicas lie.
        own = evolve(configuration, members=(configuration.members[place],), size=size)
        return stage_tables(
            seen,
            own,
            sums,
            pairs,
            choices,
            held_up=self.held_up,
            part_sums=self.part_sums(configuration, index),
            every_choice=every_choice,
        )
