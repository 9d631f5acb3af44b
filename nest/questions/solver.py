"""The best plans of problems that differ in something, each solved once."""

from collections.abc import Callable
from json import dumps

from nest import planner
from nest.errors import InputError
from nest.hooks.registry import Registry, registry
from nest.spec import PlanDocument, Problem

Told = Callable[[str, int], None]
"""Told what is being asked and how many solves were done before."""


class Solver:
    """Solves problems, remembers their plans and counts.

    Attributes:
        solves: problems solved so far.
        plugins: registered strategies and the like.
        time_limit: seconds for each solve; None: as long as it takes.
    """

    def __init__(
        self, plugins: Registry | None = None, *, time_limit: float | None = None, progress: Told | None = None
    ) -> None:
        """A solver that has solved nothing.

        Args:
            plugins: registered strategies and the like; left out, those installed.
            time_limit: seconds for each solve, after which its best plan so far counts; None: as long as it takes.
            progress: told before each solve what it is for and how many were done.
        """
        self.solves = 0
        self.plugins = plugins or registry()
        self.time_limit = time_limit
        self._progress = progress
        self._known: dict[str, PlanDocument | None] = {}

    def plan(self, problem: Problem, asking: str = "") -> PlanDocument | None:
        """The best plan of a problem, or the document that says why there is none; None: it allows no plan at all.

        Args:
            problem: self-contained.
            asking: what is asked, for progress.
        """
        key = canonical(problem)
        if key not in self._known:
            if self._progress is not None:
                self._progress(asking, self.solves)
            self._known[key] = self._solved(problem)
            self.solves += 1
        return self._known[key]

    def know(self, problem: Problem, plan: PlanDocument) -> None:
        """Take `plan` for the best of `problem`, which is then not solved."""
        self._known.setdefault(canonical(problem), plan)

    def knows(self, problem: Problem) -> bool:
        """Whether the plan of a problem is known without a solve."""
        return canonical(problem) in self._known

    def _solved(self, problem: Problem) -> PlanDocument | None:
        try:
            return planner.solve(problem, time_limit=self.time_limit, plugins=self.plugins)
        except InputError:  # No list of choices allows it, or the cluster cannot be: an answer, too.
            return None


def canonical(problem: Problem) -> str:
    """A text that problems have in common if they are written alike, whatever the order of their keys."""
    return dumps(problem.to_dict(), sort_keys=True)
