"""Plans beside the first one: the fastest, a safer and a simpler one, and the runner-up, also on slower levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, cast

from attrs import evolve

from nest.errors import NoPlanYet
from nest.formulate.formulation import Formulation
from nest.formulate.risk import Answer, leaves_risk_open, searched_at_risk
from nest.hooks.registry import Registry
from nest.instance import Instance, Level, Result, SearchProgress, Solution
from nest.io import unstructure
from nest.plan.document import solution_of
from nest.plan.evaluate import PricedPlan, evaluate
from nest.report.other_plans import decided_plan, decisions_of, describe_runner_up, label
from nest.solve.effort import Deadline, Waiting
from nest.spec import OtherPlan, PlanDocument, Problem
from nest.tolerances import BANDWIDTH_SHORTFALL

if TYPE_CHECKING:
    from nest.formulate.formulation import FirstPlan
    from nest.plan.check import CheckReport

Offered = tuple[Instance, Formulation]  # An instance with a plan's candidates, and its formulation.


def runner_up(instance: Instance, formulation: Formulation, result: Result, best: Solution) -> dict[str, Any] | None:
    """Return the `runner_up` of a found plan; None: the search met no other."""
    if result.runner_up is None:
        return None
    plans = (best, result.runner_up[0])
    return describe_runner_up(instance, *(_with_slower_levels(instance, formulation, each) for each in plans))


def searched(
    problem: Problem,
    known: Registry,
    deadline: Deadline,
    progress: Callable[[SearchProgress], None] | None,
    first_plan: Callable[[Instance], FirstPlan | None] | None,
) -> tuple[Instance, Formulation, Result]:
    """Search, with all candidates that matter for plans beside the answer (`with_contenders`).

    It reuses the kept state of the same model, and keeps its own for the next search.

    Args:
        first_plan: as for `formulate`.

    Raises:
        InputError: something in the problem cannot be used.
        NoPlanYet: the time is up before any plan was found.
    """
    search = partial(_searched, known, deadline, progress, first_plan)
    return searched_at_risk(problem, search, deadline)


def _searched(
    known: Registry,
    deadline: Deadline,
    progress: Callable[[SearchProgress], None] | None,
    first_plan: Callable[[Instance], FirstPlan | None] | None,
    problem: Problem,
    reach: float,
) -> Answer:
    """Search as `searched`, at the risk of the problem, with all candidates for steps longer by the share `reach`."""
    from nest.formulate.instance import Wanted, formulate, options_of
    from nest.formulate.risk import simpler_within
    from nest.solve.solver import solve

    waiting, kept, options = Waiting(deadline, progress), None, options_of(problem, known)
    if options.model is not None:
        from nest.formulate.kept_model import KeptModel

        kept = KeptModel.of_problem(problem, known, deadline)
    instance, formulation = formulate(options, known, Wanted(first_plan=first_plan), kept, waiting)
    # A plan that is known cuts what is slower; which of equals is the answer it does not say.
    within, tables = simpler_within(options.search, options.model), None if kept is None else kept.tables
    diagnosed = not leaves_risk_open(options.training, options.model)  # Else it is searched again.
    search = partial(solve, time_limit=deadline, progress=progress, preferred=False, cache=tables, diagnosed=diagnosed)
    result = search(instance, known=formulation.first)
    if kept is not None:
        kept.keep()

    def again(seconds: float) -> Offered:
        return formulate(options, known, Wanted(step_time_limit=seconds), formulation, waiting)

    if not within:
        return with_contenders(instance, formulation, result, reach, again, search)
    from nest.documents.first_plan import COSTS_LITTLE, with_alternatives, with_first_plan

    reach = max(within, COSTS_LITTLE)
    instance, formulation, result = with_contenders(instance, formulation, result, reach, again, search)
    first = with_first_plan(instance, result, within, deadline, tables)
    return instance, formulation, with_alternatives(instance, first, deadline, tables)


def with_contenders(
    instance: Instance,
    formulation: Formulation,
    result: Result,
    reach: float,
    wider: Callable[[float], Offered],
    search: Callable[..., Result],
) -> tuple[Instance, Formulation, Result]:
    """Return an answer with all candidates that matter for plans beside it; searches again if some are missing.

    Such plans are simpler and safer ones that are hardly slower, and a runner-up.

    Args:
        instance: has the candidates that matter for the answer.
        formulation: of the instance.
        result: of its search.
        reach: share of the least step time that plans beside the answer may take longer.
        wider: gives the instance complete up to so many seconds of a step, with its formulation.
        search: that search, of an instance, with a `known` plan.
    """
    from nest.solve.dp.attempt import SLOWER

    solution, seconds = result.solution, result.batch_time
    if solution is None or seconds is None:
        return instance, formulation, result
    second = inf if result.runner_up is None else result.runner_up[1]
    needed = max(seconds * (1 + reach), min(second, seconds * SLOWER))
    if instance.complete_to >= needed or formulation.bounded is None:  # There was no time for the others.
        return instance, formulation, result
    more, made = wider(needed)
    if not more.complete_to:  # There was no time for it.
        return instance, formulation, result
    return more, made, search(more, known=(solution.among(instance.candidates, more.candidates), seconds))


def block_batch_time(instance: Instance, result: Result, granularity: str, deadline: Deadline) -> float | None:
    """Return seconds of the best plan without cuts in branched regions, if a search left a gap; None: not proved.

    This is the coarser space of `search.granularity: block`, with few cuts.
    """
    space = instance.space
    left_a_gap = result.status == "feasible" and "questions" in result.statistics and not deadline.passed
    if not left_a_gap or granularity != "layer" or space.direct:
        return None
    from nest.formulate.partition import branched_regions
    from nest.solve import dp

    together = (*space.together, *branched_regions(instance.graph))
    try:
        coarser = dp.solve(evolve(instance, space=evolve(space, together=together)), deadline, runner_up=False)
    except (dp.TooManyCuts, NoPlanYet):
        return None
    return coarser.batch_time if coarser.status == "optimal" else None


def _with_slower_levels(
    instance: Instance, formulation: Formulation, solution: Solution
) -> tuple[Solution, PricedPlan, tuple[float, ...]]:
    return solution, evaluate(instance, solution), slower_times(instance, formulation, solution)


def slower_times(instance: Instance, formulation: Formulation, solution: Solution) -> tuple[float, ...]:
    """Return the step time, seconds, of the same plan for each level with `BANDWIDTH_SHORTFALL` less, innermost first.

    Everything on the network is priced again: messages, ZeRO, and a model's collectives inside layers. Times of layers
    in a profile include their collectives and stay.
    """
    return tuple(
        evaluate(_repriced(instance, formulation, levels, solution), solution).batch_time
        for levels in _slower(instance.cluster.levels)
    )


def _slower(levels: tuple[Level, ...]) -> Iterator[tuple[Level, ...]]:
    """Yield the network with each level slower in turn; latencies and the seconds of calls and steps stay."""
    left = 1 - BANDWIDTH_SHORTFALL
    for index, level in enumerate(levels):
        lines = tuple(evolve(line, bandwidth=line.bandwidth * left) for line in level.lines)
        slower = evolve(level, bandwidth=level.bandwidth * left, lines=lines)
        yield (*levels[:index], slower, *levels[index + 1 :])


def _repriced(instance: Instance, formulation: Formulation, levels: tuple[Level, ...], solution: Solution) -> Instance:
    """Return the instance on another network; only the candidates of the plan are priced again."""
    cluster, candidates = evolve(instance.cluster, levels=levels), list(instance.candidates)
    if formulation.pricing is not None and formulation.classes is not None:
        from nest.formulate.candidate_costs import candidate

        before = formulation.pricing
        pricing = before.on_cluster(cluster, before.device)
        changed = pricing.innermost_changed_level(before)
        for index in {stage.candidate for stage in solution.stages}:
            known, block = candidates[index], formulation.sharded[index]
            if not pricing.is_unchanged(block, before, changed):
                candidates[index] = candidate(known.name, block, formulation.classes, pricing, known)
    return evolve(instance, cluster=cluster, candidates=tuple(candidates))


BESIDE = ("fastest", "safer", "simpler")  # Plans beside the first one in a document.


def plans_beside(instance: Instance, result: Result, plan: PlanDocument) -> dict[str, Any]:
    """Return the plans beside the first one that a search found, by the key of the document."""
    found = {name: getattr(result, name) for name in BESIDE}
    return {
        name: None if each is None else _described(instance, each[0], evaluate(instance, each[0]), plan)
        for name, each in found.items()
    }


def contenders_report(
    plan: PlanDocument, instance: Instance, formulation: Formulation, problem: Problem, known: Registry
) -> CheckReport:
    """Check the statements of a valid plan on others against the decisions given there."""
    from nest.formulate.fixed_plan import decided_formulation
    from nest.plan.check import CheckReport

    def offered(other: PlanDocument) -> Offered:
        of_all = problem.model is None or problem.search.mixed or other.candidate == plan.candidate
        return (instance, formulation) if of_all else decided_formulation(problem, other, known)

    report = CheckReport((), 0)
    if plan.runner_up is not None:
        report = _runner_up_report(plan, plan.runner_up, (instance, formulation), offered)
    for name in BESIDE:
        if getattr(plan, name) is not None:
            report = report.with_(_beside_report(plan, getattr(plan, name), name, offered))
    return report


def _runner_up_report(
    plan: PlanDocument, stated: Mapping[str, Any], own: Offered, offered: Callable[[PlanDocument], Offered]
) -> CheckReport:
    from nest.plan.check import CheckReport, check_contender

    if stated.get("decisions") is None:
        return CheckReport(("runner_up has no decisions; solve again to get them.",), 1)
    other = decided_plan(plan, stated["decisions"], "runner_up.decisions")
    instance, made_of = offered(other)
    best = _with_slower_levels(*own, solution_of(own[0], plan))

    def described(second: Solution, _: PricedPlan) -> Mapping[str, Any]:
        return describe_runner_up(instance, best, _with_slower_levels(instance, made_of, second))

    return check_contender(instance, "runner_up", stated, other, described, plan.batch_time or 0.0)


def _beside_report(
    plan: PlanDocument, stated: OtherPlan, place: str, offered: Callable[[PlanDocument], Offered]
) -> CheckReport:
    from nest.plan.check import check_contender

    other = decided_plan(plan, unstructure(stated.decisions), f"{place}.decisions")
    instance = offered(other)[0]

    def described(solution: Solution, priced: PricedPlan) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", unstructure(_described(instance, solution, priced, plan)))

    return check_contender(instance, place, unstructure(stated), other, described, plan.lower_bound or 0.0)


def _described(instance: Instance, solution: Solution, priced: PricedPlan, plan: PlanDocument) -> OtherPlan:
    seconds = plan.batch_time or 0.0
    return OtherPlan(
        label(instance, solution),
        priced.batch_time,
        priced.batch_time / seconds - 1 if seconds > 0 else 0.0,
        None if instance.cluster.error is None else priced.fit_probability,
        max(stage.memory for stage in priced.stages),
        decisions_of(instance, solution, priced),
    )
