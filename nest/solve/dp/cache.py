"""What searches of problems share that differ in constraints or memory alone: nothing of it counts as work."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from attrs import define, evolve, field

from nest.instance import Cluster, Instance, Space
from nest.solve.dp.beside_compute import FirstBounds
from nest.solve.dp.listing import least_times
from nest.solve.dp.screen import ScreenTables
from nest.solve.dp.units import Splits

MOST = 2
"""Kinds of problem whose tables are kept."""


@define(eq=False)
class SharedTables:
    """Tables of problems alike.

    Attributes:
        instance: the first of them.
        bounds: ahead of stages.
        screen: what may be decided ahead of stages.
        splits: the sizes that chunks may have.
    """

    instance: Instance
    bounds: FirstBounds = field(init=False)
    screen: ScreenTables = field(init=False)
    splits: Splits = field(init=False)
    _by_search: dict[Hashable, dict[Hashable, Any]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.bounds = FirstBounds(self.instance)
        self.screen = ScreenTables(self.instance, self.bounds)
        self.splits = Splits(self.instance)

    def of(self, search: Hashable) -> dict[Hashable, Any]:
        """Those of a search, such as that of one chunk a stage over some downsets."""
        return self._by_search.setdefault(search, {})


def candidate_floors(instance: Instance, cache: SearchCache) -> dict[str, float]:
    """Step times, seconds, that no plan beats whose stages all have a candidate, by its name; infinite: it has none.

    They hold as well where links and devices are slower, and where there is less memory, all else as it is.

    Args:
        instance: the problem; its plans mix no candidates.
        cache: of problems searched before.

    Raises:
        InputError: a constraint cannot be computed.
    """
    tables = cache.of(instance)
    least = least_times(instance, len(instance.graph.layers), tables.splits.counts, tables.screen)
    return {candidate.name: seconds for candidate, seconds in zip(instance.candidates, least, strict=True)}


@define(eq=False)
class SearchCache:
    """Tables of the problems searched last."""

    _known: list[SharedTables] = field(factory=list, init=False)

    def of(self, instance: Instance) -> SharedTables:
        """Those that problems like this one share."""
        found = next((each for each in self._known if _is_alike(each.instance, instance)), None)
        if found is None:
            found = SharedTables(instance)
        else:
            self._known.remove(found)
        self._known.append(found)
        del self._known[:-MOST]
        return found


def _is_alike(one: Instance, other: Instance) -> bool:
    """Whether two problems differ in nothing but constraints on what is not a cut, and memory."""
    if one.collectives is not other.collectives or len(one.candidates) != len(other.candidates):
        return False
    if any(mine is not its for mine, its in zip(one.candidates, other.candidates, strict=True)):
        return False
    if one.network is not None or other.network is not None or one.graph != other.graph:
        return False
    return _network(one.cluster) == _network(other.cluster) and _plans(one.space) == _plans(other.space)


def _network(cluster: Cluster) -> Cluster:
    """The cluster without its memory."""
    room: dict[str, Any] = {"memory": 1.0, "reserve": 0.0, "margin": 0.0, "device_memory": 1.0}
    return evolve(cluster, **room, error=None, time_error=None)


def _plans(space: Space) -> tuple[object, ...]:
    """The plans without constraints but those on cuts."""
    cuts = tuple(each.same_stage for each in space.constraints if each.same_stage)
    return evolve(space, constraints=(), wishes=()), cuts
