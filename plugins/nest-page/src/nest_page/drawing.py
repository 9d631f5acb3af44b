"""A plan as one HTML page: drawn from templates, with everything in it that it needs.

Nothing is searched here: `nest_page.page_of_plan` asks what further searches answer, and hands it over.
"""

import datetime
from collections.abc import Sequence

from attrs import evolve

from nest.hooks.registry import Registry
from nest.instance import Cluster, Instance
from nest.public.planning import build_cluster, build_pools
from nest.public.text import title
from nest.spec import PlanDocument, Problem
from nest_page.cluster import cluster_figure, pool_figures
from nest_page.headline import about, batch_size, cluster_size, headline, levels_in_words, model_size, statuses
from nest_page.network import network_figure
from nest_page.records import Heading, Section, Subject
from nest_page.rendering import rendered
from nest_page.sections import Export, launch, reproduce, stage_table
from nest_page.stage_bars import memory_figure, time_figure
from nest_page.timeline import timeline


def page(
    subject: Subject, export: Export, why: Sequence[Section], answers: Sequence[Section], date: datetime.date | None
) -> str:
    """The HTML file of a feasible plan: why it is the best, `export` for its files, answers to what more is worth."""
    drawn = pool_figures(subject) or (network_figure(subject) or cluster_figure(subject),)
    sections = (
        headline(subject),
        *why,
        launch(subject, export),
        Section("cluster", "Cluster", figures=drawn),
        timeline(subject),
        Section("memory", "Memory", figures=(memory_figure(subject),)),
        Section("time", "Time", figures=(time_figure(subject),)),
        *answers,
        stage_table(subject),
        reproduce(subject.plan),
    )
    heading = _heading(subject.problem, _clusters(subject.instance), subject.known)
    return rendered(evolve(heading, about=about(subject.plan), date=date), statuses(subject.plan), sections)


def _clusters(instance: Instance) -> tuple[Cluster, ...]:
    """The cluster, or its pools."""
    return (instance.cluster,) if instance.pools is None else tuple(each.cluster for each in instance.pools.members)


def page_without_plan(
    plan: PlanDocument, problem: Problem, known: Registry, freeing: Sequence[Section], date: datetime.date | None
) -> str:
    """The HTML file of a problem without a plan: what is tightest, what would let one fit, and what was asked.

    Args:
        plan: says that there is none.
        problem: its problem, as written.
        known: registered importers and the like.
        freeing: what would let a plan fit.
        date: that the page shows; None: none.
    """
    clusters = clusters_of(problem, known)
    heading = evolve(_heading(problem, clusters, known), about=about(plan), date=date)
    diagnosis = Section("headline", "Why there is no plan", lead=plan.diagnosis or "No reason is given.")
    return rendered(heading, statuses(plan), (diagnosis, *freeing, reproduce(plan)))


def clusters_of(problem: Problem, known: Registry) -> tuple[Cluster, ...]:
    """The cluster of a problem, or its pools."""
    if problem.cluster.pools is not None:
        return tuple(each.cluster for each in build_pools(problem.cluster)[0].members)
    return (build_cluster(problem.cluster, known, None)[0],)


def sizes_of(problem: Problem, clusters: Sequence[Cluster], known: Registry) -> tuple[str, str, str]:
    """Model, cluster and batch in words; empty: the problem does not say."""
    if problem.cluster.pools is None:
        where = cluster_size(problem, clusters[0])
    else:
        named = zip(problem.cluster.pools, clusters, strict=True)
        where = ", and ".join(f"{pool.name}: {levels_in_words(cluster)}" for pool, cluster in named)
    return model_size(problem, known), where, batch_size(problem)


def _heading(problem: Problem, clusters: Sequence[Cluster], known: Registry) -> Heading:
    """Heading of a page: model and cluster, which is several where it has pools."""
    written = problem.to_dict()
    name = title(written.get("model"), written["cluster"], [each.size for each in clusters])
    return Heading(name, tuple(filter(None, sizes_of(problem, clusters, known))))
