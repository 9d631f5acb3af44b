"""Every verb of nest, once; each imports what it needs itself, to keep `import nest` fast."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from nest.errors import InputError
from nest.units import likelihood

if TYPE_CHECKING:
    from nest.formulate.problem import Changes, Source
    from nest.graph import Block
    from nest.hooks.registry import Registry
    from nest.instance import SearchProgress
    from nest.plan.check import CheckReport
    from nest.report.text.comparison import Entry
    from nest.report.text.summary import Verdict
    from nest.simulate.replay import Replay
    from nest.solve.effort import Deadline
    from nest.spec import PlanDocument, Problem
    from nest.whatif.launch_files import Exported
    from nest.whatif.nearest_plan import Nearest

    Progress = Callable[[SearchProgress], None]

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

INSTALLED: Any = None
"""Default registry, of the installed plug-ins, passed to each verb."""


class PluginWarning(UserWarning):
    """An object of a plug-in was disabled."""


@contextmanager
def registered(plugins: Registry | None, strict: bool) -> Iterator[Registry]:
    """The given registry, else the installed plug-ins', with warnings of newly disabled ones."""
    from nest.hooks.registry import registry

    known = plugins or registry(strict=strict)
    try:
        yield known
    finally:
        for line in () if plugins is not None else known.warnings:
            warnings.warn(line, PluginWarning, stacklevel=4)


