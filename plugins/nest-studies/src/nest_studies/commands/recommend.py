"""`nest recommend`: how many nodes of which cluster a training needs."""

from pathlib import Path

import typer

from nest.errors import InputError
from nest.public.commands import (
    NO_PLAN,
    STRICT_PLUGINS,
    TOKENS,
    StepLine,
    changes_of,
    complete_clusters,
    count,
    seconds,
    show,
    to_json,
    unwritten,
    warn_of_plugins,
)
from nest.units import Count
from nest_studies import verbs


def recommend(
    problem: Path = typer.Argument(..., metavar="PROBLEM", help="Problem file, or with --nodes a file from --curve."),
    tokens: str | None = TOKENS,
    within: float | None = typer.Option(
        None, "--within", metavar="TIME", parser=seconds, help="Deadline of the training, such as 30d."
    ),
    budget: str | None = typer.Option(
        None, "--budget", metavar="N", help="Budget in the currency of cluster.price, such as 2M."
    ),
    cluster: list[str] = typer.Option(
        [],
        "--cluster",
        metavar="NAME",
        autocompletion=complete_clusters,
        help="Cluster name or file; repeatable; default: all.",
    ),
    curve: Path | None = typer.Option(
        None, "--curve", metavar="FILE.jsonl", help="Write a plan per cluster and number of nodes."
    ),
    nodes: int | None = typer.Option(
        None, "--nodes", metavar="N", help="With a --curve file: number of remaining nodes."
    ),
    output: Path | None = typer.Option(None, "--output", "-o", help="With --nodes: write the plan to this file."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document and nothing else."),
    strict_plugins: bool = STRICT_PLUGINS,
) -> None:
    """Find the cluster and number of nodes that meet a deadline.

    Exit code 0: a cluster meets it; 1: none does, or no plan; 2: bad input.
    """
    if nodes is not None:
        _from_curve(problem, nodes, cluster, output, as_json)
        return
    from nest_studies.clusters.curve import SUFFIX

    if problem.suffix == SUFFIX or output is not None:
        raise InputError("a --curve file and --output need --nodes, the remaining nodes.")
    if within is None:
        raise InputError("nest recommend needs --within, the deadline, such as 30d.")
    from nest_studies.clusters.recommendation import recommendation_text

    steps = StepLine()
    try:
        found = verbs.recommend(
            problem,
            within=within,
            budget=None if budget is None else count(budget, Count, "--budget"),
            clusters=cluster,
            changes=changes_of(tokens=tokens),
            curve=curve,
            progress=steps.tell,
        )
    finally:
        steps.clear()
    warn_of_plugins()
    document = found.to_dict()
    show(as_json, document, lambda screen: recommendation_text(document, screen))
    if not found.met:
        raise typer.Exit(NO_PLAN)


def _from_curve(path: Path, nodes: int, clusters: list[str], output: Path | None, as_json: bool) -> None:
    """Print the plans of so many nodes that a file has, and write the one there is."""
    from nest_studies.clusters.curve import rows_of
    from nest_studies.clusters.recommendation import curve_text

    rows = rows_of(path, nodes, clusters)
    if output is not None and len(rows) > 1:
        raise InputError(f"--output takes one plan, and {path} has {len(rows)} clusters; name one with --cluster.")
    show(as_json, {"nest": 1, "rows": list(rows)}, lambda screen: curve_text(rows, screen))
    if output is not None and rows[0]["plan"] is not None:
        failed = unwritten(output, to_json(rows[0]["plan"]) + "\n")
        if failed is not None:
            raise failed
    if any(row["plan"] is None for row in rows):
        raise typer.Exit(NO_PLAN)
