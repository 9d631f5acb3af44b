"""How much of the model stages can have: a bound on the slowest stage of plans in several pools before partitions."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy
from attrs import define, field

from nest.instance import Array
from nest.solve.dp.bounds import least_state
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.pairs import Pairs
from nest.solve.dp.stages import StageTables
from nest.solve.dp.sums import CandidateSums
from nest.tolerances import LIMIT_SLACK


@define(eq=False)
class Curves(ABC):
    """How much of the model a stage of one pool may hold, by how long it may take.

    Attributes:
        shares: of the model in each class of stages, by the seconds that its layers compute, shape `(classes,)`.
    """

    shares: Array
    _known: dict[float, tuple[Array, Array]] = field(factory=dict, init=False)

    @abstractmethod
    def least(self, in_flight: float) -> Array:
        """Least seconds of each class; infinite where none fits with so many micro-batches in flight."""

    def largest(self, in_flight: float, times: Array) -> Array:
        """The largest share of a stage that fits memory with so many micro-batches in flight, and takes such times."""
        if in_flight not in self._known:
            time = self.least(in_flight)
            order = time.argsort(kind="stable")
            self._known[in_flight] = time[order], numpy.maximum.accumulate(numpy.append(0.0, self.shares[order]))
        sorted_times, shares = self._known[in_flight]
        largest: Array = shares[sorted_times.searchsorted(times, side="right")]
        return largest


@define(eq=False)
class LeanCurves(Curves):
    """Where nothing is sent, and state is sharded as far as a choice allows; the same for both rank orders.

    Attributes:
        modes: of each recompute mode the seconds of a class, and its bytes of the first micro-batch and of each other.
        room: bytes of a device.
    """

    modes: Sequence[tuple[Array, Array, Array]]
    room: float

    @classmethod
    def of(cls, sums: CandidateSums, configuration: Configuration, pairs: Pairs, room: float) -> "LeanCurves":
        """Of one pool's candidate, the only one of `configuration`, with so many bytes on a device."""
        stages, state = pairs.distinct, least_state(sums, configuration)
        compute = sums.compute.over(stages)
        modes = []
        for name in configuration.modes:
            mode = sums.modes[name]
            first = state[stages.larger] - state[stages.smaller] + mode.first.over(stages) + mode.peak.over(stages)
            modes.append((compute + mode.extra.over(stages), first * (1 - LIMIT_SLACK), mode.more.over(stages)))
        whole = float(sums.compute.whole[-1])
        return cls(compute / (whole if whole > 0 else 1.0), modes, room)

    def least(self, in_flight: float) -> Array:
        """As `Curves.least`."""
        times = [
            numpy.where(first + (in_flight - 1) * more <= self.room, seconds, numpy.inf)
            for seconds, first, more in self.modes
        ]
        least: Array = numpy.min(times, axis=0)
        return least


@define(eq=False)
class TableCurves(Curves):
    """Of stages as they are, with boundaries at their cheapest.

    Attributes:
        tables: the stages.
        around: least seconds that boundaries add to each class, shape `(classes,)`.
    """

    tables: StageTables
    around: Array

    @classmethod
    def of(cls, tables: StageTables, sums: CandidateSums, boundary: Array) -> "TableCurves":
        """Of these tables; `boundary` has the least seconds that a cut adds to either side, shape `(downsets,)`."""
        pairs, whole = tables.pairs, float(sums.compute.whole[-1])
        around = boundary[pairs.smaller] + boundary[pairs.larger]
        if any(table.parts is not None and table.parts.hides for table in tables.tables):
            around = numpy.zeros(len(pairs))
        if pairs.classes is not None:
            least = numpy.full(tables.classes, numpy.inf)
            numpy.minimum.at(least, pairs.classes, around)
            around = least
        return cls(sums.compute.over(pairs.distinct) / (whole if whole > 0 else 1.0), tables, around)

    def least(self, in_flight: float) -> Array:
        """As `Curves.least`."""
        return self.tables.least(in_flight)[0] + self.around


def powers_of_two(in_flight: Sequence[float]) -> Array:
    """Numbers of micro-batches in flight, each lowered to a power of 2: with few of them little is worked out."""
    lowered: Array = 2.0 ** numpy.floor(numpy.log2(numpy.maximum(in_flight, 1.0)))
    return lowered


def most_covered(held: Sequence[Array], room: Sequence[int]) -> Array:
    """The most of the model that so many stages hold together, each pool with one or more.

    As stages with few micro-batches in flight hold most, each pool is taken to have those with fewest.

    Args:
        held: what a stage of each pool holds at most, by its place among those with fewest micro-batches in flight and
            by how long it may take, shape `(stages, times)`.
        room: stages that each pool has room for.

    Returns: for 0 to as many stages, minus infinity where the pools cannot have so many. Shape `(stages + 1, times)`.
    """
    stages, times = held[0].shape
    covered = numpy.full((stages + 1, times), -numpy.inf)
    covered[0] = 0.0
    for each, most in zip(held, room, strict=True):
        together = numpy.full_like(covered, -numpy.inf)
        own = each.cumsum(axis=0)
        for count in range(1, min(most, stages) + 1):
            numpy.maximum(together[count:], covered[:-count] + own[count - 1], out=together[count:])
        covered = together
    return covered
