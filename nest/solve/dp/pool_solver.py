"""Fastest plan on several pools: each pool alone with the searches of plain clusters, then several together."""

import time
from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any

from attrs import evolve

from nest.errors import NoPlanYet
from nest.instance import Instance, Result, Solution
from nest.solve.dp.configurations import Configuration, LeastMemory, PlanSignature, without
from nest.solve.dp.diagnosis import memory_exceeded, refused, unable
from nest.solve.dp.downsets import Downsets, allowed_cuts, inseparable_layers, lattice, membership
from nest.solve.dp.pool_configurations import PoolListing
from nest.solve.dp.pools import PoolSearch
from nest.solve.dp.rules import Exclusions
from nest.solve.dp.solver import solve as solve_alone
from nest.solve.effort import Deadline
from nest.solve.search import LAST, NONE, PRUNED_BY_BOUND, BestFirst, Incumbent, OutOfTime, Progress, price_of
from nest.tolerances import TIE


def solve(
    instance: Instance,
    time_limit: float | Deadline | None = None,
    progress: Progress | None = None,
    *,
    known: tuple[Solution, float] | None = None,
    runner_up: bool = True,
    besides: Sequence[Solution] = (),
    diagnosed: bool = True,
) -> Result:
    """Find the fastest plan, proved optimal, or the best with its bound; or the reason for none.

    Ties are broken as in PROBLEM.md section 8. There is no runner-up; `runner_up` is unused.

    Args:
        time_limit: seconds, or a deadline; then the best plan so far is returned with its bound.
        known: a plan that fits, with its step time in seconds; None: none is known.
        besides: known plans; neither they nor plans they cover (`nest.solve.dp.configurations`) are searched.
        diagnosed: see `nest.solve.dp.solve`.

    Raises:
        InputError: the layer graph has too many cuts, or a constraint cannot be computed.
        NoPlanYet: the deadline has passed without a plan.
    """
    deadline = time_limit if isinstance(time_limit, Deadline) else Deadline(time_limit, patience=inf)
    return _Solver(instance, deadline, progress, besides, diagnosed).solve(known)


