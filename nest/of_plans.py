"""What users of Python ask of a plan; `nest` offers these under its own name, beside what it does with a problem."""

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nest.explaining import Explanation
    from nest.hooks.registry import Registry
    from nest.questions.frontier import FrontierPoint
    from nest.questions.sensitivity import Response
    from nest.simulate.replay import Replay
    from nest.spec import PlanDocument

Source = str | Path | Mapping[str, Any]


@contextmanager
def plugins_in_use(strict: bool) -> "Iterator[Registry]":
    """The installed plug-ins; those that are set aside in the meantime are warned of."""
    from nest.hooks.registry import registry

    known = registry(strict=strict)
    try:
        yield known
    finally:
        for line in known.warnings:
            warnings.warn(line, stacklevel=4)


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
        check_writable(Path(trace), plan)
    with plugins_in_use(strict_plugins) as known:
        found = simulating.simulate(
            plan, jitter=jitter, seed=seed, runs=runs, slow_devices=slow_devices, progress=progress, plugins=known
        )
    if trace is not None:
        from nest.simulate.trace import trace as trace_text

        write_text(Path(trace), trace_text(found))
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

    with plugins_in_use(strict_plugins) as known:
        return explaining.explain(plan, only=only, time_limit=time_limit, progress=progress, plugins=known)


def frontier(
    plan: "Source | PlanDocument",
    *,
    time_limit: float | None = None,
    progress: "Callable[[str, int], None] | None" = None,
    strict_plugins: bool = False,
) -> "tuple[FrontierPoint, ...]":
    """The fastest plans of a plan's problem with fewer devices, and with less and more memory; it is checked first.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        time_limit: seconds for each solve; None: as long as it takes.
        progress: told before each solve what is asked, and how many solves were done.
        strict_plugins: whether a faulty plug-in is an error; otherwise it is set aside with a warning.

    Raises:
        nest.errors.InputError: the plan cannot be read or does not hold.
    """
    from nest.questions.asked import checked
    from nest.questions.frontier import frontier as asked
    from nest.questions.solver import Solver

    with plugins_in_use(strict_plugins) as known:
        return asked(checked(plan, known), Solver(known, time_limit=time_limit, progress=progress))


def sensitivity(
    plan: "Source | PlanDocument",
    *,
    time_limit: float | None = None,
    progress: "Callable[[str, int], None] | None" = None,
    strict_plugins: bool = False,
) -> "tuple[Response, ...]":
    """What a plan takes, kept or planned anew, when numbers of its problem change; it is checked first.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        time_limit: seconds for each solve; None: as long as it takes.
        progress: told before each solve what is asked, and how many solves were done.
        strict_plugins: whether a faulty plug-in is an error; otherwise it is set aside with a warning.

    Raises:
        nest.errors.InputError: the plan cannot be read or does not hold.
    """
    from nest.questions.asked import checked
    from nest.questions.sensitivity import sensitivity as asked
    from nest.questions.solver import Solver

    with plugins_in_use(strict_plugins) as known:
        return asked(checked(plan, known), Solver(known, time_limit=time_limit, progress=progress))


def report_page(
    plan: "Source | PlanDocument",
    *,
    output: str | Path | None = None,
    without: "Collection[str]" = (),
    time_limit: float | None = None,
    progress: "Callable[[str, int, int], None] | None" = None,
    strict_plugins: bool = False,
) -> str:
    """A plan as one HTML page that needs no network; the plan is checked first.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`; one that says that nothing is feasible gives a
            page that says so.
        output: file the page is written to; None: it is not written.
        without: parts that are left out, `frontier` and `sensitivity`: each takes searches.
        time_limit: seconds for each search, after which its best plan so far counts.
        progress: told what is being searched, how many searches are done, and how many there are at most.
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
        check_writable(Path(output), plan)
    with plugins_in_use(strict_plugins) as known:
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
    from nest.report.text.export import nearest_text

    with plugins_in_use(strict_plugins) as known:
        made = exporting.export(plan, (to,), near=nearest, plugins=known)
    files = {**made.plans, **made.files}
    for line in (*made.warnings, *(nearest_text(found.to_dict()) for found in made.nearest.values())):
        warnings.warn(line, stacklevel=2)
    if output is not None:
        write_files(Path(output), files)
    return files
