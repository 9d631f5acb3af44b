"""Decisions before stages: all else of a plan, possible places of stages, and coverage by plans listed before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from math import inf
from typing import NamedTuple

import numpy
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Cluster, Instance, Schedule, Solution, chunks_of, copies_of, partial
from nest.records import Record
from nest.solve.dp.choices import Choice
from nest.solve.dp.pairs import distinct
from nest.solve.dp.rules import Members
from nest.solve.dp.zero import sharded

State = tuple[int, bool]
"""Devices used so far (0 if uncounted), and whether a block of the demanded width was among them."""


@frozen(eq=False, repr=False)
class Tally(Record):
    """Totals that a plan must reach over its stages, counted from the last stage to the first."""

    demanded: int = 0  # Width that at least one block must have; 0: none.
    totals: frozenset[int] | None = None  # Allowed numbers of devices of a replica; None: any.
    _most: int = field(init=False)

    @_most.default
    def _largest_total(self) -> int:
        return 0 if self.totals is None else max(self.totals, default=-1)

    def least(self, devices: int) -> int:
        """Fewest devices, at least `devices`, that all stages may use; `devices` itself if uncounted or impossible."""
        if self.totals is None:
            return devices
        return min((total for total in self.totals if total >= devices), default=devices)

    def most(self, devices: int) -> int:
        """Most of `devices` that all stages may use."""
        return devices if self.totals is None else min(devices, self._most)

    @property
    def start(self) -> State:
        """State before any stage."""
        return (0, self.demanded == 0)

    def step(self, state: State, width: int) -> State | None:
        """State after one more block; None: no plan can continue."""
        used, seen = state
        if self.totals is not None:
            used += width
            if used > self._most:
                return None
        return used, seen or width == self.demanded

    def accepts(self, state: State) -> bool:
        """True if a plan may end with `state`."""
        return state[1] and (self.totals is None or state[0] in self.totals)

    def behind(self, state: State, width: int) -> list[State]:
        """`step` from the first stage on, ascending: devices used in front, and whether the demanded width is due."""
        used, due = state
        steps = ((left, self.step((used, left), width)) for left in (False, True))
        return [(after[0], left) for left, after in steps if after is not None and after[1] == due]


@frozen(eq=False, repr=False)
class Configuration(Record):
    """Plans that differ only in their stages."""

    # Position in the documented order of ties (candidate, schedule, rank order, replicas, shard groups, choices).
    order: int
    members: Members  # Candidates of stages (several in mixed plans), each with its choices, preferred first.
    replicas: int  # Data-parallel degree `d`.
    micro_batches: int  # `M`.
    rank_order: str  # `pp-inner` or `dp-inner`.
    schedule: Schedule
    size: int  # Devices of a replica (`K`).
    stage_counts: tuple[int, ...]  # Numbers of stages that constraints allow, ascending.
    zero_degree: int | None = None  # Ranks over which ZeRO shards at most; None: all.
    tally: Tally = Tally()  # Totals of a mixed plan.
    bound: float | None = field(default=None, eq=False)  # Lower bound in seconds; None: unknown.
    place: int = 0  # Position among those of one order without common choices.

    @property
    def candidate(self) -> int:
        """Index of the candidate of all stages, if they share one."""
        return self.members[0][0]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Choices of a stage with that candidate, preferred first."""
        return self.members[0][1]

    @property
    def placed(self) -> tuple[int, str]:
        """Key of the places of blocks besides widths; with one replica both rank orders are equal."""
        return self.replicas, self.rank_order if self.replicas > 1 else ""

    @property
    def scheduled(self) -> tuple[str, int, int]:
        """Key of weights and micro-batches in flight, besides the number of stages."""
        return self.schedule.name, chunks_of(self.schedule), self.micro_batches

    @property
    def copies(self) -> int:
        """Copies of a stage's parameters on a device."""
        return copies_of(self.schedule)

    @property
    def modes(self) -> tuple[str, ...]:
        """Recompute modes that bound the costs and memory of layers; one for all parts of two modes."""
        return tuple(dict.fromkeys(choice.recompute for choice in bounding_choices(self.choices)))

    @property
    def most_zero(self) -> int:
        """Highest ZeRO stage among the choices."""
        return max(choice.zero for choice in self.choices)

    def least_state(self, state: Iterable[tuple[int, Array, Array, Array]], size: int) -> Array:
        """Bytes of state, sharded as far as a choice allows; arguments and shape of `sharded`."""
        return self.state(state, size, self.most_zero)

    def state(self, state: Iterable[tuple[int, Array, Array, Array]], size: int, zero: int) -> Array:
        """Bytes of state of all copies; arguments and shape of `sharded`."""
        one = sharded(state, size, replicas=self.replicas, zero=zero, zero_degree=self.zero_degree)
        return one if self.copies == 1 else self.copies * one


def of_whole_modes(configuration: Configuration) -> Configuration | None:
    """Configuration with only pure modes; None: there are none."""
    choices = tuple(choice for choice in configuration.choices if partial(choice.recompute) is None)
    return evolve(configuration, members=((configuration.candidate, choices),)) if choices else None


