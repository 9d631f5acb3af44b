"""Driver of the dynamic program: first plan, candidates that may beat it, attempts within the time, and ties."""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

import numpy
from attrs import evolve

from nest.instance import Array, Instance, Result, Solution
from nest.solve.dp.attempt import Attempt
from nest.solve.dp.configurations import PlanSignature
from nest.solve.dp.downsets import TooManyCuts
from nest.solve.dp.listing import least_times
from nest.solve.dp.tables import SearchCache, SharedTables
from nest.solve.dp.ties import with_least_memory
from nest.solve.effort import Deadline, attempts, least_first
from nest.solve.search import FIRST, LAST, Incumbent, OutOfTime, PlanKind, Progress

SCOUTED, SCOUTS, SCOUT_SHARE, MOST_SCOUTS = 64, 16, 16, 64
"""Number of candidates from which on a plan is sought among few first, so that those with more compute need not be
listed (Llama 3 70B on 128 H100 takes 1.2 times as long without; 2026-11-23); the least number of scouts, their share,
and the most."""


def scouts(instance: Instance) -> list[int]:
    """Some candidates, ascending: more of those with less work per sample."""
    count = len(instance.candidates)
    return least_first(work(instance), min(max(count // SCOUT_SHARE, SCOUTS), MOST_SCOUTS))


def work(instance: Instance) -> Array:
    """Device seconds of compute per sample by candidate, shape `(candidates,)`."""
    work = [each.width / each.samples * float((each.forward + each.backward).sum()) for each in instance.candidates]
    return numpy.array(work)


BEGUN_WITH = 4  # Candidates searched for the first plan, so that others need not be listed completely.
GUESSES = (1.25, 2.0, 8.0)  # Factors over the least bound up to which plans are listed, until there is a first plan.
SCOUT_TIME = 0.2  # Share of the time for a first plan among few candidates.

AttemptArguments = tuple[
    Instance,
    Deadline,
    Progress | None,
    tuple[PlanSignature, ...],
    SharedTables,
    Callable[[Incumbent], Incumbent | None] | None,
]
"""First arguments of every `Attempt`."""


def solve(
    instance: Instance,
    time_limit: float | Deadline | None = None,
    progress: Progress | None = None,
    *,
    known: tuple[Solution, float] | None = None,
    preferred: bool = True,
    runner_up: bool = True,
    besides: Sequence[Solution] = (),
    placed: Callable[[Incumbent], Incumbent | None] | None = None,
    cache: SearchCache | None = None,
    diagnosed: bool = True,
    ties: bool = True,
) -> Result:
    """Find the fastest plan, proved optimal, with ties broken as in PROBLEM.md section 5; or the reason for none.

    Args:
        time_limit: seconds after which the best plan so far is returned with its bound, though a first plan is waited
            for; or a deadline, which waits as long as its patience.
        known: a plan that fits, with its step time in seconds; None: none is known.
        preferred: return the known plan in case of a tie; else it only prunes, and the answer equals a search
            without.
        runner_up: search briefly for a runner-up.
        besides: known plans; neither they nor plans they cover (`nest.solve.dp.configurations`) are searched.
        placed: if `instance` is a lower bound of another problem, finds a plan's price there; None: times are exact.
            The bound of the result covers all plans there.
        cache: of earlier problems.
        diagnosed: explain infeasibility, which takes longer than detecting it; else the diagnosis is empty.
        ties: break ties by memory; else by the documented order.

    Raises:
        InputError: the layer graph has too many cuts, or a constraint cannot be computed.
        NoPlanYet: the deadline has passed without a plan.
        ValueError: tensors are sent directly to their readers (`Space.direct`), which this search cannot price.
    """
    if instance.space.direct:
        raise ValueError("search.tensors: direct needs nest.solve.solver.solve")
    deadline = time_limit if isinstance(time_limit, Deadline) else Deadline(time_limit, patience=inf)
    first = None if known is None else Incumbent(known[1], FIRST if preferred else LAST, known[0])
    listed, others = tuple(map(PlanSignature.of, besides)), dict[PlanKind, Incumbent]()
    cache = cache or SearchCache()
    if first is None and len(instance.candidates) >= SCOUTED:
        few, whole = scouts(instance), without_parts(instance)
        among = (few,) if runner_up else (least_first(work(instance), BEGUN_WITH), few)
        met = _scouted((whole, deadline, progress, listed, cache.of(whole), placed), among)
        first, others = (met[0], {each.kind: each for each in met[1:]}) if met else (None, {})
    shared = (instance, deadline, progress, listed, cache.of(instance), placed)
    result = _answered(shared, first, others, runner_up=runner_up, diagnosed=diagnosed)

    given = preferred and known is not None and known[0] == result.solution
    if ties and placed is None and not besides and not given:
        tied = partial(solve, time_limit=deadline, preferred=False, runner_up=False, cache=cache, ties=False)
        result = with_least_memory(instance, result, lambda emptier, best: tied(emptier, known=best))
    return result


def without_parts(instance: Instance) -> Instance:
    """Instance without partial recomputation, if possible: good plans are found sooner."""
    space = instance.space
    return evolve(instance, space=evolve(space, partial=())) if space.partial and space.recompute != () else instance


def _answered(
    shared: AttemptArguments,
    first: Incumbent | None,
    others: dict[PlanKind, Incumbent],
    *,
    runner_up: bool,
    diagnosed: bool,
) -> Result:
    """Answer of a search that starts with a first plan and others met."""
    instance, deadline, *_ = shared
    for some, share in attempts(len(instance.candidates)):
        try:
            result = Attempt(*shared, some, share, first, runner_up, others, diagnosed=diagnosed).solve()
        except OutOfTime:
            if first is not None:
                return Result("feasible", first.solution, first.value, 0.0)
            if deadline.over:
                break
        else:
            if result.solution is not None or result.diagnosis is not None:
                return result
    raise deadline.no_plan_yet()


def _scouted(shared: AttemptArguments, among: Sequence[Sequence[int] | None]) -> list[Incumbent]:
    """A good plan among few candidates, and another kind of plan; empty: there are none.

    Candidates after the first of `among` are listed only as far as they may beat a plan of those before.
    """
    met: list[Incumbent] = []
    for some in among:
        try:
            result = _among(shared, some, met[0] if met else None)
        except OutOfTime:
            return met
        if result.solution is not None and result.batch_time is not None:
            plans = [(result.solution, result.batch_time), *([] if result.runner_up is None else [result.runner_up])]
            met = [Incumbent(value, LAST, solution) for solution, value in plans]
    return met


def _among(shared: AttemptArguments, among: Sequence[int] | None, known: Incumbent | None) -> Result:
    """A good plan among some candidates, with one chunk per stage if possible.

    Without a better known plan, only plans with bounds close to the least are listed at first: 16 of the 273 candidates
    of 1,000 blocks on 2**20 devices have 2.9 million numbers of stages in all.

    Raises:
        OutOfTime: there is no time for it.
    """
    instance, tables = shared[0], shared[4]
    guesses = [inf]
    if known is None:
        layers = len(instance.graph.layers)
        least = min(least_times(instance, layers, tables.splits.counts, tables.screen, among), default=inf)
        guesses = [*(least * factor for factor in GUESSES), inf] if least < inf else guesses
    result = Result("infeasible")
    for guess in guesses:
        result = Attempt(*shared, among, SCOUT_TIME, known, False, {}, scouts=True, guess=guess).solve()
        if result.solution is not None and result.batch_time is not None:
            if result.batch_time <= guess:
                break
            # What was not listed may be faster.
            known = Incumbent(result.batch_time, LAST, result.solution)
    return result


def candidate_floors(instance: Instance, cache: SearchCache, seconds: float = inf) -> dict[str, float]:
    """Lower bounds (s) by name on plans of one candidate; infinite: there are none.

    They also hold for slower links and devices, and for less memory, all else equal.

    Args:
        instance: without mixed plans.
        cache: of earlier problems.
        seconds: most candidates without plans within this are skipped; a finite value checks memory more closely.

    Raises:
        InputError: a constraint cannot be computed.
    """
    tables = cache.of(instance)
    if seconds < inf:
        shared = (instance, Deadline(), None, (), tables, None, None, None, None)
        return Attempt(*shared, second=False, others={}, guess=seconds, diagnosed=False).least_with_room()
    least = least_times(instance, len(instance.graph.layers), tables.splits.counts, tables.screen)
    return {candidate.name: seconds for candidate, seconds in zip(instance.candidates, least, strict=True)}


def first_plan(instance: Instance, deadline: Deadline) -> tuple[Solution, float] | None:
    """A good plan of an instance with few candidates, with one chunk per stage if possible, and its step time.

    None: there is none, it is not found in `SCOUT_TIME`, or the graph has too many cuts.

    Raises:
        InputError: a constraint cannot be computed.
    """
    among, instance = (least_first(work(instance), BEGUN_WITH), None), without_parts(instance)
    try:
        met = _scouted((instance, deadline, None, (), SharedTables(instance), None), among)
    except TooManyCuts:
        return None
    return (met[0].solution, met[0].value) if met else None


def feasible(instance: Instance, deadline: Deadline | None = None) -> bool:
    """True if any plan exists, found by the deadline; None: no limit.

    Raises:
        InputError: see `solve`.
        NoPlanYet: the deadline has passed without an answer.
    """
    known_by = Deadline(0.0, patience=inf if deadline is None else deadline.left)
    return solve(instance, known_by, runner_up=False, diagnosed=False).solution is not None
