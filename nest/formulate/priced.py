"""Operators with their times, gathered by the layers that strategies see and the parts that are planned."""

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy
from attrs import Factory, evolve, field, frozen

from nest.formulate.layer_times import Direction, Timing, engine_of, precedence
from nest.graph import Operator
from nest.hooks.protocols import OperatorCost
from nest.instance import Array

T = TypeVar("T")


@frozen(eq=False)
class PricedOperator:
    """An operator and its times, seconds per micro-batch.

    Attributes:
        operator: the operator.
        cost: of its computation.
        forward: communication in the forward pass.
        backward: communication in the backward pass.
        hidden: of communication that runs under another operator, what that hides: forward and backward.
        coefficient: the one that says which share of its communication shows where the framework hides it under the
            layer's computation; empty: it hides none.
        exposed: that share.
        ports: seconds for which its communication occupies a device's port at each level: forward and backward, of
            shape `(levels,)` each; None: it has none.
        kept: the operator with what it really saves for its backward pass (`nest.formulate.narrow`).
    """

    operator: Operator
    cost: OperatorCost
    forward: float
    backward: float
    hidden: tuple[float, float] = (0.0, 0.0)
    coefficient: str = ""
    exposed: float = 1.0
    ports: tuple[Array, Array] | None = None
    kept: Operator = field(default=Factory(lambda self: self.operator, takes_self=True))

    def times(self, direction: Direction) -> tuple[float, float, float]:
        """Seconds of computation, of communication that shows, and of communication that hides, in one direction."""
        forward = direction is Direction.FORWARD
        own, sent = (self.cost.forward, self.forward) if forward else (self.cost.backward, self.backward)
        shown = self.exposed * sent
        return own, shown, sent - shown

    def under_another(self, direction: Direction) -> float:
        """Seconds of `hidden` in one direction."""
        return self.hidden[0 if direction is Direction.FORWARD else 1]

    def launching(self, direction: Direction, host_launch: float) -> float:
        """Seconds the host takes to launch it in one direction, `host_launch` for each collective."""
        if self.operator.collective is None:
            return self.cost.host if self.times(direction)[0] else 0.0
        made = self.operator.collective
        return host_launch * len(made.forward if direction is Direction.FORWARD else made.backward)


@frozen(slots=False)
class PricedLayer:
    """The operators of one layer.

    Attributes:
        rows: all, in order.
        parts: the same, dealt to what is planned: the layer as a whole, or each of its operators.
        passing: bytes that a cut between parts may leave on their way inside the layer, at most.
    """

    rows: tuple[PricedOperator, ...]
    parts: tuple[tuple[PricedOperator, ...], ...]
    passing: float = 0.0
    _known: dict[Hashable, Any] = field(factory=dict, init=False, repr=False, eq=False)

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` finds of this layer, computed once: candidates share layers."""
        if key not in self._known:
            self._known[key] = compute()
        found: T = self._known[key]
        return found

    @cached_property
    def _precedence(self) -> tuple[tuple[int, int], ...]:
        return precedence([row.operator for row in self.rows])

    def seconds(self, direction: Direction, timing: Timing, among: frozenset[str] | None = None) -> list[float]:
        """Seconds of each part; they add up to the layer's, and share it in proportion to their operators' times.

        Args:
            direction: which way the layer runs.
            timing: how the times of operators become the layer's.
            among: names of the operators that count; None: all. What the others make is there from the start.
        """
        return self.once(("seconds", direction, among), lambda: self._seconds(direction, timing, among))

    def _seconds(self, direction: Direction, timing: Timing, among: frozenset[str] | None) -> list[float]:
        counted = [place for place, row in enumerate(self.rows) if among is None or row.operator.name in among]
        number = {place: index for index, place in enumerate(counted)}
        waiting = [(number[a], number[b]) for a, b in self._precedence if a in number and b in number]
        if direction is Direction.BACKWARD:
            waiting = [(later, earlier) for earlier, later in waiting]
        whole = timing.seconds(
            [self.rows[place].times(direction) for place in counted],
            [engine_of(self.rows[place].operator, timing.engines) for place in counted],
            waiting,
            sum(self.rows[place].under_another(direction) for place in counted),
            sum(self.rows[place].launching(direction, timing.host_launch) for place in counted),
        )
        parts = ([row for row in part if among is None or row.operator.name in among] for part in self.parts)
        return shares(whole, [sum(sum(row.times(direction)) for row in part) for part in parts])

    def collectives(self, timing: Timing) -> list[float]:
        """Seconds that collectives add to each part, in both directions: none where all that they take hides."""
        return self.once("collectives", lambda: self._collectives(timing))

    def _collectives(self, timing: Timing) -> list[float]:
        found = [0.0] * len(self.parts)
        for direction in Direction:
            added = max(sum(self.seconds(direction, timing)) - sum(self.alone.seconds(direction, timing)), 0.0)
            sent = [sum(sum(row.times(direction)[1:]) for row in part) for part in self.parts]
            found = [seconds + own for seconds, own in zip(found, shares(added, sent), strict=True)]
        return found

    @cached_property
    def alone(self) -> "PricedLayer":
        """The layer if its collectives took no time."""
        rows = {id(row): evolve(row, forward=0.0, backward=0.0, hidden=(0.0, 0.0)) for row in self.rows}
        parts = tuple(tuple(rows[id(row)] for row in part) for part in self.parts)
        return PricedLayer(tuple(rows.values()), parts)

    def ports(self, direction: Direction, levels: int, among: frozenset[str] | None = None) -> list[Array]:
        """Seconds for which each part's communication occupies a device's port, by level, shape `(levels,)` each.

        Args:
            direction: which way the layer runs.
            levels: of the network.
            among: names of the operators that count; None: all.
        """
        which = 0 if direction is Direction.FORWARD else 1
        return [
            sum(
                (row.ports[which] for row in part if row.ports and (among is None or row.operator.name in among)),
                numpy.zeros(levels),
            )
            for part in self.parts
        ]


def shares(whole: float, weights: Sequence[float]) -> list[float]:
    """`whole` dealt out in proportion to `weights`; nothing where they are all 0."""
    total = sum(weights)
    return [whole * (weight / total) if total else 0.0 for weight in weights]
