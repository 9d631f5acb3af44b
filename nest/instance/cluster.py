"""Clusters in numbers (PROBLEM.md section 1), also with several kinds of device (section 8)."""

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
"""Ring passes of a collective: an all-reduce is a reduce-scatter and an all-gather (PROBLEM.md section 1)."""


@frozen(eq=False, repr=False)
class CollectiveLine(Record):
    """A protocol of a communication library for collectives inside one level of a network.

    In the form of NCCL's model (NVIDIA/nccl, src/graph/tuning.cc): base latency, latency per step, and bandwidth;
    `nest.collectives.alpha_beta.ring_cost` has the formula.

    Attributes:
        kinds: its collectives: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`.
        base: seconds per call, for any number of members.
        step: seconds per step.
        bandwidth: bytes per second reached, per device and direction.
        own: cost of the share of the buffer that a member already has, relative to a received share.
        in_switch: switches reduce; all-reduces only.
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
        """True if it runs `kind` among so many members."""
        return kind in self.kinds and members >= self.members


@frozen(eq=False, repr=False)
class EstimateError(Record):
    """Ratio of actual need to estimate, log-normal, fitted to measured runs.

    Attributes:
        median: of the ratio (bytes or seconds).
        spread: standard deviation of its logarithm.
    """

    median: float = field(validator=validators.gt(0))
    spread: float = field(validator=validators.gt(0))

    def factor(self, risk: float) -> float:
        """Ratio of need to estimate that is exceeded with probability `risk`, between 0 and 1."""
        from statistics import NormalDist  # It loads decimal numbers.

        return self.median * exp(self.spread * NormalDist().inv_cdf(1 - risk))

    def within(self, share: float) -> float:
        """Probability that at most `share` times the estimate is needed."""
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
        link: name of the level's link in the catalogue, from which collective models may infer capabilities; None:
            none.
        lines: protocols of collectives on that link; empty: `latency` and `bandwidth` alone, as in PROBLEM.md section
            1. Point-to-point messages always use these two.
    """

    name: str
    fanout: int = field(validator=validators.ge(1))
    bandwidth: float = field(validator=validators.gt(0))
    latency: float = field(validator=validators.ge(0))
    link: str | None = None
    lines: tuple[CollectiveLine, ...] = ()


