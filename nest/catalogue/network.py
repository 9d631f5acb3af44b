"""From levels as written to levels in numbers, and clusters by name."""

from collections.abc import Sequence
from math import isclose, prod

from attrs import evolve

from nest.catalogue.entries import ClusterEntry, Link
from nest.catalogue.load import clusters, link, unknown_name
from nest.errors import InputError
from nest.instance import CollectiveLine, Level
from nest.spec.cluster import LevelSpec
from nest.tolerances import AGREEMENT


def network_levels(levels: Sequence[LevelSpec], place: str = "cluster.levels") -> tuple[Level, ...]:
    """The levels in numbers.

    A level that names a link reaches the link's share of its bandwidth, and takes from the link the latency
    and bandwidth it leaves out, and how collectives run on it; with a latency of its own they run by the formulas of
    PROBLEM.md section 1. A level without a link is taken as written; its latency, left out, is 0.

    Raises:
        InputError: a link is unknown, or a level has no bandwidth.
    """
    return tuple(_level(level, index, f"{place}[{index}]") for index, level in enumerate(levels))


def _level(level: LevelSpec, index: int, place: str) -> Level:
    bandwidth: float | None = level.bandwidth
    latency: float | None = level.latency
    lines: tuple[CollectiveLine, ...] = ()
    if level.link is not None:
        kind = link(level.link, f"{place}.link")
        nominal = kind.bandwidth if bandwidth is None else bandwidth
        if nominal is not None:
            kind = _generation(kind, nominal)
            bandwidth = nominal * kind.efficiency
            lines = tuple(line.on(nominal) for line in kind.lines) if latency is None else ()
        latency = kind.latency if latency is None else latency
    if bandwidth is None:
        raise InputError(
            f"{place}.bandwidth is missing; give it in bytes per second (`bandwidth: 50 GB/s`), "
            "or name a link with a bandwidth of its own such as `nvlink4`."
        )
    name = level.name or f"level {index}"
    return Level(name, level.fanout, bandwidth, 0.0 if latency is None else latency, level.link, lines)


def _generation(kind: Link, bandwidth: float) -> Link:
    """The member of a family of links that has this bandwidth; the family itself where none has."""
    members = (link(name) for name in kind.generations)
    return next(
        (each for each in members if each.bandwidth and isclose(each.bandwidth, bandwidth, rel_tol=AGREEMENT)), kind
    )


def scale_up_levels(levels: Sequence[Level]) -> int:
    """How many levels, from the innermost outwards, are of the scale-up network.

    Where no link is named, that is the innermost level alone.
    """
    count = 0
    for index, level in enumerate(levels):
        if not (index == 0 if level.link is None else link(level.link).scale_up):
            break
        count += 1
    return count


def named_cluster(name: str, place: str = "cluster") -> ClusterEntry:
    """The cluster called `name`; `name-N` is the same network with `N` devices in place of its usual number.

    Raises:
        InputError: there is none, or its network cannot have `N` devices.
    """
    known = clusters()
    if name in known:
        return known[name]
    family, _, size = name.rpartition("-")
    if family not in known or not size.isdecimal() or len(size) > 9:
        raise unknown_name(place, "cluster", name, known)
    levels = _resized(known[family].levels, int(size))
    if levels is None:
        raise InputError(
            f"{place}: {family!r} cannot have {size} devices; its groups hold "
            f"{', '.join(str(c) for c in _capacities(known[family].levels)[:-1])} devices, "
            "so a larger number must be a multiple of those."
        )
    described = f"{size} devices of the {known[family].description}"
    return evolve(known[family], name=name, description=described, levels=levels)


def known_cluster(name: str | None) -> ClusterEntry | None:
    """As `named_cluster`; None: there is none of that name."""
    try:
        return named_cluster(name or "")
    except InputError:
        return None


def _capacities(levels: Sequence[LevelSpec]) -> list[int]:
    return [prod(level.fanout for level in levels[: index + 1]) for index in range(len(levels))]


def _resized(levels: Sequence[LevelSpec], devices: int) -> tuple[LevelSpec, ...] | None:
    """`levels` for another number of devices: inner groups stay whole, the outermost needed is resized."""
    below = 1
    for index, level in enumerate(levels):
        if devices <= below * level.fanout or index == len(levels) - 1:
            if devices < 1 or devices % below:
                return None
            return (*levels[:index], evolve(level, fanout=devices // below))
        below *= level.fanout
    return None
