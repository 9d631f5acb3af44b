"""One search for the best plan among all candidates or some, with or without the graph without idle layers."""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any

import numpy
from attrs import define, evolve, field
from numpy.typing import NDArray

from nest.instance import Instance, Result, chunks_of
from nest.solve.dp.configurations import Configuration, PlanSignature, of_whole_modes, without
from nest.solve.dp.downsets import (
    Downsets,
    StageRange,
    TooManyCuts,
    allowed_cuts,
    coarsening,
    cuts,
    inseparable_layers,
    lattice,
    membership,
)
from nest.solve.dp.listing import admitted, configurations, mixed_configurations
from nest.solve.dp.plain import PlainSearch
from nest.solve.dp.rules import Exclusions
from nest.solve.dp.tables import SharedTables
from nest.solve.effort import Deadline
from nest.solve.search import (
    FIRST,
    PRUNED_BY_BOUND,
    RUNNER_UP_STATES,
    BestFirst,
    Incumbent,
    Meter,
    OutOfTime,
    PlanKind,
    Progress,
    Searcher,
    price_of,
)
from nest.tolerances import TIE

if TYPE_CHECKING:
    from nest.solve.dp.chunks import ChunkSearch

REACH = 1.07
"""Factor over the least bound up to which plans are searched first; the best of 405B on 16,384 H100 takes 1.054."""

SLOWER = 1.1  # Factor over a known plan's step time up to which a runner-up is searched.

FEW_CUTS, MANY_CUTS = 500, 2_000
"""Downsets up to which idle layers get no search of their own, and above which stages of no good plan are dropped
before listing. Below, a first plan costs what it saves: 1,000 blocks on 131,072 devices take 6.0 s without it and 8.9 s
with it; the 12 operator graphs of BERT (2,906 downsets) take 2.4 s with it and 3.4 s without, and GNMT without idle
layers (16,826) cannot be listed without it."""

SCOUT_STATES = 20_000  # Most states for scouts once a plan is known; then the search of all candidates is faster.


