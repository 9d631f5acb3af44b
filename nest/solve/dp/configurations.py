"""What is decided before stages are."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from attrs import field, frozen

from nest.instance import Array, ParameterGroup, Schedule, chunks_of, copies_of
from nest.solve.dp.choices import Choice
from nest.solve.dp.rules import Members
from nest.solve.dp.zero import sharded

State = tuple[int, bool]
"""Devices used so far (0 where nobody counts them), and whether a block of the width demanded was among them."""


@frozen
class Tally:
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
        return min((total for total in self.totals or () if total >= devices), default=devices)

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

    def after(self, states: Iterable[State], widths: Iterable[int]) -> list[State]:
        """All states after one more block, ascending."""
        stepped = {self.step(state, width) for state in states for width in widths}
        return sorted(state for state in stepped if state is not None)


@frozen
class Configuration:
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

    @property
    def candidate(self) -> int:
        """Index of the candidate of all stages, where they have one."""
        return self.members[0][0]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What a stage of that candidate may choose, preferred first."""
        return self.members[0][1]

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
        """Recompute modes among these."""
        return tuple(dict.fromkeys(choice.recompute for choice in self.choices))

    @property
    def most_zero(self) -> int:
        """The highest ZeRO stage among these."""
        return max(choice.zero for choice in self.choices)

    def least_state(self, state: Iterable[tuple[ParameterGroup, Array, Array, Array]], size: int) -> Array:
        """Bytes of state, sharded as far as a choice allows; arguments and shape as of `sharded`."""
        return self.state(state, size, self.most_zero)

    def state(self, state: Iterable[tuple[ParameterGroup, Array, Array, Array]], size: int, zero: int) -> Array:
        """Bytes of state of all copies; arguments and shape as of `sharded`."""
        one = sharded(state, size, replicas=self.replicas, zero=zero, zero_degree=self.zero_degree)
        return one if self.copies == 1 else self.copies * one


@frozen
class LeastMemory:
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
