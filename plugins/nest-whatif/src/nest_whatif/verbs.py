"""Verbs of this package, which `nest` offers: `explain`, `frontier`, `sensitivity` and `compare`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nest.public.verbs import INSTALLED, evaluate, restarted, solve

if TYPE_CHECKING:
    from nest.deployment import LaunchOptions
    from nest.hooks.registry import Registry
    from nest.instance import SearchProgress
    from nest.public.planning import Source
    from nest.spec import PlanDocument, Problem
    from nest_whatif.comparison import Comparison
    from nest_whatif.explain import Explanation
    from nest_whatif.pareto_front import FrontierPoint
    from nest_whatif.sensitivity import Response

    Progress = Callable[[SearchProgress], None]

SEED = 1
"""Seed of random numbers for planners."""

EVALUATIONS = 1000
"""Plans that a planner may price."""


@restarted
def explain(
    plan: Source | PlanDocument,
    *,
    only: Iterable[str] = (),
    time_limit: float | None = None,
    jobs: int | None = 1,
    progress: Callable[[str, float], None] | None = None,
    ready: Callable[[str, Explanation], None] = lambda *_: None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> Explanation:
    """Explain a plan: what binds, the cost of restrictions, alternatives by decision, and what would change it.

    The plan is checked first; each answer but what binds is a search of a changed problem.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`; may be infeasible.
        only: requested parts among `binding`, `constraints`, `alternatives` and `flips`; empty: all.
        time_limit: seconds for each search; then its best plan so far counts; None: no limit.
        jobs: processes for long questions, with the same answers; None: one per processor. The others are forked from
            this one or, if that is not safe, started anew.
        progress: called with the current question and the share of questions answered.
        ready: called after each of `nest_whatif.text.explanation.STEPS` with the explanation so far; once more for each
            after an object of a plug-in was disabled.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered strategies and the like; default: those installed.

    Raises:
        nest.errors.InputError: the plan cannot be read or does not hold, a faster one refutes that it is optimal, or
            there is no such part.
    """
    from nest.public.changes import Solver, processes, require_held
    from nest.public.planning import check_effort, read_plan
    from nest_whatif.explain import explanation, parts_of

    check_effort(time_limit)
    parts = parts_of(only)
    read = read_plan(plan)
    if read.status != "infeasible":
        require_held(plan, read, plugins, "so nest does not explain it")
    solver = Solver(plugins, time_limit=time_limit)
    return explanation(read, parts, solver, progress, ready, processes(jobs, plugins))


@restarted
def frontier(
    plan: Source | PlanDocument,
    *,
    complete: bool = False,
    memory_step: float = 0.0,
    time_limit: float | None = None,
    progress: Callable[[str, int], None] | None = None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> tuple[FrontierPoint, ...]:
    """Find the Pareto front: the fastest plans with fewer devices, and with less and more memory.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`; it is checked first.
        complete: search all devices and memories up to the problem's, in steps that miss no plan: the `efficient`
            points are all Pareto-optimal plans, and the others the proof.
        memory_step: with `complete`, a share of memory too small to matter; 0: every step matters.
        time_limit: seconds for each solve; None: no limit.
        progress: called before each solve with the question, and the number of solves done.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered strategies and the like; default: those installed.

    Raises:
        nest.errors.InputError: the plan cannot be read or does not hold.
    """
    from nest.public.changes import Solver
    from nest_whatif.pareto_front import complete_front, pareto_front

    held, solver = _held(plan, plugins), Solver(plugins, time_limit=time_limit, progress=progress)
    return complete_front(held, solver, memory_step=memory_step) if complete else pareto_front(held, solver)


@restarted
def sensitivity(
    plan: Source | PlanDocument,
    *,
    time_limit: float | None = None,
    progress: Callable[[str, int], None] | None = None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> tuple[Response, ...]:
    """Find how the step time of a plan, kept or planned anew, depends on numbers of its problem.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`; it is checked first.
        time_limit: seconds for each solve; None: no limit.
        progress: called before each solve with the question, and the number of solves done.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered strategies and the like; default: those installed.

    Raises:
        nest.errors.InputError: the plan cannot be read or does not hold.
    """
    from nest.public.changes import Solver
    from nest_whatif.sensitivity import responses

    return responses(_held(plan, plugins), Solver(plugins, time_limit=time_limit, progress=progress))


@restarted
def compare(
    problem: Source | Problem,
    *,
    planners: Sequence[str] | None = None,
    plans: Sequence[str | Path] = (),
    flags: Mapping[str, Sequence[str | Path]] | None = None,
    nodes: int | None = None,
    options: LaunchOptions | None = None,
    seed: int = SEED,
    evaluations: int = EVALUATIONS,
    time_limit: float | None = None,
    planner_limit: float | None = None,
    progress: Progress | None = None,
    step: Callable[[str, int, int | None], None] | None = None,
    unbeaten: bool = True,
    timings: bool = False,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> Comparison:
    """Compare the best plan with other planners, plan files and launch files, all priced by the same code.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        planners: names (`nest compare --list`), with options as in `mcmc:seed=3`; None: all for such a cluster.
        plans: plan files, whose decisions are priced on the problem.
        flags: launch files by name of their plan reader, such as `megatron`.
        nodes: machines of the launch; None: those in the files.
        options: further launch options.
        seed: of planners that draw random numbers.
        evaluations: plans that a planner may price.
        time_limit: seconds for the search of the best plan, and for each search of a planner.
        planner_limit: seconds for each planner; None: those of plug-ins have `NEST_PLUGIN_SECONDS`.
        progress: called regularly with the state of the search.
        step: called with the plan in progress, the number done and the total.
        unbeaten: raise if a plan is faster than the one proved fastest.
        timings: report how long each plan took to find; results then differ between runs.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered planners and the like; default: those installed.

    Raises:
        nest.errors.InputError: the problem or a file cannot be used, or there is no such planner.
        nest.errors.InternalError: a plan is faster than the one proved fastest.
    """
    from attrs import evolve

    from nest.deployment import LaunchOptions
    from nest.io import structure
    from nest.public.planning import at_risk_of, read_plan
    from nest.spec import Problem
    from nest_whatif.compare import Task, check_limits, chosen_planners, comparison, suited_planners

    check_limits(evaluations, planner_limit)
    read = [(Path(path), read_plan(path)) for path in plans]
    launch = options or LaunchOptions()
    launch = launch if nodes is None else evolve(launch, nodes=nodes)
    names = chosen_planners(planners, plugins)
    begun = time.monotonic()
    ours = solve(problem, time_limit=time_limit, progress=progress, plugins=plugins)
    seconds = time.monotonic() - begun if timings else None
    whole = at_risk_of(structure(ours.problem, Problem), ours)
    task = Task(problem, whole, plugins, ours.lower_bound, seed, evaluations, time_limit, evaluate, planner_limit)
    names, pools = (suited_planners(names, plugins, whole.cluster), task.pools) if planners is None else (names, ())
    compared = comparison(ours, task, pools, names, read, flags or {}, launch, step, seconds)
    if unbeaten:
        compared.assert_unbeaten()
    return compared


def _held(plan: Source | PlanDocument, plugins: Registry) -> PlanDocument:
    from nest.public.changes import require_held
    from nest.public.planning import read_plan

    read = read_plan(plan)
    require_held(plan, read, plugins, "so nest cannot use it")
    return read
