"""What a stage may choose, and what each choice costs every class of stages."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy
from attrs import evolve, fields, frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Weights, modes_of

UNKNOWN = -1
"""Stands for the level of a boundary that may be any: it is on no port, and the figures are lower bounds."""


class Boundary(NamedTuple):
    """A boundary of some stages.

    Attributes:
        level: its level, or `UNKNOWN`.
        seconds: that each stage takes to receive over it, shape `(stages,)`, or one number for all.
    """

    level: int
    seconds: Array | float


@frozen(eq=False, repr=False)
class Ports:
    """The ports of one choice for every class of stages; arrays of shape `(classes,)` or `(levels, classes)`.

    In tables of several choices there is one more dimension, in front of `classes`.

    Attributes:
        busy: seconds per micro-batch for which a port at each level is occupied, without boundaries.
        once: seconds once per batch if nothing of it hides, the optimizer step included.
        used: levels over which something that may hide is sent once per batch.
        floor: seconds per micro-batch at least, whatever the boundaries.
        slow: where some port is occupied for longer than the stage takes without boundaries.
        held: where what is sent once per batch may be held up by what is sent per micro-batch.
        micro_batches: how many a port is free in (`M`); None: nothing is held up, for a bound from below.
    """

    busy: Array
    once: Array
    used: NDArray[numpy.bool_]
    floor: Array
    slow: NDArray[numpy.bool_]
    held: NDArray[numpy.bool_]
    micro_batches: int | None

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
        """The ports of stages that take `time` and `sync` seconds without them; `used` is false where nothing hides.

        Of the boundaries up to `hidden` seconds take no time of the stage, but occupy ports.
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
        """Where times or gradient reduction depend on more than the sum of the boundaries' seconds."""
        tight: NDArray[numpy.bool_] = self.slow | self.held
        return tight

    @classmethod
    def names(cls) -> list[str]:
        """Those of its arrays."""
        return [each.name for each in fields(cls) if each.name != "micro_batches"]

    def at(self, index: Any) -> "Ports":
        """The same of some of the numbers, as arrays without the dimension of levels are indexed."""
        by_level = (slice(None), *index) if isinstance(index, tuple) else (slice(None), index)
        places = {name: by_level if name in ("busy", "used") else index for name in self.names()}
        arrays = {name: getattr(self, name)[place] for name, place in places.items()}
        return Ports(**arrays, micro_batches=self.micro_batches)

    @classmethod
    def stacked(cls, every: "Sequence[Ports]", classes: slice = slice(None)) -> "Ports":
        """The ports of several choices in one."""
        stacks = {name: [getattr(ports, name)[..., classes] for ports in every] for name in cls.names()}
        arrays = {name: numpy.stack(stack, axis=-2) for name, stack in stacks.items()}
        return cls(**arrays, micro_batches=every[0].micro_batches)

    def raised(self, time: Array, sync: Array, classes: Any, *boundaries: Boundary) -> tuple[Array, Array]:
        """`t_i` and `y_i` of stages of these classes.

        Args:
            time: seconds per micro-batch without ports, with the boundaries.
            sync: seconds once per batch without ports.
            classes: the class of each stage, as arrays are indexed.
            boundaries: of these stages.
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


MOST_IN_FLIGHT = 2.0**40
"""Stands for any number of micro-batches in flight."""

FIRST_LOOK = 16
"""Classes of stages that mostly tell that one choice does not dominate another: a small model of experts whose stages
may recompute some blocks takes 2.3 times as long without this look (2026-11-29)."""


class Choice(NamedTuple):
    """What a stage chooses for itself; hashed for every configuration.

    Attributes:
        recompute: name of a recompute mode.
        zero: ZeRO stage.
    """

    recompute: str
    zero: int

    @property
    def modes(self) -> tuple[str, ...]:
        """The whole modes that its layers may be in."""
        return modes_of(self.recompute)


@lru_cache(maxsize=2**12)
def layer_choices(choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """The choices of whole modes that layers may have with some choices."""
    return tuple(dict.fromkeys(Choice(name, each.zero) for each in choices for name in each.modes))


def layer_modes(choices: Sequence[Choice]) -> tuple[str, ...]:
    """The whole modes that layers may be in with some choices."""
    return tuple(dict.fromkeys(each.recompute for each in layer_choices(tuple(choices))))


class Parts(NamedTuple):
    """The seconds per micro-batch of one choice, without boundaries, by what a schedule weighs apart.

    Arrays of shape `(classes,)`, in tables of several choices with a dimension more in front.

    Attributes:
        forward: of forward passes, with the weights that are gathered for them.
        inputs: of gradients of inputs, with all else that comes with backward passes.
        weights: of gradients of weights.
        work: of compute, under which messages hide.
        hides: whether they do.
    """

    forward: Array
    inputs: Array
    weights: Array
    work: Array
    hides: bool

    def weighed(self, weights: Weights, classes: Any = slice(None)) -> Array:
        """`Bf f + Bb b + Bw w` of stages of these classes, without boundaries."""
        cost: Array = weights.of_parts(self.forward[classes], self.inputs[classes], self.weights[classes])
        return cost

    def hidden(self, seconds: Array | float, classes: Any) -> Array | float:
        """How much of what boundaries add takes no time of a stage while the pipeline is full."""
        return numpy.minimum(seconds, self.work[classes]) if self.hides else 0.0

    def at(self, index: Any) -> "Parts":
        """The same of some of the numbers, as arrays are indexed."""
        return Parts(self.forward[index], self.inputs[index], self.weights[index], self.work[index], self.hides)

    @classmethod
    def stacked(cls, every: "Sequence[Parts]", classes: slice = slice(None)) -> "Parts":
        """Those of several choices in one."""
        names = ("forward", "inputs", "weights", "work")
        arrays = {name: numpy.array([getattr(parts, name)[classes] for parts in every]) for name in names}
        return cls(**arrays, hides=every[0].hides)


def part_rows(candidate: Candidate) -> tuple[Array, Array, Array]:
    """Seconds of forward passes, gradients of inputs and gradients of weights, shape `(layers,)` each."""
    weights = candidate.finding_weight_gradients
    return candidate.forward, numpy.maximum(candidate.backward - weights, 0.0), weights


class ChoiceTable(NamedTuple):
    """One choice, for every class of stages; arrays of shape `(classes,)`.

    Attributes:
        time: seconds per micro-batch without the boundaries.
        sync: seconds once per batch.
        first: bytes with one micro-batch in flight, the reserve included.
        more: bytes of each further one.
        ports: what more holds stages up (PROBLEM.md section 4, Ports); `time` and `sync` are without it. None: nothing
            does, whatever the boundaries.
        parts: `time` by parts, where a schedule weighs them apart or messages hide.
    """

    time: Array
    sync: Array
    first: Array
    more: Array
    ports: Ports | None = None
    parts: Parts | None = None

    @property
    def floor(self) -> Array:
        """Seconds per micro-batch at least, whatever the boundaries."""
        return self.time if self.ports is None else self.ports.floor

    def with_boundaries(self, classes: Any, *boundaries: Boundary) -> tuple[Array, Array]:
        """Seconds per micro-batch, and per batch, of stages of these classes between their boundaries.

        The seconds of boundaries are added one after the other.
        """
        time, sync = self.time[classes], self.sync[classes]
        for boundary in boundaries:
            time = time + boundary.seconds
        return (time, sync) if self.ports is None else self.ports.raised(time, sync, classes, *boundaries)

    def weighed(
        self, classes: Any, weights: Weights, front: Sequence[Boundary], behind: Sequence[Boundary]
    ) -> tuple[Array, Array, Array]:
        """Seconds per micro-batch while the pipeline is full, weighed seconds, and seconds per batch.

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
        """As `weighed`; without weights the weighed seconds are those per micro-batch."""
        if weights is not None:
            return self.weighed(classes, weights, front, behind)
        time, sync = self.with_boundaries(classes, *behind, *front)
        return time, time, sync

    def fits(self, in_flight: float, capacity: float) -> NDArray[numpy.bool_]:
        """Which stages fit `capacity` bytes with so many micro-batches in flight."""
        fitting: NDArray[numpy.bool_] = self.first + (in_flight - 1) * self.more <= capacity
        return fitting

    def most_in_flight(self, capacity: float) -> NDArray[numpy.int64]:
        """Micro-batches in flight at most for each stage to fit `capacity` bytes; 0 where not even one does."""
        with numpy.errstate(divide="ignore", invalid="ignore", over="ignore"):
            room = numpy.where(self.more > 0, (capacity - self.first) / self.more, numpy.inf)
        most = numpy.clip(numpy.floor(room) + 1, 0, MOST_IN_FLIGHT)
        # The quotient is rounded: what counts is the comparison that `fits` makes.
        most += self.first + most * self.more <= capacity
        most -= (most > 0) & (self.first + (most - 1) * self.more > capacity)
        counts: NDArray[numpy.int64] = numpy.where(self.first <= capacity, most, 0).astype(numpy.int64)
        return counts

    def dominates(self, other: "ChoiceTable") -> bool:
        """Whether no stage is better off with `other`, wherever it lies."""
        return bool(
            (self.time <= other.time).all()
            and (self.sync <= other.sync).all()
            and (self.first <= other.first).all()
            and (self.more <= other.more).all()
            and self._as_free(other)
            and self._as_light(other)
        )

    def is_faster(self, other: "ChoiceTable") -> bool:
        """Whether every stage is faster than with `other`, by what it synchronises where it computes as long.

        Ports may hold both up for as long.
        """
        faster = (self.time < other.time) | ((self.time == other.time) & (self.sync < other.sync))
        return self.ports is None and bool(faster.all())

    def _as_light(self, other: "ChoiceTable") -> bool:
        """Whether no part weighs more than that of `other`, however a schedule weighs them and messages hide."""
        if self.parts is None or other.parts is None:
            return True
        # What ports make a stage wait for weighs by other parts than those that cause it: nothing is said of it.
        return self.ports is None and bool(
            (self.parts.forward <= other.parts.forward).all()
            and (self.parts.inputs <= other.parts.inputs).all()
            and (not self.parts.hides or (self.time - self.parts.work <= other.time - other.parts.work).all())
        )

    def _as_free(self, other: "ChoiceTable") -> bool:
        """Whether the ports of no stage that takes no longer without them are better off with `other`.

        What a port at a level needs here, `other` needs for that port or for its time, with whatever boundaries, so
        that `t_i` is no larger. A smaller `t_i` may leave the ports less room: that gradient reduction is no longer
        follows only where nothing holds it up.
        """
        if self.ports is None:
            return True
        busy = other.time if other.ports is None else numpy.maximum(other.ports.busy, other.time)
        return bool((self.ports.busy <= busy).all() and not self.ports.held.any())

    @classmethod
    def stacked(cls, tables: "Sequence[ChoiceTable]", classes: slice = slice(None)) -> "ChoiceTable":
        """The choices, of which all or none have ports, in one table of arrays of shape `(choices, classes)`."""
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
        """The same of some of the numbers, as arrays are indexed."""
        ports = None if self.ports is None else self.ports.at(index)
        parts = None if self.parts is None else self.parts.at(index)
        return ChoiceTable(self.time[index], self.sync[index], self.first[index], self.more[index], ports, parts)

    def of_classes(self, places: NDArray[numpy.int64]) -> "ChoiceTable":
        """The same of some of the classes."""

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
    """Which columns come before those of `others`: by their first rows, of equals by the next, and so on."""
    better = numpy.zeros(figures.shape[1:], dtype=bool)
    for row, other in zip(figures[::-1], others[::-1], strict=True):
        better = (row < other) | ((row == other) & better)
    return better


def not_dominated(tables: Sequence[ChoiceTable]) -> list[int]:
    """The choices, preferred first, that none of those kept dominates.

    A preferred one stays unless every stage is faster with the other: of choices as fast it is the answer wherever it
    has room, whichever stages are looked at (PROBLEM.md section 5).
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
