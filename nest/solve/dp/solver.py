"""The conductor of the dynamic program: what is cut, what is searched, in what order, and what is answered."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import numpy
from attrs import define, field
from numpy.typing import NDArray

from nest.instance import Instance, Result, Solution, chunks_of
from nest.solve.dp.coarse import coarsening
from nest.solve.dp.configurations import Configuration, Exclusions, configurations
from nest.solve.dp.dealt.search import DealtSearch, WithDealt
from nest.solve.dp.dealt.split import Splits
from nest.solve.dp.diagnose import diagnose
from nest.solve.dp.downsets import Downsets, StageRange, TooManyCuts, cuts, lattice, membership
from nest.solve.dp.even import allowed_cuts
from nest.solve.dp.found import FIRST, LAST, Found, Kind
from nest.solve.dp.idle import attachments, without_costs
from nest.solve.dp.listed import Listed, mixed_without, without
from nest.solve.dp.meter import Meter, OutOfTime
from nest.solve.dp.mixed.configurations import MixedConfiguration, mixed_configurations
from nest.solve.dp.mixed.diagnose import diagnose_mixed
from nest.solve.dp.mixed.search import MixedSearch
from nest.solve.dp.mixed.ties import ahead_in_rank
from nest.solve.dp.run import SETTLED_BY_BOUND, Progress, Run
from nest.solve.dp.search import Search
from nest.solve.dp.simplest import simplest
from nest.solve.dp.sums import grid_parts
from nest.solve.effort import FEW, Deadline, spread
from nest.tolerances import TIE

FIRST_BOUNDS = 0.85
"""Share of the time in which the plans of all candidates must be bounded."""

SLOWER = 1.1
"""Times the batch time of a plan that is known, what a runner-up is looked for up to."""

SCOUTED, SCOUTS, SCOUT_SHARE, SCOUT_TIME = 64, 16, 16, 0.2
"""Candidates from which on a plan is looked for among few of them first, so that what computes for longer than it takes
need not be listed; how many they are at least, and which share of all; and the share of the time that may take."""

FEW_CUTS, MANY_CUTS = 500, 2_000
"""Downsets up to which idle layers are not worth a search of their own, and those above which stages that no plan as
good as the first can have are left out before they are listed."""


def solve(
    instance: Instance,
    time_limit: float | Deadline | None = None,
    progress: Progress | None = None,
    *,
    known: tuple[Solution, float] | None = None,
    preferred: bool = True,
    runner_up: bool = True,
    besides: Sequence[Solution] = (),
    simpler_within: float | None = None,
) -> Result:
    """The plan of least batch time, proved optimal; or why there is none.

    Ties within 1e-12 go to fewer devices, then fewer stages, then the earlier configuration: candidates, schedules and
    rank orders as listed, fewer replicas, choices as listed.

    Args:
        instance: the problem.
        time_limit: seconds after which the best plan so far is returned with its proven bound, the first plan being
            waited for; or a deadline, which waits as long as it has patience.
        progress: told now and then how far the search is.
        known: a plan that fits, with its batch time in seconds; None: no plan is known.
        preferred: whether the plan that is known is the answer where others are as fast; else it only cuts what is
            slower, and the answer is the one that a search without it gives.
        runner_up: whether a little is searched for a runner-up.
        besides: plans that are known; neither they nor what they cover (`nest.solve.dp.listed`) is looked for.
        simpler_within: share of the batch time that a plan whose stages are alike may take longer to be preferred
            (`nest.solve.dp.simplest`); None: none is looked for.

    Raises:
        InputError: the layer graph has too many cuts, or a constraint cannot be computed.
        NoPlanYet: the deadline is over, and there is no plan.
    """
    deadline = time_limit if isinstance(time_limit, Deadline) else Deadline(time_limit, patience=inf)
    found = None if known is None else Found(known[1], FIRST if preferred else LAST, known[0])
    listed = tuple(map(Listed.of, besides))
    others: dict[Kind, Found] = {}
    if found is None:
        found, others = _scouted(instance, deadline, progress, listed)
    for among, share in _attempts(len(instance.candidates)):
        try:
            result = _Solver(instance, deadline, progress, among, share, found, runner_up, listed, others).solve()
        except OutOfTime:
            if found is not None:
                return Result("feasible", found.solution, found.value, 0.0)
            if deadline.over:
                break
        else:
            if simpler_within is not None and result.solution is not None:

                def search(narrowed: Instance, best: tuple[Solution, float]) -> Result:
                    return solve(narrowed, deadline, known=best, runner_up=False)

                return simplest(instance, result, search, simpler_within)
            if result.solution is not None or result.diagnosis is not None:
                return result
    raise deadline.no_plan_yet()


def _scouted(
    instance: Instance, deadline: Deadline, progress: Progress | None, listed: tuple[Listed, ...]
) -> tuple[Found | None, dict[Kind, Found]]:
    """A good plan, found among few of the candidates, and the best of other kinds met; None: they have none."""
    count = len(instance.candidates)
    if count < SCOUTED:
        return None, {}
    among = spread(count, max(count // SCOUT_SHARE, SCOUTS))
    try:
        result = _Solver(instance, deadline, progress, among, SCOUT_TIME, None, False, listed, {}).solve()
    except OutOfTime:
        return None, {}
    if result.solution is None or result.batch_time is None:
        return None, {}
    found = [(result.solution, result.batch_time), *([] if result.runner_up is None else [result.runner_up])]
    first, *rest = (Found(value, LAST, solution) for solution, value in found)
    return first, {each.kind: each for each in rest}


def _attempts(candidates: int) -> Iterator[tuple[Sequence[int] | None, float | None]]:
    """Candidates to search, None for all, with the share of the time in which their plans must be bounded.

    Nothing more is found before all plans are bounded, so where that takes too long some of the candidates must do: an
    eighth of them, and then as few as find any plan.
    """
    if candidates > FEW:
        yield None, FIRST_BOUNDS
        yield spread(candidates, max(candidates // 8, FEW)), (1 + FIRST_BOUNDS) / 2
        few = FEW // 4
        while few < candidates:
            yield spread(candidates, few), None
            few *= 4
    yield None, None


def feasible(instance: Instance, deadline: Deadline | None = None) -> bool:
    """Whether there is any plan.

    Args:
        instance: the problem.
        deadline: until when that must be found; None: however long it takes.

    Raises:
        InputError: as `solve`.
        NoPlanYet: the deadline is over, and nothing is known.
    """
    known_by = Deadline(0.0, patience=inf if deadline is None else deadline.left)
    return solve(instance, known_by).solution is not None


def kept_together(instance: Instance) -> list[tuple[int, ...]]:
    """Groups of layers that no cut may part, as indices."""
    position = {name: index for index, name in enumerate(instance.graph.layers)}
    asked = [
        tuple(position[name] for name in constraint.same_stage)
        for constraint in instance.space.constraints
        if constraint.same_stage
    ]
    return [*asked, *instance.space.together]


@define
class _Solver:
    """One call of `solve`."""

    instance: Instance
    deadline: Deadline
    progress: Progress | None
    among: Sequence[int] | None
    share: float | None
    known: Found | None
    second: bool
    listed: tuple[Listed, ...]
    others: dict[Kind, Found]
    started: float = field(factory=time.monotonic)
    meter: Meter = field(factory=Meter)
    together: list[tuple[int, ...]] = field(init=False)
    configurations: list[Configuration] = field(init=False)
    splits: Splits = field(init=False)
    dealt: list[Configuration] = field(init=False)
    mixed: list[MixedConfiguration] = field(factory=list)
    exclusions: Exclusions = field(init=False)
    bound: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.together = kept_together(self.instance)
        layers = len(self.instance.graph.layers)
        self.splits = Splits(self.instance)
        watch = self._run(None, self.known).prepare
        limit = inf if self.known is None else self.known.value * (SLOWER if self.second else 1 + TIE)
        every, self.exclusions = configurations(self.instance, layers, self.splits.counts, self.among, watch, limit)
        every = without(every, self.listed) if self.listed else every
        self.configurations = [each for each in every if chunks_of(each.schedule) == 1]
        self.dealt = [each for each in every if chunks_of(each.schedule) > 1]
        if (
            self.instance.space.mixed
            and self.among is None
            and any(chunks_of(each) == 1 for each in self.instance.space.schedules)
        ):
            self.exclusions = Exclusions()
            self.mixed = mixed_configurations(self.instance, layers, len(every), self.exclusions, watch)
            if self.listed:
                self.mixed = mixed_without(self.mixed, self.listed, self.instance, len(every))

    def solve(self) -> Result:
        """The answer, by way of the graph without the cuts around idle layers where that decides it."""
        graph, space = self.instance.graph, self.instance.space
        refused: TooManyCuts | None = None
        if self.dealt and not self.configurations and not self.mixed:
            # Where to cut is decided.
            return self._search(membership([0, (1 << len(graph.layers)) - 1], len(graph.layers)))
        try:
            masks = allowed_cuts(self.instance, self.together)
        except TooManyCuts as error:
            masks, refused = [], error
        answer: Result | None = None
        if space.partition is None and not space.even and (refused or len(masks) > FEW_CUTS):
            answer = self._without_idle_layers()
            proved = ("optimal", "infeasible") if refused else ("optimal",)
            decided = answer is not None and answer.status in proved
            if answer is not None and (decided or (answer.status == "feasible" and self.deadline.passed)):
                return answer
        if refused is None:
            try:
                return self._search(membership(masks, len(graph.layers)))
            except TooManyCuts as error:
                refused = error
        if answer is None:
            raise refused
        return answer

    def _search(self, members: NDArray[numpy.bool_]) -> Result:
        """The answer of a search over the downsets with these layers, shape `(downsets, layers)`."""
        known = self._first_plan(members)
        downsets = lattice(members, self._ranges(members, known))
        run, bound = self._find_best(self.instance, downsets, known, whole=True, dealt=True)
        if run.best is None:
            return self._infeasible(run, bound, downsets)
        bound = max(bound, self.bound)
        if bound < run.best.value * (1 - TIE):
            return self._answer(run, bound, downsets)
        self._find_second(run)
        return self._answer(run, None, downsets)

    def _without_idle_layers(self) -> Result | None:
        """The answer of the graph in which idle layers stay with their neighbours; None when it decides nothing.

        It is `feasible` where the bounds of `nest.solve.dp.idle` do not meet; plan and bound are kept for later.
        """
        attached = attachments(self.instance, self.together)
        if not attached:
            return None
        try:
            masks = cuts(self.instance.graph, [*self.together, *attached])
            members = membership(masks, len(self.instance.graph.layers))
            downsets = lattice(members)
        except TooManyCuts:
            return None
        above, reached = self._find_best(self.instance, downsets, self._first_plan(members), dealt=True)
        relaxed = without_costs(self.instance, [layer for layer, _ in attached])
        known = None if above.best is None else Found(above.best.value, (), above.best.solution)
        below, bound = self._find_best(relaxed, downsets.with_empty_stages(len(attached)), known, held_up=False)
        if above.best is None:
            return self._infeasible(above, min(reached, bound), downsets) if below.best is None else None
        bound = min(reached, bound, below.limit)
        if bound < above.best.value * (1 - TIE):
            self.known, self.bound = above.best, bound
            return self._answer(above, bound, downsets)
        self._find_second(above)
        return self._answer(above, None, downsets)

    def _ranges(self, members: NDArray[numpy.bool_], known: Found | None) -> list[StageRange] | None:
        """How long stages of plans as good as the known one may compute, when there are many cuts."""
        if known is None or len(members) <= MANY_CUTS or self.instance.space.mixed:
            return None
        search = Search(self.instance, lattice(members[[0, -1]]), self.configurations, self.meter)
        found = []
        for index, (shortest, longest) in search.stage_ranges(known.value * (1 + TIE)).items():
            candidate = self.instance.candidates[index]
            parts = [part[0] for _, part in grid_parts((candidate.forward + candidate.backward)[None])]
            found.append(StageRange(numpy.sum([members @ part for part in parts], axis=0), shortest, longest))
        return found

    def _first_plan(self, members: NDArray[numpy.bool_]) -> Found | None:
        """A good plan that cuts at some of the downsets only; None where the search itself is as quick."""
        coarse = coarsening(members, self.instance)
        if coarse is None:
            return self.known
        run = self._run(Search(self.instance, coarse, self.configurations, self.meter), self.known)
        run.find_best()
        return run.best

    def _find_best(
        self,
        instance: Instance,
        downsets: Downsets,
        known: Found | None,
        *,
        whole: bool = False,
        dealt: bool = False,
        held_up: bool = True,
    ) -> tuple[Run[Any], float]:
        """A search that is done, or whose time is up, and the lower bound it reached.

        Mixed plans are searched with the best plan of one candidate in hand. `whole` says whether the cuts are all,
        `dealt` whether plans of several chunks, which cuts do not matter to, are searched too, `held_up` whether ports
        hold up what is sent once per batch.
        """
        mixed = bool(self.mixed)
        plain = Search(instance, downsets, self.configurations, self.meter, held_up)
        searcher: Search | WithDealt = plain
        if dealt and self.dealt:
            searcher = WithDealt(plain, DealtSearch(instance, self.dealt, self.splits, self.meter), self.meter)
        run: Run[Any] = self._run(searcher, known, whole=whole and not mixed)
        bound = run.find_best()
        if mixed:
            plain_run = run
            of_mixed = MixedSearch(instance, downsets, self.mixed, self.meter, held_up)
            run = self._run(of_mixed, run.best, whole=whole)
            run.others = plain_run.others
            bound = run.find_best()
            if run.best is not None and run.best.rank != FIRST and bound == float("inf"):
                run.best = ahead_in_rank(run.best, run.limit, of_mixed, self._run)
        return run, bound

    def _find_second(self, run: Run[Any]) -> None:
        """A runner-up; that of mixed plans is the best plan of one candidate, or what else was met."""
        if self.second and not self.mixed:
            run.find_second()

    def _run(self, searcher: Any, known: Found | None, *, whole: bool = False) -> Run[Any]:
        whole, others = whole and self._all, dict(self.others)
        return Run(searcher, self.started, self.deadline, self.share, self.progress, known, whole=whole, others=others)

    @property
    def _all(self) -> bool:
        """Whether all candidates of the problem are searched."""
        return self.among is None and self.instance.complete

    def _infeasible(self, run: Run[Any], bound: float, downsets: Downsets) -> Result:
        """Why a search found nothing, unless there was no time to know that."""
        if bound < inf:
            raise OutOfTime
        if not self._all:
            return Result("infeasible")  # Of those that were looked at.
        if self.listed:
            return Result("infeasible", diagnosis="there is no plan besides those listed.")
        dealt = DealtSearch(self.instance, self.dealt, self.splits).least_memory()
        if self.mixed:
            diagnosis = diagnose_mixed(MixedSearch(self.instance, downsets, self.mixed), self.exclusions, dealt)
        else:
            diagnosis = diagnose(Search(self.instance, downsets, self.configurations), self.exclusions, dealt)
        return Result("infeasible", diagnosis=diagnosis, statistics=self._statistics(run, downsets))

    def _answer(self, run: Run[Any], bound: float | None, downsets: Downsets) -> Result:
        """The best plan of a run; without a `bound` it is proved optimal, of the candidates that were searched."""
        assert run.best is not None
        bound = bound if self._all else 0.0
        second = run.runner_up()
        return Result(
            "optimal" if bound is None else "feasible",
            run.best.solution,
            run.best.value,
            run.best.value if bound is None else bound,
            None if second is None else (second.solution, second.value),
            statistics=self._statistics(run, downsets),
        )

    def _statistics(self, run: Run[Any], downsets: Downsets) -> dict[str, Any]:
        """What the search did, by name."""
        settled = run.dropped + Counter({SETTLED_BY_BOUND[False]: self.exclusions.slow})
        return {
            "downsets": downsets.count,
            "candidates": len(self.instance.candidates if self.among is None else self.among),
            "combinations": run.total + self.exclusions.slow,
            "settled_by": {name: count for name, count in sorted(settled.items()) if count},
            "states": self.meter.states,
        }
