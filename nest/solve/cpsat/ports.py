"""Ports: what keeps them occupied holds a stage up, and what is sent once per batch (PROBLEM.md section 4, Ports)."""

from __future__ import annotations

from itertools import product
from math import inf
from typing import TYPE_CHECKING

import numpy
from attrs import frozen

from nest.solve.cpsat.scaling import LARGEST_COEFFICIENT
from nest.tolerances import SUM_ERROR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ortools.sat.python.cp_model import CpModel, IntVar

    from nest.solve.cpsat.cuts import Booleans, Floats, Integers
    from nest.solve.cpsat.placement import Literals, Term
    from nest.solve.cpsat.scaling import Scale


@frozen(eq=False)
class Ports:
    """What stages of one candidate keep ports occupied with.

    Attributes:
        busy: seconds per micro-batch for which the port at each level is occupied (`b_i`), messages between stages
            aside. Shape `(modes, levels, stages)`.
        once: seconds of what is sent once per batch, with nothing hidden, and of the optimizer step. Shape
            `(modes, stages)`.
        used: whether some of what is sent once per batch may hide and uses the port at the level. Shape
            `(modes, levels, stages)`.
    """

    busy: Floats
    once: Floats
    used: Booleans

    def as_free(self, time: Floats, sync: Floats, one: int, other: int, micro_batches: int) -> Booleans:
        """Where ports hold a stage in mode `one`, which is as fast without them, up no longer than in mode `other`.

        What is sent once per batch waits by `once + M * (b - t)`. Between the modes `t` falls by no more than `gained`,
        for messages are the same; so that wait does not grow where `once + M * b` falls by `M * gained`. Or where mode
        `one` never waits: `b - t` is largest without messages and other ports.

        Args:
            time: seconds per micro-batch as if there were no ports. Shape `(modes, stages)`.
            sync: seconds per batch as if there were no ports. Shape `(modes, stages)`.
            one: a row.
            other: a row.
            micro_batches: `M`.
        """
        less = self.busy[other] - self.busy[one]
        freer: Booleans = (less >= 0).all(axis=0)
        gained = numpy.maximum(time[other] - time[one], less.max(axis=0))
        held = self.used[one] & (self.once[one] + micro_batches * (self.busy[one] - time[one]) > sync[one])
        waits = self.once[one] <= self.once[other] - micro_batches * (gained - less)
        freer &= (~held | (self.used[other] & waits)).all(axis=0)
        return freer

    def at(self, mode: Integers, stage: Integers) -> Ports:
        """Those of some modes and stages, by index, one of each: arrays of shape `(choices, levels)`, `(choices,)`."""
        return Ports(self.busy[mode, :, stage], self.once[mode, stage], self.used[mode, :, stage])


def together(parts: Sequence[tuple[Booleans, Ports | None]], levels: int) -> Ports:
    """The ports of the choices of a stage, one row for each; choices whose candidates have none occupy none.

    Args:
        parts: for each candidate, which choices are its own, and their ports.
        levels: as many as that of any has, or more.
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

    A shorter time may be a longer time per batch here, so numbers are not rounded down term by term: both times are
    worked out for each choice and the levels of the boundaries around it, and then rounded down.

    Attributes:
        model: is added to.
        scale: how seconds become integers.
        micro_batches: `M`.
        taken: whether the stage takes each choice.
        time: seconds per micro-batch of each choice, without messages and as if there were no ports.
        sync: seconds per batch of each choice, as if there were no ports.
        ports: of each choice; arrays of shape `(choices, levels)` and `(choices,)`.
        boundaries: for each boundary of the stage what its messages may be, numbered: whether they are, and their level
            with the seconds that each choice takes for them.
        shared: seconds per micro-batch of each choice under which messages do not hide; None: they do not hide at all.
    """

    model: CpModel
    scale: Scale
    micro_batches: int
    taken: Sequence[IntVar]
    time: Floats
    sync: Floats
    ports: Ports
    boundaries: Sequence[tuple[Literals, Mapping[int, tuple[int, Floats | float]]]]
    shared: Floats | None = None

    def waits(self, sync: IntVar) -> Term:
        """Ticks per micro-batch that the busiest port needs beyond compute and messages.

        And `sync`, in ticks once per batch, is no less than where ports leave too little free for it.
        """
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
        """For each choice, with these messages over its boundaries: seconds that ports are waited for, and per batch.

        Of differences, what is taken away is the most that floating point can have lost of it.
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
        """For each choice of messages over the boundaries, what holds only with these; nothing for one alone."""
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
