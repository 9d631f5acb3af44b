"""The page of a plan, section by section."""

from collections.abc import Collection
from pathlib import Path

from nest.errors import InputError
from nest.formulate.cluster import build_cluster
from nest.formulate.problem import Source, carried_problem, naming, read_record
from nest.hooks.registry import Registry
from nest.instance import Cluster
from nest.io import placed, structure
from nest.reporting.answers import Progress, Searching, answers, most_searches
from nest.reporting.batch import batch
from nest.reporting.cluster_figure import cluster_figure
from nest.reporting.headline import headline, standing
from nest.reporting.launch import launch
from nest.reporting.memory_figure import memory_figure
from nest.reporting.naming import batch_size, cluster_size, model_size, title
from nest.reporting.records import Section
from nest.reporting.rendering import Heading, rendered
from nest.reporting.stages import reproduce, stage_table
from nest.reporting.subject import NOT_REPORTED_ON, Subject, subject
from nest.reporting.time_figure import time_figure
from nest.reporting.why import MORE, freeing, why
from nest.spec import PlanDocument, Problem
from nest.whatif.alternatives import questions
from nest.whatif.shadow_prices import relaxations
from nest.whatif.solver import Solver, require_held


def page(
    plan: Source | PlanDocument,
    known: Registry,
    without: Collection[str],
    time_limit: float | None,
    progress: Progress | None,
) -> str:
    """The HTML file of a plan.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        known: registered exporters and the like.
        without: parts that are left out.
        time_limit: seconds for each search of a problem that differs from the plan's; None: as long as it takes.
        progress: told of each search.

    Raises:
        InputError: the plan cannot be read, or its numbers do not hold.
    """
    with naming(plan):
        read = read_record(plan, PlanDocument)[0]
    try:
        if read.status == "infeasible":
            return _infeasible(read, known, without, time_limit, progress)
        found = subject(read, known)
    except InputError as error:
        raise (placed(Path(plan), error, "problem") if isinstance(plan, (str, Path)) else error) from None
    wanted = "alternatives" not in without and found.plan.lower_bound is not None and found.batch_time > 0
    asked = questions(found.plan, found.problem, known) if wanted else None
    most = most_searches(found.problem, without, known) + len(asked or ())
    searching = Searching(progress, most)
    solver = Solver(known, time_limit=time_limit, progress=searching)
    if found.plan.status == "optimal":
        solver.know(found.problem, found.plan)
    first, *others = described(found)
    told = (first, *why(found, solver, asked), *others, *answers(found, solver, without, searching))
    return rendered(_heading(found.problem, found.instance.cluster, known), standing(read), (*told, *ending(found)))


def described(subject: Subject) -> tuple[Section, ...]:
    """What is told of a feasible plan without another search, from top to bottom."""
    return (
        headline(subject),
        launch(subject),
        Section("cluster", "Cluster", figures=(cluster_figure(subject),)),
        batch(subject),
        Section("memory", "Memory", figures=(memory_figure(subject),)),
        Section("time", "Time", figures=(time_figure(subject),)),
    )


def ending(subject: Subject) -> tuple[Section, ...]:
    """Every stage, and the problem."""
    return stage_table(subject), reproduce(subject.plan)


def _heading(problem: Problem, cluster: Cluster, known: Registry) -> Heading:
    """Of a page: model and cluster."""
    size = (model_size(problem, known), cluster_size(problem, cluster), batch_size(problem))
    return Heading(title(problem, cluster.size), tuple(each for each in size if each))


def _infeasible(
    plan: PlanDocument,
    known: Registry,
    without: Collection[str],
    time_limit: float | None,
    progress: Progress | None,
) -> str:
    """The page of a problem without a plan: what is tightest, what would let one fit, and what was asked."""
    require_held(plan, plan, known, NOT_REPORTED_ON)
    problem = carried_problem(plan, known)
    heading = _heading(structure(plan.problem, Problem), build_cluster(problem.cluster, known, None)[0], known)
    told = [Section("headline", "Why there is no plan", lead=plan.diagnosis or "No reason is given.")]
    if "alternatives" not in without:
        most = len(relaxations(problem, known)) + sum(map(len, MORE.values()))
        solver = Solver(known, time_limit=time_limit, progress=Searching(progress, most))
        solver.know(problem, plan)
        told.append(freeing(plan, problem, solver))
    return rendered(heading, standing(plan), (*told, reproduce(plan)))
