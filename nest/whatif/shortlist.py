"""Best plans of a problem: those worth an hour of measuring."""

from collections.abc import Callable

from attrs import evolve

from nest.documents.document import result_document
from nest.documents.unknown import with_unknown
from nest.errors import NoPlanYet
from nest.formulate.formulation import Formulation
from nest.formulate.instance import formulate
from nest.formulate.risk import Answer, leaves_risk_open, searched_at_risk
from nest.hooks.registry import Registry
from nest.instance import Instance, OrderedSchedule, SearchProgress, Solution
from nest.plan.layout import schedule_of
from nest.report.other_plans import apart
from nest.report.text.comparison import Entry
from nest.solve.effort import Deadline, Waiting
from nest.spec import PlanDocument, Problem
from nest.tolerances import AGREEMENT, TIE


def best_plans(
    problem: Problem,
    instance: Instance,
    formulation: Formulation,
    count: int,
    deadline: Deadline,
    progress: Callable[[SearchProgress], None] | None,
    known: Registry,
) -> tuple[Entry, ...]:
    """Best plans of a problem (`nest.api.shortlist`), each proved by its own search, unless time runs out.

    Raises:
        NoPlanYet: the time was up before any plan was found.
    """
    from nest.solve.dp import PlanSignature
    from nest.solve.solver import solve as search

    given = instance, formulation

    def answer(asked: Problem, _: float) -> Answer:
        made = given
        if asked is not problem:
            made = formulate(asked, known, waiting=Waiting(deadline, progress))
        return *made, search(made[0], deadline, progress, diagnosed=not leaves_risk_open(asked.training, asked.model))

    instance, formulation, result = searched_at_risk(problem, answer, deadline)
    best = with_unknown(result_document(instance, formulation, result, problem, known, deadline), problem, known)
    plans, gaps = [(best, result.status != "feasible", _replayed(instance, result.solution))], []
    while result.solution is not None and len(plans) < count:
        gaps.append(result.solution)
        met = result.runner_up
        if met is not None and any(PlanSignature.of(each).covers(met[0]) for each in gaps):
            met = None
        if met is None and deadline.passed:
            break
        try:
            result = search(instance, deadline, progress, known=met, preferred=False, runner_up=False, besides=gaps)
        except NoPlanYet:
            break
        if result.solution is not None and result.batch_time is not None:
            status = "optimal" if result.batch_time <= (best.lower_bound or 0.0) * (1 + AGREEMENT) else "feasible"
            other = evolve(result, status=status, lower_bound=best.lower_bound, runner_up=None)
            following = result_document(instance, formulation, other, problem, known, deadline)
            plans.append((following, result.status == "optimal", _replayed(instance, result.solution)))
    plans.sort(key=lambda each: each[0].batch_time or 0.0)
    least = plans[0][0].batch_time or 0.0
    least_told = apart(best)

    def entry(place: int, plan: PlanDocument, proved: bool, replayed: float | None) -> Entry:
        slower = (plan.batch_time or 0.0) / least - 1 if least else 0.0
        return Entry(plan, slower, place == 0 or (slower > TIE and slower >= least_told), proved, replayed)

    return tuple(entry(place, *each) for place, each in enumerate(plans))


def _replayed(instance: Instance, solution: Solution | None) -> float | None:
    """Step time (s) of a plan by replay; None: its schedule gives no order of passes."""
    from nest.simulate.replay import replay

    if solution is None or not isinstance(schedule_of(instance, solution), OrderedSchedule):
        return None
    return replay(instance, solution).batch_time
