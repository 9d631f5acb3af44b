"""The best plans of a problem: those worth an hour of measuring."""

from collections.abc import Callable

from attrs import evolve

from nest.errors import InputError, NoPlanYet
from nest.formulate.given import Changes, Source, naming
from nest.formulate.in_numbers import in_numbers
from nest.formulate.target import simpler_within
from nest.hooks.registry import Registry, registry
from nest.planner import Progress, answer
from nest.report.runner_up import apart
from nest.report.text.summary import Entry
from nest.solve.effort import Deadline
from nest.spec import PlanDocument, Problem
from nest.tolerances import TIE


def shortlist(
    problem: Source | Problem,
    count: int,
    *,
    time_limit: float | Deadline | None = None,
    progress: Progress | None = None,
    told: Callable[[str], None] | None = None,
    changes: Changes | None = None,
    plugins: Registry | None = None,
) -> tuple[Entry, ...]:
    """The best plans of a problem, fastest first; where there is none, what `nest.planner.solve` says.

    They differ in degrees, number of stages, micro-batch, schedule, ZeRO or recomputation. A plan that only lets fewer
    or other stages make a choice that a better one makes on some, and one that mixes further choices into a better
    one, are not told beside it (`nest.solve.dp.listed`). Each is the best of those left, proved by a search of its
    own, unless time runs out.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        count: how many at most.
        time_limit: seconds for all searches together, after which the plans so far are taken; or a deadline.
        progress: told now and then how far the search is.
        told: told what is taken for granted of a problem that does not say it, a sentence each.
        changes: keys of its sections in place of what is written.
        plugins: registered strategies, importers and the like; left out, those installed.

    Raises:
        InputError: the problem cannot be used; the text names the place and the remedy.
        NoPlanYet: the time was up before any plan was found.
    """
    if count < 1:
        raise InputError(f"--best is {count}; it must be at least 1.")
    deadline = Deadline.of(time_limit)
    known = plugins or registry()
    return known.run(lambda: _shortlist(problem, count, deadline, progress, told, changes, known))


def _shortlist(
    problem: Source | Problem,
    count: int,
    deadline: Deadline,
    progress: Progress | None,
    told: Callable[[str], None] | None,
    changes: Changes | None,
    known: Registry,
) -> tuple[Entry, ...]:
    from nest.solve.dp import Listed
    from nest.solve.dp import solve as search

    whole, instance, formulation = in_numbers(problem, known, progress, told, changes, deadline)
    with naming(problem):
        result = search(instance, deadline, progress, simpler_within=simpler_within(whole))
    best = answer(instance, formulation, result, whole, known, deadline)
    plans, found = [(best, result.status != "feasible")], []
    while result.solution is not None and len(plans) < count:
        found.append(result.solution)
        met = result.runner_up
        if met is not None and any(Listed.of(each).covers(met[0]) for each in found):
            met = None
        if met is None and deadline.passed:
            break
        try:
            result = search(instance, deadline, progress, known=met, preferred=False, runner_up=False, besides=found)
        except NoPlanYet:
            break
        if result.solution is not None:
            other = evolve(result, status="feasible", lower_bound=best.lower_bound, runner_up=None)
            plans.append((answer(instance, formulation, other, whole, known, deadline), result.status == "optimal"))
    plans.sort(key=lambda each: each[0].batch_time or 0.0)
    least = plans[0][0].batch_time or 0.0
    least_told = apart(best)

    def entry(place: int, plan: PlanDocument, proved: bool) -> Entry:
        slower = (plan.batch_time or 0.0) / least - 1 if least else 0.0
        return Entry(plan, slower, place == 0 or (slower > TIE and slower >= least_told), proved)

    return tuple(entry(place, *each) for place, each in enumerate(plans))
