"""Collectives by latency and bandwidth (alpha-beta): the time of an all-reduce, all-gather, reduce-scatter, all-to-all.

`ring_cost` has the formula of a ring on one level (PROBLEM.md section 1). For known members every call is affine in its
bytes, so the model is a table of costs `latency + bytes * per_byte`, the lowest of which counts. A level with a link of
the catalogue has several for each kind of collective, from a communication library's protocols; other levels have the
one of PROBLEM.md.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from itertools import accumulate, pairwise, product
from math import prod
from operator import itemgetter, mul

import numpy
from attrs import frozen

from nest.instance import Array, CollectiveLine, Level
from nest.instance.cluster import PHASES
from nest.records import Record

Affine = tuple[float, float]
"""`(seconds, seconds per byte)`."""

RailTerm = tuple[float, int, Affine]
"""Of one level of rails: the seconds of a call, the level, and the time its steps occupy it."""


class AlphaBeta:
    """The default collective model: the cheapest of rings level by level, over all members, and in-switch trees."""

    name = "alpha-beta"

    def time(
        self,
        kind: str,
        bytes: float,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> float:
        """Return seconds of `kind` on a set of devices (PROBLEM.md section 1). One member and no bytes cost nothing.

        Args:
            kind: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all` or `point_to_point`.
            bytes: the full (unsharded) buffer; for `all_to_all` each member's.
            shape: members per level-0 group, level-0 groups per level-1 group, ...
            levels: the network, innermost first, as long as `shape`.
            members: devices in the set; None: as many as the product of `shape`.

        Raises:
            ValueError: `kind` is none of the five.
        """
        costs = _costs(kind, tuple(shape), tuple(levels), members)
        return min(cost.latency + bytes * cost.per_byte for cost in costs) if bytes else 0.0

    def times(
        self,
        kind: str,
        bytes: Array,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> Array:
        """Return `time` for an array of `bytes`: seconds, of the same shape."""
        first, *others = _costs(kind, tuple(shape), tuple(levels), members)
        seconds = numpy.asarray(first.latency + bytes * first.per_byte)
        for cost in others:
            numpy.minimum(seconds, cost.latency + bytes * cost.per_byte, out=seconds)
        seconds[bytes == 0] = 0.0
        return seconds

    def per_byte(self, kind: str, shape: Sequence[int], levels: Sequence[Level], members: int | None = None) -> float:
        """Return the least seconds per byte for any number of bytes."""
        return min(cost.per_byte for cost in _costs(kind, tuple(shape), tuple(levels), members))

    def costs(self, kind: str, shape: Sequence[int], levels: Sequence[Level], members: int) -> "tuple[Cost, ...]":
        """Return every way to run `kind`, affine in its bytes; the lowest counts, the first of equal ones."""
        return _costs(kind, tuple(shape), tuple(levels), members)

    def by_level(
        self,
        kind: str,
        bytes: Array,  # noqa: A002
        shape: Sequence[int],
        levels: Sequence[Level],
        members: int | None = None,
    ) -> Array:
        """Return the seconds for which a member's port at each level is occupied, shape `(levels, *bytes.shape)`.

        Of a hierarchical ring each level's own term; a flat ring occupies the outermost level of the set; rings over
        several rails occupy each level while its links work.
        """
        costs = _costs(kind, tuple(shape), tuple(levels), members)
        taken = numpy.array([cost.latency + bytes * cost.per_byte for cost in costs]).argmin(axis=0)
        latency, per_byte = _ports(costs)[..., taken]
        return numpy.where(bytes == 0, 0.0, latency + bytes * per_byte)


@frozen(order=False, repr=False)
class Cost:
    """An alpha-beta term: the cost of one way to run a collective, affine in its bytes."""

    latency: float  # Seconds of no bytes.
    per_byte: float  # Seconds per byte.
    # Seconds, and seconds per byte, for which a member's port at each level is occupied, innermost first.
    ports: tuple[Affine, ...]

    @classmethod
    def on(cls, level: int, levels: int, latency: float, per_byte: float) -> "Cost":
        """Return a cost that occupies only one of so many levels."""
        return cls(
            latency, per_byte, tuple((latency, per_byte) if each == level else (0.0, 0.0) for each in range(levels))
        )

    def __add__(self, then: "Cost") -> "Cost":
        """Return the cost of one after the other."""
        ports = tuple((a + c, b + d) for (a, b), (c, d) in zip(self.ports, then.ports, strict=True))
        return Cost(self.latency + then.latency, self.per_byte + then.per_byte, ports)


def ring_cost(protocol: CollectiveLine, kind: str, members: int) -> Affine:
    """Return seconds, and seconds per byte, of `kind` in one group: `base + p (m - 1) step + p n r / bandwidth`.

    `m` members hold `n` bytes, as PROBLEM.md section 1 counts them; `p` is 2 for an all-reduce (a reduce-scatter and an
    all-gather), else 1. A member receives the share `r = (m - 1 + own) / m` of the bytes in each phase; with a base and
    an own share of 0 that is the ring of PROBLEM.md. A reduction in the switches moves all bytes once, up and down
    their tree at the same time: `base + p (m - 1) step + n / bandwidth`.
    """
    phases = PHASES[kind]
    latency = protocol.base + phases * (members - 1) * protocol.step
    if protocol.in_switch:
        return latency, 1.0 / protocol.bandwidth
    return latency, phases * ((members - 1 + protocol.own) / members) / protocol.bandwidth


@frozen(eq=False, repr=False)
class LevelRing(Record):
    """A level on which several of the members meet."""

    index: int  # Of the level, 0 is the innermost.
    levels: int  # Of the whole network.
    level: Level  # The level.
    members: int  # Groups of the level inside, of one group of it, that have members of the set.
    below: int  # Members of the set inside one of those (`prod_{j<l} m_j`).

    def protocols(self, kind: str) -> list[CollectiveLine]:
        """Return the link's protocols for `kind`; none: the formula of PROBLEM.md."""
        return [each for each in self.level.lines if each.fits(kind, self.members)]

    def costs(self, kind: str, share: float) -> list[Cost]:
        """Return costs of `kind` among the members that meet here, per byte of a shared buffer."""
        used = self.protocols(kind) or [CollectiveLine((kind,), 0.0, self.level.latency, self.level.bandwidth)]
        rings = (ring_cost(each, kind, self.members) for each in used)
        return [Cost.on(self.index, self.levels, latency, per_byte * share) for latency, per_byte in rings]

    def sharded(self, kind: str) -> list[Cost]:
        """Return costs of `kind` on the shares left by the levels inside."""
        return self.costs(kind, 1 / self.below)


@lru_cache(maxsize=4096)
def _ports(costs: tuple[Cost, ...]) -> Array:
    """Return seconds, and seconds per byte, of each occupying a member's port; shape `(2, levels, costs)`."""
    return numpy.array([cost.ports for cost in costs]).T


# A solver asks for a few sets of devices very often.
@lru_cache(maxsize=4096)
def _costs(kind: str, shape: tuple[int, ...], levels: tuple[Level, ...], members: int | None) -> tuple[Cost, ...]:
    """Return possible costs of `kind` among so many members, of which the lowest counts; one member costs nothing.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in _KINDS:
        raise ValueError(f"there is no collective called {kind!r}; there are {', '.join(_KINDS)}")
    below = accumulate(shape[:-1], mul, initial=1)
    rows = enumerate(zip(levels, shape, below, strict=True))
    rings = [LevelRing(index, len(levels), *row) for index, row in rows if row[1] > 1]
    if not rings:
        return (Cost.on(0, len(levels), 0.0, 0.0),)
    return tuple(_lowest(_KINDS[kind](kind, rings, levels, prod(shape) if members is None else members)))


def _gather(kind: str, rings: list[LevelRing], levels: tuple[Level, ...], members: int) -> list[Cost]:
    """Reduce-scatter and all-gather: a ring per level, inner levels first, or rings over all members."""
    return [*_level_by_level([each.sharded(kind) for each in rings]), *_over_all(kind, rings, levels, members)]


def _all_reduce(kind: str, rings: list[LevelRing], levels: tuple[Level, ...], members: int) -> list[Cost]:
    """Reduce-scatters inwards out, an all-reduce on the outermost level, all-gathers back; or rings over all members.

    With the formulas of PROBLEM.md that is a reduce-scatter and an all-gather: what is cheaper for one is for both.
    """
    inner = [each.sharded(half) for each in rings[:-1] for half in ("reduce_scatter", "all_gather")]
    return [*_level_by_level([*inner, rings[-1].sharded(kind)]), *_over_all(kind, rings, levels, members)]


def _all_to_all(kind: str, rings: list[LevelRing], levels: tuple[Level, ...], members: int) -> list[Cost]:
    """Return direct messages of each pair over the level where it first meets, as if all groups were full.

    The flat ring is no alternative: it would relay every block through the members between, more traffic than its
    formula counts.
    """
    even = prod(each.members for each in rings)
    return _level_by_level([each.costs(kind, each.members * each.below / even) for each in rings])


def _point_to_point(kind: str, rings: list[LevelRing], levels: tuple[Level, ...], members: int) -> list[Cost]:
    outermost = rings[-1]
    return [Cost.on(outermost.index, len(levels), outermost.level.latency, 1.0 / outermost.level.bandwidth)]


def _level_by_level(steps: Iterable[list[Cost]]) -> list[Cost]:
    """Return one after the other, each in its best way."""
    return reduce(lambda first, then: _lowest(one + other for one, other in product(first, then)), steps)


def _over_all(kind: str, rings: list[LevelRing], levels: tuple[Level, ...], members: int) -> list[Cost]:
    """Return rings over all members: one per rail if every level has protocols, else the flat ring of PROBLEM.md."""
    protocols = [[each for each in ring.protocols(kind) if not each.in_switch] for ring in rings]
    if all(protocols):
        return _rails(kind, rings, protocols, members)
    outermost = rings[-1]
    narrowest = min(level.bandwidth for level in levels[: outermost.index + 1])
    flat = ring_cost(CollectiveLine((kind,), 0.0, outermost.level.latency, narrowest), kind, members)
    return [Cost.on(outermost.index, len(levels), *flat)]


def _rails(kind: str, rings: list[LevelRing], protocols: list[list[CollectiveLine]], members: int) -> list[Cost]:
    """Return rings over all members, as many as a group has devices, each of which leaves the group by another.

    A level's links carry the traffic of their share of the devices inside, all levels at the same time: the slowest
    counts. A block passes every member: of a group's children, all but the last over links of that level. NCCL plans
    rings over several machines alike (NVIDIA/nccl, src/graph/tuning.cc: steps between machines, all others inside).
    Every combination of the levels' protocols is one; on five levels with two protocols each there are 32.
    """
    # Of an uneven set at most so many groups of the levels inside have members.
    occupied = [min(members, prod(each.members for each in rings[index:])) for index in range(len(rings))]
    terms: list[list[RailTerm]] = []
    for ring, every, (groups, outside) in zip(rings, protocols, pairwise([*occupied, 1]), strict=True):
        of_level: list[RailTerm] = []
        for protocol in every:
            steps = PHASES[kind] * (members - 1) * protocol.step
            per_byte = ring_cost(protocol, kind, members)[1]
            busy = steps * (groups - outside) / (members - 1), per_byte / ring.below
            of_level.append((protocol.base, ring.index, busy))
        terms.append(of_level)
    costs: list[Cost] = []
    for latency, slowest, chosen in sorted(map(_side_by_side, product(*terms)), key=itemgetter(0, 1)):
        # Those that are lowest nowhere are most, and need not be made.
        if not costs or slowest < costs[-1].per_byte:
            ports = [(0.0, 0.0)] * rings[0].levels
            for _, level, busy in chosen:
                ports[level] = busy
            costs.append(Cost(latency, slowest, tuple(ports)))
    return costs


def _side_by_side(chosen: Sequence[RailTerm]) -> tuple[float, float, Sequence[RailTerm]]:
    """Return seconds of no bytes, seconds per byte, and protocols of rails over these levels."""
    latency, slowest = max([base for base, _, _ in chosen]), 0.0
    for _, _, (steps, per_byte) in chosen:
        latency, slowest = latency + steps, max(slowest, per_byte)
    return latency, slowest, chosen


def _lowest(costs: Iterable[Cost]) -> list[Cost]:
    """Return the costs that are lowest somewhere from 0 bytes on, by falling seconds per byte: their lower hull."""
    hull: list[Cost] = []
    for cost in sorted(costs, key=lambda each: (each.latency, each.per_byte)):
        if hull and cost.per_byte >= hull[-1].per_byte:
            continue
        while len(hull) > 1 and _is_above(hull[-1], hull[-2], cost):
            hull.pop()
        hull.append(cost)
    return hull


def _is_above(middle: Cost, first: Cost, last: Cost) -> bool:
    """Return whether the lower of two costs is nowhere above the one between them."""
    higher, rises = last.latency - first.latency, middle.latency - first.latency
    return higher * (first.per_byte - middle.per_byte) <= rises * (first.per_byte - last.per_byte)


_KINDS: dict[str, Callable[[str, list[LevelRing], tuple[Level, ...], int], list[Cost]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _gather,
    "reduce_scatter": _gather,
    "all_to_all": _all_to_all,
    "point_to_point": _point_to_point,
}