class _Solver:
    """One call of `solve`."""

    def __init__(
        self,
        instance: Instance,
        deadline: Deadline,
        progress: Progress | None,
        besides: Sequence[Solution],
        diagnosed: bool,
    ) -> None:
        assert instance.pools is not None
        self.instance, self.deadline, self.progress, self.besides = instance, deadline, progress, besides
        self.diagnosed = diagnosed
        self.pools = instance.pools
        self.started = time.monotonic()
        self.bound = inf
        self.statistics: Counter[str] = Counter()
        self.exclusions = Exclusions()

    def solve(self, known: tuple[Solution, float] | None) -> Result:
        """Solve the problem."""
        best = None if known is None else Incumbent(known[1], LAST, known[0])
        for pool in range(len(self.pools.members)):
            found = self._alone(pool, best)
            if found is not None and _comes_first(found, best):
                best = found
        members = membership(
            allowed_cuts(self.instance, inseparable_layers(self.instance)), len(self.instance.graph.layers)
        )
        downsets = lattice(members)
        try:
            search, bound = self._together(downsets, best)
        except OutOfTime:
            if best is None:
                raise self.deadline.no_plan_yet() from None
            return Result("feasible", best.solution, best.value, 0.0)
        bound = min(bound, self.bound)
        if search.best is None:
            if bound < inf:
                raise self.deadline.no_plan_yet()
            if self.besides:
                return Result("infeasible", diagnosis="no other plan exists.")
            return Result("infeasible", diagnosis=diagnose(self.instance, downsets) if self.diagnosed else "")
        value = search.best.value
        proved = bound >= value * (1 - TIE)
        if value > self.instance.complete_to:
            proved, bound = False, min(bound, self.instance.complete_to)
        return Result(
            "optimal" if proved else "feasible",
            search.best.solution,
            value,
            value if proved else bound,
            statistics=self._statistics(search, downsets),
        )

    def _alone(self, pool: int, best: Incumbent | None) -> Incumbent | None:
        """Best plan on one pool, with its rank among ties; None: none is as fast as `best`."""
        alone = self.instance.alone(pool)
        if alone is None:
            return None
        instance, candidates = alone
        try:
            known = None if best is None else (NONE, best.value)
            result = solve_alone(
                instance,
                self.deadline,
                self.progress,
                known=known,
                preferred=False,
                runner_up=False,
                besides=self._besides(candidates),
            )
        except NoPlanYet:
            self.bound = 0.0
            return None
        self._count(result.statistics)
        if result.solution is None or result.batch_time is None:
            return None
        self.bound = min(self.bound, inf if result.status == "optimal" else result.lower_bound or 0.0)
        if result.solution == NONE:
            return None
        stages = tuple(evolve(stage, candidate=candidates[stage.candidate]) for stage in result.solution.stages)
        solution = evolve(result.solution, stages=stages)
        devices = solution.replicas * sum(self.instance.candidates[stage.candidate].width for stage in stages)
        return Incumbent(result.batch_time, (devices, len(stages), 1, pool), solution)

    def _besides(self, candidates: Sequence[int]) -> list[Solution]:
        """Known plans with only these candidates, renumbered."""
        places = {candidate: place for place, candidate in enumerate(candidates)}
        return [
            evolve(known, stages=tuple(evolve(stage, candidate=places[stage.candidate]) for stage in known.stages))
            for known in self.besides
            if all(stage.candidate in places for stage in known.stages)
        ]

    def _together(self, downsets: Downsets, best: Incumbent | None) -> tuple[BestFirst, float]:
        """Search plans on at least two pools; return the search and its lower bound."""
        search = PoolSearch(self.instance, [], downsets)
        price = price_of(self.instance)
        first = BestFirst([search], self.started, self.deadline, None, self.progress, best, price=price)
        limit = inf if best is None else best.value * (1 + TIE)
        listing = PoolListing(self.instance, downsets.most_stages, self.exclusions, first.prepare, limit)
        listed = self._uncovered(listing.listed())
        search.configurations = [configuration for _, configuration in listed]
        search.bounds, search.compute = [bound for bound, _ in listed], listing.compute
        return first, first.find_best()

    def _uncovered(self, listed: list[tuple[float, Configuration]]) -> list[tuple[float, Configuration]]:
        """Configurations without known plans, in every pool that they use."""
        signatures = [PlanSignature.of(each) for each in self.besides]
        if not signatures:
            return listed
        left = [
            (bound, each)
            for bound, configuration in listed
            for each in without([configuration], signatures, self.instance)
            if len(each.members) == len(configuration.members)
        ]
        return [(bound, evolve(each, order=order)) for order, (bound, each) in enumerate(left)]

    def _count(self, statistics: dict[str, Any]) -> None:
        for name in ("combinations", "states"):
            self.statistics[name] += statistics.get(name, 0)
        for name, count in statistics.get("settled_by", {}).items():
            self.statistics[f"settled_by/{name}"] += count

    def _statistics(self, search: BestFirst, downsets: Downsets) -> dict[str, Any]:
        settled = Counter({PRUNED_BY_BOUND[False]: self.exclusions.slow}) + search.pruned
        for name, count in self.statistics.items():
            if name.startswith("settled_by/"):
                settled[name.removeprefix("settled_by/")] += count
        return {
            "downsets": downsets.count,
            "candidates": len(self.instance.candidates),
            "pools": len(self.pools.members),
            "combinations": search.total + self.exclusions.slow + self.statistics["combinations"],
            "settled_by": {name: count for name, count in sorted(settled.items()) if count},
            "states": search.meter.states + self.statistics["states"],
        }


def _comes_first(plan: Incumbent, best: Incumbent | None) -> bool:
    """True if a plan is faster than the best so far, or ties and comes first."""
    if best is None:
        return True
    if abs(plan.value - best.value) <= TIE * best.value:
        return plan.tie_break < best.tie_break
    return plan.value < best.value


def diagnose(instance: Instance, downsets: Downsets) -> str:
    """One or two sentences on the tightest constraint of an infeasible instance with pools."""
    exclusions = Exclusions()
    search = PoolSearch(instance, [], downsets)
    listed = PoolListing(instance, downsets.most_stages, exclusions, fewest=1).listed()
    best: tuple[float, str, LeastMemory] | None = None
    known: set[tuple[object, ...]] = set()
    for _, configuration in listed:
        key = (
            configuration.members,
            configuration.replicas,
            configuration.schedule.name,
            configuration.stage_counts,
            configuration.zero_degree,
        )
        if key in known:
            continue
        known.add(key)
        for split, excess in search.excess(configuration).items():
            if excess < (inf if best is None else best[0]):
                index = search.fullest(configuration, sum(split), excess)
                needed = instance.cluster_of(index).memory + excess
                candidate = instance.candidates[index]
                of_all = candidate.name if len(configuration.members) == 1 else ""
                best = excess, str(candidate.pool), LeastMemory(needed, sum(split), configuration.replicas, of_all)
    if not listed:
        return refused(instance, exclusions)
    if best is None:
        return unable(instance) or ("same_stage constraints leave too few places to cut for these stages; drop one.")
    _, pool, least = best
    assert instance.pools is not None
    return memory_exceeded(instance.pools.members[instance.pools.index(pool)].cluster, least, pool)