def restarted(verb: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Restart a verb, called with a registry, without an object of a plug-in that fails."""

    @wraps(verb)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
        plugins: Any = named.get("plugins")
        with registered(plugins, bool(named.get("strict_plugins"))) as known:
            named["plugins"] = known
            return known.run(lambda: verb(*arguments, **named))

    return call


@restarted
def solve(
    problem: Source | Problem,
    *,
    time_limit: float | Deadline | None = None,
    progress: Progress | None = None,
    verify: bool | str = False,
    workers: int = 1,
    jobs: int | None = 1,
    message: Callable[[str], None] | None = None,
    changes: Changes | None = None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> PlanDocument:
    """Find the simplest plan within `search.within` of the fastest, both proved; or the reason for none.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        time_limit: seconds in all; then the best plan so far is returned with its bound; or a deadline.
        progress: called regularly with the state of the search.
        verify: prove the plan with CP-SAT; `"free"`: also against blocks anywhere, in any order.
        workers: threads of CP-SAT.
        jobs: processes for long proofs, with the same answer; None: one per processor. Forks, if that is safe.
        message: called with each assumption on the problem, and each likely slip in it.
        changes: replacement keys by section, such as `{"search": {"target": "none"}}`.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered strategies, importers and the like; default: those installed.

    Raises:
        nest.errors.InputError: the problem cannot be used; the text names the place and the remedy.
        nest.errors.NoPlanYet: the time was up before any plan was found.
    """
    from nest.formulate.problem import complete_problem, naming, tell_of_plan
    from nest.solve.effort import Deadline, check_effort
    from nest.whatif.disk_cache import cached_plan

    check_effort(None, workers)
    deadline = Deadline.of(time_limit)
    if verify not in (False, True, "free"):
        raise InputError(f'verify is {verify!r}; it must be True, False or "free".')
    beside = None
    if verify:
        from nest.whatif.engines import forked_processes

        beside = forked_processes(jobs, plugins)
    whole = complete_problem(problem, plugins, message, changes)

    def solved() -> PlanDocument:
        from nest.documents.document import Proof, proved, result_document, verdict
        from nest.documents.runner_up import searched
        from nest.documents.unknown import with_unknown
        from nest.solve.dp import first_plan

        begin = None if verify else partial(first_plan, deadline=deadline)  # A proof is of all candidates.
        with naming(problem):
            instance, formulation, result = searched(whole, plugins, deadline, progress, begin)
        plan = result_document(instance, formulation, result, whole, plugins, deadline)
        how = Proof(verify == "free", deadline, workers, progress, beside)
        if verify:
            plan = proved(plan, verdict(instance, formulation, plan, whole, plugins, how))
        return with_unknown(plan, whole, plugins)

    return tell_of_plan(solved() if verify else cached_plan(whole, plugins, deadline, solved), whole, message)


@restarted
def shortlist(
    problem: Source | Problem,
    count: int,
    *,
    time_limit: float | Deadline | None = None,
    progress: Progress | None = None,
    message: Callable[[str], None] | None = None,
    changes: Changes | None = None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> tuple[Entry, ...]:
    """List the best plans of a problem, fastest first; if there is none, the result of `solve`.

    They differ in degrees, stages, micro-batch, schedule, ZeRO or recomputation (`nest.solve.dp.configurations`).

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        count: most plans.
        time_limit: seconds for all searches; then the plans so far are returned; or a deadline.
        progress: called regularly with the state of the search.
        message: called with each assumption on the problem, and each likely slip in it.
        changes: replacement keys by section, such as `{"search": {"target": "none"}}`.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered strategies, importers and the like; default: those installed.

    Raises:
        nest.errors.InputError: the problem cannot be used; the text names the place and the remedy.
        nest.errors.NoPlanYet: the time was up before any plan was found.
    """
    from nest.formulate.problem import formulated, naming, tell_of_plan
    from nest.solve.effort import Deadline
    from nest.whatif.shortlist import best_plans

    if count < 1:
        raise InputError(f"--best is {count}; it must be at least 1.")
    deadline = Deadline.of(time_limit)
    whole, instance, formulation = formulated(problem, plugins, progress, message, changes, deadline)
    with naming(problem):
        entries = best_plans(whole, instance, formulation, count, deadline, progress, plugins)
    tell_of_plan(entries[0].plan, whole, message)
    return entries


@restarted
def evaluate(
    problem: Source | Problem,
    *,
    fix: Mapping[str, Any] | None = None,
    message: Callable[[str], None] | None = None,
    changes: Changes | None = None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> PlanDocument:
    """Price the plan of the problem's `fixed`, completed with framework defaults.

    Unsatisfied `constraints` are its `violates`; decisions that `solve` would not try are its `outside`.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        fix: further decisions by name, which override the problem's `fixed`.
        message: called with each assumption on the problem, and each likely slip in it.
        changes: replacement keys by section, such as `{"search": {"target": "none"}}`.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered strategies, importers and the like; default: those installed.

    Raises:
        nest.errors.InputError: the problem cannot be used, or the decisions do not make a plan.
    """
    from nest.documents.document import fixed_document
    from nest.documents.unknown import with_unknown
    from nest.formulate.problem import decided_problem, naming, tell_of_plan

    with naming(problem):
        whole = decided_problem(problem, fix, plugins, message, changes)
        return tell_of_plan(with_unknown(fixed_document(whole, plugins), whole, plugins), whole, message)


@restarted
def check(plan: Source | PlanDocument, *, strict_plugins: bool = False, plugins: Registry = INSTALLED) -> CheckReport:
    """Check that every number of a plan follows from its decisions and its problem; without a solver.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered strategies, importers and the like; default: those installed.

    Raises:
        nest.errors.InputError: the plan cannot be read, or names things its problem does not have.
    """
    from nest.documents.document import check_document
    from nest.formulate.problem import naming, read_record
    from nest.spec import PlanDocument

    with naming(plan, "problem"):
        return check_document(read_record(plan, PlanDocument)[0], plugins)


@restarted
def verify(
    plan: Source | PlanDocument,
    *,
    free: bool = False,
    time_limit: float | Deadline | None = None,
    workers: int = 1,
    jobs: int | None = 1,
    progress: Progress | None = None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> Verdict:
    """Let CP-SAT, an independent solver, look for a better plan; if there is none, the plan is proved optimal.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        free: also search blocks anywhere and in any order.
        time_limit: seconds, or a deadline; unproved parts then stay open.
        workers: threads of CP-SAT.
        jobs: see `solve`.
        progress: called regularly with the state of the proof.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered strategies, importers and the like; default: those installed.

    Raises:
        nest.errors.InputError: the plan cannot be read, its numbers are wrong, or it does not fit.
    """
    from nest.documents.document import Proof, check_document, verdict_on
    from nest.formulate.problem import carried_problem, naming, read_record
    from nest.formulate.risk import admits
    from nest.solve.effort import Deadline, check_effort
    from nest.spec import PlanDocument
    from nest.whatif.engines import forked_processes

    check_effort(None, workers)
    deadline, beside = Deadline.of(time_limit), forked_processes(jobs, plugins)
    with naming(plan, "problem"):
        read = read_record(plan, PlanDocument)[0]
        report = check_document(read, plugins)
        if not report.ok:
            raise InputError(f"the plan fails its check, so nest cannot prove it: {report.disagreements[0]}")
        if read.status != "infeasible" and not admits(carried_problem(read, plugins), read):
            likely = f"{likelihood(read.fit_probability or 0.0)} likely to fit, less than training.memory_risk requires"
            what = f"is {likely}" if read.fits else "does not fit into memory"
            raise InputError(f"the plan {what}, so nest cannot prove it.")
        return verdict_on(read, plugins, Proof(free, deadline, workers, progress, beside))


@restarted
def simulate(
    plan: Source | PlanDocument,
    *,
    trace: str | Path | None = None,
    jitter: float = 0.0,
    seed: int = 0,
    runs: int | None = None,
    slow_devices: Mapping[str, float] | None = None,
    progress: Callable[[str, float], None] | None = None,
    source: Path | None = None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> Replay:
    """Check a plan, and replay its batch pass by pass in the order of its schedule.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        trace: file for the timeline, for Perfetto; None: none.
        jitter: standard deviation of the logarithm of each task's factor, whose mean is 1; 0: none.
        seed: of the random numbers.
        runs: batches replayed with jitter; None: 100.
        slow_devices: factors on compute times by `STAGE` (from 1) or `STAGE/REPLICA` (from 0, the default).
        progress: called with the current step and its share done.
        source: file of a `PlanDocument`, for errors; a pipe can be read only once.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered schedules and the like; default: those installed.

    Raises:
        nest.errors.InputError: the plan cannot be read, is infeasible or does not hold; its schedule cannot be
            replayed; or the arguments do not fit it.
    """
    from nest.formulate.fixed_plan import decided_instance
    from nest.formulate.problem import carried_problem, naming
    from nest.io import check_writable, write_text
    from nest.plan.check import check as check_plan
    from nest.plan.document import solution_of
    from nest.simulate.replay import replay
    from nest.simulate.stragglers_and_jitter import disturbance
    from nest.simulate.trace import trace as trace_text

    if trace is not None:
        check_writable(Path(trace), plan)
    disturbed = disturbance(jitter, seed, runs, slow_devices or {})
    read = _feasible(plan, "replay")
    with naming(source or plan, "problem"):
        instance = decided_instance(carried_problem(read, plugins), read, plugins)
    report = check_plan(instance, read)
    if not report.ok:
        raise InputError(f"the plan fails its check, so nest does not simulate it: {report.disagreements[0]}")
    replayed = replay(instance, solution_of(instance, read), disturbed, progress)
    if trace is not None:
        write_text(Path(trace), trace_text(replayed))
    return replayed


def export(
    plan: Source | PlanDocument,
    to: str,
    *,
    output: str | Path | None = None,
    nearest: bool = False,
    release: str | None = None,
    strict_plugins: bool = False,
) -> dict[str, str]:
    """Check a plan, and write the files of a framework, a launcher or another tool for it.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        to: name of an exporter (`nest export --list`).
        output: folder for the files, created if needed; None: write none.
        nearest: if the exporter's framework cannot run the plan, export the nearest one; it is then among the files, as
            `plan.json`.
        release: of the framework that the files are for, such as 0.16; None: the newest.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.

    Returns:
        Contents by file name. Warns if the plan does not fit into memory, or another is exported.

    Raises:
        nest.errors.InputError: there is no such exporter, it cannot express the plan, or the plan cannot be read, is
            infeasible or does not hold.
    """
    from nest.io import write_files
    from nest.report.text.comparison import nearest_text

    made = exported(plan, (to,), near=nearest, release=release, strict_plugins=strict_plugins)
    files = {**made.plans, **made.files}
    for line in (*made.warnings, *(nearest_text(each.to_dict()) for each in made.nearest.values())):
        warnings.warn(line, stacklevel=2)
    if output is not None:
        write_files(Path(output), files)
    return files


def exported(
    plan: Source | PlanDocument,
    to: Sequence[str],
    *,
    near: bool = False,
    release: str | None = None,
    progress: Progress | None = None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> Exported:
    """Export a plan with several exporters, with what to know before use.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`; it is checked first.
        to: names of exporters.
        near: if a framework cannot run the plan, export the nearest one.
        release: of the framework that the files are for; None: the newest.
        progress: called regularly with the state of a search for a nearest plan.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered exporters and the like; default: those installed.

    Raises:
        nest.whatif.launch_files.NothingNear: a framework can run no feasible plan, even with `near`.
        nest.errors.InputError: there is no such exporter; the plan cannot be read, is infeasible or does not hold; an
            exporter refuses it; or two exporters give files of one name.
    """
    from nest.whatif.launch_files import export_checked, exporter_called
    from nest.whatif.solver import require_held

    with registered(plugins, strict_plugins) as known:
        known.run(lambda: [exporter_called(name, known, release) for name in to])  # Report slips before working.
        read = _feasible(plan, "export")
        known.run(lambda: require_held(plan, read, known, "so nest does not export it"))

        def search(problem: Problem) -> PlanDocument:
            return solve(problem, progress=progress, plugins=known)

        return export_checked(read, to, known, search if near else None, release=release)


@restarted
def nearest(
    plan: Source | PlanDocument,
    target: str,
    *,
    progress: Progress | None = None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> Nearest | None:
    """Find the nearest plan that a framework can run; None: it can run no feasible plan.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`; feasible.
        target: name of an exporter with limits.
        progress: called regularly with the state of the search.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered exporters and the like; default: those installed.

    Raises:
        nest.errors.InputError: there is no such target, or the plan cannot be read.
    """
    from nest.whatif.nearest_plan import nearest_plan

    return nearest_plan(
        read_plan(plan), target, plugins, lambda problem: solve(problem, progress=progress, plugins=plugins)
    )


def read_plan(plan: Source | PlanDocument) -> PlanDocument:
    """Read a plan from a path or a mapping, without checking its numbers.

    Raises:
        nest.errors.InputError: it cannot be read.
    """
    from nest.formulate.problem import naming, read_record
    from nest.spec import PlanDocument

    with naming(plan):
        return read_record(plan, PlanDocument)[0]


def _feasible(plan: Source | PlanDocument, do: str) -> PlanDocument:
    read = read_plan(plan)
    if read.status == "infeasible":
        why = read.diagnosis or "no reason given"
        raise InputError(f"the plan is infeasible; nothing to {do}: {why}")
    return read


@restarted
def blocks(
    problem: Source | Problem, *, strict_plugins: bool = False, plugins: Registry = INSTALLED
) -> tuple[Block, ...]:
    """List what one device of each candidate runs, for commands that measure it; nothing is priced.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered strategies, importers and the like; default: those installed.

    Raises:
        nest.errors.InputError: the problem cannot be used, or has a profile instead of a model.
    """
    from nest.formulate.instance import model_blocks
    from nest.formulate.problem import naming, whole_problem

    with naming(problem):
        return model_blocks(whole_problem(problem, plugins)[0], plugins)
