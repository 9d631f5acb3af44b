"""Choices of a stage, and their costs for every class of stages."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy
from attrs import evolve, fields, frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Weights, modes_of

UNKNOWN = -1  # Level of a boundary that may have any: it uses no port, and the figures are lower bounds.


class Boundary(NamedTuple):
    """A boundary of some stages."""

    level: int  # Or `UNKNOWN`.
    seconds: Array | float  # To receive over it, by stage or one for all.


@frozen(eq=False, repr=False)
class Ports:
    """Ports of one choice for every class of stages; shapes `(classes,)` or `(levels, classes)`.

    Tables of several choices have another dimension before `classes`.
    """

    busy: Array  # Seconds per micro-batch that the port at each level is occupied, without boundaries.
    once: Array  # Seconds per batch without hiding, with the optimizer step.
    used: NDArray[numpy.bool_]  # Levels of communication per batch that may hide.
    floor: Array  # Lower bound on seconds per micro-batch for any boundaries.
    slow: NDArray[numpy.bool_]  # Some port is occupied longer than the stage takes without boundaries.
    held: NDArray[numpy.bool_]  # Communication per micro-batch may delay that per batch.
    micro_batches: int | None  # In which a port is free (`M`); None: nothing is delayed, for a lower bound.

    @classmethod
    def of(
        cls,
        busy: Array,
        time: Array,
        sync: Array,
        once: Array,
        used: NDArray[numpy.bool_],
        micro_batches: int | None,
        hidden: Array | float = 0.0,
    ) -> "Ports":
        """Ports of stages that take `time` and `sync` seconds without them; `used` is false if nothing hides.

        Up to `hidden` seconds of boundaries take no time of the stage, but occupy ports.
        """
        busiest, apart = busy.max(axis=0), time - hidden
        held = numpy.zeros(time.shape, dtype=bool)
        if micro_batches is not None and used.any():
            # A port is free for that long at least, as the time of a stage never falls below what its ports need.
            free = numpy.where(used, numpy.maximum(apart - busy, 0.0), numpy.inf).min(axis=0)
            held = once - micro_batches * free > sync
        return cls(busy, once, used, numpy.maximum(time, busiest), busiest > apart, held, micro_batches)

    @property
    def tight(self) -> NDArray[numpy.bool_]:
        """True if times or gradient reduction depend on more than the sum of the boundaries' seconds."""
        tight: NDArray[numpy.bool_] = self.slow | self.held
        return tight

    @classmethod
    def names(cls) -> list[str]:
        """Names of its arrays."""
        return [each.name for each in fields(cls) if each.name != "micro_batches"]

    def at(self, index: Any) -> "Ports":
        """Index all arrays, as if without the dimension of levels."""
        by_level = (slice(None), *index) if isinstance(index, tuple) else (slice(None), index)
        places = {name: by_level if name in ("busy", "used") else index for name in self.names()}
        arrays = {name: getattr(self, name)[place] for name, place in places.items()}
        return Ports(**arrays, micro_batches=self.micro_batches)

    @classmethod
    def stacked(cls, every: "Sequence[Ports]", classes: slice = slice(None)) -> "Ports":
        """Stack the ports of several choices."""
        stacks = {name: [getattr(ports, name)[..., classes] for ports in every] for name in cls.names()}
        arrays = {name: numpy.stack(stack, axis=-2) for name, stack in stacks.items()}
        return cls(**arrays, micro_batches=every[0].micro_batches)

    def raised(self, time: Array, sync: Array, classes: Any, *boundaries: Boundary) -> tuple[Array, Array]:
        """`t_i` and `y_i` of stages of these classes.

        Args:
            time: seconds per micro-batch without ports, with the boundaries.
            sync: seconds per batch without ports.
            classes: index of each stage's class.
        """
        if any(boundary.level == UNKNOWN for boundary in boundaries):
            return numpy.maximum(time, self.floor[classes]), sync
        loads = []
        for level, busy in enumerate(self.busy):
            load = busy[classes]
            for boundary in boundaries:
                if boundary.level == level:
                    load = load + boundary.seconds
            loads.append(load)
        time = numpy.maximum(time, numpy.maximum.reduce(loads))
        if self.micro_batches is None or not self.held[classes].any():
            return time, sync
        least = numpy.full(time.shape, numpy.inf)
        for load, used in zip(loads, self.used, strict=True):
            numpy.minimum(least, time - load, out=least, where=used[classes])
        return time, numpy.maximum(sync, self.once[classes] - self.micro_batches * least)


