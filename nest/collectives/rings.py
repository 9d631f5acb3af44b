"""What each collective costs on a set of devices: the lowest of lines affine in its bytes (PROBLEM.md section 1)."""

from collections.abc import Callable, Iterable
from functools import reduce
from itertools import accumulate, pairwise, product
from math import prod
from operator import mul

from attrs import frozen

from nest.instance import CollectiveLine, Level

Affine = tuple[float, float]
"""`(seconds, seconds per byte)`."""


@frozen(order=False)
class Line:
    """One way to run a collective: seconds, affine in its bytes.

    Attributes:
        latency: seconds of no bytes.
        slope: seconds per byte.
        ports: seconds, and seconds per byte, for which a member's port at each level is occupied, innermost first.
    """

    latency: float
    slope: float
    ports: tuple[Affine, ...]

    @classmethod
    def on(cls, level: int, levels: int, latency: float, slope: float) -> "Line":
        """A line all of whose seconds occupy one of so many levels."""
        return cls(latency, slope, tuple((latency, slope) if each == level else (0.0, 0.0) for each in range(levels)))

    def __add__(self, then: "Line") -> "Line":
        """One after the other."""
        ports = tuple((a + c, b + d) for (a, b), (c, d) in zip(self.ports, then.ports, strict=True))
        return Line(self.latency + then.latency, self.slope + then.slope, ports)

    def of_share(self, share: float) -> "Line":
        """The same for a share of the bytes."""
        return Line(self.latency, self.slope * share, tuple((latency, slope * share) for latency, slope in self.ports))


@frozen
class Met:
    """A level on which several of the members meet.

    Attributes:
        index: of the level, 0 is the innermost.
        levels: of the whole network.
        level: the level.
        members: groups of the level inside, of one group of it, that have members of the set.
        below: members of the set inside one of those (`prod_{j<l} m_j`).
    """

    index: int
    levels: int
    level: Level
    members: int
    below: int

    def protocols(self, kind: str) -> list[CollectiveLine]:
        """How the level's link runs `kind`; none: by the formula of PROBLEM.md."""
        return [line for line in self.level.lines if line.fits(kind, self.members)]

    def lines(self, kind: str) -> list[Line]:
        """`kind` among the members that meet here, per byte of what each of them holds."""
        found = self.protocols(kind) or [CollectiveLine((kind,), 0.0, self.level.latency, self.level.bandwidth)]
        return [Line.on(self.index, self.levels, *line.figures(kind, self.members)) for line in found]


