"""Collective models and networks, hierarchical or not (PROBLEM.md section 1)."""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple, Protocol, runtime_checkable

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance.candidate import Array
from nest.instance.cluster import Level
from nest.records import Record


@runtime_checkable
class CollectiveModel(Protocol):
    """A model of collective times (PROBLEM.md section 1).

    Never called with zero bytes, which cost nothing. Methods of plug-ins may lack the parameter `members`.

    Optional:
        times: `times(kind, bytes, shape, levels, members=None)`, `time` for an array of `bytes`: seconds, of the same
            shape. Speeds up searches.
        by_level: `by_level(kind, bytes, shape, levels, members=None)`, for an array of `bytes` the seconds that a
            member's port at each level is occupied, of shape `(levels, *bytes.shape)`; at no level more than `time`.
            Without it, the outermost level of the set is occupied all the time (`port_seconds`).
        per_byte: `per_byte(kind, shape, levels, members=None)`, lower bound on seconds per byte. Speeds up searches.
    """

    @property
    def name(self) -> str:
        """Unique name among its kind."""

    def time(
        self,
        kind: str,
        bytes: float,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> float:
        """Seconds of `kind` on a set of devices.

        Args:
            kind: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all` or `point_to_point`.
            bytes: the full (unsharded) buffer; for `all_to_all` the buffer of each member.
            shape: members per level-0 group, level-0 groups per level-1 group, ...
            levels: of the network, innermost first, as many as in `shape`.
            members: devices in the set, fewer than the product of `shape` if uneven; None: equal to it.
        """


def port_seconds(
    model: CollectiveModel, kind: str, sizes: Array, shape: Sequence[int], levels: Sequence[Level], members: int
) -> Array:
    """Seconds that one collective occupies a device's port at each level (PROBLEM.md section 4, Ports).

    Args:
        model: the collective model.
        kind: see `CollectiveModel.time`.
        sizes: bytes, of any shape; 0 bytes take no time.
        shape: see `CollectiveModel.time`.
        levels: of the network, innermost first.
        members: devices in the set.

    Returns: shape `(levels, *sizes.shape)`.
    """
    seconds = numpy.zeros((len(levels), *sizes.shape))
    some = sizes > 0
    if members == 1 or not some.any():
        return seconds
    by_level = getattr(model, "by_level", None)
    if by_level is not None:
        seconds[:, some] = by_level(kind, sizes[some], shape, levels, members=members)
        return seconds
    outermost = max(level for level, count in enumerate(shape) if count > 1)
    price = model.time
    seconds[outermost, some] = [price(kind, float(size), shape, levels, members=members) for size in sizes[some]]
    return seconds


Numbers = NDArray[numpy.int64]


class Ring(NamedTuple):
    """Collectives over some devices, as costly as a flat ring of these figures.

    Attributes:
        latency: seconds per step.
        bandwidth: bytes per second that every member sends and receives.
        links: directed links in use, each once, ascending.
        shares: bytes on each of them in one phase, per byte of the full buffer.
    """

    latency: float
    bandwidth: float
    links: Numbers
    shares: Array


class NetworkModel(Protocol):
    """Paths, rings and links of a network; devices are numbered as in the cluster's levels."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the devices."""

    @property
    def bandwidth(self) -> Array:
        """Smallest bandwidth on the path of every two devices, shape `(devices, devices)`; infinite on the diagonal."""

    @property
    def latency(self) -> Array:
        """Sum of latencies on the path of every two devices, shape `(devices, devices)`; 0 on the diagonal."""

    @property
    def link_bandwidth(self) -> Array:
        """Bytes per second of each directed link, shared by all that cross it; infinite if unshared."""

    @property
    def dimensions(self) -> object | None:
        """Places of devices along dimensions, over which rings may run one by one; None: there are none."""

    def path(self, source: int, target: int) -> Numbers:
        """Directed links of the path between two devices, in order."""

    def paths(self, sources: Numbers, targets: Numbers) -> tuple[Numbers, Numbers]:
        """Directed links of many paths, in no order: index of the path, and the link."""

    def rings(self, members: Sequence[int]) -> tuple[Ring, ...]:
        """Undominated ways to run a collective over at least two devices."""

    def least_rings(self, count: int) -> tuple[tuple[float, float], ...]:
        """Latencies and bandwidths; for each buffer, one is at least as fast as any ring over `count` devices."""


@frozen(eq=False, repr=False)
class RingPricing(Record):
    """Collectives on rings over so many devices, for any levels: the best one counts.

    Attributes:
        base: prices a collective on one ring.
        rings: latencies and bandwidths of the rings over a number of devices.
    """

    base: CollectiveModel
    rings: Callable[[int], tuple[tuple[float, float], ...]]

    @property
    def name(self) -> str:
        """Name of the base model."""
        return self.base.name

    def time(
        self,
        kind: str,
        bytes: float,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> float:
        """See `CollectiveModel.time`."""
        count = prod(shape) if members is None else members
        if count == 1 or kind == "point_to_point":
            return self.base.time(kind, bytes, shape, levels, members)
        return min(self.base.time(kind, bytes, (count,), (ring,), count) for ring in self._levels(count))

    def times(
        self,
        kind: str,
        bytes: Array,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> Array:
        """See `CollectiveModel.times`."""
        count = prod(shape) if members is None else members
        every = getattr(self.base, "times", None)
        if every is None or count == 1 or kind == "point_to_point":
            seconds = [self.time(kind, float(each), shape, levels, members) if each else 0.0 for each in bytes.flat]
            return numpy.array(seconds).reshape(bytes.shape)
        rows = [every(kind, bytes, (count,), (ring,), count) for ring in self._levels(count)]
        fastest: Array = numpy.minimum.reduce(rows)
        return fastest

    def _levels(self, count: int) -> tuple[Level, ...]:
        return tuple(Level("ring", count, bandwidth, latency) for latency, bandwidth in self.rings(count))
