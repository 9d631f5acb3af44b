"""What a stage may choose, and what each choice costs every kind of stage."""

from collections.abc import Sequence
from typing import Any

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Array
from nest.solve.dp.ports import Boundary, Ports

MOST_IN_FLIGHT = 2.0**40
"""Stands for any number of micro-batches in flight."""

FIRST_LOOK = 64
"""Kinds of stages that mostly tell that one choice does not dominate another."""


@frozen(cache_hash=True)
class Choice:
    """What a stage chooses for itself; hashed for every configuration.

    Attributes:
        recompute: name of a recompute mode.
        zero: ZeRO stage.
    """

    recompute: str
    zero: int


@frozen(eq=False)
class ChoiceTable:
    """One choice, for every kind of stage; arrays of shape `(kinds,)`.

    Attributes:
        time: seconds per micro-batch without the boundaries.
        sync: seconds once per batch.
        first: bytes with one micro-batch in flight, the reserve included.
        more: bytes of each further one.
        ports: what more holds stages up (PROBLEM.md section 4, Ports); `time` and `sync` are without it. None: nothing
            does, whatever the boundaries.
    """

    time: Array
    sync: Array
    first: Array
    more: Array
    ports: Ports | None = None

    @property
    def floor(self) -> Array:
        """Seconds per micro-batch at least, whatever the boundaries."""
        return self.time if self.ports is None else self.ports.floor

    def with_boundaries(self, kinds: Any, *boundaries: Boundary) -> tuple[Array, Array]:
        """Seconds per micro-batch, and per batch, of stages of these kinds between their boundaries.

        The seconds of boundaries are added one after the other.
        """
        time, sync = self.time[kinds], self.sync[kinds]
        for boundary in boundaries:
            time = time + boundary.seconds
        return (time, sync) if self.ports is None else self.ports.raised(time, sync, kinds, *boundaries)

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
        found: NDArray[numpy.int64] = numpy.where(self.first <= capacity, most, 0).astype(numpy.int64)
        return found

    def dominates(self, other: "ChoiceTable") -> bool:
        """Whether no stage is better off with `other`, wherever it lies."""
        return bool(
            (self.time <= other.time).all()
            and (self.sync <= other.sync).all()
            and (self.first <= other.first).all()
            and (self.more <= other.more).all()
            and self._as_free(other)
        )

    def _as_free(self, other: "ChoiceTable") -> bool:
        """Whether the ports of no stage that takes no longer without them are better off with `other`.

        What a port at a level needs here, `other` needs for that port or for its time, with whatever boundaries, so
        that `t_i` is no larger. A smaller `t_i` may leave the ports less room: that synchronisation is no longer
        follows only where nothing holds it up.
        """
        if self.ports is None:
            return True
        busy = other.time if other.ports is None else numpy.maximum(other.ports.busy, other.time)
        return bool((self.ports.busy <= busy).all() and not self.ports.held.any())

    @classmethod
    def stacked(cls, tables: "Sequence[ChoiceTable]", kinds: slice = slice(None)) -> "ChoiceTable":
        """The choices, of which all or none have ports, in one table of arrays of shape `(choices, kinds)`."""
        names = ("time", "sync", "first", "more")
        ports = [table.ports for table in tables if table.ports is not None]
        arrays = {name: numpy.array([getattr(table, name)[kinds] for table in tables]) for name in names}
        return cls(**arrays, ports=Ports.stacked(ports, kinds) if ports else None)

    def at(self, index: Any) -> "ChoiceTable":
        """The same of some of the numbers, as arrays are indexed."""
        ports = None if self.ports is None else self.ports.at(index)
        return ChoiceTable(self.time[index], self.sync[index], self.first[index], self.more[index], ports)


def not_dominated(tables: Sequence[ChoiceTable]) -> list[int]:
    """The choices, in order, that none of those kept dominates; of equals the first."""
    if not tables:
        return []
    look = ChoiceTable.stacked(tables, slice(FIRST_LOOK))
    maybe = numpy.logical_and.reduce(
        [(each[:, None] <= each).all(axis=2) for each in (look.time, look.sync, look.first, look.more)]
    )
    seen = len(tables[0].time) <= FIRST_LOOK and look.ports is None

    def dominates(one: int, other: int) -> bool:
        return bool(maybe[one, other]) and (seen or tables[one].dominates(tables[other]))

    kept: list[int] = []
    for index in range(len(tables)):
        if not any(dominates(other, index) for other in kept):
            kept = [other for other in kept if not dominates(index, other)]
            kept.append(index)
    return kept
