"""What is decided before stages are: all else of a plan, where stages may sit, and what plans listed before cover."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from math import inf
from typing import NamedTuple

import numpy
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import (
    Array,
    Cluster,
    Instance,
    Schedule,
    Solution,
    chunks_of,
    copies_of,
    partial,
)
from nest.records import Record
from nest.solve.dp.choices import Choice
from nest.solve.dp.pairs import distinct
from nest.solve.dp.rules import Members
from nest.solve.dp.zero import sharded

State = tuple[int, bool]
"""Devices used so far (0 where nobody counts them), and whether a block of the width demanded was among them."""


@frozen(eq=False, repr=False)
class Tally(Record):
    """What a plan must add up to over its stages: a count kept along them, from the last to the first.

    Attributes:
        demanded: width that one block at least must have; 0: none.
        totals: numbers of devices a replica may use in all; None: any.
    """

    demanded: int = 0
    totals: frozenset[int] | None = None
    _most: int = field(init=False)

    @_most.default
    def _largest_total(self) -> int:
        return 0 if self.totals is None else max(self.totals, default=-1)

    def least(self, devices: int) -> int:
        """The fewest devices, `devices` or more, that all stages may use; those if none counts or none is allowed."""
        if self.totals is None:
            return devices
        return min((total for total in self.totals if total >= devices), default=devices)

    def most(self, devices: int) -> int:
        """The most devices that all stages may use, of `devices` at hand."""
        return devices if self.totals is None else min(devices, self._most)

    @property
    def start(self) -> State:
        """The state before any stage."""
        return (0, self.demanded == 0)

    def step(self, state: State, width: int) -> State | None:
        """The state after one more block; None where no plan can continue."""
        used, seen = state
        if self.totals is not None:
            used += width
            if used > self._most:
                return None
        return used, seen or width == self.demanded

    def accepts(self, state: State) -> bool:
        """Whether a plan may end with `state`."""
        return state[1] and (self.totals is None or state[0] in self.totals)

    def behind(self, state: State, width: int) -> list[State]:
        """As `step` from the first stage on, ascending: what is used in front, and whether the demanded is to come."""
        used, due = state
        steps = ((left, self.step((used, left), width)) for left in (False, True))
        return [(after[0], left) for left, after in steps if after is not None and after[1] == due]


@frozen(eq=False, repr=False)
class Configuration(Record):
    """Plans that differ in their stages only.

    Attributes:
        order: position in the documented order of ties (candidate, schedule, rank order, replicas, shard groups,
            choices).
        members: what stages may draw from: one candidate, several for mixed plans, each with its choices, preferred
            first.
        replicas: data-parallel degree `d`.
        micro_batches: `M`.
        rank_order: `pp-inner` or `dp-inner`.
        schedule: the pipeline schedule.
        size: devices of a replica (`K`).
        stage_counts: numbers of stages the constraints allow, ascending.
        zero_degree: ranks over which ZeRO shards at most; None: all.
        tally: what the stages of a mixed plan must add up to.
        bound: seconds that none of them beats; None: not known yet.
        place: position among those of one order that share no choice.
    """

    order: int
    members: Members
    replicas: int
    micro_batches: int
    rank_order: str
    schedule: Schedule
    size: int
    stage_counts: tuple[int, ...]
    zero_degree: int | None = None
    tally: Tally = Tally()
    bound: float | None = field(default=None, eq=False)
    place: int = 0

    @property
    def candidate(self) -> int:
        """Index of the candidate of all stages, where they have one."""
        return self.members[0][0]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What a stage of that candidate may choose, preferred first."""
        return self.members[0][1]

    @property
    def placed(self) -> tuple[int, str]:
        """What places its blocks, beside their widths: of one replica both rank orders do so alike."""
        return self.replicas, self.rank_order if self.replicas > 1 else ""

    @property
    def scheduled(self) -> tuple[str, int, int]:
        """What its weights and micro-batches in flight follow from, beside the number of stages."""
        return self.schedule.name, chunks_of(self.schedule), self.micro_batches

    @property
    def copies(self) -> int:
        """How many times a device holds the parameters of its stages."""
        return copies_of(self.schedule)

    @property
    def modes(self) -> tuple[str, ...]:
        """Recompute modes among these that bound what layers cost and hold; one for all parts of two modes."""
        return tuple(dict.fromkeys(choice.recompute for choice in bounding_choices(self.choices)))

    @property
    def most_zero(self) -> int:
        """The highest ZeRO stage among these."""
        return max(choice.zero for choice in self.choices)

    def least_state(self, state: Iterable[tuple[int, Array, Array, Array]], size: int) -> Array:
        """Bytes of state, sharded as far as a choice allows; arguments and shape as of `sharded`."""
        return self.state(state, size, self.most_zero)

    def state(self, state: Iterable[tuple[int, Array, Array, Array]], size: int, zero: int) -> Array:
        """Bytes of state of all copies; arguments and shape as of `sharded`."""
        one = sharded(state, size, replicas=self.replicas, zero=zero, zero_degree=self.zero_degree)
        return one if self.copies == 1 else self.copies * one


