"""Times of operators and layers: compute, collectives, and their overlap in a layer."""

from collections.abc import Callable, Hashable, Sequence
from enum import IntEnum
from math import prod
from operator import attrgetter
from typing import Any, TypeVar

import numpy
from attrs import Factory, field, frozen

from nest.graph import Communication, Operator
from nest.graph.operator_graph import precedence
from nest.hooks.protocols import LayerTimes, OperatorCost
from nest.instance import Array, Cluster, CollectiveModel, port_seconds
from nest.reuse import once
from nest.spec import Training
from nest.spec.device import COMMUNICATION, MATRIX, VECTOR

MATRIX_KINDS = frozenset({"matmul", "attention", "router"})
"""Kinds of operator whose FLOP are those of matrix products; all others that compute are element-wise."""


class Direction(IntEnum):
    """Direction of a pass; the index of (forward, backward) pairs."""

    FORWARD = 0
    BACKWARD = 1


OperatorTimes = tuple[float, float, float]
"""Seconds of an operator's compute, of its exposed communication, and of its hidden communication."""


@frozen
class Timing:
    """Combines the times of a layer's operators."""

    model: LayerTimes  # Of layer times.
    engines: tuple[str, ...]  # Of the device, by name (docs/explanation/operator-scheduling.md).
    host_launch: float = 0.0  # Seconds of the host per launch of a collective.

    def seconds(
        self,
        times: Sequence[OperatorTimes],
        engines: Sequence[str],
        precedence: Sequence[tuple[int, int]],
        hidden: float = 0.0,
        host: float = 0.0,
    ) -> float:
        """Seconds of a layer in one direction.

        The longer of two counts: compute with the exposed part of the collectives, and all collectives. A layer takes
        at least the host's launch time.

        Args:
            times: by operator, seconds of compute, of exposed communication, and of communication that a framework
                hides under its predecessors and successors.
            engines: by operator.
            precedence: `(before, after)`, indices of operators.
            hidden: seconds of communication that other operators hide, besides `times`; it still occupies links.
            host: seconds of the host to launch everything.
        """
        working = self.model.seconds([own + exposed for own, exposed, _ in times], engines, precedence)
        communication = sum(exposed + hidden_part for _, exposed, hidden_part in times)
        return max(working, communication + hidden, host)


def engine_of(operator: Operator, engines: Sequence[str]) -> str:
    """Engine of an operator; the matrix engine replaces engines that are not described."""
    computing = MATRIX if operator.kind in MATRIX_KINDS else VECTOR
    wanted = computing if operator.collective is None else COMMUNICATION
    return wanted if wanted in engines else MATRIX


def computing_weight_gradients(operator: Operator, cost: OperatorCost) -> float:
    """Seconds of an operator's backward pass for the gradients of its parameters.

    From its cost model if given. Else a product with parameters spends half of its backward pass on them, as many FLOP
    as for its other operand (arXiv 2401.10241, table 1), and all of it if that has no gradient; other operators with
    parameters, such as norms, next to nothing.
    """
    if cost.weight_gradients is not None:
        return cost.weight_gradients
    if not operator.trained_count:
        return 0.0
    if not any(tensor.differentiable for tensor in operator.inputs):
        return cost.backward
    return cost.backward / 2 if operator.contracted else 0.0


T = TypeVar("T")


