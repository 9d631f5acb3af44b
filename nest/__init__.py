"""nest plans the training of large models on clusters, and proves its plans optimal."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

# These packages are loaded before the functions of the same names are defined, so that no later import of a solver or a
# replay can put the package in the function's place.
import nest.simulate
import nest.solve  # noqa: F401
from nest.of_plans import (
    Source,
    explain,
    export,
    frontier,
    plugins_in_use,
    report_page,
    sensitivity,
    simulate,
)
from nest.version import __version__

if TYPE_CHECKING:
    from nest.comparing import Comparison
    from nest.instance import SearchProgress
    from nest.plan import CheckReport
    from nest.report import Verdict
    from nest.spec import PlanDocument, Problem

__all__ = [
    "__version__",
    "check",
    "compare",
    "evaluate",
    "explain",
    "export",
    "frontier",
    "report_page",
    "sensitivity",
    "simulate",
    "solve",
    "verify",
]


def solve(
    problem: "Source | Problem",
    *,
    time_limit: float | None = None,
    progress: "Callable[[SearchProgress], None] | None" = None,
    verify: bool | str = False,
    workers: int = 1,
    strict_plugins: bool = False,
) -> "PlanDocument":
    """The fastest plan of a problem, proved optimal; or why there is none.

    Args:
        problem: a path, a mapping as read from a file, or a `Problem`.
        time_limit: seconds after which the best plan so far is taken, with its proven bound; a proof has what is left.
        progress: told now and then how far the search is.
        verify: whether CP-SAT is to prove the plan; `"free"`: also with blocks anywhere, in any order.
        workers: threads CP-SAT uses.
        strict_plugins: whether a faulty plug-in is an error; otherwise it is set aside with a warning.

    Raises:
        nest.errors.InputError: the problem cannot be used; the text names the place and the remedy.
        nest.errors.NoPlanYet: the time was up before any plan was found.
    """
    from nest import planner

    with plugins_in_use(strict_plugins) as known:
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

    with plugins_in_use(strict_plugins) as known:
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

    with plugins_in_use(strict_plugins) as known:
        return planner.check(plan, plugins=known)


def verify(
    plan: "Source | PlanDocument",
    *,
    free: bool = False,
    time_limit: float | None = None,
    workers: int = 1,
    progress: "Callable[[SearchProgress], None] | None" = None,
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

    with plugins_in_use(strict_plugins) as known:
        return planner.verify(plan, free=free, time_limit=time_limit, workers=workers, progress=progress, plugins=known)


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
    progress: "Callable[[SearchProgress], None] | None" = None,
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

    with plugins_in_use(strict_plugins) as known:
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
