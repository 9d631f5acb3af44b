"""A plan as one HTML page: what the page tells of other plans is searched here, and drawn by `nest.report.html`."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from attrs import define, evolve

from nest.catalogue import unknown_name
from nest.documents import plan_summary
from nest.formulate.cluster import build_cluster
from nest.formulate.fixed_plan import decided_formulation
from nest.formulate.problem import Source, carried_problem, naming, read_record
from nest.hooks.registry import Registry
from nest.io import structure
from nest.launch_files import export_checked
from nest.plan.document import solution_of
from nest.plan.evaluate import evaluate
from nest.report.decisions import whole
from nest.report.html import page, page_without_plan
from nest.report.html.pareto_chart import OwnPlan, pareto_figure
from nest.report.html.records import Cell, Section, Subject
from nest.report.html.sections import alternatives_section, freeing_section, why_section
from nest.report.html.sensitivity_chart import quantity, sensitivity_figure
from nest.solve.effort import check_effort
from nest.spec import PlanDocument, Problem
from nest.whatif.alternatives import questions, recipe, unrefuted
from nest.whatif.outcome import decided_values
from nest.whatif.parameters import Parameter, parameters
from nest.whatif.pareto_front import MEMORIES, device_counts, pareto_front
from nest.whatif.sensitivity import FACTORS, responses
from nest.whatif.shadow_prices import relaxations, shadow_price
from nest.whatif.solver import Solver, require_held

PARTS = ("alternatives", "frontier", "sensitivity")
"""Parts of the page that take searches, and can be left out."""

RECIPE = "manual"
"""The planner whose plan stands for what one would launch without a planner."""

MORE = {"memory": (1.1, 1.25, 1.5, 2.0), "devices": (2.0, 4.0)}
"""Times a number of an infeasible problem that is asked whether a plan then fits, until one does."""

NOT_REPORTED_ON = "so it is not reported on"
"""What follows where a plan does not hold."""

Progress = Callable[[str, int, int], None]
"""Called with what is searched, for which part, how many searches were done before, and how many there are at most."""


OF_ONE_KIND = ("frontier", "sensitivity")
"""Parts that vary devices or links of a cluster of one kind of device; pages of plans on pools leave them out."""


@define
class _Searching:
    """Passes on what a solver tells, with the part of the page it searches for."""

    progress: Progress | None
    most: int
    part: str = PARTS[0]

    def __call__(self, search: str, done: int) -> None:
        if self.progress is not None:
            self.progress(f"{self.part}: {search}", done, self.most)


def page_of(
    plan: Source | PlanDocument,
    known: Registry,
    without: Collection[str],
    time_limit: float | None,
    progress: Progress | None,
) -> str:
    """The HTML page of a plan whose numbers hold (`nest.report_page`, which says what the arguments are).

    Raises:
        InputError: the plan cannot be read, or its numbers do not hold; there is no part called so; or the time limit
            is none.
    """
    for name in without:
        if name not in PARTS:
            raise unknown_name("--without", "part of the page that takes searches", name, PARTS)
    check_effort(time_limit)
    with naming(plan):
        read = read_record(plan, PlanDocument)[0]
    if read.problem["cluster"].get("pools"):
        without = {*without, *OF_ONE_KIND}
    with naming(plan, "problem"):
        if read.status == "infeasible":
            return _without_plan(read, known, without, time_limit, progress)
        read_subject = subject(read, known)
    wanted = "alternatives" not in without and read.lower_bound is not None and read_subject.batch_time > 0
    open_questions = questions(read_subject.plan, read_subject.problem, known) if wanted else None
    searching = _Searching(progress, most_searches(read_subject.problem, without, known) + len(open_questions or ()))
    solver = Solver(known, time_limit=time_limit, progress=searching)
    if read.status == "optimal":
        solver.know(read_subject.problem, read_subject.plan)
    why = why_section(read_subject.plan)
    if open_questions is not None:
        decided = decided_values(read_subject.plan, known)
        alternatives = [unrefuted(read_subject.plan, question, solver).to_dict() for question in open_questions]
        has_recipe = RECIPE in known.planners()
        usual = recipe(read_subject.plan, read_subject.problem, RECIPE, solver).to_dict() if has_recipe else None
        why = (alternatives_section(read_subject.plan, decided, alternatives, usual),)

    def export(to: tuple[str, ...]) -> tuple[Mapping[str, str], Sequence[str]]:
        made = export_checked(read_subject.plan, to, known)
        return made.files, made.warnings

    return page(read_subject, export, why, tuple(_answers(read_subject, solver, without, searching)))


def subject(read: PlanDocument, known: Registry) -> Subject:
    """What a page is of; what the plan's file does not sum up, as files of older versions may not, is worked out.

    Args:
        read: a feasible plan.
        known: registered exporters and the like.

    Raises:
        InputError: the plan's problem cannot be used, or its numbers do not hold.
    """
    require_held(read, read, known, NOT_REPORTED_ON)
    problem = carried_problem(read, known)
    instance, formulation = decided_formulation(problem, read, known)
    solution = solution_of(instance, read)
    priced = evaluate(instance, solution)
    figures = plan_summary(instance, solution, priced, problem, known, formulation)
    plan = evolve(read, summary={**figures, **read.summary})
    return Subject(plan, problem, instance, formulation, solution, priced, known)


def most_searches(problem: Problem, without: Collection[str], known: Registry) -> int:
    """Searches that the frontier and the sensitivity take at most; most of the answers are implied by others.

    Args:
        problem: of the plan, self-contained.
        without: parts that are left out.
        known: offers topology importers.
    """
    most = 0
    if "frontier" not in without:
        most += len(device_counts(build_cluster(problem.cluster, known)[0])) * len(MEMORIES)
    if "sensitivity" not in without:
        most += len(parameters(problem, known)) * len(FACTORS)
    return most


def _answers(subject: Subject, solver: Solver, without: Collection[str], searching: _Searching) -> Iterator[Section]:
    """What more or less of something is worth: the sections of the parts that are wanted."""
    if "frontier" not in without:
        searching.part, priced = "frontier", subject.priced
        memory, fixed = max(stage.upper_memory for stage in priced.stages), subject.problem.fixed is not None
        own = OwnPlan(memory, subject.plan.throughput or 0.0, priced.device_memory, fixed)
        yield Section("frontier", "Pareto front", figures=(pareto_figure(pareto_front(subject.plan, solver), own),))
    if "sensitivity" not in without:
        searching.part = "sensitivity"
        if points := responses(subject.plan, solver):
            yield Section("sensitivity", "Sensitivity", figures=(sensitivity_figure(points),))
        else:
            why = "No number of this problem can be varied." if subject.batch_time else "The batch takes no time."
            yield Section("sensitivity", "Sensitivity", paragraphs=(why,))


def _without_plan(
    plan: PlanDocument, known: Registry, without: Collection[str], time_limit: float | None, progress: Progress | None
) -> str:
    """The page of a problem without a plan."""
    require_held(plan, plan, known, NOT_REPORTED_ON)
    problem, freeing = carried_problem(plan, known), []
    if "alternatives" not in without:
        most = len(relaxations(problem, known)) + sum(map(len, MORE.values()))
        solver = Solver(known, time_limit=time_limit, progress=_Searching(progress, most))
        solver.know(problem, plan)
        prices = [shadow_price(plan, each, solver).to_dict() for each in relaxations(problem, solver.plugins)]
        enough = [row for each in parameters(problem, known) for row in _enough(each, problem, solver)]
        more = " or ".join(f"{factors[-1]:g} times the {name}" for name, factors in MORE.items())
        freeing.append(freeing_section(prices, enough, more))
    return page_without_plan(plan, structure(plan.problem, Problem), known, freeing)


def _enough(parameter: Parameter, problem: Problem, solver: Solver) -> Iterator[tuple[Cell, ...]]:
    """The first of `MORE` of a number with which a plan fits, as a row of `freeing_section`; none: nothing does."""
    for factor in MORE.get(parameter.name, ()):
        value = quantity(parameter.value * factor, parameter.unit)
        best = solver.plan(parameter.changed(problem, parameter.value * factor), f"{parameter.name} {value}")
        if best is not None and best.batch_time is not None:
            decided = whole(decided_values(best, solver.plugins))
            now = f"{parameter.name} {quantity(parameter.value, parameter.unit)}"
            yield Cell(now), Cell(value), Cell(decided), Cell.seconds(best.batch_time)
            return