@frozen(eq=False, repr=False)
class PricedOperator:
    """An operator and its times, seconds per micro-batch.

    Attributes:
        operator: the operator.
        cost: of its compute.
        forward: communication in the forward pass.
        backward: communication in the backward pass.
        hidden: the part of communication under another operator that this hides: forward and backward.
        coefficient: name of the exposed share of communication that overlaps with the layer's compute; empty: none
            hides.
        exposed: that share.
        weight_gradients: communication in the backward pass that serves only weight gradients.
        ports: gives seconds that its communication occupies a device's port at each level: forward and backward, of
            shape `(levels,)` each, computed on first use; None: no communication.
        kept: the operator with what it really saves for its backward pass (`nest.formulate.recompute`).
    """

    operator: Operator
    cost: OperatorCost
    forward: float
    backward: float
    hidden: tuple[float, float] = (0.0, 0.0)
    coefficient: str = ""
    exposed: float = 1.0
    weight_gradients: float = 0.0
    ports: Callable[[], tuple[Array, Array]] | None = None
    kept: Operator = field(default=Factory(lambda self: self.operator, takes_self=True))

    def times(self, direction: Direction) -> OperatorTimes:
        """Times in one direction."""
        return self.all_times(direction, 0.0)[0]

    @property
    def finding_weight_gradients(self) -> float:
        """Seconds of compute and exposed communication for weight gradients."""
        return computing_weight_gradients(self.operator, self.cost) + self.exposed * self.weight_gradients

    def all_times(self, direction: Direction, host_launch: float) -> tuple[OperatorTimes, float, float]:
        """`times`, the `hidden` part, and launch seconds of the host, `host_launch` for each collective."""
        made, cost = self.operator.collective, self.cost
        own, sent = (cost.backward, self.backward) if direction else (cost.forward, self.forward)
        exposed = self.exposed * sent
        if made is None:
            launching = cost.host if own else 0.0
        else:
            launching = host_launch * len(made.backward if direction else made.forward)
        return (own, exposed, sent - exposed), self.hidden[direction], launching


@frozen
class _Order:
    """Operators of a layer that run in one direction, and their order, whatever their times."""

    counted: tuple[int, ...]  # Places in the layer.
    engines: tuple[str, ...]  # Engine of each.
    waiting: tuple[tuple[int, int], ...]  # `(before, after)`, places among these.
    parts: tuple[tuple[int, ...], ...]  # For each part of the layer, places among these.