@frozen(eq=False, repr=False, slots=False)
class Cluster(Record):
    """Identical devices with a hierarchical network.

    Attributes:
        levels: innermost first.
        memory: bytes per device up to which a search admits a stage's estimate (`H`).
        reserve: bytes of it kept free.
        margin: share by which a plan's need, without the reserve, may exceed its estimate; `memory` leaves room for it.
            Below 0 if a plan is expected to need less.
        error: ratio of memory need to estimate; None: estimates are exact.
        time_error: ratio of step times to predictions; None: they are exact.
        device_memory: bytes per device, with room for the margin.
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
        """Cluster whose `memory` leaves room for a margin: a stage that fills it may grow to `device_memory`.

        `fitting` is the margin that decides whether a plan fits; None: the same.
        """
        likely = None if fitting is None else self._with_room_for(fitting)
        return evolve(self, memory=self._with_room_for(margin), margin=margin, fitting=likely)

    def _with_room_for(self, margin: float) -> float:
        return self.reserve + (self.device_memory - self.reserve) / (1 + margin) if margin else self.device_memory

    def without_memory(self) -> "Cluster":
        """Cluster for pricing layers: without memory and errors of estimates."""
        return Cluster(self.levels, 1.0)

    def upper(self, memory: float) -> float:
        """Largest expected need of a plan with an estimate of `memory` bytes, with the reserve."""
        return self.reserve + (memory - self.reserve) * (1 + self.margin) if self.margin else memory

    def fit_probability(self, memory: float) -> float:
        """Probability that a need estimated at `memory` bytes, with the reserve, fits.

        Stages err together, as one estimate made them, so the fullest one decides for the plan.
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
        """Smallest level with both devices, and so all between them, in one group; -1 if they are the same."""
        if first == last:
            return -1
        for index, capacity in enumerate(self.capacities):
            if first // capacity == last // capacity:
                return index
        raise ValueError(f"devices {first} and {last} are not both in a cluster of {self.size}")

    def shape(self, members: Iterable[int] | NDArray[numpy.int64]) -> tuple[int, ...]:
        """Shape of a set of devices: per level, the most children with members in any group."""
        return shape_of(members, self.capacities)

    def shapes(self, sets: NDArray[numpy.int64]) -> tuple[tuple[int, ...], ...]:
        """Distinct shapes of several sets of as many devices, in order of appearance.

        Args:
            sets: devices of each in ascending order, none twice, shape `(sets, devices)`.
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
        """Devices per group of each level smaller than a block of `width` devices: they describe its placement."""
        return tuple(capacity for capacity in self.capacities if capacity < width)

    def admits(self, width: int) -> bool:
        """True if blocks of `width` devices align with every level (PROBLEM.md section 2)."""
        return width <= self.size and all(c % width == 0 or width % c == 0 for c in self.capacities)


def shape_of(members: Iterable[int] | NDArray[numpy.int64], capacities: Sequence[int]) -> tuple[int, ...]:
    """Same as `Cluster.shape`, for given devices per group of each level."""
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
    """Start of each run of equal numbers, in ascending order, and the end of the last."""
    ends = numpy.flatnonzero(ascending[1:] != ascending[:-1]) + 1
    return numpy.concatenate(((0,), ends, (len(ascending),)))


def _begins(rows: NDArray[numpy.int64]) -> NDArray[numpy.bool_]:
    """Mask of numbers in ascending rows that differ from the one before, with the first of each row."""
    begins = numpy.ones(rows.shape, dtype=bool)
    begins[:, 1:] = rows[:, 1:] != rows[:, :-1]
    return begins


@frozen(eq=False, repr=False)
class Link(Record):
    """Link between two pools.

    Attributes:
        bandwidth: bytes per second, per device and direction.
        latency: seconds from end to end.
    """

    bandwidth: float = field(validator=validators.gt(0))
    latency: float = field(validator=validators.ge(0))


@frozen(eq=False, repr=False)
class Exposure(Record):
    """Exposed data-parallel communication, as in `Space`; models have it by kind of device.

    Attributes:
        exposed: see `Space.exposed`.
        hiding: see `Space.hiding`.
        synchronisation: see `Space.synchronisation`.
        sharded_synchronisation: see `Space.sharded_synchronisation`.
        exposed_often: see `Space.exposed_often`.
    """

    exposed: float
    hiding: bool
    synchronisation: float = 1.0
    sharded_synchronisation: float = 1.0
    exposed_often: float | None = None


@frozen(eq=False, repr=False)
class Pool(Record):
    """Identical devices of a cluster with several kinds.

    Attributes:
        name: unique in the cluster; candidates name their pool.
        cluster: its devices, memory and levels, numbered from 0.
        exposure: exposed data-parallel communication on its devices; None: the space's.
    """

    name: str
    cluster: Cluster
    exposure: Exposure | None = None


@frozen(eq=False, repr=False, slots=False)
class Pools(Record):
    """Pools of a cluster, and the links between them.

    Attributes:
        members: in the order of the problem, which orders ties.
        links: connected pools, as two indices of `members`, each pair once in either order. Stages of unconnected pools
            cannot be neighbours.

    Raises:
        InputError: names repeat, a link names an unknown pool or the same one twice, or a pair has two links.
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
        """Names in order."""
        return tuple(each.name for each in self.members)

    @property
    def size(self) -> int:
        """Number of devices of all pools."""
        return sum(each.cluster.size for each in self.members)

    @cached_property
    def _by_pair(self) -> dict[frozenset[int], Link]:
        return {frozenset((one, two)): link for one, two, link in self.links}

    def link(self, one: int, two: int) -> Link | None:
        """Link between two pools, by index; None: there is none."""
        return self._by_pair.get(frozenset((one, two)))

    def index(self, name: str) -> int:
        """Index of the pool called `name`.

        Raises:
            ValueError: there is none.
        """
        return self.names.index(name)