MOST_IN_FLIGHT = 2.0**40  # Stands for any number of micro-batches in flight.

FIRST_LOOK = 16
"""Classes of stages that mostly show that one choice does not dominate another: without this check, a small MoE model
whose stages may recompute some blocks takes 2.3 times as long (2026-11-29)."""


class Choice(NamedTuple):
    """A stage's own choices; hashed for every configuration."""

    recompute: str  # Name of a recompute mode.
    zero: int  # ZeRO stage.

    @property
    def modes(self) -> tuple[str, ...]:
        """Pure modes of its layers."""
        return modes_of(self.recompute)


@lru_cache(maxsize=2**12)
def layer_choices(choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """Choices of pure modes for layers."""
    return tuple(dict.fromkeys(Choice(name, each.zero) for each in choices for name in each.modes))


def layer_modes(choices: Sequence[Choice]) -> tuple[str, ...]:
    """Pure modes for layers."""
    return tuple(dict.fromkeys(each.recompute for each in layer_choices(tuple(choices))))


class Parts(NamedTuple):
    """Seconds per micro-batch of one choice, without boundaries, by separately weighted part; shape `(classes,)`.

    Tables of several choices have another dimension in front.
    """

    forward: Array  # Forward passes, with gathered weights.
    inputs: Array  # Input gradients, with the rest of the backward passes.
    weights: Array  # Weight gradients.
    work: Array  # Compute, under which messages hide.
    hides: bool  # Messages hide.

    def weighed(self, weights: Weights, classes: Any = slice(None)) -> Array:
        """`Bf f + Bb b + Bw w` of stages of these classes, without boundaries."""
        cost: Array = weights.of_parts(self.forward[classes], self.inputs[classes], self.weights[classes])
        return cost

    def hidden(self, seconds: Array | float, classes: Any) -> Array | float:
        """Part of the boundaries' seconds that takes no time of a stage while the pipeline is full."""
        return numpy.minimum(seconds, self.work[classes]) if self.hides else 0.0

    def at(self, index: Any) -> "Parts":
        """Index all arrays."""
        return Parts(self.forward[index], self.inputs[index], self.weights[index], self.work[index], self.hides)

    @classmethod
    def stacked(cls, every: "Sequence[Parts]", classes: slice = slice(None)) -> "Parts":
        """Stack several choices."""
        names = ("forward", "inputs", "weights", "work")
        arrays = {name: numpy.array([getattr(parts, name)[classes] for parts in every]) for name in names}
        return cls(**arrays, hides=every[0].hides)


def part_rows(candidate: Candidate) -> tuple[Array, Array, Array]:
    """Seconds of forward passes, input gradients and weight gradients, shape `(layers,)` each."""
    weights = candidate.finding_weight_gradients
    return candidate.forward, numpy.maximum(candidate.backward - weights, 0.0), weights


class ChoiceTable(NamedTuple):
    """One choice for every class of stages; arrays of shape `(classes,)`."""

    time: Array  # Seconds per micro-batch without boundaries and ports.
    sync: Array  # Seconds per batch without ports.
    first: Array  # Bytes with one micro-batch in flight, with the reserve.
    more: Array  # Bytes of each further one.
    ports: Ports | None = None  # PROBLEM.md section 4, Ports; None: they delay nothing, for any boundaries.
    parts: Parts | None = None  # `time` by part, if a schedule weights parts separately or messages hide.

    @property
    def floor(self) -> Array:
        """Lower bound (s per micro-batch) for any boundaries."""
        return self.time if self.ports is None else self.ports.floor

    def with_boundaries(self, classes: Any, *boundaries: Boundary) -> tuple[Array, Array]:
        """Seconds of stages of these classes between their boundaries, per micro-batch and per batch.

        The seconds of boundaries are added one after the other.
        """
        time, sync = self.time[classes], self.sync[classes]
        for boundary in boundaries:
            time = time + boundary.seconds
        return (time, sync) if self.ports is None else self.ports.raised(time, sync, classes, *boundaries)

    def weighed(
        self, classes: Any, weights: Weights, front: Sequence[Boundary], behind: Sequence[Boundary]
    ) -> tuple[Array, Array, Array]:
        """Seconds per micro-batch in a full pipeline, weighted seconds, and seconds per batch.

        Activations arrive over boundaries in front, gradients return over those behind.
        """
        assert self.parts is not None
        parts, sync = self.parts, self.sync[classes]
        arriving = sum((each.seconds for each in front), 0.0)
        returning = sum((each.seconds for each in behind), 0.0)
        cost = parts.weighed(weights, classes) + weights.of_messages(arriving, returning)
        messages = arriving + returning
        time = self.time[classes] + messages - parts.hidden(messages, classes)
        if self.ports is None:
            return time, cost, sync
        around = (*front, *behind)
        raised, sync = self.ports.raised(time, sync, classes, *around)
        # A port may wait for less where boundaries take longer, so that a bound from below leaves that out.
        if weights.uniform or all(boundary.level != UNKNOWN for boundary in around):
            cost = cost + weights.waiting * (raised - time)
        return raised, cost, sync

    def between(
        self, classes: Any, weights: Weights | None, front: Sequence[Boundary], behind: Sequence[Boundary]
    ) -> tuple[Array, Array, Array]:
        """Same as `weighed`; without weights, the weighted seconds are those per micro-batch."""
        if weights is not None:
            return self.weighed(classes, weights, front, behind)
        time, sync = self.with_boundaries(classes, *behind, *front)
        return time, time, sync

    def fits(self, in_flight: float, capacity: float) -> NDArray[numpy.bool_]:
        """Mask of stages that fit `capacity` bytes with so many micro-batches in flight."""
        fitting: NDArray[numpy.bool_] = self.first + (in_flight - 1) * self.more <= capacity
        return fitting

    def most_in_flight(self, capacity: float) -> NDArray[numpy.int64]:
        """Most micro-batches in flight with which each stage fits `capacity` bytes; 0: none."""
        with numpy.errstate(divide="ignore", invalid="ignore", over="ignore"):
            room = numpy.where(self.more > 0, (capacity - self.first) / self.more, numpy.inf)
        most = numpy.clip(numpy.floor(room) + 1, 0, MOST_IN_FLIGHT)
        # The quotient is rounded: what counts is the comparison that `fits` makes.
        most += self.first + most * self.more <= capacity
        most -= (most > 0) & (self.first + (most - 1) * self.more > capacity)
        counts: NDArray[numpy.int64] = numpy.where(self.first <= capacity, most, 0).astype(numpy.int64)
        return counts

    def dominates(self, other: "ChoiceTable") -> bool:
        """True if no stage is better with `other`, for any placement."""
        return bool(
            (self.time <= other.time).all()
            and (self.sync <= other.sync).all()
            and (self.first <= other.first).all()
            and (self.more <= other.more).all()
            and self._as_free(other)
            and self._as_light(other)
        )

    def is_faster(self, other: "ChoiceTable") -> bool:
        """True if every stage is faster than with `other`; ties in compute go by synchronisation.

        Ports may delay both equally.
        """
        faster = (self.time < other.time) | ((self.time == other.time) & (self.sync < other.sync))
        return self.ports is None and bool(faster.all())

    def _as_light(self, other: "ChoiceTable") -> bool:
        """True if no part weighs more than in `other`, for any weights and hiding."""
        if self.parts is None or other.parts is None:
            return True
        # What ports make a stage wait for weighs by other parts than those that cause it: nothing is said of it.
        return self.ports is None and bool(
            (self.parts.forward <= other.parts.forward).all()
            and (self.parts.inputs <= other.parts.inputs).all()
            and (not self.parts.hides or (self.time - self.parts.work <= other.time - other.parts.work).all())
        )

    def _as_free(self, other: "ChoiceTable") -> bool:
        """True if ports never favour `other` for a stage that takes no longer without ports.

        Whatever a port needs here, `other` needs for that port or for its time, with any boundaries, so `t_i` is no
        larger. A smaller `t_i` may leave ports less room: gradient reduction is surely no longer only if nothing delays
        it.
        """
        if self.ports is None:
            return True
        busy = other.time if other.ports is None else numpy.maximum(other.ports.busy, other.time)
        return bool((self.ports.busy <= busy).all() and not self.ports.held.any())

    @classmethod
    def stacked(cls, tables: "Sequence[ChoiceTable]", classes: slice = slice(None)) -> "ChoiceTable":
        """Stack choices, all or none with ports, into arrays of shape `(choices, classes)`."""
        names = ("time", "sync", "first", "more")
        ports = [table.ports for table in tables if table.ports is not None]
        arrays = {name: numpy.array([getattr(table, name)[classes] for table in tables]) for name in names}
        parts = [table.parts for table in tables if table.parts is not None]
        return cls(
            **arrays,
            ports=Ports.stacked(ports, classes) if ports else None,
            parts=Parts.stacked(parts, classes) if parts else None,
        )

    def at(self, index: Any) -> "ChoiceTable":
        """Index all arrays."""
        ports = None if self.ports is None else self.ports.at(index)
        parts = None if self.parts is None else self.parts.at(index)
        return ChoiceTable(self.time[index], self.sync[index], self.first[index], self.more[index], ports, parts)

    def of_classes(self, places: NDArray[numpy.int64]) -> "ChoiceTable":
        """Select classes."""

        def of(array: Array) -> Array:
            return array.take(places, axis=-1)

        ports, parts = self.ports, self.parts
        if ports is not None:
            arrays: Any = {name: of(getattr(ports, name)) for name in Ports.names()}
            ports = evolve(ports, **arrays)
        if parts is not None:
            parts = Parts(of(parts.forward), of(parts.inputs), of(parts.weights), of(parts.work), parts.hides)
        return ChoiceTable(of(self.time), of(self.sync), of(self.first), of(self.more), ports, parts)


def ahead(figures: Array, others: Array) -> NDArray[numpy.bool_]:
    """Mask of columns lexicographically before those of `others`."""
    better = numpy.zeros(figures.shape[1:], dtype=bool)
    for row, other in zip(figures[::-1], others[::-1], strict=True):
        better = (row < other) | ((row == other) & better)
    return better


def not_dominated(tables: Sequence[ChoiceTable]) -> list[int]:
    """Undominated choices, preferred first.

    A preferred one stays unless every stage is faster with the other: of equally fast choices it is the answer wherever
    it fits (PROBLEM.md section 5).
    """
    if not tables:
        return []
    # A few stages tell most choices apart, of which there are hundreds where stages recompute some layers.
    look: Any = numpy.array([[figures[:FIRST_LOOK] for figures in table[:4]] for table in tables])
    maybe = (look[:, None] <= look).all(axis=(2, 3))
    left: list[int] = []
    for index, table in enumerate(tables):
        if not any(tables[other].dominates(table) for other in left if maybe[other, index]):
            left = [
                one
                for one in left
                if not maybe[index, one] or not (table.dominates(tables[one]) and table.is_faster(tables[one]))
            ]
            left.append(index)
    return left
