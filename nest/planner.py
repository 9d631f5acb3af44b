"""The conductor: from what people wrote to a priced plan. Each function is one walk through the house."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from attrs import evolve

from nest.contenders import contenders_report, other_risks, runner_up
from nest.errors import InputError, InputErrors, InternalError
from nest.figures import figures_of
from nest.formulate.instance import Formulation, formulate
from nest.formulate.problem import (
    Changes,
    Source,
    carried_problem,
    decided_problem,
    formulated,
    naming,
    read_record,
    whole_problem,
)
from nest.formulate.provenance import contributors, differences
from nest.formulate.target import runs_on, simpler_within, wrong_runs_on
from nest.graph import Block
from nest.hooks.guarded import blame
from nest.hooks.registry import Registry, registry
from nest.instance import Instance, Result, Solution, Standing
from nest.plan import (
    CheckReport,
    certified,
    certify_plan,
    document,
    infeasible,
    schedule_of,
    solution_of,
)
from nest.plan import check as check_plan
from nest.plan import evaluate as price
from nest.report import Verdict
from nest.solve.effort import Deadline, check_effort
from nest.spec import PlanDocument, Problem
from nest.tolerances import AGREEMENT, CONTENDING_MEMORY_SLACK

if TYPE_CHECKING:
    from nest.solve.cpsat import Verification

Progress = Callable[[Standing], None]
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def _without_faulty_plugins(walk: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
    """The walk, which starts again without an object of a plug-in that turns out to be faulty."""

    @wraps(walk)
    def going_on(*asked: Asked.args, **named: Asked.kwargs) -> Answer:
        known = cast("Registry | None", named.get("plugins")) or registry()
        named["plugins"] = known
        return known.run(lambda: walk(*asked, **named))

    return going_on


@_without_faulty_plugins
def solve(
    problem: Source | Problem,
    *,
    time_limit: float | Deadline | None = None,
    progress: Progress | None = None,
    plugins: Registry | None = None,
    verify: bool | str = False,
    workers: int = 1,
    told: Callable[[str], None] | None = None,
    changes: Changes | None = None,
) -> PlanDocument:
    """The fastest plan of a problem, proved optimal; or why there is none.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        time_limit: seconds, proof and all, after which the best plan so far is taken with its bound; or a deadline.
        progress: told now and then how far the search is.
        verify: whether CP-SAT is to prove the plan; `"free"`: also with blocks anywhere, in any order.
        workers: threads CP-SAT uses.
        told: told what is taken for granted of a problem that does not say it, a sentence each.
        changes: keys of its sections in place of what is written, such as `{"search": {"target": "none"}}`.
        plugins: registered strategies, importers and the like; left out, those installed.

    Raises:
        InputError: the problem cannot be used; the text names the place and the remedy.
        NoPlanYet: the time was up before any plan was found.
    """
    from nest.solve.dp import solve as search

    check_effort(None, workers)
    deadline = Deadline.of(time_limit)
    if verify not in (False, True, "free"):
        raise InputError(f'verify is {verify!r}; it must be True, False or "free".')
    known = plugins or registry()
    whole, instance, formulation = formulated(problem, known, progress, told, changes, deadline)
    with naming(problem):
        result = search(instance, deadline, progress, simpler_within=simpler_within(whole))
    plan = answer(instance, formulation, result, whole, known, deadline)
    if not verify:
        return plan
    verdict = _verdict(instance, formulation, plan, whole, known, verify == "free", deadline, workers, progress)
    return _with_verdict(plan, verdict)


def answer(
    instance: Instance,
    formulation: Formulation,
    result: Result,
    problem: Problem,
    known: Registry,
    deadline: Deadline,
) -> PlanDocument:
    """The document of what a search found: a plan with what is to be told of others, or why there is none."""
    from nest.formulate.problem import target_diagnosis
    from nest.formulate.provenance import outside
    from nest.solve.dp import feasible
    from nest.solve.dp import solve as search

    if result.solution is None:
        diagnosis = f"{result.diagnosis or ''}{target_diagnosis(problem, known, feasible, deadline)}"
        origins = contributors(problem, known)
        return infeasible(problem.to_dict(), diagnosis, statistics=result.statistics, plugins=origins)
    plan = _document(instance, formulation, result, result.solution, problem, known)
    beyond = outside(plan, instance, result.solution, formulation, problem, known)
    at_risk = other_risks(
        instance, result, plan, problem, lambda each, best: search(each, deadline, known=best, runner_up=False)
    )
    return evolve(plan, outside=beyond, other_risks=at_risk, runs_on=runs_on(plan, known))


@_without_faulty_plugins
def verify(
    plan: Source | PlanDocument,
    *,
    free: bool = False,
    time_limit: float | Deadline | None = None,
    workers: int = 1,
    progress: Progress | None = None,
    plugins: Registry | None = None,
) -> Verdict:
    """Whether CP-SAT finds a better plan; if not, the plan is proved optimal (PROBLEM.md section 7).

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        free: also ask for plans whose blocks lie anywhere and in any order.
        time_limit: seconds after which what is not proved is left open; or a deadline.
        workers: threads CP-SAT uses.
        progress: told now and then how far the proof is.
        plugins: registered strategies, importers and the like; left out, those installed.

    Raises:
        InputError: the plan cannot be read, its numbers are wrong, or it does not fit.
    """
    from nest.formulate.fixed_plan import decided_formulation

    check_effort(None, workers)
    deadline = Deadline.of(time_limit)
    known = plugins or registry()
    report = check(plan, plugins=known)
    with naming(plan, "problem"):
        read = read_record(plan, PlanDocument)[0]
        if not report.ok:
            raise InputError(f"the plan does not hold, so there is nothing to prove: {report.disagreements[0]}")
        if read.status != "infeasible" and not read.fits:
            raise InputError("the plan does not fit into memory, so there is nothing to prove.")
        problem = carried_problem(read, known)
        instance, formulation = formulate(problem, known, progress=progress, deadline=deadline)
        if not instance.complete and read.status != "infeasible":  # What was priced may lack the plan's own.
            instance, formulation = decided_formulation(problem, read, known)
            instance = evolve(instance, complete=False)
        return _verdict(instance, formulation, read, problem, known, free, deadline, workers, progress)


@_without_faulty_plugins
def evaluate(
    problem: Source | Problem,
    *,
    fix: Mapping[str, Any] | None = None,
    plugins: Registry | None = None,
    told: Callable[[str], None] | None = None,
    changes: Changes | None = None,
) -> PlanDocument:
    """The plan that `fixed` describes, priced; what it leaves open takes the usual framework default.

    It need not satisfy `constraints`: those that it does not are its `violates`. What `nest solve` would not try
    without `fixed` is told in its `outside`.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        fix: further decisions by name, which win over the problem's `fixed`.
        plugins: registered strategies, importers and the like; left out, those installed.
        told: told what is taken for granted of a problem that does not say it, a sentence each.
        changes: keys of its sections in place of what is written.

    Raises:
        InputError: the problem cannot be used, or the decisions do not make a plan.
    """
    from nest.formulate.fixed_plan import fixed_plan
    from nest.formulate.provenance import outside

    known = plugins or registry()
    with naming(problem):
        whole = decided_problem(problem, fix, known, told, changes)
        instance, solution, formulation = fixed_plan(whole, known)
        priced = price(instance, solution)
        plan = document(
            instance,
            solution,
            priced,
            status="feasible",
            lower_bound=None,
            problem=whole.to_dict(),
            summary=figures_of(instance, solution, priced, whole, known, formulation),
            plugins=contributors(whole, known, instance, solution),
        )
        beyond = outside(plan, instance, solution, formulation, whole, known)
        return evolve(plan, outside=beyond, runs_on=runs_on(plan, known))


@_without_faulty_plugins
def blocks(problem: Source | Problem, *, plugins: Registry | None = None) -> tuple[Block, ...]:
    """What one device of each candidate of a problem would run, for commands that measure it; nothing is priced.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        plugins: registered strategies, importers and the like; left out, those installed.

    Raises:
        InputError: the problem cannot be used, or has a profile in place of a model.
    """
    from nest.formulate.instance import model_blocks

    known = plugins or registry()
    with naming(problem):
        return model_blocks(whole_problem(problem, known)[0], known)


@_without_faulty_plugins
def check(plan: Source | PlanDocument, *, plugins: Registry | None = None) -> CheckReport:
    """Whether every number of a plan follows from its decisions and its problem; no solver takes part.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        plugins: registered strategies, importers and the like; left out, those installed.

    Raises:
        InputError: the plan cannot be read, or names things its problem does not have.
    """
    known = plugins or registry()
    with naming(plan, "problem"):
        read = read_record(plan, PlanDocument)[0]
        others = differences(read.plugins, known)
        try:
            report = _check_report(read, known)
        except InputErrors as errors:
            raise InputErrors([*others, *errors.problems], errors.others) from None
        except InputError as error:
            raise InputErrors([*others, str(error)]) from None
        if report.ok:
            return evolve(report, notes=tuple(others))
        # What differs here comes first: it may be why.
        return evolve(report, disagreements=(*others, *report.disagreements))


def _check_report(plan: PlanDocument, known: Registry) -> CheckReport:
    from nest.formulate.embedding import wrong_placement
    from nest.formulate.fixed_plan import decided_formulation
    from nest.formulate.provenance import wrong_outside

    problem = carried_problem(plan, known)
    instance, formulation = decided_formulation(problem, plan, known)
    report = check_plan(
        instance, plan, lambda solution, priced: figures_of(instance, solution, priced, problem, known, formulation)
    )
    if plan.status != "infeasible":
        report = certified(report, instance, plan, problem.training)
    if report.ok and plan.outside is not None:
        faults = wrong_outside(plan, instance, solution_of(instance, plan), formulation, problem, known)
        report = report.with_(CheckReport(faults, 1))
    if report.ok:
        report = report.with_(contenders_report(plan, instance, formulation, problem, known))
    if report.ok and plan.runs_on is not None:
        summed = evolve(plan, summary={**plan.summary, "devices": instance.cluster.size})
        report = report.with_(CheckReport(wrong_runs_on(summed, known), 1))
    if plan.placement is None or not report.ok:
        return report
    misplaced = wrong_placement(instance, plan, plan.placement, problem.cluster, known)
    return report.with_(CheckReport(tuple(misplaced), 1))


def read_plan(plan: Source | PlanDocument) -> PlanDocument:
    """The plan of a path or a mapping, its numbers as they are; what cannot be read is an `InputError`."""
    with naming(plan):
        return read_record(plan, PlanDocument)[0]


def _document(
    instance: Instance,
    formulation: Formulation,
    result: Result,
    solution: Solution,
    problem: Problem,
    known: Registry,
) -> PlanDocument:
    from nest.formulate.embedding import placement
    from nest.simulate.contradiction import replay_plugin

    priced = price(instance, solution)
    promised = result.batch_time
    if promised is None or abs(priced.batch_time - promised) > AGREEMENT * promised or not priced.fits:
        used = [each for each in instance.space.schedules if each.name == solution.schedule]
        for each in (instance.collectives, *used):
            blame(each, "told the solver something else than it told the plan")
        raise InternalError(
            f"the solver promised a batch time of {promised} s, but its plan takes {priced.batch_time} s "
            f"(fits memory: {priced.fits}). This is a bug in nest; please report it with the problem file."
        )
    replay_plugin(instance, solution, known)
    return document(
        instance,
        solution,
        priced,
        status=result.status,
        lower_bound=priced.batch_time if result.status == "optimal" else result.lower_bound,
        problem=problem.to_dict(),
        summary=figures_of(instance, solution, priced, problem, known, formulation),
        runner_up=runner_up(instance, formulation, result, solution),
        statistics=result.statistics,
        plugins=contributors(problem, known, instance, solution),
        placement=placement(instance, solution, problem.cluster, known),
    )


def _verdict(
    instance: Instance,
    formulation: Formulation,
    plan: PlanDocument,
    problem: Problem,
    known: Registry,
    free: bool,
    deadline: Deadline,
    workers: int,
    progress: Progress | None,
) -> Verdict:
    """What CP-SAT says of a plan whose numbers hold."""
    from nest.solve.cpsat import Price
    from nest.solve.cpsat import verify as prove

    def pricing(solution: Solution) -> Price:
        priced = price(instance, solution)
        return Price(priced.batch_time, priced.exceeding(CONTENDING_MEMORY_SLACK))

    found = prove(
        instance, plan.batch_time, pricing, free=free, time_limit=deadline, workers=workers, progress=progress
    )
    better = None if found.better is None else _better(instance, formulation, found, found.better, problem, known)
    best = better or plan
    told = None
    if best.status != "infeasible":
        told = certify_plan(best, schedule_of(instance, solution_of(instance, best)), problem.training).to_dict()
    return Verdict({**found.summary(), "certificate": told}, plan.batch_time, better)


def _better(
    instance: Instance,
    formulation: Formulation,
    found: "Verification",
    solution: Solution,
    problem: Problem,
    known: Registry,
) -> PlanDocument:
    """The document of a plan that CP-SAT found better; it must pass `check`."""
    from nest.simulate.contradiction import replay_plugin

    replay_plugin(instance, solution, known)
    priced = price(instance, solution)
    better = document(
        instance,
        solution,
        priced,
        status="feasible",
        lower_bound=min(found.bound or 0.0, priced.batch_time),
        problem=problem.to_dict(),
        summary=figures_of(instance, solution, priced, problem, known, formulation),
        plugins=contributors(problem, known, instance, solution),
    )
    better = evolve(better, runs_on=runs_on(better, known))
    report = check(better, plugins=known)
    if not report.ok:
        raise InternalError(
            f"CP-SAT's better plan does not hold: {report.disagreements[0]} "
            "This is a bug in nest; please report it with the problem file."
        )
    return better


def _with_verdict(plan: PlanDocument, verdict: Verdict) -> PlanDocument:
    """The plan with the proof's summary; a plan that is refuted is not called optimal any more."""
    if verdict.better is None:
        return evolve(plan, verification=verdict.verification)
    # The search was stopped early, or is wrong: the better plan is given, with what was found out about the other.
    return evolve(verdict.better, verification={**verdict.verification, "refuted_batch_time": plan.batch_time})
