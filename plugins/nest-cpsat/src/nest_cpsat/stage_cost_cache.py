"""Cache of the costs of stages between two cuts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from attrs import define, field

from nest.instance import Instance, copies_of, partial
from nest.reuse import BoundedCache
from nest.tolerances import LIMIT_SLACK, SUM_ERROR
from nest_cpsat.cases import Case, Mode, seen_by
from nest_cpsat.cuts import Cuts
from nest_cpsat.first_blocks import FirstBlocks, fewest, pair_of, pairs_of
from nest_cpsat.kept import kept
from nest_cpsat.stages import DataParallelGroup, Parts, Sharded, StageCosts, data_parallel_groups, priced, sharding


@define(slots=False)
class StageCostCache:
    """Costs of stages between two cuts, computed once for each candidate and shape of its groups."""

    instance: Instance
    cuts: Cuts
    _parts: BoundedCache[Parts] = field(factory=kept)
    _groups: dict[tuple[int, int, str, int, int | None], tuple[DataParallelGroup, ...]] = field(factory=dict)
    _sharded: BoundedCache[dict[int, Sharded]] = field(factory=kept)
    _costs: BoundedCache[StageCosts] = field(factory=kept)

    def make_room(self) -> None:
        """Evict cached values between two cases."""
        self._parts.make_room()
        self._sharded.make_room()
        self._costs.make_room()

    def costs(self, case: Case, candidate: int) -> StageCosts:
        """Costs of stages with `candidate` in `case`."""
        key, sharded = self._sharding(case, candidate)
        return self._costs.of(key, lambda: priced(self.instance.at(candidate), self.parts(candidate), sharded))

    def least(self, case: Case, candidate: int, modes: Sequence[Mode], flying: float) -> tuple[StageCosts, list[int]]:
        """Least costs of stages with so many micro-batches in flight, and the rows of the modes.

        Partial modes that differ only in the number of blocks share a row: for each stage, the fewest that fit.
        """
        parts, names = self.parts(candidate), defaultdict[Mode, list[str]](list)
        for recompute, zero in modes:
            names[pair_of(recompute), zero].append(recompute)
        # Where parts of a pass weigh differently, or messages hide, fewest blocks may not be fastest.
        if not parts.pairs or (case.apart and len(names) < len(modes)):
            costs = self.costs(case, candidate)
            return costs, costs.rows(tuple(modes))
        instance, (_, sharded) = self.instance.at(candidate), self._sharding(case, candidate)
        room = instance.cluster.memory * (1 + LIMIT_SLACK) * (1 - SUM_ERROR) - instance.cluster.reserve
        chosen = {
            (pair, zero): parts.recompute[own[0]]
            if len(own) == 1
            else fewest(parts.pairs[pair], own, flying - 1, room - sharded[zero].held)
            for (pair, zero), own in names.items()
        }
        return priced(instance, parts, sharded, chosen), list(range(len(chosen)))

    def _sharding(self, case: Case, candidate: int) -> tuple[object, dict[int, Sharded]]:
        place = (candidate, case.replicas, case.rank_order, case.widest, case.zero_degree)
        if place not in self._groups:
            self._groups[place] = data_parallel_groups(*seen_by(self.instance, case, candidate), candidate)
        groups, copies = self._groups[place], copies_of(case.schedule)
        key = (candidate, copies, groups)
        instance, parts = self.instance.at(candidate), self.parts(candidate)
        return key, self._sharded.of(key, lambda: sharding(instance, parts, groups, copies))

    def parts(self, candidate: int) -> Parts:
        """Case-independent costs of stages with `candidate`."""
        return self._parts.of(candidate, lambda: self._made(candidate))

    def _made(self, candidate: int) -> Parts:
        used, cuts = self.instance.candidates[candidate], self.cuts
        crossing = cuts.bytes(self.instance.graph, used)
        entering = crossing[cuts.first]
        names = [name for name in self.instance.recompute_names(candidate) if partial(name) is not None]
        pairs = {pair: self._first_blocks.tables(used, pair, entering) for pair in pairs_of(names)}
        return Parts.of(used, cuts.sums, cuts.largest, entering, crossing, names, pairs)

    @cached_property
    def _first_blocks(self) -> FirstBlocks:
        return FirstBlocks.of(self.instance.space.units, self.cuts.stage_layers)
