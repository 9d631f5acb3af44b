"""nest plans the training of large models on clusters, and proves its plans optimal."""

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

# These packages are loaded before the functions of the same names are defined, so that no later import of a solver or a
# replay can put the package in the function's place.
import nest.simulate
import nest.solve  # noqa: F401

if TYPE_CHECKING:
    from nest.comparing import Comparison
    from nest.explaining import Explanation
    from nest.hooks.registry import Registry
    from nest.instance import Standing
    from nest.plan import CheckReport
    from nest.report import Verdict
    from nest.simulate.replay import Replay
    from nest.spec import PlanDocument, Problem

__all__ = [
    "__version__",
    "check",
    "compare",
    "evaluate",
    "explain",
    "export",
    "report_page",
    "simulate",
    "solve",
    "verify",
]

__version__ = "0.1.0"

Source = str | Path | Mapping[str, Any]


@contextmanager
def _plugins(strict: bool) -> "Iterator[Registry]":
    """The installed plug-ins; those that are set aside in the meantime are warned of."""
    from nest.hooks.registry import registry

    known = registry(strict=strict)
    try:
        yield known
    finally:
        for line in known.warnings:
            warnings.warn(line, stacklevel=4)


def solve(
    problem: "Source | Problem",
    *,
    time_limit: float | None = None,
    progress: "Callable[[Standing], None] | None" = None,
    verify: bool | str = False,
    workers: int = 1,
    strict_plugins: bool = False,
) -> "PlanDocument":
    """The fastest plan of a problem, proved optimal; or why there is none.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        time_limit: seconds after which the best plan so far is taken, with its proven bound; as many again for a proof.
        progress: told now and then how far the search is.
        verify: whether CP-SAT is to prove the plan; `"free"`: also with blocks anywhere, in any order.
        workers: threads CP-SAT uses.
        strict_plugins: whether a faulty plug-in is an error; otherwise it is set aside with a warning.

    Raises:
        nest.errors.InputError: the problem cannot be used; the text names the place and the remedy.
    """
    from nest import planner

    with _plugins(strict_plugins) as known:
        return planner.solve(
            problem, time_limit=time_limit, progress=progress, verify=verify, workers=workers, plugins=known
        )


def evaluate(
    problem: "Source | Problem", *, fix: Mapping[str, Any] | None = None, strict_plugins: bool = False
) -> "PlanDocument":
    """The plan that the problem's `fixed` describes, priced; what it leaves open takes the usual framework default.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        fix: further decisions by name, which win over the problem's `fixed`.
        strict_plugins: whether a faulty plug-in is an error; otherwise it is set aside with a warning.

    Raises:
        nest.errors.InputError: the problem cannot be used, or the decisions do not make a plan.
    """
    from nest import planner

    with _plugins(strict_plugins) as known:
        return planner.evaluate(problem, fix=fix, plugins=known)


def check(plan: "Source | PlanDocument", *, strict_plugins: bool = False) -> "CheckReport":
    """Whether every number of a plan follows from its decisions and its problem; no solver takes part.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        strict_plugins: whether a faulty plug-in is an error; otherwise it is set aside with a warning.

    Raises:
        nest.errors.InputError: the plan cannot be read, or names things its problem does not have.
    """
    from nest import planner

    with _plugins(strict_plugins) as known:
        return planner.check(plan, plugins=known)


def verify(
    plan: "Source | PlanDocument",
    *,
    free: bool = False,
    time_limit: float | None = None,
    workers: int = 1,
    progress: "Callable[[Standing], None] | None" = None,
    strict_plugins: bool = False,
) -> "Verdict":
    """Whether CP-SAT, a second and independent solver, finds a better plan; if not, the plan is proved optimal.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        free: also ask for plans whose blocks lie anywhere and in any order.
        time_limit: seconds after which what is not proved is left open.
        workers: threads CP-SAT uses.
        progress: told now and then how far the proof is.
        strict_plugins: whether a faulty plug-in is an error; otherwise it is set aside with a warning.

    Raises:
        nest.errors.InputError: the plan cannot be read, its numbers are wrong, or it does not fit.
    """
    from nest import planner

    with _plugins(strict_plugins) as known:
        return planner.verify(plan, free=free, time_limit=time_limit, workers=workers, progress=progress, plugins=known)


def simulate(
    plan: "Source | PlanDocument",
    *,
    trace: str | Path | None = None,
    jitter: float = 0.0,
    seed: int = 0,
    runs: int | None = None,
    slow_devices: Mapping[str, float] | None = None,
    progress: "Callable[[str, float], None] | None" = None,
    strict_plugins: bool = False,
) -> "Replay":
    """A plan's batch, replayed pass by pass in the order of its schedule; the plan is checked first.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        trace: file the timeline is written to, for Perfetto; None: it is not written.
        jitter: standard deviation of the logarithm of each task's factor, whose mean is 1; 0: none.
        seed: of the random numbers.
        runs: batches replayed with jitter; left out, 100.
        slow_devices: by `STAGE` or `STAGE/REPLICA`, how many times as long it computes; stages are counted from 1,
            replicas from 0, the one meant where none is named.
        progress: told what is being done and which share of it is.
        strict_plugins: whether a faulty plug-in is an error; otherwise it is set aside with a warning.

    Raises:
        nest.errors.InputError: the plan cannot be read, is infeasible or does not hold; its schedule cannot be
            replayed; or what is asked for does not fit it.
    """
    from nest import simulating
    from nest.files import check_writable, write_text

    if trace is not None:
        check_writable(Path(trace))
    with _plugins(strict_plugins) as known:
        found = simulating.simulate(
            plan, jitter=jitter, seed=seed, runs=runs, slow_devices=slow_devices, progress=progress, plugins=known
        )
    if trace is not None:
        from nest.simulate.trace import trace as trace_text

        write_text(Path(trace), trace_text(found))
    return found


