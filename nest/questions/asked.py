"""What questions about a plan begin with: its problem, and that the plan itself need not be searched again."""

from nest.files import structure
from nest.formulate.cluster import build_cluster
from nest.formulate.self_contained import self_contained
from nest.questions.parameters import with_memory
from nest.questions.solver import Solver
from nest.spec import PlanDocument, Problem


def problem_of(plan: PlanDocument, solver: Solver) -> Problem:
    """The self-contained problem of a plan, which the solver knows the best plan of where the plan is proved.

    Args:
        plan: its numbers hold (`nest.planner.check`).
        solver: is told.

    Raises:
        InputError: the problem cannot be used.
    """
    problem = self_contained(structure(plan.problem, Problem), None, solver.plugins)
    if plan.status == "optimal":
        cluster, _ = build_cluster(problem.cluster, solver.plugins)
        solver.know(problem, plan)
        solver.know(with_memory(problem, cluster.device_memory), plan)  # The same, written out.
    return problem
