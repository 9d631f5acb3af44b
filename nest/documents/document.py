"""The document of a found or fixed plan, its check, and its proof by CP-SAT.

Throughout, `problem` is self-contained, `instance` and `formulation` are its, `known` holds the registered objects, and
a `deadline` ends searches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import evolve

from nest.documents.runner_up import block_batch_time, contenders_report, plans_beside, runner_up
from nest.documents.unknown import wrong_unknown
from nest.errors import InputError, InputErrors, InternalError
from nest.formulate.decisions import contributors, differences
from nest.formulate.instance import Formulation, formulate
from nest.formulate.model import model_facts
from nest.formulate.problem import carried_problem
from nest.formulate.risk import EVEN_ODDS, at_even_odds, at_risk, leaves_risk_open, likely_enough, wrong_nearness
from nest.formulate.target import runs_on, wrong_runs_on
from nest.hooks.calls import Guarded, attribute
from nest.hooks.registry import Registry
from nest.instance import Instance, Result, SearchProgress, Solution
from nest.plan.document import document, infeasible, solution_of, time_range
from nest.plan.evaluate import PricedPlan, evaluate
from nest.plan.layout import schedule_of
from nest.report.plan_summary import ModelFacts, cost_of_a_step, figures, whole_training
from nest.report.text.summary import Verdict
from nest.solve.effort import Deadline, Waiting
from nest.spec import PlanDocument, Problem, UnknownFact
from nest.tolerances import AGREEMENT, CONTENDING_MEMORY_SLACK

if TYPE_CHECKING:
    from nest.plan.check import CheckReport
    from nest_cpsat import Verification
    from nest_cpsat.open_cases import Beside


def plan_summary(
    instance: Instance,
    solution: Solution,
    priced: PricedPlan,
    problem: Problem,
    known: Registry,
    formulation: Formulation | None,
    unknown: Sequence[UnknownFact] = (),
) -> dict[str, Any]:
    """Return the `summary` of a plan; without `formulation`, collectives and the whole training are left out.

    The range of the whole training's time spans the values of `unknown` facts.
    """
    flops = None if formulation is None else formulation.flops
    known_facts = model_facts(problem.model, problem.training, problem.cluster, known, flops)
    facts = ModelFacts(*known_facts) if known_facts is not None else None
    names = [level.name for level in instance.cluster.levels]
    levels = {"levels": names} if instance.pools is None else {}
    summary = {**levels, **figures(instance, solution, priced, facts)}
    if formulation is None:
        return summary
    inside, host = None, None
    if formulation.pricing is not None:
        from nest.formulate.cost_breakdown import collectives_inside, launching

        inside = collectives_inside(formulation, solution, priced)
        host = launching(formulation, solution, priced)
    cost = cost_of_a_step(problem.training, problem.cluster, instance, solution, priced, summary)
    summary |= {} if cost is None else {"cost": cost}
    span = time_range(priced.batch_time, priced.time_error, [each.batch_time for each in unknown])
    whole = whole_training(problem.training, problem.cluster, priced.batch_time, span, summary)
    further = {
        "collectives": inside,
        "launching": host,
        "coverage": _coverage(formulation, solution),
        "training": whole,
    }
    return {**summary, **{name: each for name, each in further.items() if each is not None}}


def _coverage(formulation: Formulation, solution: Solution) -> dict[str, Any] | None:
    """Return `summary.coverage`; None: no cost model uses measured times."""
    pricings = [each for each in (formulation.pricing, *formulation.of_pools.values()) if each is not None]
    if not any(getattr(each.costs, "from_measurements", False) for each in pricings):
        return None
    from nest.formulate.cost_breakdown import coverage

    return coverage(formulation, solution)


def solved_document(
    instance: Instance, formulation: Formulation | None, result: Result, problem: Problem, known: Registry
) -> PlanDocument:
    """Return the document of a found plan, without other plans.

    Raises:
        InternalError: the solver's step time differs from its plan's.
    """
    solution, promised = result.solution, result.batch_time
    assert solution is not None
    priced = evaluate(instance, solution)
    if promised is None or abs(priced.batch_time - promised) > AGREEMENT * promised or not priced.admitted:
        used = [each for each in instance.space.schedules if each.name == solution.schedule]
        for each in (instance.collectives, *used):
            attribute(each, "told the solver something else than it told the plan")
        raise InternalError(
            f"the solver promised a step time of {promised} s, but its plan takes {priced.batch_time} s "
            f"(memory admitted: {priced.admitted}). This is a bug in nest; please report it with the problem file."
        )
    _replay_plugin(instance, solution, known)
    lower_bound = result.lower_bound
    # What CP-SAT proves leaves a bound of its own; the dynamic program's optimum is its bound.
    if result.status == "optimal" and (lower_bound is None or lower_bound >= promised * (1 - AGREEMENT)):
        lower_bound = priced.batch_time
    plan = _document(instance, formulation, solution, priced, problem, known, result.status, lower_bound)
    return evolve(plan, statistics=result.statistics, space=EVEN_CHUNKS if _even_only(result) else None)


EVEN_CHUNKS = "plans whose chunks hold as many transformer blocks each"
"""Limit of some searches with several chunks a stage (`nest.solve.dp.units.MOST_PATTERNS`)."""


def _even_only(result: Result) -> bool:
    return result.statistics.get("chunks") == "even"


def _only(result: Result) -> str:
    """Return a sentence of a diagnosis on the searched plans, if not all."""
    return f" Of several chunks a stage only {EVEN_CHUNKS} were searched." if _even_only(result) else ""


def _replay_plugin(instance: Instance, solution: Solution, known: Registry) -> None:
    """Refuse a plan whose plug-in schedule is contradicted by its own order.

    Raises:
        PluginError: it is contradicted.
        InputError: it is, and the problem names no other one.
    """
    schedule = schedule_of(instance, solution)
    if not isinstance(schedule, Guarded):
        return
    from nest.simulate.replay import contradiction

    reason = contradiction(instance, solution)
    if reason is None:
        return
    if all(each.name == schedule.name for each in instance.space.schedules):
        raise InputError(
            f"the schedule {schedule.name!r} of plug-in {' '.join(known.origin('schedules', schedule.name))} {reason}, "
            "and the problem names no other; name one in training.schedule whose weights and order agree."
        )
    attribute(schedule, reason)


def _document(
    instance: Instance,
    formulation: Formulation | None,
    solution: Solution,
    priced: PricedPlan,
    problem: Problem,
    known: Registry,
    status: str = "feasible",
    lower_bound: float | None = None,
) -> PlanDocument:
    return document(
        instance,
        solution,
        priced,
        status=status,
        lower_bound=lower_bound,
        problem=problem.to_dict(),
        summary=plan_summary(instance, solution, priced, problem, known, formulation),
        plugins=contributors(problem, known, instance, solution),
    )


def result_document(
    instance: Instance,
    formulation: Formulation,
    result: Result,
    problem: Problem,
    known: Registry,
    deadline: Deadline,
    *,
    contenders: bool = True,
) -> PlanDocument:
    """Return the document of a search: a plan with others beside it, or why there is none.

    Without `contenders` no search goes on for a runner-up.

    Raises:
        InternalError: the solver's step time differs from its plan's.
    """
    from nest.formulate.decisions import outside
    from nest.formulate.problem import target_diagnosis
    from nest.solve.solver import feasible

    if result.solution is None:
        asked = at_risk(problem, EVEN_ODDS) if leaves_risk_open(problem.training, problem.model) else problem
        diagnosis = f"{result.diagnosis or ''}{_only(result)}{target_diagnosis(asked, known, feasible, deadline)}"
        origins = contributors(problem, known)
        return infeasible(problem.to_dict(), diagnosis, statistics=result.statistics, plugins=origins)
    plan = solved_document(instance, formulation, result, problem, known)
    coarser = block_batch_time(instance, result, problem.search.granularity, deadline)
    if coarser is not None:
        plan = evolve(plan, statistics={**plan.statistics, "block_batch_time": coarser})
    return evolve(
        plan,
        runner_up=runner_up(instance, formulation, result, result.solution) if contenders else None,
        outside=outside(plan, instance, result.solution, formulation, problem, known),
        runs_on=runs_on(plan, known),
        **plans_beside(instance, result, plan),
    )


def fixed_document(problem: Problem, known: Registry) -> PlanDocument:
    """Return the document of the plan of a problem's `fixed`.

    Raises:
        InputError: the decisions do not make a plan.
    """
    from nest.formulate.decisions import outside
    from nest.formulate.fixed_plan import fixed_plan

    instance, solution, formulation = fixed_plan(problem, known)
    if instance.network is not None:
        from nest.solve.placement.arrange import Arranger

        solution, _ = Arranger(instance).place(solution)
    priced = evaluate(instance, solution)
    if leaves_risk_open(problem.training, problem.model) and not likely_enough(priced.fit_probability):
        instance = at_even_odds(instance)
        priced = evaluate(instance, solution)
    plan = _document(instance, formulation, solution, priced, problem, known)
    beyond = outside(plan, instance, solution, formulation, problem, known)
    return evolve(plan, outside=beyond, runs_on=runs_on(plan, known))


def check_document(plan: PlanDocument, known: Registry) -> CheckReport:
    """Check that every number of a plan follows from its decisions and its problem; changed plug-ins come first.

    Raises:
        InputError: the plan names objects missing in its problem.
    """
    return checked_document(plan, known)[0]


def checked_document(plan: PlanDocument, known: Registry) -> tuple[CheckReport, Instance, Formulation]:
    """Check a document; return also the instance of its decisions, and its formulation."""
    others = differences(plan.plugins, known)
    try:
        report, instance, formulation = _check_numbers(plan, known)
    except InputErrors as errors:
        raise InputErrors([*others, *errors.problems], errors.others) from None
    except InputError as error:
        raise InputErrors([*others, str(error)]) from None
    if report.ok:
        report = evolve(report, notes=tuple(others))
    else:
        report = evolve(report, disagreements=(*others, *report.disagreements))
    return report, instance, formulation


def _check_numbers(plan: PlanDocument, known: Registry) -> tuple[CheckReport, Instance, Formulation]:
    from nest.formulate.decisions import wrong_outside
    from nest.formulate.fixed_plan import decided_formulation
    from nest.plan.check import CheckReport, certified, check

    problem = carried_problem(plan, known)
    instance, formulation = decided_formulation(problem, plan, known)
    report = check(
        instance,
        plan,
        lambda solution, priced: plan_summary(instance, solution, priced, problem, known, formulation, plan.unknown),
    )
    if plan.status != "infeasible":
        report = certified(report, instance, plan, problem.training)
    if report.ok and plan.outside is not None:
        faults = wrong_outside(plan, instance, solution_of(instance, plan), formulation, problem, known)
        report = report.with_(CheckReport(faults, 1))
    if report.ok:
        report = report.with_(contenders_report(plan, instance, formulation, problem, known))
    if report.ok:
        report = report.with_(CheckReport((*wrong_nearness(plan, problem), *wrong_unknown(plan, problem, known)), 2))
    if report.ok and plan.runs_on is not None:
        summed = evolve(plan, summary={**plan.summary, "devices": instance.size})
        report = report.with_(CheckReport(wrong_runs_on(summed, known), 1))
    return report, instance, formulation


class Proof(NamedTuple):
    """Settings of a proof by CP-SAT."""

    free: bool  # Blocks may lie anywhere and in any order.
    deadline: Deadline  # Leaves the rest open.
    workers: int  # CP-SAT threads.
    progress: Callable[[SearchProgress], None] | None  # Called at intervals.
    beside: Beside | None  # Other processes, forked from this one, that bound cases; None: none.


def verdict_on(plan: PlanDocument, known: Registry, how: Proof) -> Verdict:
    """Return CP-SAT's verdict on a plan that holds and fits, its problem formulated anew."""
    from nest.formulate.fixed_plan import decided_formulation

    problem = carried_problem(plan, known)
    instance, formulation = formulate(problem, known, waiting=Waiting(how.deadline, how.progress))
    if not instance.complete and plan.status != "infeasible":  # What was priced may lack the plan's own.
        instance, formulation = decided_formulation(problem, plan, known)
        instance = evolve(instance, complete_to=0.0)
    return verdict(instance, formulation, plan, problem, known, how)


