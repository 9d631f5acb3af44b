"""Alternatives: for each decision of a plan, the best plan in which it differs."""

from collections.abc import Iterator

from attrs import asdict, evolve, frozen
from attrs.filters import exclude

from nest.deployment import Deployment, deployment
from nest.errors import InputError
from nest.hooks.planning import Assessment, assessed
from nest.instance import Instance, Result, chunks_of
from nest.public.changes import Solver, degrees_of, document, figures
from nest.spec import PlanDocument, Problem
from nest.spec.problem import ALL_RANKS
from nest.tolerances import PROOF
from nest.units import percent
from nest_whatif.outcome import EACH_STAGE, Outcome, decisions_as_text, outcome
from nest_whatif.planner_context import planner_context


@frozen
class Question:
    """One decision of a plan, and the problem whose plans decide otherwise.

    Attributes:
        decision: its name in constraints and `fixed`.
        value: of the plan, or of some of its stages.
        asked: additional demand, such as the constraint `tp != 8`; empty: there is no other choice.
        problem: the problem with that demand; None: there is none.
        refusal: reason for no question.
    """

    decision: str
    value: str
    asked: str = ""
    problem: Problem | None = None
    refusal: str = ""


@frozen
class Alternative:
    """The best plan that differs in one decision."""

    decision: str  # Its name.
    value: str  # Of the original plan, or of some of its stages, and of no stage of this one.
    asked: str  # Additional demand; empty: none.
    instead: str | None  # Value of this plan; None: there is no plan.
    outcome: Outcome  # This plan compared with the original.

    def to_dict(self) -> dict[str, object]:
        """Convert to plain mappings, lists and numbers."""
        return {**asdict(self, recurse=False, filter=exclude("outcome")), **self.outcome.to_dict()}


def questions(plan: PlanDocument, problem: Problem, solver: Solver) -> tuple[Question, ...]:
    """Questions on a plan's decisions, the most important first.

    Decisions made by stage (ZeRO, recomputation, degrees with `search.mixed`) are asked once for each of their values:
    what is the best plan in which no stage has it?

    Args:
        plan: feasible.
        problem: of the plan, self-contained.

    Raises:
        InputError: the problem cannot be used.
    """
    whole, known = searched_problem(plan, problem), solver.plugins
    instance, shape = solver.instance(whole, complete=False), deployment(plan)
    offered = _offered(instance)
    if not instance.complete and any(
        not set(offered[name]) - set(_values(plan, shape, name))
        for name in (*_degree_names(instance), "micro_batch", "recompute")
        if name not in whole.decided and len(whole.strategies.get(name, (1, 2))) > 1
    ):
        offered = _offered(solver.instance(whole))  # What these candidates do not offer others may.
    result: list[Question] = []
    for name in decisions_as_text(plan, known):
        for value in _values(plan, shape, name):
            key = "recompute_layers" if name == "recompute" and name not in whole.decided else name
            if key in whole.decided:
                result.append(Question(name, str(value), refusal=f"fixed.{key} decides it"))
            elif name == "zero_degree":
                result += _shard_groups(whole, shape)
            elif name not in offered or set(offered[name]) - {value}:
                demand = f"{name} != {value!r}"
                problem_then = evolve(whole, constraints=(*whole.constraints, demand))
                result.append(Question(name, str(value), demand, problem_then))
            elif name in problem.strategies or name not in _degree_names(instance):
                result.append(Question(name, str(value), refusal="the problem offers nothing else"))
    return tuple(result)


def searched_problem(plan: PlanDocument, problem: Problem) -> Problem:
    """Problem whose plans are alternatives.

    For a plan that no search found, `fixed` and constraints are dropped, as they do not bind it.
    """
    return problem if plan.lower_bound is not None else evolve(problem, fixed=None, constraints=())


def alternative(plan: PlanDocument, question: Question, solver: Solver) -> Alternative:
    """Answer one of the `questions` about a plan, with at most one solve."""
    name = question.decision
    if question.problem is None:
        result = Outcome(None, refusal=question.refusal)
        return Alternative(name, question.value, question.asked, None, result)
    answer = solver.plan(question.problem, f"{name} other than {question.value}")
    result = outcome(plan, answer, solver.plugins)
    instead = None if result.plan is None else decisions_as_text(result.plan, solver.plugins).get(name, "1")
    return Alternative(name, question.value, question.asked, instead, result)


