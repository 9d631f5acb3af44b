"""Sensitivity of a plan to numbers of its problem: the plan kept, and the best plan then."""

from collections.abc import Sequence

from attrs import frozen

from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.public.changes import Parameter, Solver, decisions, never_slower, parameters, problem_of
from nest.public.planning import build_cluster
from nest.spec import PlanDocument, Problem
from nest.tolerances import AGREEMENT
from nest_whatif.outcome import plan_label

FACTORS = (0.5, 0.8, 1.25, 2.0)
"""Factors on each number: a fifth less and its inverse, half and twice."""


@frozen
class Response:
    """Effect of one changed number, all else equal.

    Times are those of a batch relative to the plan's, less 1: 0.05 is 5 % slower; for a changed global batch, those of
    a sample.

    Attributes:
        parameter: name of the number.
        unit: of `value`.
        value: after the change.
        factor: of the change.
        kept: with the same plan; None: it does not fit, or is no plan of the problem any more.
        best: with the best plan then; None: there is none.
        label: the best plan's decisions in a few words; None: there is none.
        changed: the best plan decides differently; a kept plan that is as fast is the best plan.
        proved: no plan is faster, or none exists; else time ran out.
    """

    parameter: str
    unit: str
    value: float
    factor: float
    kept: float | None
    best: float | None
    label: str | None
    changed: bool
    proved: bool = True


def responses(plan: PlanDocument, solver: Solver, *, factors: Sequence[float] = FACTORS) -> tuple[Response, ...]:
    """Effects of each number of a plan's problem times each factor, by parameter, then by factor.

    Impossible values are left out, and global batches that the kept plan cannot divide among its replicas in whole
    micro-batches, unless `training.uneven_batch` allows rounding.

    Args:
        plan: its numbers hold (`nest.api.check`). Empty for an infeasible plan, or one that takes no time.
        solver: solves, unless the answer is implied: a wider memory limit settles it (`Solver.within`), or, with less
            of a resource, a proved plan keeps its time.
        factors: above 0.

    Raises:
        InputError: the problem cannot be used.
    """
    if not plan.batch_time:
        return ()
    problem = problem_of(plan, solver)
    every = parameters(problem, solver.plugins)
    return tuple(each for parameter in every for each in responses_to(plan, problem, parameter, solver, factors))


def responses_to(
    plan: PlanDocument, problem: Problem, parameter: Parameter, solver: Solver, factors: Sequence[float] = FACTORS
) -> tuple[Response, ...]:
    """Effects of one number on a plan that takes some time; arguments as in `responses`."""
    return tuple(
        _response(plan, problem, parameter, factor, solver)
        for factor in factors
        if _possible(parameter, factor, plan, problem)
    )


def _possible(parameter: Parameter, factor: float, plan: PlanDocument, problem: Problem) -> bool:
    value = parameter.value * factor
    if not parameter.allows(value):
        return False
    if parameter.unit != "samples" or problem.training.uneven_batch or plan.candidate is None:
        return True
    return value % ((plan.data_parallel or 1) * plan.candidate.samples) == 0


def _response(plan: PlanDocument, problem: Problem, parameter: Parameter, factor: float, solver: Solver) -> Response:
    value = parameter.value * factor
    try:
        changed = parameter.changed(problem, value)
    except InputError:  # Such as a batch below the smallest micro-batch: no plan has it.
        return Response(parameter.name, parameter.unit, value, factor, None, None, None, changed=False)
    best = _best(plan, problem, changed, parameter, factor, solver)
    same_plan_time = solver.time_on(changed, plan)  # Mostly the search began with it.
    time = None if best is None else best.batch_time
    stays = time is None or (same_plan_time is not None and same_plan_time <= time * (1 + AGREEMENT))
    scale = factor if parameter.unit == "samples" else 1.0
    return Response(
        parameter.name,
        parameter.unit,
        value,
        factor,
        None if same_plan_time is None else _relative(same_plan_time / scale, plan),
        None
        if time is None
        else _relative((same_plan_time if stays and same_plan_time is not None else time) / scale, plan),
        None if best is None or time is None else plan_label(plan if stays else best),
        changed=not stays and best is not None and _decides(plan, solver.plugins) != _decides(best, solver.plugins),
        proved=best is None or best.status != "feasible",
    )


def _best(
    plan: PlanDocument, problem: Problem, changed: Problem, parameter: Parameter, factor: float, solver: Solver
) -> PlanDocument | None:
    """Best plan of the changed problem; the plan itself if implied."""
    if _is_implied(plan, changed, parameter, factor, solver):
        return plan
    label = f"{parameter.name} times {factor:g}"
    if parameter.name == "memory":
        cluster, _ = build_cluster(changed.cluster, solver.plugins)
        limits = (cluster.size, parameter.value * factor, cluster.size)
        return solver.within(changed, *limits, label, diagnosed=False)
    return solver.plan(changed, label, plan, solver.floors(problem, parameter, factor), diagnosed=False)


def _is_implied(plan: PlanDocument, changed: Problem, parameter: Parameter, factor: float, solver: Solver) -> bool:
    """True if a proved plan stays the best because it is no slower, and no plan is faster than before."""
    if factor >= 1 or plan.status != "optimal" or plan.batch_time is None or not never_slower(changed, parameter):
        return False
    same_plan_time = solver.time_on(changed, plan)
    return same_plan_time is not None and same_plan_time <= plan.batch_time


def _relative(time: float, plan: PlanDocument) -> float:
    assert plan.batch_time is not None
    return time / plan.batch_time - 1


def _decides(plan: PlanDocument, known: Registry) -> list[tuple[str, str]]:
    return [(each.name, each.text) for each in decisions(plan, known)]