def compare(
    problem: "Source | Problem",
    *,
    planners: "Sequence[str] | None" = None,
    plans: "Sequence[str | Path]" = (),
    flags: "Mapping[str, Sequence[str | Path]] | None" = None,
    nodes: int | None = None,
    seed: int = 1,
    evaluations: int = 1000,
    time_limit: float | None = None,
    progress: "Callable[[Standing], None] | None" = None,
    strict_plugins: bool = False,
) -> "Comparison":
    """Our plan beside those of other planners, of plan files and of frameworks' flags, all priced by the same code.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        planners: names of planners, as `nest compare --list` shows them; None: all.
        plans: plan files, whose decisions are priced on the problem.
        flags: files of flags by the name of the exporter that reads them, such as `megatron`.
        nodes: machines the flags are launched on; None: as they say.
        seed: of planners that draw random numbers.
        evaluations: plans that a planner which tries plans out may price.
        time_limit: seconds for the search for our plan, and for each search of a planner.
        progress: told now and then how far the search for our plan is.
        strict_plugins: whether a faulty plug-in is an error; otherwise it is set aside with a warning.

    Raises:
        nest.errors.InputError: the problem or a file cannot be used, or there is no such planner.
        nest.errors.InternalError: a plan is faster than the one proved to be the fastest.
    """
    from nest import comparing

    with _plugins(strict_plugins) as known:
        found = comparing.compare(
            problem,
            planners=planners,
            plans=plans,
            flags=flags,
            nodes=nodes,
            seed=seed,
            evaluations=evaluations,
            time_limit=time_limit,
            progress=progress,
            plugins=known,
        )
    found.assert_unbeaten()
    return found


def explain(
    plan: "Source | PlanDocument",
    *,
    only: Sequence[str] = (),
    time_limit: float | None = None,
    progress: "Callable[[str, float], None] | None" = None,
    strict_plugins: bool = False,
) -> "Explanation":
    """Why a plan is what it is: what binds, what restrictions cost, the next best by decision, what would change it.

    The plan is checked first; each answer but what binds is a search of a changed problem.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`; may be infeasible.
        only: parts asked for, of `binding`, `constraints`, `alternatives` and `flips`; none: all.
        time_limit: seconds for each search, after which its best plan so far counts; None: as long as it takes.
        progress: told what is being asked and which share of the questions is answered.
        strict_plugins: whether a faulty plug-in is an error; otherwise it is set aside with a warning.

    Raises:
        nest.errors.InputError: the plan cannot be read or does not hold, or there is no such part.
    """
    from nest import explaining

    with _plugins(strict_plugins) as known:
        return explaining.explain(plan, only=only, time_limit=time_limit, progress=progress, plugins=known)


def report_page(
    plan: "Source | PlanDocument",
    *,
    output: str | Path | None = None,
    without: "Collection[str]" = (),
    time_limit: float | None = None,
    progress: "Callable[[str, int], None] | None" = None,
    strict_plugins: bool = False,
) -> str:
    """A plan as one HTML page that needs no network; the plan is checked first.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`; one that says that nothing is feasible gives a
            page that says so.
        output: file the page is written to; None: it is not written.
        without: parts that are left out, `frontier` and `sensitivity`: each takes searches.
        time_limit: seconds for each search, after which its best plan so far counts.
        progress: told what is being searched and how many searches are done.
        strict_plugins: whether a faulty plug-in is an error; otherwise it is set aside with a warning.

    Returns:
        The page.

    Raises:
        nest.errors.InputError: the plan cannot be read, or its numbers do not hold; there is no part called so; or the
            page cannot be written.
    """
    from nest import reporting
    from nest.files import check_writable, write_text

    if output is not None:
        check_writable(Path(output))
    with _plugins(strict_plugins) as known:
        page = reporting.report(plan, without=without, time_limit=time_limit, progress=progress, plugins=known)
    if output is not None:
        write_text(Path(output), page)
    return page


def export(
    plan: "Source | PlanDocument",
    to: str,
    *,
    output: str | Path | None = None,
    nearest: bool = False,
    strict_plugins: bool = False,
) -> dict[str, str]:
    """The files of a framework, a launcher or another tool for a plan, which is checked first.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        to: name of an exporter, as `nest export --list` shows it.
        output: folder the files are written into, made if need be; None: they are not written.
        nearest: whether the nearest plan is exported in place of one that the exporter's framework cannot run; it is
            then among the files, as `plan.json`.
        strict_plugins: whether a faulty plug-in is an error; otherwise it is set aside with a warning.

    Returns:
        Contents by file name. A warning is given where the plan does not fit into memory, or another is exported.

    Raises:
        nest.errors.InputError: there is no such exporter, it cannot express the plan, or the plan cannot be read, is
            infeasible or does not hold.
    """
    from nest import exporting
    from nest.files import write_files
    from nest.report.nearest import nearest_text

    with _plugins(strict_plugins) as known:
        made = exporting.export(plan, (to,), near=nearest, plugins=known)
    files = {**made.plans, **made.files}
    for line in (*made.warnings, *(nearest_text(found.to_dict()) for found in made.nearest.values())):
        warnings.warn(line, stacklevel=2)
    if output is not None:
        write_files(Path(output), files)
    return files