def unrefuted(plan: PlanDocument, question: Question, solver: Solver) -> Alternative:
    """Answer a question about a plan, and check that the answer does not refute that the plan is best.

    Raises:
        InputError: it does.
    """
    result = alternative(plan, question, solver)
    relative = result.outcome.relative
    if plan.status == "optimal" and relative is not None and relative < -PROOF:
        raise InputError(
            f"the plan claims to be optimal, but {result.asked} is {percent(-relative)} faster: the file was edited "
            "or another version made it. Solve its problem again."
        )
    return result


def _values(plan: PlanDocument, shape: Deployment, name: str) -> tuple[int | str, ...]:
    """Distinct values of a plan, or of its stages."""
    if name in EACH_STAGE:
        return tuple(dict.fromkeys(getattr(shape, name)))
    one: dict[str, int | str | None] = {
        "micro_batch": shape.micro_batch,
        "pp": shape.stages,
        "replicas": shape.replicas,
        "schedule": shape.schedule,
        "rank_order": shape.rank_order,
        "zero_degree": ALL_RANKS if shape.zero_degree is None else shape.zero_degree,
        # The schedule says whether there are several chunks: their number is a further decision only then.
        "chunks": shape.chunks if shape.chunks > 1 else None,
    }
    if name in one:
        value = one[name]
        return () if value is None else (value,)
    return tuple(dict.fromkeys(degrees_of(plan, stage).get(name, 1) for stage in plan.stages))


def _degree_names(instance: Instance) -> set[str]:
    return {name for candidate in instance.candidates for name in candidate.degrees}


def _offered(instance: Instance) -> dict[str, tuple[int | str, ...]]:
    """Choices of the problem by decision; others follow from these."""
    space, candidates = instance.space, instance.candidates
    modes = tuple(mode.name for candidate in candidates for mode in candidate.recompute)
    return {
        **{name: tuple(each.degrees.get(name, 1) for each in candidates) for name in _degree_names(instance)},
        "micro_batch": tuple(each.micro_batch or each.samples for each in candidates),
        "schedule": tuple(each.name for each in space.schedules),
        "chunks": tuple(chunks_of(each) for each in space.schedules),
        # On a network it says nothing of where blocks lie.
        "rank_order": space.rank_orders if instance.network is None else (),
        "zero": space.zero,
        "recompute": tuple(mode for mode in modes if space.recompute is None or mode in space.recompute),
    }


def _shard_groups(problem: Problem, shape: Deployment) -> Iterator[Question]:
    """Questions on shard groups of another size, by the list of sizes, as constraints read all ranks as a number."""
    value: int | str = ALL_RANKS if shape.zero_degree is None else shape.zero_degree
    others = tuple(each for each in problem.search.zero_degree if each != value)
    if others:
        listed = ", ".join(map(str, others))
        changed = evolve(problem, search=evolve(problem.search, zero_degree=others))
        yield Question("zero_degree", str(value), f"search.zero_degree: [{listed}]", changed)


def recipe(plan: PlanDocument, problem: Problem, name: str, solver: Solver) -> Outcome:
    """Compare the plan of the planner `name` with the original, without a search.

    Args:
        problem: of the plan, self-contained.
        name: of a registered planner that draws no random numbers.
        solver: has the registry, and the time limit of a planner's searches.

    Raises:
        InputError: the problem cannot be used.
    """
    from nest.public.planning import solve

    def search(changed: Instance) -> Result:
        return solve(changed, solver.time_limit)

    known = solver.plugins
    whole = searched_problem(plan, problem)
    instance = solver.instance(whole)
    context = planner_context(whole, instance, known, search, seed=0, evaluations=1)
    proposal = known.planners()[name].plan(instance, context)
    seen = Assessment((), None) if proposal.solution is None else assessed(instance, proposal.solution)
    if proposal.solution is None or seen.priced is None or not seen.admitted:
        return Outcome(None, refusal=" ".join((*proposal.remarks, *(f"{fault}." for fault in seen.faults))))
    recipe_plan = document(
        instance, proposal.solution, seen.priced, status="feasible", lower_bound=None, problem=whole.to_dict()
    )
    summary = figures(instance, proposal.solution, seen.priced, None)
    return evolve(outcome(plan, evolve(recipe_plan, summary=summary), known), proved=True)
