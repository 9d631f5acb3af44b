"""Model of one case on a network too large to place every rank: nearness by bandwidth tiers.

Pairs of devices with at least a tier's bandwidth form islands. Whatever is near (a ring over the replicas, a block,
neighbouring stages) shares an island, up to its number of devices. The rest crosses between islands at the cost of the
best pair across. No plan is below that, so CP-SAT's bound holds; blocks get no places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
from attrs import evolve, frozen

from nest.instance import Instance, Level, NetworkModel, Solution
from nest_cpsat.path_model import PathModel
from nest_cpsat.scaling import Scale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ortools.sat.python.cp_model import IntVar

    from nest_cpsat.bounds import Choices, Relaxation
    from nest_cpsat.cases import Case
    from nest_cpsat.cuts import Floats
    from nest_cpsat.placement import Term
    from nest_cpsat.stage_cost_cache import StageCostCache

MOST_TIERS = 4
"""Most tiers, at the largest steps of bandwidth: node, rack, row; measured bandwidths differ at every pair."""


@frozen
class Tier:
    """Pairs with at least some bandwidth."""

    islands: tuple[int, ...]  # Sizes of the device sets that such pairs connect, largest first.
    bandwidth: float  # Of the best other pair, in bytes per second.
    latency: float  # Least of the other pairs, in seconds.


def tiers(network: NetworkModel) -> tuple[Tier, ...]:
    """Tiers that divide the devices; none if rings may run one dimension after the other."""
    if network.dimensions is not None:
        return ()
    bandwidth, latency = network.bandwidth, network.latency
    apart = ~numpy.eye(len(bandwidth), dtype=bool)
    found: list[Tier] = []
    for least in _steps(numpy.unique(bandwidth[apart])[::-1]):
        near = (bandwidth >= least) & (least <= bandwidth.T)
        islands = _islands(near)
        if islands[0] == len(bandwidth):
            break
        far = apart & (bandwidth < least)
        tier = Tier(islands, float(bandwidth[far].max()), float(latency[far].min()))
        if found and found[-1].islands == islands:
            found.pop()  # The same islands, and what is far is slower.
        found.append(tier)
    return tuple(found)


def _steps(values: Floats) -> list[float]:
    """Of descending values, those before the largest relative drops, at most `MOST_TIERS`."""
    ratios = values[:-1] / values[1:]
    chosen = numpy.sort(numpy.argsort(-ratios, kind="stable")[:MOST_TIERS])
    steps: list[float] = values[chosen].tolist()
    return steps


def _islands(near: Any) -> tuple[int, ...]:
    """Sizes of the connected sets, largest first."""
    left, sizes = numpy.ones(len(near), dtype=bool), []
    while left.any():
        reached = numpy.zeros(len(near), dtype=bool)
        front = reached.copy()
        front[left.argmax()] = True
        while front.any():
            reached |= front
            front = near[front].any(axis=0) & ~reached
        sizes.append(int(reached.sum()))
        left &= ~reached
    return tuple(sorted(sizes, reverse=True))


class TierModel(PathModel):
    """Model of one case as a path through the cuts, with nearness on each tier.

    Attributes:
        inexact: reason why a plan may take longer than modelled.
    """

    inexact = "the network is so large that placements have only a lower bound"

    def __init__(
        self,
        relaxation: Relaxation,
        case: Case,
        choices: Sequence[Choices],
        limit: tuple[Scale, int],
        every: Sequence[Tier],
        book: Callable[[Instance, tuple[float, float] | None], StageCostCache],
    ) -> None:
        """Build the model of a case with a single candidate.

        Args:
            every: tiers.
            book: stage costs with gradients reduced on a ring of some latency and bandwidth.

        Raises:
            TooManyChoicesError: too many variables.
        """
        self._tiers, self._book = every, book
        super().__init__(relaxation, case, choices, limit)

    def _place(self, *, ordered: bool) -> None:
        """Place nothing."""

    def _times_count(self, scale: Scale, limit: int) -> None:
        """Constrain `A * max t + B * sum t + max y`; no term exceeds any placement's."""
        model, case = self.model, self._case
        largest = limit // max(scale.slowest, scale.total, 1)
        slowest, sync = model.new_int_var(0, largest, ""), model.new_int_var(0, limit // scale.sync, "")
        taken = [model.new_int_var(0, largest, f"time {index}") for index in range(case.stages)]
        transfers: list[Term] = [0] * case.stages
        near = {tier: _Near(self, tier) for tier in self._tiers}
        sizes = self._relaxation.book.costs(case, case.candidates[0]).bytes
        level = self._instance.cluster.levels[0]
        for boundary, cuts in enumerate(self._cut_at):
            crossing = [float(sizes[cut]) for cut in cuts]
            spent = model.new_int_var(0, largest, "")
            ways: list[tuple[float, float, IntVar | None]] = [(level.latency, level.bandwidth, None)]
            ways += [(tier.latency, tier.bandwidth, each.boundaries[boundary]) for tier, each in near.items()]
            for latency, bandwidth, close in ways:
                ticks = [scale.ticks(latency + size / bandwidth) if size else 0 for size in crossing]
                bound = model.add(spent >= sum(t * cut for t, cut in zip(ticks, cuts.values(), strict=True)))
                if close is not None:
                    bound.only_enforce_if(close.negated())
            transfers[boundary] = transfers[boundary] + spent
            transfers[boundary + 1] = transfers[boundary + 1] + spent
        for index, variable in enumerate(taken):
            model.add(slowest >= variable)
            choices = self._choices[index]
            for time, once, unless in self._costs(index, choices, near):
                working = self._weighed(index, [scale.ticks(each) for each in time.tolist()])
                waiting = self._weighed(index, [scale.sync_ticks(each) for each in once.tolist()])
                model.add(variable >= working + transfers[index]).only_enforce_if([each.negated() for each in unless])
                model.add(sync >= waiting).only_enforce_if([each.negated() for each in unless])
        self._minimise(scale.slowest * slowest + scale.total * sum(taken) + scale.sync * sync, sync, scale, limit)

    def _costs(
        self, index: int, choices: Choices, near: dict[Tier, _Near]
    ) -> Iterator[tuple[Floats, Floats, list[IntVar]]]:
        """Seconds of each choice per micro-batch and per batch, and what must be far for them."""
        yield choices.time, choices.sync, []
        for tier, each in near.items():
            ring, block = each.rings[index], each.blocks[index]
            far = (tier.latency, tier.bandwidth)
            kinds: list[tuple[Instance, tuple[float, float] | None, list[IntVar]]] = []
            if ring is not None:
                kinds.append((self._instance, far, [ring]))
            for instance in self._far_blocks(tier) if block is not None else ():
                kinds.append((instance, None, [block]))  # type: ignore[list-item]
                if ring is not None:
                    kinds.append((instance, far, [ring, block]))  # type: ignore[list-item]
            for instance, figures, unless in kinds:
                costs = self._book(instance, figures).costs(self._case, self._case.candidates[0])
                yield costs.time[choices.mode, choices.stage], costs.sync[choices.mode, choices.stage], unless

    def _far_blocks(self, tier: Tier) -> Iterator[Instance]:
        """Instance with collectives inside blocks across islands, where that can be priced.

        With several factors it is unknown which sets of ranks cross, so such blocks stay unchanged.
        """
        network, index = self._instance.network, self._case.candidates[0]
        assert network is not None
        factors = network.factors[index]
        if len(factors) != 1:
            return
        priced = network.repriced(index, (Level("far", factors[0], tier.bandwidth, tier.latency),))
        priced = evolve(priced, busy=None, recompute=tuple(evolve(mode, busy=None) for mode in priced.recompute))
        candidates = list(self._instance.candidates)
        candidates[index] = priced
        yield evolve(self._instance, candidates=tuple(candidates))

    @property
    def case(self) -> Case:
        """Case of the model."""
        return self._case

    @property
    def instance(self) -> Instance:
        """Instance of the model."""
        return self._instance

    def solution(
        self, value: Callable[[IntVar], int]
    ) -> tuple[Solution, tuple[tuple[int, int, tuple[str, int], int], ...]]:
        """Decode a solution without placement; also name each stage's choice for `bounds.Overfull`."""
        decisions, names = self._decided(value)
        return self._case.plan(decisions), names


class _Near:
    """Nearness on one tier.

    Attributes:
        boundaries: indicators that all counterparts of the two stages are near.
        rings: indicators by stage that rings over its replicas are near; None: gradients are reduced over single
            devices, several kinds of sets, or more devices than an island.
        blocks: indicators by stage that its blocks are near; None: single devices, measured whole, or several sets of
            ranks.
    """

    def __init__(self, model: TierModel, tier: Tier) -> None:
        case, network = model.case, model.instance.network
        assert network is not None
        candidate = model.instance.candidates[case.candidates[0]]
        kinds = {len(group.ranks) for group in candidate.state}
        members = case.replicas * min(kinds, default=1)
        whole = case.zero_degree is None and len({group.ranks for group in candidate.state}) == 1
        ringed = whole and 1 < members <= tier.islands[0]
        blocked = len(network.factors[case.candidates[0]]) == 1
        new = model.model.new_bool_var
        self.boundaries = [new("") for _ in range(case.stages - 1)]
        self.rings = [new("") if ringed else None for _ in range(case.stages)]
        self.blocks = [new("") if blocked else None for _ in range(case.stages)]
        if ringed:
            room = sum(size // members for size in tier.islands)
            sets = max(candidate.width // min(kinds), 1)
            model.model.add(sets * sum(each for each in self.rings if each is not None) <= room)
        width, replicas = candidate.width, case.replicas
        self._limit(model, tier, 1, lambda _: [])
        self._limit(model, tier, members, lambda index: [self.rings[index]])
        self._limit(model, tier, width, lambda index: [self.blocks[index]])
        self._limit(model, tier, width * replicas, lambda index: [self.rings[index], self.blocks[index]])

    def _limit(self, model: TierModel, tier: Tier, extent: int, needed: Callable[[int], list[IntVar | None]]) -> None:
        """Put adjacent stages with near boundaries on one island if one of them holds `extent` devices together.

        Forbid as many stages as would exceed the largest island.
        """
        many = tier.islands[0] // extent + 1
        for first in range(len(self.rings) - many + 1):
            window = self.boundaries[first : first + many - 1]
            for index in range(first, first + many):
                literals = needed(index)
                if any(each is None for each in literals):
                    continue
                held = [*window, *(each for each in literals if each is not None)]
                if held:
                    model.model.add_bool_or([each.negated() for each in held])