@define(eq=False, repr=False)
class Attempt:
    """One call of `solve`, or of its attempts with some candidates."""

    instance: Instance
    deadline: Deadline
    progress: Progress | None
    listed: tuple[PlanSignature, ...]
    tables: SharedTables
    placed: Callable[[Incumbent], Incumbent | None] | None
    among: Sequence[int] | None
    share: float | None
    known: Incumbent | None
    second: bool
    others: dict[PlanKind, Incumbent]
    scouts: bool = False
    guess: float = inf
    diagnosed: bool = True
    started: float = field(factory=time.monotonic)
    meter: Meter = field(factory=Meter)
    together: list[tuple[int, ...]] = field(init=False)
    plain: list[Configuration] = field(init=False)
    chunked: list[Configuration] = field(init=False)
    mixed: list[Configuration] = field(factory=list)
    exclusions: Exclusions = field(init=False)
    every: list[Configuration] = field(init=False)
    listed_to: float = field(default=inf, init=False)
    limit: float = field(default=inf, init=False)
    listed_so_far: int = field(default=0, init=False)
    bound: float = 0.0

    def __attrs_post_init__(self) -> None:
        instance, space = self.instance, self.instance.space
        self.together = inseparable_layers(instance)
        self._list(min(inf if self.known is None else self.known.value * (1 + TIE), self.guess))
        if space.mixed and self.among is None and any(chunks_of(each) == 1 for each in space.schedules):
            self.exclusions = Exclusions()
            watch, first = self._search((), self.known).prepare, self.listed_so_far
            self.mixed = mixed_configurations(instance, len(instance.graph.layers), first, self.exclusions, watch)
            if self.listed:
                self.mixed = without(self.mixed, self.listed, instance, first)

    def _list(self, limit: float) -> None:
        """List further plans of one candidate with bounds up to `limit` seconds.

        If there may be no plan, list all for a diagnosis, which reads why each configuration fails.
        """
        instance, watch = self.instance, self._search((), self.known).prepare
        screen = self.tables.screen if self.scouts or limit < inf or not self.diagnosed else None
        # What a search with a runner-up leaves out is counted.
        among = self.among if self.second or screen is None else admitted(instance, self.among)
        arguments = (len(instance.graph.layers), self.tables.splits.counts, among, watch, limit, screen)
        # Stages of several chunks take longer to search: a good plan of one is enough to begin with.
        every, exclusions = configurations(instance, *arguments, one_chunk=self.scouts)
        if self.scouts and not every:
            every, exclusions = configurations(instance, *arguments)
        every = without(every, self.listed, instance) if self.listed else every
        if self.listed_so_far:
            every = [evolve(each, order=each.order + self.listed_so_far) for each in every]
        else:
            self.exclusions = exclusions
        self.listed_to, self.every, self.listed_so_far = limit, every, self.listed_so_far + len(every)
        self._keep(inf)

    def _keep(self, reach: float) -> None:
        """Search only plans listed from now on with bounds up to `reach` seconds."""
        self.limit, self.plain, self.chunked = min(self.listed_to, reach), [], []
        for each in self.every:
            if (each.bound or 0.0) <= reach:
                (self.plain if chunks_of(each.schedule) == 1 else self.chunked).append(each)

    def least_with_room(self) -> dict[str, float]:
        """Lower bound (s) by name of candidates with plans up to the limit.

        Listed plans of several chunks without memory or time do not count.
        """
        worth, least = self._chunks(self.meter).worthwhile(self.chunked, self.limit), dict[str, float]()
        for each in (*self.plain, *(each for each in self.chunked if worth[each.order].time)):
            name = self.instance.candidates[each.candidate].name
            least[name] = min(least.get(name, inf), each.bound or 0.0)
        return least

    def solve(self) -> Result:
        """Solve, through the graph without cuts around idle layers if that decides."""
        graph, space, refused = self.instance.graph, self.instance.space, None
        if not self.plain and not self.mixed and (self.chunked or all(chunks_of(each) > 1 for each in space.schedules)):
            # Where to cut is decided.
            return self._answer_for(membership([0, (1 << len(graph.layers)) - 1], len(graph.layers)))
        try:
            masks = allowed_cuts(self.instance, self.together)
        except TooManyCuts as error:
            masks, refused = [], error
        answer: Result | None = None
        # In a chain an idle layer adds one cut; where the graph branches it multiplies them: GNMT has 17,914 for 100.
        branched = len(masks) > FEW_CUTS and any(smaller & ~larger for smaller, larger in pairwise(masks))
        if space.partition is None and not space.even and self.placed is None and (refused or branched):
            answer = self._without_idle_layers()
            proved = ("optimal", "infeasible") if refused else ("optimal",)
            decided = answer is not None and answer.status in proved
            if answer is not None and (decided or (answer.status == "feasible" and self.deadline.passed)):
                return answer
        if refused is None:
            try:
                return self._answer_for(membership(masks, len(graph.layers)))
            except TooManyCuts as error:
                refused = error
        refused.answer = answer
        raise refused

    def _answer_for(self, members: NDArray[numpy.bool_]) -> Result:
        """Search the downsets with these layers. Shape `(downsets, layers)`."""
        known = self._first_plan(members)
        ranges = self._ranges(members, known)
        downsets = self.tables.lattice(members) if ranges is None else lattice(members, ranges)
        search, bound = self._find_best(self.instance, downsets, known, whole=True)
        if search.best is None:
            return self._infeasible(search, bound, downsets)
        return self._answer(search, max(bound, self.bound), downsets)

    def _without_idle_layers(self) -> Result | None:
        """Solve the graph in which idle layers stay with their neighbours; None: it decides nothing.

        The result is `feasible` if the bounds of `nest.solve.dp.idle_layers` do not meet; plan and bound are kept for
        later.
        """
        from nest.solve.dp.idle_layers import attachments, without_costs

        attached = attachments(self.instance, self.together)
        if not attached:
            return None
        try:
            masks = cuts(self.instance.graph, [*self.together, *attached])
            members = membership(masks, len(self.instance.graph.layers))
            downsets = lattice(members)
        except TooManyCuts:
            return None
        above, reached = self._find_best(self.instance, downsets, self._first_plan(members))
        relaxed = without_costs(self.instance, [layer for layer, _ in attached])
        known = None if above.best is None else Incumbent(above.best.value, (), above.best.solution)
        below, bound = self._find_best(relaxed, downsets.with_empty_stages(len(attached)), known, relaxed=True)
        if above.best is None:
            return self._infeasible(above, min(reached, bound), downsets) if below.best is None else None
        # The best plan of the relaxed problem is no slower than any plan of the whole one.
        self.known, self.bound = above.best, min(reached, bound, below.limit)
        return self._answer(above, self.bound, downsets)

    def _ranges(self, members: NDArray[numpy.bool_], known: Incumbent | None) -> list[StageRange] | None:
        """Compute limits of stages of plans as good as the known one, if there are many cuts."""
        if known is None or len(members) <= MANY_CUTS or self.instance.space.mixed:
            return None
        return self._plain(self.instance, lattice(members[[0, -1]])).stage_ranges(members, known.value * (1 + TIE))

    def _first_plan(self, members: NDArray[numpy.bool_]) -> Incumbent | None:
        """Find a good plan that cuts at only some downsets; None: the search itself is as fast."""
        if len(members) <= MANY_CUTS:
            return self.known
        return self._best_of(self._plain(self.instance, coarsening(members, self.instance)), self.known)

    def _plain(
        self, instance: Instance, downsets: Downsets, held_up: bool = True, *, whole_modes: bool = False
    ) -> PlainSearch:
        # Of many cuts not all stages between them are looked at.
        whole = instance is self.instance and downsets.count <= MANY_CUTS
        tables = self.tables if whole else SharedTables(instance)
        key = ("plain", held_up, downsets.members.tobytes())
        bounds, shared = tables.bounds, tables.of(key)
        known: dict[str, dict[Hashable, Any]] = {"shared": shared, "scheduled": tables.scheduled}
        listed = list(filter(None, map(of_whole_modes, self.plain))) if whole_modes else self.plain
        return PlainSearch(instance, listed, downsets, held_up, first_bounds=bounds, meter=self.meter, **known)

    def _chunks(self, meter: Meter) -> "ChunkSearch":
        from nest.solve.dp.chunks import ChunkSearch

        bounds, splits = self.tables.bounds, self.tables.splits
        known: dict[str, dict[Hashable, Any]] = {"shared": self.tables.of("chunks"), "scheduled": self.tables.scheduled}
        return ChunkSearch(self.instance, self.chunked, splits, first_bounds=bounds, meter=meter, **known)

    def _find_best(
        self,
        instance: Instance,
        downsets: Downsets,
        known: Incumbent | None,
        *,
        whole: bool = False,
        relaxed: bool = False,
    ) -> tuple[BestFirst, float]:
        """Search to the end or the deadline; return the search and its lower bound.

        Mixed plans are searched after the best plan of one candidate. `whole` tells whether the cuts are all; `relaxed`
        asks for a bound: without plans of several chunks, and without waits for ports.
        """
        search, bound = self._of_one_candidate(instance, downsets, known, whole=whole, relaxed=relaxed)
        if self.mixed:
            from nest.solve.dp.mixed import MixedSearch, first_of_ties

            others = search.others
            mixed = MixedSearch(instance, self.mixed, downsets, not relaxed, meter=self.meter)
            search = self._search([mixed], search.best, whole=whole, relaxed=relaxed)
            search.others = others
            # They include all of one candidate but those of several chunks.
            bound = min(bound if self.chunked else inf, search.find_best())
            if search.best is not None and search.best.tie_break != FIRST and bound == inf:
                search.best = first_of_ties(search.best, search.limit, mixed, lambda best: self._search([mixed], best))
        return search, bound

    def _of_one_candidate(
        self, instance: Instance, downsets: Downsets, known: Incumbent | None, *, whole: bool, relaxed: bool
    ) -> tuple[BestFirst, float]:
        """Same without mixed plans: first plans with bounds near the least, often of the best."""
        alone = whole and not self.mixed
        reach = REACH * min((each.bound or 0.0 for each in self.every), default=0.0)
        if not relaxed and not self.scouts and 0 < reach < self.limit:
            self._keep(reach)
            search = self._search(self._searchers(instance, downsets), known, whole=alone, reach=reach)
            bound = search.find_best()
            if search.best is not None and search.best.value <= reach:
                return search, bound
            self._keep(inf)
            known = search.best
        searchers = self._searchers(instance, downsets, relaxed=relaxed)
        if len(searchers) > 1 and self.plain:
            # What stages of one chunk take cuts off most plans of several, of which there are more. Parts come later.
            known = self._best_of(self._plain(instance, downsets, not relaxed, whole_modes=True), known)
        search = self._search(searchers, known, whole=alone, relaxed=relaxed)
        return search, search.find_best()

    def _searchers(self, instance: Instance, downsets: Downsets, *, relaxed: bool = False) -> list[Searcher]:
        searchers: list[Searcher] = [self._plain(instance, downsets, not relaxed)]
        return searchers if relaxed or not self.chunked else [*searchers, self._chunks(meter=self.meter)]

    def _best_of(self, searcher: Searcher, known: Incumbent | None) -> Incumbent | None:
        (search := self._search([searcher], known)).find_best()
        return search.best

    def _search(
        self,
        searchers: Sequence[Searcher],
        known: Incumbent | None,
        *,
        whole: bool = False,
        relaxed: bool = False,
        reach: float = inf,
    ) -> BestFirst:
        return BestFirst(
            searchers,
            self.started,
            self.deadline,
            self.share,
            self.progress,
            known,
            whole=whole and self._all,
            most_states=SCOUT_STATES if self.scouts else inf,
            placed=self.placed,
            price=None if relaxed else price_of(self.instance),
            others=dict(self.others),
            reach=reach,
        )

    @property
    def _all(self) -> bool:
        return self.among is None and self.instance.complete_to > 0

    def _infeasible(self, search: BestFirst, bound: float, downsets: Downsets) -> Result:
        """Explain why a search found nothing, unless time ran out."""
        from nest.solve.dp.diagnosis import diagnose
        from nest.solve.dp.mixed import MixedSearch

        if bound < inf:
            raise OutOfTime
        if not self._all:
            return Result("infeasible")  # Of those that were looked at.
        if self.listed:
            return Result("infeasible", diagnosis="no other plan exists.")
        if not self.diagnosed or not self.instance.complete:  # Among candidates that are missing there may be a plan.
            return Result("infeasible", diagnosis="", statistics=self._statistics(search, downsets))
        chunks = self._chunks(meter=Meter())
        of_one = PlainSearch(self.instance, self.plain, downsets)
        whole = MixedSearch(self.instance, self.mixed, downsets) if self.mixed else of_one
        diagnosis = diagnose(whole, self.exclusions, chunks.least_memory if self.chunked else None)
        return Result("infeasible", diagnosis=diagnosis, statistics=self._statistics(search, downsets))

    def _answer(self, search: BestFirst, bound: float, downsets: Downsets) -> Result:
        """Best plan of a search: optimal if `bound` meets it and no candidate was skipped for time."""
        best = search.best
        assert best is not None
        proved = bound >= best.value * (1 - TIE)
        if proved and self.second and not self.mixed and self.placed is None:
            # That of mixed plans is the best plan of one candidate, or what else was met.
            self._find_second(search, downsets)
        complete_to = self.instance.complete_to if self._all else 0.0
        if best.value > complete_to:  # A plan of a candidate that is missing may be faster.
            proved, bound = False, min(bound, complete_to)
        second = search.runner_up()
        return Result(
            "optimal" if proved else "feasible",
            best.solution,
            best.value,
            best.value if proved else bound,
            None if second is None else (second.solution, second.value),
            statistics=self._statistics(search, downsets),
        )

    def _find_second(self, search: BestFirst, downsets: Downsets) -> None:
        """Find a runner-up among all plans that may be faster than the one met so far."""
        assert search.best is not None
        until, best = self.meter.states + RUNNER_UP_STATES, search.best.value
        search.find_second(until, self.limit / (1 + TIE))
        for reach in (best * REACH, inf):
            if self.limit < self.listed_to and ((second := search.runner_up()) is None or self.limit < second.value):
                self._keep(reach)
                search.searchers = self._searchers(self.instance, downsets)
                search.find_second(until, self.limit / (1 + TIE))
        second = search.runner_up()
        most = best * SLOWER if second is None else min(best * SLOWER, second.value * (1 + TIE))
        # What is not listed takes longer than `limit`: a runner-up that does not is the best.
        if self.limit < most:
            with suppress(OutOfTime):
                self._list(most)
                search.searchers = self._searchers(self.instance, downsets)
            search.find_second(until)

    def _statistics(self, search: BestFirst, downsets: Downsets) -> dict[str, Any]:
        screened = {PRUNED_BY_BOUND[False]: self.exclusions.slow, "memory in total": self.exclusions.large}
        pruned = search.pruned + Counter(screened)
        return {
            "downsets": downsets.count,
            "candidates": len(self.instance.candidates if self.among is None else self.among),
            "combinations": search.total + self.exclusions.slow + self.exclusions.large,
            "settled_by": {name: count for name, count in sorted(pruned.items()) if count},
            "states": self.meter.states,
            **self.tables.splits.statistics,
        }
