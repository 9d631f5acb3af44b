"""What questions about a plan begin with: its problem, and that the plan itself need not be searched again."""

from pathlib import Path

from nest import planner
from nest.errors import InputError
from nest.formulate.cluster import build_cluster
from nest.formulate.problem import Source, carried_problem
from nest.hooks.registry import Registry
from nest.io import placed
from nest.questions.parameters import with_memory
from nest.questions.solver import Solver
from nest.spec import PlanDocument, Problem


def checked(plan: Source | PlanDocument, known: Registry) -> PlanDocument:
    """The plan of a path or a mapping, whose numbers hold.

    Raises:
        InputError: it cannot be read, or does not hold.
    """
    read = planner.read_plan(plan)
    require_held(plan, read, known, "so nothing can be asked about it")
    return read


def require_held(plan: Source | PlanDocument, read: PlanDocument, known: Registry, so: str) -> None:
    """Refuse a plan whose numbers do not hold.

    Args:
        plan: where it was read from, which errors name; it is not read again, as it may be a pipe.
        read: the plan.
        known: offers what its problem names.
        so: what follows.

    Raises:
        InputError: they do not, or the plan's problem cannot be used.
    """
    try:
        report = planner.check(read, plugins=known)
    except InputError as error:
        raise (placed(Path(plan), error, "problem") if isinstance(plan, (str, Path)) else error) from None
    if not report.ok:
        raise InputError(f"the plan does not hold, {so}: {report.disagreements[0]}")


def problem_of(plan: PlanDocument, solver: Solver) -> Problem:
    """The self-contained problem of a plan, which the solver knows the best plan of where the plan is proved.

    Args:
        plan: its numbers hold (`nest.planner.check`).
        solver: is told.

    Raises:
        InputError: the problem cannot be used.
    """
    problem = carried_problem(plan, solver.plugins)
    if plan.status == "optimal":
        cluster, _ = build_cluster(problem.cluster, solver.plugins)
        solver.know(problem, plan)
        solver.know(with_memory(problem, cluster.device_memory), plan)  # The same, written out.
    return problem
