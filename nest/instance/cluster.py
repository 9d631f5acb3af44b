"""The cluster in numbers (PROBLEM.md section 1), and clusters of several kinds of device (section 8)."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from math import erf, exp, log, sqrt
from operator import mul

import numpy
from attrs import Factory, evolve, field, frozen, validators
from numpy.typing import NDArray

from nest.errors import InputError
from nest.records import Record
from nest.tolerances import MEMORY_SLACK

PHASES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
"""How often a ring goes round: an all-reduce is a reduce-scatter and an all-gather (PROBLEM.md section 1)."""


@frozen(eq=False, repr=False)
class CollectiveLine(Record):
    """A protocol by which a communication library runs collectives inside one level of a network.

    The form is that of NCCL's own plans (NVIDIA/nccl, src/graph/tuning.cc): a base latency of the protocol, one latency
    for each step, and a bandwidth; `nest.collectives.alpha_beta.ring_cost` has the formula.

    Attributes:
        kinds: the collectives it runs: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`.
        base: seconds of a call, however many members.
        step: seconds of each step.
        bandwidth: bytes per second, per device and direction, that it reaches.
        own: what the share of the buffer that a member need not receive costs, as part of what a share received costs.
        in_switch: whether the switches reduce; all-reduces only.
        members: fewest members with which the library uses it.
    """

    kinds: tuple[str, ...] = field(validator=validators.deep_iterable(validators.in_(PHASES), validators.min_len(1)))
    base: float = field(validator=validators.ge(0))
    step: float = field(validator=validators.ge(0))
    bandwidth: float = field(validator=validators.gt(0))
    own: float = field(default=0.0, validator=[validators.ge(0), validators.le(1)])
    in_switch: bool = False
    members: int = field(default=2, validator=validators.ge(2))

    def fits(self, kind: str, members: int) -> bool:
        """Whether it runs `kind` among so many members."""
        return kind in self.kinds and members >= self.members


@frozen(eq=False, repr=False)
class EstimateError(Record):
    """What is needed over what is estimated, log-normal, as fitted to measured runs.

    Attributes:
        median: of what is needed (bytes, or seconds) over what is estimated.
        spread: the standard deviation of its logarithm.
    """

    median: float = field(validator=validators.gt(0))
    spread: float = field(validator=validators.gt(0))

    def factor(self, risk: float) -> float:
        """What is needed over what is estimated, exceeded with probability `risk`, between 0 and 1."""
        from statistics import NormalDist  # It loads decimal numbers.

        return self.median * exp(self.spread * NormalDist().inv_cdf(1 - risk))

    def within(self, share: float) -> float:
        """The probability that no more than `share` times the estimate is needed."""
        return 0.5 * (1 + erf(log(share / self.median) / self.spread / sqrt(2))) if share > 0 else 0.0


# Hashed whenever a collective is priced, so once.
@frozen(cache_hash=True, repr=False)
class Level(Record):
    """One level of a hierarchical network.

    Attributes:
        name: for reports.
        fanout: children per group.
        bandwidth: bytes per second, per device and direction.
        latency: seconds from end to end.
        link: name of the link in the catalogue that the level is made of; None: it names none. Collective models may
            tell by it what the network can do.
        lines: how collectives run on that link; none: by `latency` and `bandwidth` alone, as PROBLEM.md section 1 says.
            Messages from point to point go by these two in any case.
    """

    name: str
    fanout: int = field(validator=validators.ge(1))
    bandwidth: float = field(validator=validators.gt(0))
    latency: float = field(validator=validators.ge(0))
    link: str | None = None
    lines: tuple[CollectiveLine, ...] = ()


@frozen(eq=False, repr=False, slots=False)
class Cluster(Record):
    """Identical devices under a hierarchical network.

    Attributes:
        levels: innermost first.
        memory: bytes per device up to which a search admits what a stage is estimated to need (`H`).
        reserve: bytes of it kept free.
        margin: share by which what a plan needs, the reserve apart, may exceed its estimate; `memory` leaves room.
            Below 0 where a plan is taken to need less.
        error: how far what is needed of memory lies from the estimate; None: estimates are exact.
        time_error: how far step times lie from those predicted; None: they are exact.
        device_memory: bytes per device, room for the margin included.
        fitting: bytes per device up to which a plan fits, whatever a search admits; None: `memory`.
    """

    levels: tuple[Level, ...] = field(validator=validators.min_len(1))
    memory: float = field(validator=validators.gt(0))
    reserve: float = field(default=0.0, validator=validators.ge(0))
    margin: float = field(default=0.0, validator=validators.gt(-1))
    error: EstimateError | None = None
    time_error: EstimateError | None = None
    device_memory: float = field(default=Factory(lambda self: self.memory, takes_self=True))
    fitting: float | None = None

    def with_margin(self, margin: float, fitting: float | None = None) -> "Cluster":
        """The cluster whose `memory` leaves room for a margin: what takes all of it may grow to `device_memory`.

        `fitting` is the margin that decides whether a plan fits; None: the same.
        """
        likely = None if fitting is None else self._with_room_for(fitting)
        return evolve(self, memory=self._with_room_for(margin), margin=margin, fitting=likely)

    def _with_room_for(self, margin: float) -> float:
        return self.reserve + (self.device_memory - self.reserve) / (1 + margin) if margin else self.device_memory

    def without_memory(self) -> "Cluster":
        """The cluster as layers are priced on it: nothing of memory, and of how far estimates are off."""
        return Cluster(self.levels, 1.0)

    def upper(self, memory: float) -> float:
        """The most that a plan estimated to need `memory` bytes, the reserve included, is taken to need."""
        return self.reserve + (memory - self.reserve) * (1 + self.margin) if self.margin else memory

    def fit_probability(self, memory: float) -> float:
        """The probability that what is estimated to need `memory` bytes, the reserve included, has enough of them.

        Stages err together, since one estimate made them, so that the fullest of a plan tells for all.
        """
        needed, room = memory - self.reserve, self.device_memory - self.reserve
        if self.error is None or needed <= 0:
            return float(needed <= room * (1 + MEMORY_SLACK))
        return self.error.within(room / needed)

    @cached_property
    def capacities(self) -> tuple[int, ...]:
        """Devices per group of each level (`C`)."""
        return tuple(accumulate((level.fanout for level in self.levels), mul))

    @property
    def size(self) -> int:
        """Number of devices (`P`)."""
        return self.capacities[-1]

    def level(self, first: int, last: int) -> int:
        """Smallest level with both devices, and so all between them, in one group; -1 when they are the same."""
        if first == last:
            return -1
        for index, capacity in enumerate(self.capacities):
            if first // capacity == last // capacity:
                return index
        raise ValueError(f"devices {first} and {last} are not both in a cluster of {self.size}")

    def shape(self, members: Iterable[int] | NDArray[numpy.int64]) -> tuple[int, ...]:
        """Shape of a set of devices: per level, the most children that any one group has members in."""
        return shape_of(members, self.capacities)

    def shapes(self, sets: NDArray[numpy.int64]) -> tuple[tuple[int, ...], ...]:
        """The shapes of several sets of as many devices, each once, in the order in which they are met.

        Args:
            sets: the devices of each in ascending order, none twice, shape `(sets, devices)`.
        """
        found = numpy.empty((len(sets), len(self.capacities)), dtype=numpy.int64)
        below = 1
        for index, capacity in enumerate(self.capacities):
            # How many children of its group are met up to each device: where a group begins, one.
            children: NDArray[numpy.int64] = _begins(sets // below).cumsum(axis=1)
            first: NDArray[numpy.int64] = numpy.where(_begins(sets // capacity), children - 1, 0)
            found[:, index] = (children - numpy.maximum.accumulate(first, axis=1)).max(axis=1)
            below = capacity
        return tuple(dict.fromkeys(tuple(shape) for shape in found.tolist()))

    def parts(self, width: int) -> tuple[int, ...]:
        """Devices per group of each level of which a block of `width` devices fills several: they say how it lies."""
        return tuple(capacity for capacity in self.capacities if capacity < width)

    def admits(self, width: int) -> bool:
        """Whether blocks of `width` devices can be aligned with every level (PROBLEM.md section 2)."""
        return width <= self.size and all(c % width == 0 or width % c == 0 for c in self.capacities)


def shape_of(members: Iterable[int] | NDArray[numpy.int64], capacities: Sequence[int]) -> tuple[int, ...]:
    """As `Cluster.shape`, with so many devices per group of each level."""
    # Arrays are taken as they are: `fromiter` makes an object of every number.
    groups = numpy.sort(members if isinstance(members, numpy.ndarray) else numpy.fromiter(members, dtype=numpy.int64))
    groups = groups[_runs(groups)[:-1]]
    found = []
    below = 1
    for capacity in capacities:
        parents = groups * below // capacity
        runs = _runs(parents)
        found.append(int((runs[1:] - runs[:-1]).max()))
        groups, below = parents[runs[:-1]], capacity
    return tuple(found)


def _runs(ascending: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
    """Where each run of equal numbers, in ascending order, begins, and where the last one ends."""
    ends = numpy.flatnonzero(ascending[1:] != ascending[:-1]) + 1
    return numpy.concatenate(((0,), ends, (len(ascending),)))


def _begins(rows: NDArray[numpy.int64]) -> NDArray[numpy.bool_]:
    """Which of the numbers in rows of ascending ones differ from the one before, the first of each row included."""
    begins = numpy.ones(rows.shape, dtype=bool)
    begins[:, 1:] = rows[:, 1:] != rows[:, :-1]
    return begins


@frozen(eq=False, repr=False)
class Link(Record):
    """What joins two pools.

    Attributes:
        bandwidth: bytes per second, per device and direction.
        latency: seconds from end to end.
    """

    bandwidth: float = field(validator=validators.gt(0))
    latency: float = field(validator=validators.ge(0))


@frozen(eq=False, repr=False)
class Exposure(Record):
    """What of data-parallel communication is exposed, as `Space` has it; models say it for each kind of device.

    Attributes:
        exposed: as `Space.exposed`.
        hiding: as `Space.hiding`.
        synchronisation: as `Space.synchronisation`.
        sharded_synchronisation: as `Space.sharded_synchronisation`.
        exposed_often: as `Space.exposed_often`.
    """

    exposed: float
    hiding: bool
    synchronisation: float = 1.0
    sharded_synchronisation: float = 1.0
    exposed_often: float | None = None


@frozen(eq=False, repr=False)
class Pool(Record):
    """Identical devices of a cluster that has others too.

    Attributes:
        name: unique in the cluster; candidates name the pool that they are priced for.
        cluster: its devices, memory and levels, numbered from 0.
        exposure: what of data-parallel communication is exposed on its devices; None: what the space says.
    """

    name: str
    cluster: Cluster
    exposure: Exposure | None = None


@frozen(eq=False, repr=False, slots=False)
class Pools(Record):
    """The pools of a cluster, and the links between them.

    Attributes:
        members: in the order of the problem, which orders ties.
        links: joined pools, as two indices of `members`, each pair once in either order. Stages of pools that nothing
            joins are no neighbours.

    Raises:
        InputError: names repeat, a link names a pool that is not there or the same one twice, or a pair has two links.
    """

    members: tuple[Pool, ...] = field(validator=validators.min_len(1))
    links: tuple[tuple[int, int, Link], ...] = ()

    def __attrs_post_init__(self) -> None:
        names = self.names
        if len(set(names)) < len(names):
            raise InputError(f"two pools are called {next(each for each in names if names.count(each) > 1)!r}.")
        if any(not 0 <= end < len(names) for one, two, _ in self.links for end in (one, two)):
            raise InputError(f"a link names a pool that is not there; pools are counted from 0 to {len(names) - 1}.")
        pairs = [frozenset((one, two)) for one, two, _ in self.links]
        if any(len(pair) < 2 for pair in pairs) or len(set(pairs)) < len(pairs):
            raise InputError("each link joins two different pools, and each two pools have one at most.")

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(each.name for each in self.members)

    @property
    def size(self) -> int:
        """Number of devices of all pools."""
        return sum(each.cluster.size for each in self.members)

    @cached_property
    def _by_pair(self) -> dict[frozenset[int], Link]:
        return {frozenset((one, two)): link for one, two, link in self.links}

    def link(self, one: int, two: int) -> Link | None:
        """What joins two pools, by index; None: nothing does."""
        return self._by_pair.get(frozenset((one, two)))

    def index(self, name: str) -> int:
        """Where the pool called `name` is among them.

        Raises:
            ValueError: there is none.
        """
        return self.names.index(name)
