"""Tables shared by searches of similar problems."""

from collections.abc import Hashable
from typing import Any

import numpy
from attrs import define, evolve, field
from numpy.typing import NDArray

from nest.instance import Instance, Space, chunks_of
from nest.reuse import once
from nest.solve.dp.beside_compute import FirstBounds
from nest.solve.dp.downsets import Downsets, lattice
from nest.solve.dp.screen import ScreenTables
from nest.solve.dp.units import Splits

MOST = 2  # Kinds of problem whose tables are kept.


@define(eq=False, repr=False)
class SharedTables:
    """Tables of problems that differ only in constraints, memory or batch size.

    Keys of values that depend on micro-batches include their number.
    """

    instance: Instance  # The first of them.
    # Cache of what depends on schedules but not on costs.
    scheduled: dict[Hashable, Any] = field(factory=dict, init=False)
    bounds: FirstBounds = field(init=False)  # Before stages.
    screen: ScreenTables = field(init=False)  # Decisions before stages.
    splits: Splits = field(init=False)  # Possible sizes of chunks.
    _by_search: dict[Hashable, dict[Hashable, Any]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.bounds = FirstBounds(self.instance)
        self.screen = ScreenTables(self.instance, self.bounds, self.scheduled)
        self.splits = Splits(self.instance)

    def share(self, other: "SharedTables") -> None:
        """Share cost-independent tables with a problem with the same cuts."""
        chunked = any(chunks_of(each) > 1 for each in self.instance.space.schedules)
        # Of the costs only which blocks are alike decides how a model is split.
        if not chunked or self.splits.runs == other.splits.runs:
            self.splits, self.scheduled, self.screen.scheduled = other.splits, other.scheduled, other.scheduled

    def lattice(self, members: NDArray[numpy.bool_]) -> Downsets:
        """Same as `nest.solve.dp.downsets.lattice`, with stages of any length."""
        key = ("lattice", members.shape, members.tobytes())
        return once(self.scheduled, key, lambda: lattice(members))

    def of(self, search: Hashable) -> dict[Hashable, Any]:
        """Tables of a search, for example of one chunk per stage over some downsets."""
        return self._by_search.setdefault(search, {})


@define(eq=False, repr=False)
class SearchCache:
    """Tables of the most recent problems, the latest last."""

    known: list[SharedTables] = field(factory=list)

    def of(self, instance: Instance) -> SharedTables:
        """Tables for problems like this one, for a new search."""
        found = next((each for each in self.known if is_alike(each.instance, instance)), None)
        if found is None:
            found = SharedTables(instance)
            for each in reversed(self.known):
                if _is_cut_alike(each.instance, instance):
                    found.share(each)
                    break
        else:
            self.known.remove(found)
        self.known.append(found)
        del self.known[:-MOST]
        return found

    def lasting(self) -> "SearchCache":
        """Tables with which a later search reports the same as without them.

        If some have only even splits left, the search would report so even without asking for them.
        """
        return SearchCache([each for each in self.known if not each.splits.even_only])


def is_alike(one: Instance, other: Instance) -> bool:
    """True if two problems differ only in constraints without cuts, memory and batch size."""
    if one.collectives is not other.collectives or len(one.candidates) != len(other.candidates):
        return False
    if any(mine is not its for mine, its in zip(one.candidates, other.candidates, strict=True)):
        return False
    free: dict[str, Any] = {"constraints": (), "wishes": (), "global_batch": 1}
    same = evolve(one.space, **free) == evolve(other.space, **free)
    return same and one.cluster.without_memory() == other.cluster.without_memory() and _is_cut_alike(one, other)


def _is_cut_alike(one: Instance, other: Instance) -> bool:
    """True if stages and chunks of two problems may hold the same layers, in the same schedules."""
    if one.network is not None or other.network is not None or one.graph != other.graph:
        return False
    return _cuts(one.space) == _cuts(other.space)


def _cuts(space: Space) -> tuple[object, ...]:
    together = tuple(each.same_stage for each in space.constraints if each.same_stage), space.together
    blocks = (space.blocks, space.blocks_and_ends, space.even, space.partition)
    return space.schedules, space.hidden_messages, space.direct, *together, *blocks
