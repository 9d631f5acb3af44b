"""Model of one case on a network: each stage's choice, the devices of its blocks, and the step time.

PROBLEM.md section 1, "Arbitrary network". All plans satisfy every constraint, so CP-SAT's bound holds although link
loads and the effects named by `PlacedModel.inexact` are left out.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf
from operator import mul
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from nest.instance import Instance, NetworkModel, RingPricing, Solution, chunks_of
from nest.reuse import remembered
from nest_cpsat.bounds import Relaxation, reduce
from nest_cpsat.chunk_models import ChunkModels
from nest_cpsat.free_placement import Found, best_of_all
from nest_cpsat.path_model import PathModel
from nest_cpsat.placement import TooManyChoicesError, TooManyPlacesError
from nest_cpsat.reduction_model import ReductionModel, TooManySetsError, calls, own_seconds
from nest_cpsat.scaling import TERMS, Scale
from nest_cpsat.stage_cost_cache import StageCostCache
from nest_cpsat.tier_model import Tier, TierModel, tiers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ortools.sat.python.cp_model import IntVar

    from nest_cpsat.cases import Case, LimitOf, OpenCase
    from nest_cpsat.cuts import Cuts
    from nest_cpsat.placement import Term

MOST_CELLS = 600  # Most devices times ranks of all blocks, with a variable for each pair.


@define(eq=False, slots=False)
class PlacedModels:
    """Models of cases on a network; without `cuts`, these are too many."""

    instance: Instance
    cuts: Cuts | None
    _relaxation: Relaxation | None = field(init=False)
    _chunked: ChunkModels = field(init=False)
    _tiers: tuple[Tier, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        cuts = self.cuts
        self._relaxation = (
            None if cuts is None else Relaxation(self.instance, cuts, StageCostCache(self.instance, cuts))
        )
        self._chunked = ChunkModels(self.instance)
        assert self.instance.network is not None
        self._tiers = tiers(self.instance.network.model)

    @property
    def most_stages(self) -> int:
        """Upper bound on the stages of a plan."""
        return len(self.instance.graph.layers) if self.cuts is None else self.cuts.longest

    def bound(self, case: Case, target: float) -> float:
        """Lower bound (s) of a case, on the level that beats everything on the network."""
        if chunks_of(case.schedule) > 1:
            return self._chunked.bound(case, target)
        return 0.0 if self._relaxation is None else self._relaxation.of(case, target)

    def best_of_all(self, case: Case, target: float, overfull: Sequence[Any]) -> Found | None:
        """Best plan of a case within `target`, link loads included; None: too many to try."""
        assert self._relaxation is not None
        reduced = reduce(self._relaxation, case, target, overfull)
        if reduced is None:
            return Found(None, inf)
        return best_of_all(self._relaxation, case, reduced.choices, target)

    def model(
        self, each: OpenCase, target: float, overfull: Sequence[Any], limit_of: LimitOf, *, ordered: bool
    ) -> PlacedModel | TierModel | PathModel | None:
        """Model of a case without `overfull` choices; None: no plan is below the target. Any placement is allowed.

        Raises:
            TooManyChoicesError: too many variables.
            TooManyPlacesError: too many devices, or the case has parts that are not modelled.
        """
        case = each.case
        if self._relaxation is None:
            raise TooManyChoicesError("the layer graph has too many cuts to list")
        if chunks_of(case.schedule) > 1 or len(case.candidates) > 1:
            raise TooManyPlacesError("CP-SAT places no plans with several chunks or candidates")
        if case.apart:
            raise TooManyPlacesError("CP-SAT places no plans with unequal passes or hidden messages")
        width, devices = self.instance.candidates[case.candidates[0]].width, self.instance.cluster.size
        large = devices * width * case.stages * case.replicas > MOST_CELLS
        if large and not self._tiers:
            raise TooManyPlacesError("the network is too large for CP-SAT to place every rank")
        reduced = reduce(self._relaxation, case, target, overfull)
        if reduced is None:
            return None
        each.bound = max(each.bound, reduced.bound)
        called = 6 * len(self.instance.candidates[case.candidates[0]].state)
        limit = limit_of(case, TERMS + (0 if large else called))
        if limit is None:  # Any plan will do, and where its blocks lie decides nothing.
            return PathModel(self._relaxation, case, reduced.choices, None, ordered=ordered)
        if large:
            return TierModel(self._relaxation, case, reduced.choices, limit, self._tiers, self._book_of)
        return PlacedModel(self._relaxation, case, reduced.choices, limit)

    @remembered
    def _book_of(self, instance: Instance, ring: tuple[float, float] | None) -> StageCostCache:
        """Stage costs with gradients reduced on a ring of some latency and bandwidth."""
        assert self.cuts is not None
        assert instance.network is not None
        if ring is not None:
            instance = evolve(instance, collectives=RingPricing(instance.network.collectives, lambda _: (ring,)))
        return StageCostCache(instance, self.cuts)


class PlacedModel(PathModel):
    """Model of one case as a path through the cuts, with every rank on a device.

    Attributes:
        inexact: reason why a plan may take longer than modelled; empty: it does not.
    """

    def __init__(self, relaxation: Relaxation, case: Case, choices: Sequence[Any], limit: tuple[Scale, int]) -> None:
        """Build the model of a case with a single candidate.

        Raises:
            TooManyChoicesError: too many variables.
        """
        assert relaxation.instance.network is not None
        factors = relaxation.instance.network.factors[case.candidates[0]]
        self.inexact = "TP, CP and EP communication has only a lower bound" if factors else ""
        super().__init__(relaxation, case, choices, limit)

    @property
    def _network(self) -> NetworkModel:
        assert self._instance.network is not None
        return self._instance.network.model

    def _place(self, *, ordered: bool) -> None:
        """Give every rank its own device; equal replicas are sorted by their first device."""
        del ordered
        case, model = self._case, self.model
        self._candidate = self._instance.candidates[case.candidates[0]]
        devices, ranks = range(self._instance.cluster.size), range(self._candidate.width)
        self._cells = [
            [[[model.new_bool_var("") for _ in devices] for _ in ranks] for _ in range(case.stages)]
            for _ in range(case.replicas)
        ]
        rows = [row for replica in self._cells for stage in replica for row in stage]
        for row in rows:
            model.add_exactly_one(row)
        for column in zip(*rows, strict=True):
            model.add_at_most_one(column)
        firsts = [sum(device * cell for device, cell in enumerate(replica[0][0])) for replica in self._cells]
        for one, two in pairwise(firsts) if case.replicas_alike(self._instance) else ():
            model.add(one < two)

    def _times_count(self, scale: Scale, limit: int) -> None:
        """Constrain `A * max t + B * sum t + max y` on the network."""
        model, case = self.model, self._case
        largest = limit // max(scale.slowest, scale.total, 1)
        slowest, sync = model.new_int_var(0, largest, ""), model.new_int_var(0, limit // scale.sync, "")
        taken = [model.new_int_var(0, largest, f"time {index}") for index in range(case.stages)]
        transfers: list[Term] = [0] * case.stages
        self._bytes = self._relaxation.book.costs(case, case.candidates[0]).bytes
        for boundary in range(case.stages - 1):
            arriving, returning = (model.new_int_var(0, largest, "") for _ in range(2))
            self._messages(boundary, arriving, returning, scale)
            transfers[boundary] = transfers[boundary] + returning
            transfers[boundary + 1] = transfers[boundary + 1] + arriving
        longest = limit // scale.sync
        for index, variable in enumerate(taken):
            model.add(slowest >= variable)
            choices = self._choices[index]
            # On the level that nothing beats.
            working = self._weighed(index, [scale.ticks(t) for t in choices.time.tolist()])
            model.add(variable >= working + transfers[index])
            model.add(sync >= self._weighed(index, [scale.sync_ticks(y) for y in choices.sync.tolist()]))
            time, once = self._reductions(index, transfers[index], largest, longest, scale)
            model.add(variable >= time)
            model.add(sync >= once)
        self._minimise(scale.slowest * slowest + scale.total * sum(taken) + scale.sync * sync, sync, scale, limit)

    def _messages(self, boundary: int, arriving: IntVar, returning: IntVar, scale: Scale) -> None:
        """Bound both messages of a boundary by the slowest path between counterparts, for the tensors of the cut."""
        latency, bandwidth = self._network.latency, self._network.bandwidth
        used: dict[tuple[float, ...], IntVar] = {}
        devices = range(self._instance.cluster.size)
        for replica in self._cells:
            for here, there in zip(replica[boundary], replica[boundary + 1], strict=True):
                for one in devices:
                    for two in devices:
                        if one == two:
                            continue
                        way = tuple(
                            float(each[pair]) for pair in ((one, two), (two, one)) for each in (latency, bandwidth)
                        )
                        if way not in used:
                            used[way] = self.model.new_bool_var("")
                        self.model.add_bool_or([here[one].negated(), there[two].negated(), used[way]])
        cuts = list(self._cut_at[boundary].items())
        literals, sizes = [literal for _, literal in cuts], [float(self._bytes[cut]) for cut, _ in cuts]
        for way, literal in used.items():
            for variable, wait, rate in ((arriving, way[0], way[1]), (returning, way[2], way[3])):
                ticks = [scale.ticks(wait + size / rate) if size else 0 for size in sizes]
                self.model.add(variable >= sum(map(mul, ticks, literals))).only_enforce_if(literal)

    def _reductions(self, index: int, transfers: Term, largest: int, longest: int, scale: Scale) -> tuple[Term, Term]:
        """Ticks of a stage per micro-batch and per batch, with its data-parallel communication."""
        case, space, choices = self._case, self._instance.space, self._choices[index]
        cells = [replica[index] for replica in self._cells]
        reductions = ReductionModel(self.model, self._instance, cells, self._taken[index], scale)
        work, update = own_seconds(self._instance, case, self._relaxation.book, choices)
        shown: dict[bool, Term] = {True: 0, False: 0}
        whole: dict[bool, Term] = {True: 0, False: 0}
        try:
            for call in calls(self._instance, case, self._relaxation.book, choices):
                most = largest if call.often else longest
                shown[call.often] = shown[call.often] + reductions.add(call, call.exposed, most)
                if space.hiding:
                    whole[call.often] = whole[call.often] + reductions.add(call, 1.0, most)
        except TooManySetsError:
            self.inexact = "gradient reduction has only a lower bound"
            shown, whole = {True: 0, False: 0}, {True: 0, False: 0}
        working = self._weighed(index, [scale.ticks(each) for each in work.tolist()])
        updating = self._weighed(index, [scale.sync_ticks(each) for each in update.tolist()])
        time, once = self.model.new_int_var(0, largest, ""), self.model.new_int_var(0, longest, "")
        self.model.add(time >= working + shown[True] + transfers)
        self.model.add(once >= updating + shown[False])
        if space.hiding:  # What is above the work shows.
            self.model.add(time >= whole[True] + transfers)
            covered = self._weighed(index, [scale.covering_ticks(each) for each in work.tolist()])
            self.model.add(once >= updating + whole[False] - covered)
        return time, once

    def solution(
        self, value: Callable[[IntVar], int]
    ) -> tuple[Solution, tuple[tuple[int, int, tuple[str, int], int], ...]]:
        """Decode a solution; also name each stage's choice for `bounds.Overfull`."""
        stages, names = self._decided(value)
        placement = tuple(
            tuple(
                tuple(next(device for device, cell in enumerate(row) if value(cell)) for row in block)
                for block in replica
            )
            for replica in self._cells
        )
        return evolve(self._case.plan(stages), placement=placement), names
