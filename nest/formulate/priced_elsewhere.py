"""The decisions of a plan on a problem that does not allow them, for their price alone."""

from attrs import evolve

from nest.errors import FieldError, FieldErrors, InputError
from nest.formulate.instance import build_instance
from nest.hooks.registry import Registry
from nest.instance import Instance, Solution
from nest.plan.document import solution_of
from nest.plan.legality import structure_violations
from nest.spec import CandidateSummary, PlanDocument, Problem
from nest.spec.problem import ALL_RANKS


def decided_elsewhere(problem: Problem, plan: PlanDocument, known: Registry) -> tuple[Problem, Instance, Solution]:
    """The problem opened so far that it allows what `plan` decides, in numbers, and the decisions.

    Args:
        problem: self-contained.
        plan: of that problem or another.
        known: offers what the problem names.

    Raises:
        InputError: they are no plan of this model and cluster, whatever the problem allows.
    """
    if plan.candidate is None:
        raise InputError("the plan does not say which candidate it uses.")
    try:
        opened = _opened(problem, plan, plan.candidate)
    except (FieldError, FieldErrors) as error:
        raise InputError(f"it is no plan of this problem: {error}.") from None
    instance = build_instance(opened, known)
    solution = solution_of(instance, plan)
    faults = structure_violations(instance, solution)
    if faults:
        raise InputError(f"it is no plan of this problem: {'; '.join(faults)}.")
    return opened, instance, solution


def _opened(problem: Problem, plan: PlanDocument, candidate: CandidateSummary) -> Problem:
    """The problem, allowed what the plan decides.

    A plan file has the degrees of one candidate only; where stages mix several, all that are admissible are allowed.
    """
    training, mixed = problem.training, len({stage.candidate for stage in plan.stages}) > 1
    named = {} if mixed or problem.model is None else candidate.degrees
    schedule = training.schedule if plan.schedule is None else (*training.schedule, plan.schedule)
    return evolve(
        problem,
        training=evolve(
            training,
            schedule=tuple(dict.fromkeys(schedule)),
            micro_batch=(candidate.samples if candidate.micro_batch is None else candidate.micro_batch,),
        ),
        search=evolve(
            problem.search,
            target=None,
            zero=(0, 1, 2, 3),
            zero_degree=(ALL_RANKS if plan.zero_degree is None else plan.zero_degree,),
            recompute=None,
            rank_order=("pp-inner", "dp-inner"),
            mixed=mixed,
        ),
        strategies={name: (degree,) for name, degree in named.items()},
        constraints=(),
        fixed=None,
    )
