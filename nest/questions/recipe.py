"""The plan of a registered planner beside the plan asked about, on the problem of that one."""

from attrs import evolve

from nest.formulate.instance import build_instance
from nest.formulate.substitute_network import planner_context
from nest.hooks.planning import Assessment, assessed
from nest.instance import Instance, Result
from nest.plan import document
from nest.questions.alternatives import asked_problem
from nest.questions.outcome import Outcome, outcome
from nest.questions.solver import Solver
from nest.report import figures
from nest.spec import PlanDocument, Problem


def recipe(plan: PlanDocument, problem: Problem, name: str, solver: Solver) -> Outcome:
    """What the planner `name` decides, beside the plan asked about; no search.

    Args:
        plan: asked about.
        problem: of the plan, self-contained.
        name: of a registered planner that draws no random numbers.
        solver: gives the registry, and the time limit of searches that a planner makes.

    Raises:
        InputError: the problem cannot be used.
    """
    from nest.solve.dp import solve

    def search(changed: Instance) -> Result:
        return solve(changed, solver.time_limit)

    known = solver.plugins
    whole = asked_problem(plan, problem)
    instance = build_instance(whole, known)
    context = planner_context(whole, instance, known, search, seed=0, evaluations=1)
    proposal = known.planners()[name].plan(instance, context)
    seen = Assessment((), None) if proposal.solution is None else assessed(instance, proposal.solution)
    if proposal.solution is None or seen.priced is None or not seen.fits:
        return Outcome(None, refusal=" ".join((*proposal.remarks, *(f"{fault}." for fault in seen.faults))))
    found = document(
        instance, proposal.solution, seen.priced, status="feasible", lower_bound=None, problem=whole.to_dict()
    )
    told = figures(instance, proposal.solution, seen.priced, None)
    return evolve(outcome(plan, evolve(found, summary=told), known), proved=True)
