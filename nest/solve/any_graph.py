"""Fastest plan of a graph with too many cuts for the dynamic program, or whose tensors are sent directly to readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from attrs import evolve

from nest.errors import NoPlanYet
from nest.instance import Instance, Result, Schedule, Solution, chunks_of
from nest.solve import dp
from nest.solve.dp.downsets import inseparable_layers
from nest.solve.effort import Deadline
from nest.solve.search import Incumbent, Progress, price_of
from nest.tolerances import TIE


def branched(
    instance: Instance,
    deadline: Deadline,
    progress: Progress | None = None,
    *,
    known: tuple[Solution, float] | None = None,
    besides: Sequence[Solution] = (),
    runner_up: bool = True,
    met: Result | None = None,
) -> Result:
    """Solve like `nest.solve.solver.solve_on_levels`, for any number of cuts.

    `met` is the state in which the dynamic program gave up.
    """
    first = _first_plan(instance, deadline, progress, known, besides, runner_up=runner_up)
    return _beyond(instance, deadline, progress, first, met, listed=bool(besides))


def sent_directly(
    instance: Instance,
    solve_relayed: Callable[..., Result],
    deadline: Deadline,
    progress: Progress | None,
    *,
    known: tuple[Solution, float] | None,
    besides: Sequence[Solution],
) -> Result:
    """Solve with tensors sent directly to their readers, starting from the best plan that relays them.

    A stage then receives no more than with relays, so relayed plans that fit still fit; their times are computed again.
    `besides` are left out of the relayed plans that `solve_relayed` finds.
    """
    from nest_cpsat.graph_search import price
    from nest_cpsat.graph_search import solve as search

    relayed = evolve(instance, space=evolve(instance.space, direct=False))
    first = solve_relayed(relayed, deadline, progress, besides=besides, runner_up=False)
    plans = [] if first.solution is None else [(first.solution, price(instance, first.solution))]
    plans += [] if known is None else [known]
    best = min(plans, key=lambda each: each[1], default=None)
    if besides:
        seconds = None if best is None else best[1]
        return Result(first.status if best is None else "feasible", None if best is None else best[0], seconds)
    result = _replayed(instance, search(instance, best, deadline, progress), best)
    return evolve(result, diagnosis=first.diagnosis) if result.solution is None else result


def _first_plan(
    instance: Instance,
    deadline: Deadline,
    progress: Progress | None,
    known: tuple[Solution, float] | None,
    besides: Sequence[Solution],
    *,
    runner_up: bool,
) -> Result:
    """Find the best plan along some orders of the layers, or the reason for none."""
    from nest.solve.one_order import along, orders

    found: Result | None = None
    for order in orders(instance, inseparable_layers(instance)):
        try:
            result = dp.solve(
                along(instance, order), deadline, progress, known=known, runner_up=runner_up, besides=besides
            )
        except NoPlanYet:
            if found is None or found.solution is None:
                raise
            break
        if found is None or found.solution is None or (result.solution, result.batch_time) != known:
            found = result if result.solution is not None or found is None else found
        if result.solution is not None and result.batch_time is not None:
            known = result.solution, result.batch_time
        if deadline.passed and found.solution is not None:
            break
    assert found is not None
    return found


def _beyond(
    instance: Instance,
    deadline: Deadline,
    progress: Progress | None,
    first: Result,
    met: Result | None,
    *,
    listed: bool,
) -> Result:
    """Improve a first plan with CP-SAT."""
    from nest_cpsat.graph_search import solve as search

    if listed:
        return evolve(first, status="infeasible" if first.solution is None else "feasible", lower_bound=None)
    schedules = instance.space.schedules
    plain = tuple(each for each in schedules if chunks_of(each) == 1)
    chunked = tuple(each for each in schedules if chunks_of(each) > 1)
    results = [first, *([] if met is None else [met])]
    bound = 0.0 if met is None or met.lower_bound is None else met.lower_bound
    if chunked:
        # Their cuts are decided, however many the graph has.
        results.append(dp.solve(_with_schedules(instance, chunked), deadline, progress, runner_up=False))
    best = min((each for each in results if each.solution is not None), key=_seconds, default=None)
    known = None if best is None or best.solution is None else (best.solution, _seconds(best))
    beyond = first
    if plain:
        beyond = _replayed(instance, search(_with_schedules(instance, plain), known, deadline, progress, bound), known)
    if beyond.solution is None:
        return evolve(beyond, diagnosis=_diagnosis(instance, plain, deadline) or first.diagnosis)
    proved = beyond.status == "optimal" and (not chunked or results[-1].status != "feasible")
    least = [each for each in (beyond.lower_bound, results[-1].lower_bound if chunked else None) if each is not None]
    kind = _kind(beyond.solution)
    others = [(each.solution, _seconds(each)) for each in results if each.solution is not None]
    others += [each.runner_up for each in results if each.runner_up is not None]
    different = [each for each in others if _kind(each[0]) != kind]
    return evolve(
        beyond,
        status="optimal" if proved else "feasible",
        lower_bound=min(least, default=0.0),
        runner_up=min(different, key=lambda each: each[1], default=None),
    )


def _replayed(instance: Instance, result: Result, known: tuple[Solution, float] | None) -> Result:
    """Price a closed-form result exactly; return the known plan instead if it is faster."""
    price, seconds = price_of(instance), result.batch_time
    if price is None or result.solution is None or seconds is None:
        return result
    replayed = price(Incumbent(seconds, (), result.solution)).value
    if replayed <= seconds * (1 + TIE):
        return result
    solution, batch_time = (result.solution, replayed) if known is None or replayed < known[1] else known
    proved = seconds if result.status == "optimal" else result.lower_bound
    return evolve(result, status="feasible", solution=solution, batch_time=batch_time, lower_bound=proved)


def _diagnosis(instance: Instance, plain: tuple[Schedule, ...], deadline: Deadline) -> str | None:
    """Explain why no plan fits, along the cuts of the plan that needs the least memory; None: there is none."""
    from nest.solve.one_order import along, order_of
    from nest_cpsat.least_memory import least_memory

    emptiest = least_memory(_with_schedules(instance, plain), deadline) if plain else None
    if emptiest is None:
        return None
    stages = [stage.layers for stage in emptiest.stages]
    order = order_of(instance, inseparable_layers(instance), stages)
    return dp.solve(along(instance, order), deadline, runner_up=False).diagnosis


def _with_schedules(instance: Instance, schedules: tuple[Schedule, ...]) -> Instance:
    return evolve(instance, space=evolve(instance.space, schedules=schedules))


def _seconds(result: Result) -> float:
    return inf if result.batch_time is None else result.batch_time


def _kind(solution: Solution) -> tuple[tuple[int, ...], int, int]:
    return tuple(sorted({stage.candidate for stage in solution.stages})), solution.replicas, len(solution.stages)
