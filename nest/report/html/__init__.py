"""A plan as one HTML page: drawn from templates, with everything in it that it needs.

Nothing is searched here: `nest.html_page` asks what further searches answer, and hands it over.
"""

from collections.abc import Sequence

from nest.formulate.cluster import build_cluster
from nest.hooks.registry import Registry
from nest.instance import Cluster
from nest.report.html.cluster import cluster_figure
from nest.report.html.headline import batch_size, cluster_size, headline, model_size, plan_status, title
from nest.report.html.network import network_figure
from nest.report.html.records import Figure, Heading, Section, Subject
from nest.report.html.rendering import rendered
from nest.report.html.sections import Export, launch, reproduce, stage_table
from nest.report.html.stage_bars import memory_figure, time_figure
from nest.report.html.timeline import timeline
from nest.spec import PlanDocument, Problem


def page(subject: Subject, export: Export, why: Sequence[Section], answers: Sequence[Section]) -> str:
    """The HTML file of a feasible plan: why it is the best, `export` for its files, answers to what more is worth."""
    sections = (
        headline(subject),
        *why,
        launch(subject, export),
        _drawn("cluster", "Cluster", network_figure(subject) or cluster_figure(subject)),
        timeline(subject),
        _drawn("memory", "Memory", memory_figure(subject)),
        _drawn("time", "Time", time_figure(subject)),
        *answers,
        stage_table(subject),
        reproduce(subject.plan),
    )
    heading = _heading(subject.problem, subject.instance.cluster, subject.known)
    return rendered(heading, plan_status(subject.plan), sections)


def page_without_plan(plan: PlanDocument, problem: Problem, known: Registry, freeing: Sequence[Section]) -> str:
    """The HTML file of a problem without a plan: what is tightest, what would let one fit, and what was asked.

    Args:
        plan: says that there is none.
        problem: its problem, as written.
        known: registered importers and the like.
        freeing: what would let a plan fit.
    """
    heading = _heading(problem, build_cluster(problem.cluster, known, None)[0], known)
    diagnosis = Section("headline", "Why there is no plan", lead=plan.diagnosis or "No reason is given.")
    return rendered(heading, plan_status(plan), (diagnosis, *freeing, reproduce(plan)))


def _drawn(name: str, title: str, figure: Figure) -> Section:
    return Section(name, title, figures=(figure,))


def _heading(problem: Problem, cluster: Cluster, known: Registry) -> Heading:
    """Of a page: model and cluster."""
    sizes = (model_size(problem, known), cluster_size(problem, cluster), batch_size(problem))
    return Heading(title(problem, cluster.size), tuple(each for each in sizes if each))
