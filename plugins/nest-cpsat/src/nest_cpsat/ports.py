"""Ports: occupied ports delay stages and communication once per batch (PROBLEM.md section 4, Ports)."""

from __future__ import annotations

from itertools import product
from math import inf
from typing import TYPE_CHECKING

import numpy
from attrs import frozen

from nest.tolerances import SUM_ERROR
from nest_cpsat.scaling import LARGEST_COEFFICIENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest_cpsat.cuts import Booleans, Floats, Integers
    from nest_cpsat.placement import Literals, Term
    from nest_cpsat.scaling import Scale


@frozen(eq=False)
class Ports:
    """Port occupation by stages of one candidate."""

    # Seconds per micro-batch at each level (`b_i`), without messages between stages. Shape `(modes, levels, stages)`.
    busy: Floats
    # Seconds of communication per batch without hiding, and of the optimizer step. Shape `(modes, stages)`.
    once: Floats
    used: Booleans  # Communication per batch that may hide uses the port of the level. Shape `(modes, levels, stages)`.

    def as_free(self, time: Floats, sync: Floats, one: int, other: int, micro_batches: int) -> Booleans:
        """Mask of stages that ports delay in mode `one`, as fast without them, no more than in mode `other`.

        Communication per batch waits by `once + M * (b - t)`. Messages are equal in both modes, so `t` falls by at most
        `gained`, and the wait does not grow if `once + M * b` falls by `M * gained`; nor if mode `one` never waits: `b
        - t` is largest without messages and other ports. `time` and `sync` (seconds, without ports) have shape `(modes,
        stages)`.
        """
        less = self.busy[other] - self.busy[one]
        freer: Booleans = (less >= 0).all(axis=0)
        gained = numpy.maximum(time[other] - time[one], less.max(axis=0))
        held = self.used[one] & (self.once[one] + micro_batches * (self.busy[one] - time[one]) > sync[one])
        waits = self.once[one] <= self.once[other] - micro_batches * (gained - less)
        freer &= (~held | (self.used[other] & waits)).all(axis=0)
        return freer

    def at(self, mode: Integers, stage: Integers) -> Ports:
        """Select by mode and stage: shapes `(choices, levels)` and `(choices,)`."""
        return Ports(self.busy[mode, :, stage], self.once[mode, stage], self.used[mode, :, stage])


def together(parts: Sequence[tuple[Booleans, Ports | None]], levels: int) -> Ports:
    """Join ports of the choices of a stage, by row; candidates without ports occupy none.

    `parts` has a mask of choices and the ports of each candidate; `levels` is at least the levels of any.
    """
    shape = len(parts[0][0]), levels
    total = Ports(numpy.zeros(shape), numpy.zeros(shape[0]), numpy.zeros(shape, dtype=bool))
    for own, ports in parts:
        if ports is not None:
            own_levels = ports.busy.shape[1]
            total.once[own] = ports.once
            total.busy[own, :own_levels], total.used[own, :own_levels] = ports.busy, ports.used
    return total


@frozen(eq=False)
class StagePorts:
    """One stage of a model, with ports.

    A shorter time may lengthen the time per batch here, so numbers are not rounded down term by term: both times are
    computed for each choice with the levels around it, and then rounded down.
    """

    model: CpModel
    scale: Scale
    micro_batches: int  # `M`.
    taken: Sequence[IntVar]  # Indicators of the choices.
    time: Floats  # Seconds per micro-batch of each choice, without messages and ports.
    sync: Floats  # Seconds per batch of each choice, without ports.
    ports: Ports  # Of each choice; shapes `(choices, levels)` and `(choices,)`.
    # Possible messages of each boundary: indicator, level, and seconds by choice.
    boundaries: Sequence[tuple[Literals, Mapping[int, tuple[int, Floats | float]]]]
    shared: Floats | None = None  # Seconds per micro-batch of each choice that hide no messages; None: none hide.

    def waits(self, sync: IntVar) -> Term:
        """Ticks per micro-batch that the busiest port needs beyond compute and messages; bounds `sync` from below."""
        every = {around: self._around(around) for around in product(*(near for near, _ in self.boundaries))}
        waiting = any(wait.any() for wait, _ in every.values())
        if not waiting and not any((late > self.sync).any() for _, late in every.values()):
            return 0
        met = self._holding(list(every))
        waited = self.model.new_int_var(0, LARGEST_COEFFICIENT if waiting else 0, "waited")
        for around, (wait, late) in every.items():
            ticks = self._weighed([self.scale.ticks(each) for each in wait.tolist()])
            self.model.add(waited == ticks).only_enforce_if(met[around])
            if (late > self.sync).any():
                ticks = self._weighed([self.scale.sync_ticks(each) for each in late.tolist()])
                self.model.add(sync >= ticks).only_enforce_if(met[around])
        return waited

    def _around(self, around: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Waits of each choice for ports with these messages, in seconds per micro-batch and per batch.

        Differences are rounded by the most that floating point can lose.
        """
        busy, messages = self.ports.busy.copy(), numpy.zeros(len(self.time))
        for number, (_, possible) in zip(around, self.boundaries, strict=True):
            level, seconds = possible[number]
            busy[:, level] += seconds
            messages += seconds
        spent = self.time + messages if self.shared is None else numpy.maximum(self.time, self.shared + messages)
        wait = numpy.maximum(busy.max(axis=1) * (1 - SUM_ERROR) - spent * (1 + SUM_ERROR), 0.0)
        free = numpy.where(self.ports.used, (spent + wait)[:, None] * (1 + 3 * SUM_ERROR) - busy, inf).min(axis=1)
        late = self.ports.once * (1 - SUM_ERROR) - self.micro_batches * free * (1 + SUM_ERROR)
        return wait, numpy.maximum(late, self.sync)

    def _holding(self, every: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], list[IntVar]]:
        """Indicators that hold only with each combination of messages; empty for a single one."""
        if len(every) == 1:
            return {every[0]: []}
        met = {around: self.model.new_bool_var("") for around in every}
        for index, (near, _) in enumerate(self.boundaries):
            for number, literal in near.items():
                self.model.add(sum(met[around] for around in every if around[index] == number) == literal)
        return {around: [literal] for around, literal in met.items()}

    def _weighed(self, values: list[int]) -> Term:
        from ortools.sat.python.cp_model import LinearExpr

        return LinearExpr.weighted_sum(self.taken, values)