@lru_cache(maxsize=2**12)
def bounding_choices(choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """Choices that bound the costs and memory of layers; one for all parts of two modes."""
    return tuple(dict.fromkeys(each._replace(recompute=bounding_mode(each.recompute)) for each in choices))


def bounding_mode(name: str) -> str:
    """Recompute mode that bounds the costs and memory of layers."""
    part = partial(name)
    return name if part is None else part._replace(layers=1).name


class LeastMemory(NamedTuple):
    """Plan with the least memory on its fullest device."""

    bytes: float  # On that device.
    stages: int  # Number.
    replicas: int  # Number.
    candidate: str = ""  # Name, if all stages share one; else empty.

    @staticmethod
    def least(every: Iterable[LeastMemory | None]) -> LeastMemory | None:
        """The one with the least bytes; ties go to the first. None: none is finite."""
        possible = (each for each in every if each is not None and each.bytes < inf)
        return min(possible, key=lambda each: each.bytes, default=None)


def replica_size(cluster: Cluster, widest: int, replicas: int) -> int:
    """Devices of a replica with a widest block of `widest` (`K` of PROBLEM.md section 3)."""
    return widest * (cluster.size // (replicas * widest))


@frozen(eq=False, repr=False, slots=False)
class Slots:
    """Aligned places of a replica with blocks of equal width, ordered by offset.

    The level between two slots is the largest step between them: each replica is a run of devices in nested groups, and
    the worst over replicas keeps that property.
    """

    width: int  # Devices per slot.
    steps: NDArray[numpy.int64]  # Level of the boundary between slot `p` and slot `p + 1`, shape `(slots - 1,)`.

    @property
    def count(self) -> int:
        """Number of slots (`K / g`)."""
        return len(self.steps) + 1

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Possible levels of boundaries, ascending."""
        return tuple(distinct(self.steps).tolist())


def slots(cluster: Cluster, width: int, replicas: int, rank_order: str) -> Slots:
    """Slots of each of `replicas` replicas with blocks of `width` devices."""
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
    """Devices of a replica with blocks of different widths.

    The level of a boundary spans the devices from the first of the block before it to the last of the block behind
    it, worst over the replicas. It depends only on these two devices in both rank orders: with `dp-inner` the spans of
    the replicas overlap, and together they are the span of all blocks of both stages.
    """

    size: int  # Number of devices (`K`).
    # By level and offset, the furthest end of a span from there within the level, shape `(levels, size)`.
    ends: NDArray[numpy.int64]


def offsets(cluster: Cluster, size: int, replicas: int, rank_order: str) -> Offsets:
    """Devices of each of `replicas` replicas of `size` devices."""
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


Used = tuple[str, int | str]  # A choice of a stage, with its kind: candidate, ZeRO stage or recompute mode.


class PlanSignature(NamedTuple):
    """Signature of a listed plan.

    It covers plans with as many replicas and stages and the same schedule whose stages use at least the same choices:
    they differ only in cuts, places and the assignment of choices to stages, or mix in others.
    """

    replicas: int  # Data-parallel degree `d`.
    stages: int  # Number.
    schedule: tuple[str, int]  # Name and chunks; any for a single stage.
    used: frozenset[Used]  # Choices of its stages.

    @classmethod
    def of(cls, solution: Solution) -> PlanSignature:
        """Signature of a plan."""
        stages = solution.stages
        used = {each for stage in stages for each in _used(stage.candidate, stage.zero, stage.recompute)}
        schedule = _named(solution.schedule, solution.chunks, len(stages))
        return cls(solution.replicas, len(stages), schedule, frozenset(used))

    def covers(self, solution: Solution) -> bool:
        """True if a plan does not differ enough to be listed beside this one."""
        other = PlanSignature.of(solution)
        return self.alike(other.replicas, other.stages, other.schedule) and self.used <= other.used

    def alike(self, replicas: int, stages: int, schedule: tuple[str, int]) -> bool:
        """True if plans with these may be covered."""
        return (self.replicas, self.stages, self.schedule) == (replicas, stages, schedule)


def _used(candidate: int, zero: int, recompute: str) -> tuple[Used, ...]:
    part = partial(recompute)
    # Plans that recompute some blocks more or less do not differ otherwise.
    mode = recompute if part is None else part._replace(layers=0).name
    return ("candidate", candidate), ("zero", zero), ("recompute", mode)


def without(
    configurations: Sequence[Configuration], listed: Sequence[PlanSignature], instance: Instance, first_order: int = 0
) -> list[Configuration]:
    """Configurations of all plans that are not covered.

    Args:
        listed: signatures that cover plans.
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
    """Choices of stages that avoid covered plans, each with its numbers of stages."""
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
    """Key of a schedule; equal for all with a single stage."""
    return (schedule, chunks) if stages > 1 else ("", 1)


def _uncovered(sets: Sequence[Members], listed: PlanSignature) -> list[Members]:
    """Split sets so that none can use all choices of a listed plan: each part leaves one out."""
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