def of_whole_modes(configuration: Configuration) -> Configuration | None:
    """A configuration whose stages recompute all their blocks or none; None: they may not."""
    choices = tuple(choice for choice in configuration.choices if partial(choice.recompute) is None)
    return evolve(configuration, members=((configuration.candidate, choices),)) if choices else None


@lru_cache(maxsize=2**12)
def bounding_choices(choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """Choices that bound what layers cost and hold: those of `choices`, but one for all parts of two modes."""
    return tuple(dict.fromkeys(each._replace(recompute=bounding_mode(each.recompute)) for each in choices))


def bounding_mode(name: str) -> str:
    """The recompute mode that bounds what layers cost and hold, of one of this name."""
    part = partial(name)
    return name if part is None else part._replace(layers=1).name


class LeastMemory(NamedTuple):
    """The plan that needs the least memory on its fullest device.

    Attributes:
        bytes: what it needs there.
        stages: how many stages it has.
        replicas: in how many replicas.
        candidate: name of the candidate of all its stages; empty when they may differ.
    """

    bytes: float
    stages: int
    replicas: int
    candidate: str = ""

    @staticmethod
    def least(every: Iterable[LeastMemory | None]) -> LeastMemory | None:
        """The one that needs least, of equals the first; None where none is finite."""
        possible = (each for each in every if each is not None and each.bytes < inf)
        return min(possible, key=lambda each: each.bytes, default=None)


def replica_size(cluster: Cluster, widest: int, replicas: int) -> int:
    """Devices of a replica whose widest block has `widest` (`K` of PROBLEM.md section 3)."""
    return widest * (cluster.size // (replicas * widest))


@frozen(eq=False, repr=False, slots=False)
class Slots:
    """The aligned places of one replica whose blocks are all as wide, in order along the offsets.

    The level between two slots is the largest step on the way from one to the other: each replica is a run of
    devices cut into nested groups, and the worst over replicas keeps that property.

    Attributes:
        width: devices per slot.
        steps: level of the boundary between slot `p` and slot `p + 1`, shape `(slots - 1,)`.
    """

    width: int
    steps: NDArray[numpy.int64]

    @property
    def count(self) -> int:
        """Number of slots (`K / g`)."""
        return len(self.steps) + 1

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Levels that boundaries can have, ascending."""
        return tuple(distinct(self.steps).tolist())


def slots(cluster: Cluster, width: int, replicas: int, rank_order: str) -> Slots:
    """The slots of each of `replicas` replicas with blocks of `width` devices."""
    count = cluster.size // (replicas * width)
    places = numpy.arange(count, dtype=numpy.int64)[None, :]
    replica = numpy.arange(replicas, dtype=numpy.int64)[:, None]
    if rank_order == "pp-inner":
        first = replica * (count * width) + places * width
    else:
        first = places * (width * replicas) + replica * width
    last = first + width - 1
    steps = numpy.full(max(count - 1, 0), len(cluster.levels) - 1, dtype=numpy.int64)
    for level in range(len(cluster.levels) - 2, -1, -1):
        capacity = cluster.capacities[level]
        # Two neighbours are within a level only where they are in every replica: all wait for the slowest.
        together = (first[:, :-1] // capacity == last[:, 1:] // capacity).all(axis=0)
        steps[together] = level
    return Slots(width, steps)


@frozen(eq=False, repr=False)
class Offsets:
    """The devices of one replica whose blocks differ in width.

    The level of a boundary is that of the devices from the first of the block in front to the last of the block behind,
    worst over the replicas. It depends on where the former starts and the latter ends alone, with both rank orders:
    with `dp-inner` the spans of the replicas overlap, and together they are the span of all blocks of both stages.

    Attributes:
        size: how many there are (`K`).
        ends: for each level and offset, the furthest end of a span that starts there and does not exceed the level,
            shape `(levels, size)`.
    """

    size: int
    ends: NDArray[numpy.int64]

    @property
    def levels(self) -> int:
        """Number of levels."""
        return len(self.ends)

    def without_levels(self) -> Offsets:
        """The same devices when all links are alike."""
        return Offsets(self.size, numpy.full((1, self.size), self.size, dtype=numpy.int64))


def offsets(cluster: Cluster, size: int, replicas: int, rank_order: str) -> Offsets:
    """The devices of each of `replicas` replicas of `size` devices."""
    starts = numpy.arange(size, dtype=numpy.int64)
    ends = []
    for capacity in cluster.capacities:
        if rank_order == "pp-inner":
            begin = size * numpy.arange(replicas, dtype=numpy.int64)[:, None]
            end = (((begin + starts) // capacity + 1) * capacity - begin).min(axis=0)
        else:
            # The blocks of all replicas begin at device `start * replicas`, and end with its group at the latest.
            end = (starts * replicas // capacity + 1) * capacity // replicas
        ends.append(numpy.minimum(end, size))
    return Offsets(size, numpy.array(ends))


Used = tuple[str, int | str]
"""What a stage uses, with its kind: a candidate, a ZeRO stage or a recompute mode."""


class PlanSignature(NamedTuple):
    """What tells a listed plan from others.

    It covers the plans with its replicas, number of stages and schedule whose stages use all that its stages use, and
    perhaps more: they differ from it in where stages begin and lie and in which stage uses what, or mix in others.

    Attributes:
        replicas: data-parallel degree `d`.
        stages: how many there are.
        schedule: its name and chunks; of a single stage any is as good.
        used: by its stages.
    """

    replicas: int
    stages: int
    schedule: tuple[str, int]
    used: frozenset[Used]

    @classmethod
    def of(cls, solution: Solution) -> PlanSignature:
        """What tells a plan from others."""
        stages = solution.stages
        used = {each for stage in stages for each in _used(stage.candidate, stage.zero, stage.recompute)}
        schedule = _named(solution.schedule, solution.chunks, len(stages))
        return cls(solution.replicas, len(stages), schedule, frozenset(used))

    def covers(self, solution: Solution) -> bool:
        """Whether a plan is no plan of its own beside this one."""
        other = PlanSignature.of(solution)
        return self.alike(other.replicas, other.stages, other.schedule) and self.used <= other.used

    def alike(self, replicas: int, stages: int, schedule: tuple[str, int]) -> bool:
        """Whether plans with these may be covered."""
        return (self.replicas, self.stages, self.schedule) == (replicas, stages, schedule)


def _used(candidate: int, zero: int, recompute: str) -> tuple[Used, ...]:
    part = partial(recompute)
    # Plans that recompute some blocks more or less do not differ otherwise.
    mode = recompute if part is None else part._replace(layers=0).name
    return ("candidate", candidate), ("zero", zero), ("recompute", mode)


def without(
    configurations: Sequence[Configuration], listed: Sequence[PlanSignature], instance: Instance, first_order: int = 0
) -> list[Configuration]:
    """The configurations of all plans that are not covered.

    Args:
        configurations: of all plans.
        listed: what covers some.
        instance: the problem.
        first_order: position of the first among ties.
    """
    left = [
        evolve(each, members=members, stage_counts=counts)
        for each in configurations
        for members, counts in _left(each, listed)
        if each.tally.demanded in (0, *(instance.candidates[index].width for index, _ in members))
    ]
    return [evolve(each, order=order) for order, each in enumerate(left, first_order)]


def _left(configuration: Configuration, listed: Sequence[PlanSignature]) -> Iterator[tuple[Members, tuple[int, ...]]]:
    """What stages may draw from so that no plan is covered, each with the numbers of stages it is for."""
    result: dict[Members, list[int]] = defaultdict(list)
    for count in configuration.stage_counts:
        sets = [configuration.members]
        for each in listed:
            schedule = _named(configuration.schedule.name, chunks_of(configuration.schedule), count)
            if each.alike(configuration.replicas, count, schedule):
                sets = _uncovered(sets, each)
        for members in sets:
            result[members].append(count)
    for members, counts in result.items():
        yield members, tuple(counts)


def _named(schedule: str, chunks: int, stages: int) -> tuple[str, int]:
    """What tells schedules apart; those of a single stage are one."""
    return (schedule, chunks) if stages > 1 else ("", 1)


def _uncovered(sets: Sequence[Members], listed: PlanSignature) -> list[Members]:
    """The same plans in sets of which none can use all that a listed plan uses: each leaves out one thing of it."""
    uncovered: dict[Members, None] = {}
    for members in sets:
        if listed.used <= {each for i, own in members for c in own for each in _used(i, c.zero, c.recompute)}:
            uncovered.update((_leaving_out(members, used), None) for used in sorted(listed.used, key=repr))
        else:
            uncovered[members] = None
    return [members for members in uncovered if members]


def _leaving_out(members: Members, used: Used) -> Members:
    members_left = ((i, tuple(c for c in own if used not in _used(i, c.zero, c.recompute))) for i, own in members)
    return tuple((index, choices) for index, choices in members_left if choices)