@frozen(slots=False)
class PricedLayer:
    """Operators of one layer."""

    rows: tuple[PricedOperator, ...]  # All, in order.
    parts: tuple[tuple[PricedOperator, ...], ...]  # Same by planned part: the whole layer, or each operator.
    passing: float = 0.0  # Most bytes in transit inside the layer across a cut between parts.
    _everywhere: dict[Hashable, Any] = field(factory=dict, repr=False, eq=False)
    _untimed: dict[Hashable, Any] = field(factory=dict, repr=False, eq=False)
    _known: dict[Hashable, Any] = field(factory=dict, init=False, repr=False, eq=False)

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Cache a computation on this layer, which candidates share."""
        return once(self._known, key, compute)

    def once_everywhere(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Cache a computation that is independent of the network."""
        return once(self._everywhere, key, compute)

    def once_untimed(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Cache a computation that is independent of all times."""
        return once(self._untimed, key, compute)

    def elsewhere(self, rows: Sequence[PricedOperator]) -> "PricedLayer":
        """Layer with its operators on another network or device."""
        pairs = list(zip(self.rows, rows, strict=True))
        now = dict(pairs)
        parts = tuple(tuple(now[row] for row in part) for part in self.parts)
        same_device = all(row.cost is before.cost for before, row in pairs)
        bytes_of = attrgetter("cost.saved", "cost.transient")
        same_bytes = same_device or all(bytes_of(row) == bytes_of(before) for before, row in pairs)
        everywhere, untimed = self._everywhere if same_device else {}, self._untimed if same_bytes else {}
        return PricedLayer(tuple(rows), parts, self.passing, everywhere, untimed)

    def seconds(
        self, direction: Direction, timing: Timing, among: frozenset[str] | None = None, *, silent: bool = False
    ) -> list[float]:
        """Seconds of each part; they sum to the layer's, in proportion to their operators' times.

        Args:
            direction: of the pass.
            timing: combines operators' times.
            among: names of the operators that count; None: all. Results of others exist from the start.
            silent: collectives take no time.
        """
        if among is not None and not among:
            return [0.0] * len(self.parts)
        once = self.once_everywhere if silent else self.once
        return once(("seconds", direction, among), lambda: self._seconds(direction, timing, among, silent))

    def _seconds(self, direction: Direction, timing: Timing, among: frozenset[str] | None, silent: bool) -> list[float]:
        order, every = self._ordered(direction, timing, among), self._times(direction, timing)
        counted = [every[place] for place in order.counted]
        times = [(own, 0.0, 0.0) for (own, _, _), _, _ in counted] if silent else [each for each, _, _ in counted]
        if not any(map(any, times)):
            return [0.0] * len(order.parts)
        hidden = 0.0 if silent else sum([under for _, under, _ in counted])
        host = sum([launching for _, _, launching in counted])
        whole = timing.seconds(times, order.engines, order.waiting, hidden, host)
        if len(order.parts) == 1:
            return [whole]
        return shares(whole, [sum([sum(times[place]) for place in part]) for part in order.parts])

    def waiting(self, direction: Direction, timing: Timing) -> float:
        """Seconds that the layer waits for its host: launch time beyond all its work."""
        order, every = self._ordered(direction, timing, None), self._times(direction, timing)
        times, hidden, launching = zip(*every, strict=True)
        working = timing.seconds(times, order.engines, order.waiting, sum(hidden))
        return max(sum(launching) - working, 0.0) if working else 0.0

    def _times(self, direction: Direction, timing: Timing) -> list[tuple[OperatorTimes, float, float]]:
        launch = timing.host_launch
        return self.once(("times", direction), lambda: [each.all_times(direction, launch) for each in self.rows])

    def _ordered(self, direction: Direction, timing: Timing, among: frozenset[str] | None) -> _Order:
        key = ("order", direction, timing.engines, among)
        return self.once_untimed(key, lambda: self._order(direction, timing.engines, among))

    def _order(self, direction: Direction, engines: Sequence[str], among: frozenset[str] | None) -> _Order:
        operators = [row.operator for row in self.rows]
        counted = [place for place, each in enumerate(operators) if among is None or each.name in among]
        number = {place: index for index, place in enumerate(counted)}
        every = self.once_untimed("precedence", lambda: precedence(operators))
        pairs = [(number[a], number[b]) for a, b in every if a in number and b in number]
        waiting = tuple((b, a) for a, b in pairs) if direction is Direction.BACKWARD else tuple(pairs)
        index = {self.rows[place]: number[place] for place in counted}
        parts = tuple(tuple(index[row] for row in part if row in index) for part in self.parts)
        return _Order(tuple(counted), tuple(engine_of(operators[each], engines) for each in counted), waiting, parts)

    def collectives(self, timing: Timing) -> list[float]:
        """Seconds that collectives add to each part in both directions; 0 if all of it hides."""
        return self.once("collectives", lambda: self._collectives(timing))

    def weight_gradients(self) -> list[float]:
        """Seconds of each part for weight gradients, one operator after the other."""
        return self.once(
            "weight gradients", lambda: [sum(row.finding_weight_gradients for row in part) for part in self.parts]
        )

    def _collectives(self, timing: Timing) -> list[float]:
        result = [0.0] * len(self.parts)
        for direction in Direction:
            added = sum(self.seconds(direction, timing)) - sum(self.seconds(direction, timing, silent=True))
            every, parts = self._times(direction, timing), self._ordered(direction, timing, None).parts
            sent = [sum([every[place][0][1] + every[place][0][2] for place in part]) for part in parts]
            result = [seconds + own for seconds, own in zip(result, shares(max(added, 0.0), sent), strict=True)]
        return result

    def ports(self, direction: Direction, levels: int, among: frozenset[str] | None = None) -> list[Array]:
        """Seconds that each part's communication occupies a device's port, by level, shape `(levels,)` each.

        `among` has the names of the operators that count; None: all.
        """
        return self.once(("ports", direction, among), lambda: self._ports(direction, levels, among))

    def _ports(self, direction: Direction, levels: int, among: frozenset[str] | None) -> list[Array]:
        sending = [
            [row.ports for row in part if row.ports and (among is None or row.operator.name in among)]
            for part in self.parts
        ]
        return [sum([ports()[direction] for ports in part], numpy.zeros(levels)) for part in sending]


def shares(whole: float, weights: Sequence[float]) -> list[float]:
    """Divide `whole` in proportion to `weights`; 0 each if they are all 0."""
    total = sum(weights)
    return [whole * (weight / total) if total else 0.0 for weight in weights]


Shape = tuple[int, ...]


@frozen
class Phase:
    """A collective that runs in parallel with others of a call."""

    kind: str  # See `Communication.kind`.
    bytes: float  # See `Communication.bytes`.
    shape: Shape  # Of its members, per level.
    members: int  # Devices.


@frozen
class Calls:
    """Prices of calls."""

    cluster: Cluster
    model: CollectiveModel
    training: Training  # Tells how tokens reach their experts.
    inside: int  # Levels of the scale-up network, innermost first.
    _seconds: dict[Hashable, float] = field(factory=dict, init=False, repr=False, eq=False)
    _ports: dict[Hashable, Array] = field(factory=dict, init=False, repr=False, eq=False)

    def seconds(self, call: Communication, shapes: tuple[Shape, ...], members: int) -> float:
        """Seconds of one call by groups of so many ranks in these shapes: of its slowest phase."""
        return once(self._seconds, (call, shapes, members), lambda: self._longest(call, shapes, members))

    def _longest(self, call: Communication, shapes: Sequence[Shape], members: int) -> float:
        levels, price = self.cluster.levels, self.model.time
        phases = [each for shape in shapes for each in self._phases(call, shape, members) if each.bytes]
        return max(
            (price(each.kind, each.bytes, each.shape, levels, members=each.members) for each in phases), default=0.0
        )

    def ports(self, call: Communication, shapes: tuple[Shape, ...], members: int) -> Array:
        """Seconds that a call occupies a device's port, at the worst of the groups. Shape `(levels,)`."""
        return once(self._ports, (call, shapes, members), lambda: self._occupied(call, shapes, members))

    def _occupied(self, call: Communication, shapes: Sequence[Shape], members: int) -> Array:
        levels = self.cluster.levels
        seconds = numpy.zeros(len(levels))
        for shape in shapes:
            every = [
                port_seconds(self.model, each.kind, numpy.array([each.bytes]), each.shape, levels, each.members)[:, 0]
                for each in self._phases(call, shape, members)
            ]
            seconds = numpy.maximum(seconds, sum(every, numpy.zeros(len(levels))))
        return call.count * seconds

    def _phases(self, call: Communication, shape: Shape, members: int) -> list[Phase]:
        """Parallel parts of a call.

        Tokens for experts are as many as the rank with the busiest ones gets. If a node gets one copy of a token for
        all its experts there, it goes to the device of the same rank in that node, which forwards it inside to each
        rank that needs it (DeepSeek-V3, arXiv 2412.19437, section 3.2.2). Both ways run at once.
        """
        if call.routing is None:
            return [Phase(call.kind, call.bytes, shape, members)]
        sent = call.bytes * (self.training.expert_imbalance or 1.0)
        if self.training.dispatch != "per-node":
            return [Phase(call.kind, sent, shape, members)]
        here, there = shape[: self.inside], shape[self.inside :]
        nodes, once = prod(there), sent / call.routing.copies
        phases = [Phase(call.kind, once * call.routing.reached(members), (*here, *(1 for _ in there)), prod(here))]
        if nodes > 1:
            across = (*(1 for _ in here), *there)
            phases.append(Phase(call.kind, once * call.routing.reached(nodes), across, nodes))
        return phases