def lines_of(kind: str, shape: tuple[int, ...], levels: tuple[Level, ...], members: int) -> tuple[Line, ...]:
    """The lines of which the lowest is what `kind` costs among so many members; one member costs nothing.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in _KINDS:
        raise ValueError(f"there is no collective called {kind!r}; there are {', '.join(_KINDS)}")
    inside = accumulate(shape[:-1], mul, initial=1)
    rows = enumerate(zip(levels, shape, inside, strict=True))
    met = [Met(index, len(levels), *row) for index, row in rows if row[1] > 1]
    if not met:
        return (Line.on(0, len(levels), 0.0, 0.0),)
    return tuple(_lowest(_KINDS[kind](kind, met, levels, members)))


def _gather(kind: str, met: list[Met], levels: tuple[Level, ...], members: int) -> list[Line]:
    """Reduce-scatter and all-gather: a ring per level, inner levels first, or rings over all members."""
    return [*_level_by_level([_shares(each, kind) for each in met]), *_over_all(kind, met, levels, members)]


def _all_reduce(kind: str, met: list[Met], levels: tuple[Level, ...], members: int) -> list[Line]:
    """Reduce-scatters inwards out, an all-reduce on the outermost level, all-gathers back; or rings over all members.

    With the formulas of PROBLEM.md that is a reduce-scatter and an all-gather: what is cheaper for one is for both.
    """
    inner = [_shares(each, half) for each in met[:-1] for half in ("reduce_scatter", "all_gather")]
    return [*_level_by_level([*inner, _shares(met[-1], kind)]), *_over_all(kind, met, levels, members)]


def _all_to_all(kind: str, met: list[Met], levels: tuple[Level, ...], members: int) -> list[Line]:
    """Each pair directly, over the level where it first meets; of an uneven set, as if all groups were the fullest.

    The flat ring is no alternative here: it would relay every block through the members between, which is
    more traffic than its formula counts.
    """
    even = prod(each.members for each in met)
    return _level_by_level([_times(each.members * each.below / even, each.lines(kind)) for each in met])


def _point_to_point(kind: str, met: list[Met], levels: tuple[Level, ...], members: int) -> list[Line]:
    outermost = met[-1]
    return [Line.on(outermost.index, len(levels), outermost.level.latency, 1.0 / outermost.level.bandwidth)]


def _shares(met: Met, kind: str) -> list[Line]:
    """`kind` on one level, where each member has the share that the levels inside left it."""
    return _times(1 / met.below, met.lines(kind))


def _times(share: float, lines: Iterable[Line]) -> list[Line]:
    """The same for a share of the bytes."""
    return [line.of_share(share) for line in lines]


def _level_by_level(steps: Iterable[list[Line]]) -> list[Line]:
    """One after the other, each in its best way."""
    return reduce(lambda first, then: _lowest(one + other for one, other in product(first, then)), steps)


def _over_all(kind: str, met: list[Met], levels: tuple[Level, ...], members: int) -> list[Line]:
    """Rings over all members: one for each rail where every level has protocols, else the flat ring of PROBLEM.md."""
    protocols = [[line for line in each.protocols(kind) if not line.in_switch] for each in met]
    if all(protocols):
        return [_rails(kind, met, chosen, members) for chosen in product(*protocols)]
    outermost = met[-1]
    narrowest = min(level.bandwidth for level in levels[: outermost.index + 1])
    flat = CollectiveLine((kind,), 0.0, outermost.level.latency, narrowest).figures(kind, members)
    return [Line.on(outermost.index, len(levels), *flat)]


def _rails(kind: str, met: list[Met], chosen: tuple[CollectiveLine, ...], members: int) -> Line:
    """Rings over all members, as many as a group has devices, each of which leaves the group by another.

    So a level's links carry what their share of the devices inside sends, all levels at the same time: the slowest
    counts. A block passes every member: of a group's children, all but the last over links of that level. NCCL plans
    its rings over several machines so (NVIDIA/nccl, src/graph/tuning.cc: steps between machines, all others inside).
    """
    latency = max(line.base for line in chosen)
    slope = 0.0
    ports = [(0.0, 0.0)] * met[0].levels
    # Of an uneven set at most so many groups of the levels inside have members.
    occupied = [min(members, prod(each.members for each in met[index:])) for index in range(len(met))]
    for each, line, (groups, outside) in zip(met, chosen, pairwise([*occupied, 1]), strict=True):
        crossings = groups - outside
        steps, per_byte = CollectiveLine((kind,), 0.0, line.step, line.bandwidth, line.own).figures(kind, members)
        latency += steps * crossings / (members - 1)
        slope = max(slope, per_byte / each.below)
        ports[each.index] = steps * crossings / (members - 1), per_byte / each.below
    return Line(latency, slope, tuple(ports))


def _lowest(lines: Iterable[Line]) -> list[Line]:
    """The lines that are lowest somewhere from 0 bytes on, by falling slope: their lower hull."""
    hull: list[Line] = []
    for line in sorted(lines, key=lambda each: (each.latency, each.slope)):
        if hull and line.slope >= hull[-1].slope:
            continue
        while len(hull) > 1 and _is_above(hull[-1], hull[-2], line):
            hull.pop()
        hull.append(line)
    return hull


def _is_above(middle: Line, first: Line, last: Line) -> bool:
    """Whether the lower of two lines is nowhere above the one between them."""
    higher, rises = last.latency - first.latency, middle.latency - first.latency
    return higher * (first.slope - middle.slope) <= rises * (first.slope - last.slope)


_KINDS: dict[str, Callable[[str, list[Met], tuple[Level, ...], int], list[Line]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _gather,
    "reduce_scatter": _gather,
    "all_to_all": _all_to_all,
    "point_to_point": _point_to_point,
}
