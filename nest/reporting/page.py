"""The page of a plan, section by section."""

from collections.abc import Collection
from pathlib import Path

from nest import planner
from nest.errors import InputError
from nest.files import placed, structure
from nest.formulate.cluster import build_cluster
from nest.formulate.given import Source
from nest.hooks.registry import Registry
from nest.questions.asked import require_held
from nest.questions.solver import Solver
from nest.reporting.answers import Progress, answers, counted
from nest.reporting.batch import batch
from nest.reporting.cluster_figure import cluster_figure
from nest.reporting.headline import headline, standing
from nest.reporting.launch import launch
from nest.reporting.memory_figure import memory_figure
from nest.reporting.naming import model_size, title
from nest.reporting.records import Section
from nest.reporting.rendering import rendered
from nest.reporting.stages import reproduce, stage_table
from nest.reporting.subject import NOT_REPORTED_ON, Subject, subject
from nest.reporting.time_figure import time_figure
from nest.spec import PlanDocument, Problem


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
    read = planner.read_plan(plan)
    try:
        if read.status == "infeasible":
            return _infeasible(read, known)
        found = subject(read, known)
    except InputError as error:
        raise (placed(Path(plan), error, "problem") if isinstance(plan, (str, Path)) else error) from None
    solver = Solver(known, time_limit=time_limit, progress=counted(progress, found.problem, without, known))
    told = (*described(found), *answers(found, solver, without), stage_table(found), reproduce(read))
    return rendered(
        title(found.problem, found.instance.cluster.size), model_size(found.problem, known), standing(read), told
    )


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


def _infeasible(plan: PlanDocument, known: Registry) -> str:
    """The page of a problem without a plan: what is tightest, and what was asked."""
    require_held(plan, plan, known, NOT_REPORTED_ON)
    problem = structure(plan.problem, Problem)
    size = build_cluster(problem.cluster, known, None)[0].size
    why = Section("headline", "Why there is no plan", paragraphs=(plan.diagnosis or "No reason is given.",))
    return rendered(title(problem, size), model_size(problem, known), standing(plan), (why, reproduce(plan)))
