"""Questions of an explanation or a report, each answered independently in any process."""

from collections.abc import Iterator
from copy import copy
from functools import cached_property, partial
from json import dumps
from time import monotonic
from typing import Any, get_type_hints

from attrs import define, evolve, field

from nest.errors import InputError, InternalError
from nest.hooks.protocols import Engine
from nest.hooks.registry import registry
from nest.public.changes import Solver, kept, only_own
from nest.spec import PlanDocument

ALONE = 0.5
"""Seconds before other processes help: a new one spends half a second on its start and prices the model again, a fork
has all prices so far."""

RECIPE = "manual"  # Planner whose plan stands for a launch without a planner.

Question = tuple[str, int]
"""A part of the answers, and the place among its questions."""

Answered = tuple[Question, Any, int]
"""A question, its answer (such as a `ShadowPrice`, an `Alternative` or a `Breakpoint`), and its number of searches."""


@define(eq=False)
class Questions:
    """Possible questions on a plan. The cost of one does not depend on earlier answers.

    Attributes:
        plan: the plan explained.
        best: best plan of its problem; the plan itself if nobody asks for it.
        parts: requested ones of `nest explain` and `nest report`.
        time_limit: seconds for each search; None: no limit.
        versions: installed where the explanation began: another process must have the same.
        solver: knows the best plan and the model's costs; None: made on demand.
    """

    plan: PlanDocument
    best: PlanDocument
    parts: tuple[str, ...]
    time_limit: float | None
    versions: dict[str, str]
    solver: Solver | None = field(default=None, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Questions, (self.plan, self.best, self.parts, self.time_limit, self.versions)

    @property
    def silent(self) -> "Questions | None":
        """Same for a forked process, without progress; None: with plug-ins, which may not survive a fork."""
        if self.solver is None or not only_own(self.versions):
            return None
        solver = copy(self.solver)
        solver.progress = None
        return evolve(self, solver=solver)

    def __call__(self, question: Question) -> Answered:
        """Answer a question by searches of changed problems, or from disk.

        Raises:
            InputError: a faster plan refutes that this one is optimal.
            InternalError: another version would answer here.
        """
        answer = partial(self._answer, *question)
        if self._plans is None:
            return question, *answer()
        part, place = question
        kind: Any = get_type_hints(self._asked[part][place].func)["return"]
        found, solves = kept(question, self._plans, answer, tuple[kind, int])
        return question, found, solves

    @cached_property
    def _plans(self) -> str | None:
        """The plans as text, the key of kept answers; None: nothing is kept.

        Code of others' plug-ins is not tracked, and with a time limit answers depend on the machine.
        """
        if self.time_limit is not None or not only_own(self.versions):
            return None
        return dumps([plan.to_dict() for plan in (self.plan, self.best)], sort_keys=True)

    def _answer(self, part: str, place: int) -> tuple[Any, int]:
        solver = self._base.with_new_counters()
        return self._asked[part][place](solver), solver.solves

    @property
    def every(self) -> tuple[Question, ...]:
        """All questions, in order."""
        return tuple((part, place) for part, asked in self._asked.items() for place in range(len(asked)))

    @cached_property
    def _base(self) -> Solver:
        from nest.public.planning import carried_problem

        if self.solver is not None:
            return self.solver
        known = registry(strict=True)
        if known.installed() != self.versions:
            raise InternalError("has other versions installed")
        solver, problem = Solver(known, time_limit=self.time_limit), carried_problem(self.plan, known)
        for plan in (self.plan, self.best):
            if plan.status in ("optimal", "infeasible") or plan is self.best is not self.plan:
                solver.know(problem, plan)
        return solver

    @cached_property
    def _asked(self) -> dict[str, list[Any]]:
        from nest.public.planning import carried_problem
        from nest_whatif.alternatives import questions, unrefuted
        from nest_whatif.breakpoints import breakpoint_of, sweeps
        from nest_whatif.pools import pool_changes, worth
        from nest_whatif.shadow_prices import relaxations, shadow_price

        plan, best, known = self.plan, self.best, self._base.plugins
        problem = carried_problem(plan, known)
        asked: dict[str, list[Any]] = {"constraints": [], "pools": [], "alternatives": [], "flips": []}
        if "constraints" in self.parts:
            asked["constraints"] = [partial(shadow_price, best, problem, each) for each in relaxations(problem, known)]
        if "pools" in self.parts:
            asked["pools"] = [partial(worth, best, each) for each in pool_changes(problem)]
        if "alternatives" in self.parts and plan.batch_time is not None:
            asked["alternatives"] = [partial(unrefuted, plan, each) for each in questions(plan, problem, self._base)]
        if "flips" in self.parts:
            asked["flips"] = [partial(breakpoint_of, best, problem, each) for each in sweeps(best, problem, known)]
        return asked | self._of_a_report()

    def _of_a_report(self) -> dict[str, list[Any]]:
        """Questions of a plan's page only."""
        from nest.public.changes import parameters, problem_of
        from nest.public.planning import build_cluster
        from nest_whatif.alternatives import recipe
        from nest_whatif.pareto_front import device_counts, front_points
        from nest_whatif.sensitivity import responses_to

        asked: dict[str, list[Any]] = {"recipe": [], "frontier": [], "sensitivity": []}
        if not {*self.parts} & {*asked}:
            return asked
        plan, solver = self.plan, self._base
        problem = problem_of(plan, solver)
        if "recipe" in self.parts and RECIPE in solver.plugins.planners():
            asked["recipe"] = [partial(recipe, plan, problem, RECIPE)]
        if "frontier" in self.parts:
            counts = device_counts(build_cluster(problem.cluster, solver.plugins)[0])
            asked["frontier"] = [partial(front_points, problem, count) for count in counts]
        if "sensitivity" in self.parts and plan.batch_time:
            every = parameters(problem, solver.plugins)
            asked["sensitivity"] = [partial(responses_to, plan, problem, each) for each in every]
        return asked


def answers(asked: Questions, engine: Engine | None) -> Iterator[Answered]:
    """Answers of all questions as they come, in order while one process answers them.

    Other processes start with the last ones, which take longest, so that the first answers come first.

    Args:
        engine: answers what is left after `ALONE` seconds; if it cannot, this process continues. None: this one alone.

    Raises:
        InputError: from a question.
    """
    started, left = monotonic(), dict.fromkeys(asked.every)
    while left and (engine is None or monotonic() - started < ALONE):
        question = next(iter(left))
        del left[question]
        yield asked(question)
    if engine is not None and len(left) > 1:
        try:
            for answered in _answered(asked, tuple(left), engine):
                del left[answered[0]]
                yield answered
        except (InputError, InternalError):
            pass  # Asked here, the question says itself what is wrong.
    for question in left:
        yield asked(question)


def _answered(asked: Questions, left: tuple[Question, ...], engine: Engine) -> Iterator[Answered]:
    """Answers of an engine, and of this process if the engine leaves it a part."""
    beside = getattr(engine, "beside", None)
    return iter(engine.submit(asked, left) if beside is None else beside(asked, left, asked.silent))
