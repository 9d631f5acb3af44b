"""Python entry points: `nest.sweep` and `nest.recommend`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nest.public.verbs import INSTALLED, registered, restarted

if TYPE_CHECKING:
    from nest.hooks.registry import Registry
    from nest.public.planning import Changes, Source
    from nest.spec import Problem
    from nest_studies.clusters.recommend import Recommendation
    from nest_studies.sweep.run import SweepResult


@restarted
def recommend(
    problem: Source | Problem,
    *,
    within: float,
    budget: float | None = None,
    clusters: Sequence[str] = (),
    changes: Changes | None = None,
    curve: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> Recommendation:
    """Find how many nodes of which cluster train a problem's model in time: the fewest, the cheapest, the fastest.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`, with `training.tokens`.
        within: seconds that the training may take.
        budget: what it may cost, in the currency of `cluster.price`.
        clusters: names, or files with a `cluster` section; none: the problem's own and all of the catalogue.
        changes: keys of its sections in place of what is written.
        curve: file that the plan of every number of nodes is written to (`nest_studies.clusters.curve`).
        progress: called with which cluster is answered, how many are, and how many there are.
        strict_plugins: whether an error of a plug-in ends the call; otherwise its object is disabled with a warning.
        plugins: registered strategies and the like; left out, those installed.

    Raises:
        nest.errors.InputError: the problem or a cluster cannot be used, or the file cannot be written.
    """
    from nest_studies.clusters.recommend import Wanted, recommendation

    return recommendation(problem, clusters, changes, Wanted(within, budget, curve), plugins, progress)


def sweep(
    study: str | Path,
    *,
    output: str | Path,
    engine: str = "local",
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> SweepResult:
    """Every point of a study solved: rows in the order of the points, as Parquet, CSV or lines of JSON.

    What is found is kept in a journal beside the output, so that a sweep that was ended goes on where it was. The same
    study gives the same bytes whatever runs it, with a time limit as far as searches end within it.

    Args:
        study: path of a study.
        output: path of the rows, which ends with `.parquet`, `.csv` or `.jsonl`.
        engine: name of what runs the points; `local`: processes of this machine.
        jobs: worker processes; None: as many as there are processors. 1: this process alone.
        scheduler: address of the engine's scheduler, such as Dask's.
        progress: called with how many points are answered, and how many there are.
        strict_plugins: whether an error of a plug-in ends the call; otherwise its object is disabled with a warning.
        plugins: registered engines and the like; left out, those installed.

    Raises:
        nest.errors.InputError: the study cannot be used, there is no such engine, or the output cannot be written.
    """
    from nest.public.questions import engine_called
    from nest_studies.sweep.run import run_sweep

    with registered(plugins, strict_plugins) as known:
        return run_sweep(Path(study), Path(output), engine_called(engine, jobs, scheduler, known), known, progress)