def verdict(
    instance: Instance, formulation: Formulation, plan: PlanDocument, problem: Problem, known: Registry, how: Proof
) -> Verdict:
    """Return CP-SAT's verdict on a plan whose numbers hold."""
    from nest_cpsat import Price
    from nest_cpsat import verify as prove

    def pricing(solution: Solution) -> Price:
        priced = evaluate(instance, solution)
        return Price(priced.batch_time, priced.exceeding(CONTENDING_MEMORY_SLACK))

    claimed = plan.lower_bound if plan.status == "near-optimal" else plan.batch_time
    effort: dict[str, Any] = {"time_limit": how.deadline, "workers": how.workers, "progress": how.progress}
    if instance.network is not None:
        from nest.solve.placement.search import prove as prove_on_network

        proof = prove_on_network(instance, claimed, **effort)
    else:
        proof = prove(instance, claimed, pricing, free=how.free, beside=how.beside, **effort)
    better = None if proof.better is None else _better(instance, formulation, proof, proof.better, problem, known)
    best = better or plan
    certificate = None
    if best.status != "infeasible":
        from nest.plan.certificate import certify_plan

        certificate = certify_plan(best, schedule_of(instance, solution_of(instance, best)), problem.training).to_dict()
    return Verdict({**proof.summary(), "certificate": certificate}, claimed, better)


def _better(
    instance: Instance,
    formulation: Formulation,
    proof: Verification,
    solution: Solution,
    problem: Problem,
    known: Registry,
) -> PlanDocument:
    """Return the document of a better plan from CP-SAT; it must pass the check."""
    _replay_plugin(instance, solution, known)
    priced = evaluate(instance, solution)
    bound = min(proof.bound or 0.0, priced.batch_time)
    better = _document(instance, formulation, solution, priced, problem, known, lower_bound=bound)
    better = evolve(better, runs_on=runs_on(better, known))
    report = check_document(better, known)
    if not report.ok:
        raise InternalError(
            f"CP-SAT's better plan fails its check: {report.disagreements[0]} This is a bug in nest; please report "
            "it with the problem file."
        )
    return better


def proved(plan: PlanDocument, verdict: Verdict) -> PlanDocument:
    """Return the plan with the proof's summary; a refuted plan loses the status optimal."""
    if verdict.better is None:
        return evolve(plan, verification=verdict.verification)
    # The search was stopped early, or is wrong: the better plan is given, with what was found out about the other.
    return evolve(verdict.better, verification={**verdict.verification, "refuted_batch_time": plan.batch_time})
