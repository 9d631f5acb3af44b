"""The conductor of the dynamic program: configurations in order of their best bound, each solved exactly if need be."""

import heapq
import time
from collections.abc import Callable
from typing import Any

import numpy
from attrs import define, field, frozen

from nest.instance import Instance, Result, Solution
from nest.solve.dp.configurations import Configuration, configurations
from nest.solve.dp.diagnose import diagnose
from nest.solve.dp.downsets import build
from nest.solve.dp.pareto import TOLERANCE, Floor
from nest.solve.dp.search import Found, Search

Progress = Callable[[float | None, float, float], None]
"""Called now and then with the best batch time so far, the lower bound, and the seconds spent."""


@frozen(order=False)
class Task:
    """A part of the search: a configuration with some of its stage counts.

    Attributes:
        configuration: what is decided.
        counts: numbers of stages still open.
        floor: bounds of the three terms when a single count is left; None while only compute bounds are known.
    """

    configuration: Configuration
    counts: tuple[int, ...]
    floor: Floor | None = None


def solve(instance: Instance, time_limit: float | None = None, progress: Progress | None = None) -> Result:
    """The plan of least batch time, proved optimal; or why there is none.

    Ties within 1e-12 go to fewer devices, then fewer stages, then the earlier configuration: candidates, schedules and
    rank orders as listed, fewer replicas, choices as listed.

    Args:
        instance: the problem.
        time_limit: seconds after which the best plan so far is returned with its proven bound. The first plan is
            always waited for.
        progress: called after each task.

    Raises:
        InputError: the layer graph has too many cuts, or a constraint cannot be computed.
    """
    started = time.monotonic()
    graph, space = instance.graph, instance.space
    together = [
        tuple(graph.layers.index(name) for name in constraint.same_stage)
        for constraint in space.constraints
        if constraint.same_stage
    ]
    downsets = build(graph, together, space.partition)
    found, exclusions = configurations(instance, len(graph.layers))
    search = Search(instance, downsets)
    queue: list[tuple[float, tuple[int, ...], int, Task]] = []
    ticket = 0
    for configuration in found:
        bounds = search.first_bounds(configuration)
        task = Task(configuration, configuration.stage_counts)
        heapq.heappush(queue, (float(bounds.min()), _rank(instance, task), ticket, task))
        ticket += 1
    run = _Run(instance, search, queue, ticket, progress, started)
    run.statistics.update(downsets=downsets.count, candidates=len(instance.candidates), configurations=len(found))
    bound = run.find_best(time_limit)
    if run.best is None:
        return Result("infeasible", diagnosis=diagnose(search, found, exclusions), statistics=run.statistics)
    stopped = bound < run.best.value * (1 - TOLERANCE)
    if not stopped:
        run.find_second()
    width = instance.candidates[run.best.configuration.candidate].width
    return Result(
        "feasible" if stopped else "optimal",
        run.best.solution(downsets, width),
        run.best.value,
        bound if stopped else run.best.value,
        run.runner_up(),
        statistics=run.statistics,
    )


RUNNER_UP_EFFORT = 256
"""Configurations bounded at most to find a runner-up once the optimum is proved."""


@define
class _Run:
    """One search under way: the queue by bound, the best plan so far, and the best of each other kind."""

    instance: Instance
    search: Search
    queue: list[tuple[float, tuple[int, ...], int, Task]]
    ticket: int
    progress: Progress | None
    started: float
    best: Found | None = None
    best_rank: tuple[int, ...] = ()
    others: dict[tuple[int, int, int], Found] = field(factory=dict)
    _least_tried: float = float("inf")
    statistics: dict[str, Any] = field(factory=lambda: {"bounded": 0, "solved": 0})

    @property
    def limit(self) -> float:
        """Batch time to beat, seconds."""
        return self.best.value if self.best is not None else float("inf")

    def find_best(self, time_limit: float | None) -> float:
        """Work the queue off until nothing in it can win; the lower bound reached, infinite when all is done."""
        while self.queue:
            bound, rank, _, task = self.queue[0]
            if bound > self.limit * (1 + TOLERANCE):
                break
            if bound >= self.limit * (1 - TOLERANCE) and rank > self.best_rank:
                heapq.heappop(self.queue)
                continue
            if time_limit is not None and self.best is not None and self._seconds() > time_limit:
                return bound
            heapq.heappop(self.queue)
            self._work(bound, rank, task, self.limit * (1 + TOLERANCE))
            if self.progress is not None:
                self.progress(self.best.value if self.best else None, bound, self._seconds())
        return float("inf")

    def find_second(self) -> None:
        """Go on a little for the best plan with other degrees."""
        assert self.best is not None
        own = _kind(self.best)
        effort = self.statistics["bounded"] + RUNNER_UP_EFFORT
        statistics = dict(self.statistics)
        while self.queue and self.statistics["bounded"] < effort:
            limit = min((plan.value for kind, plan in self.others.items() if kind != own), default=float("inf"))
            bound, rank, _, task = heapq.heappop(self.queue)
            if bound >= limit:
                break
            kinds = {(task.configuration.candidate, task.configuration.replicas, count) for count in task.counts}
            if kinds != {own}:
                self._work(bound, rank, task, limit)
        self.statistics = statistics

    def runner_up(self) -> tuple[Solution, float] | None:
        """The best plan met that differs from the best in candidate, replicas or number of stages."""
        assert self.best is not None
        others = [plan for kind, plan in self.others.items() if kind != _kind(self.best)]
        if not others:
            return None
        second = min(others, key=lambda plan: (plan.value, plan.configuration.order))
        width = self.instance.candidates[second.configuration.candidate].width
        return second.solution(self.search.downsets, width), second.value

    def _seconds(self) -> float:
        return time.monotonic() - self.started

    def _work(self, bound: float, rank: tuple[int, ...], task: Task, limit: float) -> None:
        """Split a configuration by stage count, or solve one stage count exactly."""
        if task.floor is None:
            self.statistics["bounded"] += 1
            for new_bound, refined in _refine(self.search, task, limit):
                self.ticket += 1
                entry = (max(bound, new_bound), _rank(self.instance, refined), self.ticket, refined)
                heapq.heappush(self.queue, entry)
                if new_bound < self._least_tried:
                    self._least_tried = new_bound
                    self._try_gapless(refined)
            return
        self.statistics["solved"] += 1
        plan = self.search.best(task.configuration, task.counts[0], task.floor, limit)
        if plan is not None:
            self._accept(plan, rank)

    def _try_gapless(self, task: Task) -> None:
        """Take a quick plan of a promising task, so that slow stages can be left out of tables early."""
        assert task.floor is not None
        plan = self.search.gapless(task.configuration, task.counts[0], task.floor)
        if plan is not None:
            self._accept(plan, _rank(self.instance, task))

    def _accept(self, plan: Found, rank: tuple[int, ...]) -> None:
        """Take `plan` if it is better, or as good and ahead in rank; remember the loser."""
        best = self.best
        better = best is None or plan.value < best.value * (1 - TOLERANCE)
        tie = best is not None and abs(plan.value - best.value) <= TOLERANCE * best.value
        loser: Found | None = plan
        if better or (tie and rank < self.best_rank):
            loser, self.best, self.best_rank = best, plan, rank
        if loser is not None:
            known = self.others.get(_kind(loser))
            if known is None or loser.value < known.value:
                self.others[_kind(loser)] = loser


def _kind(plan: Found) -> tuple[int, int, int]:
    """What tells plans apart for people: candidate, replicas, number of stages."""
    configuration = plan.configuration
    return configuration.candidate, configuration.replicas, len(plan.partition.stages)


def _rank(instance: Instance, task: Task) -> tuple[int, ...]:
    """Where a task stands among ties: devices, stages, then the configuration's order."""
    configuration = task.configuration
    width = instance.candidates[configuration.candidate].width
    stages = task.counts[0]
    return (configuration.replicas * width * stages, stages, configuration.order)


def _refine(search: Search, task: Task, limit: float) -> list[tuple[float, Task]]:
    """The task split by stage count, with bounds from partitions; counts that cannot win are dropped."""
    cheap = search.first_bounds(task.configuration)
    counts = tuple(
        count
        for count, bound in zip(task.counts, cheap, strict=True)
        if bound <= limit and count < search.downsets.count
    )
    if not counts:
        return []
    refined = []
    for count, floor in zip(counts, search.floors(task.configuration, counts, limit), strict=True):
        bound = search.objective(task.configuration, count).bound(floor)
        if numpy.isfinite(bound):
            refined.append((bound, Task(task.configuration, (count,), floor)))
    return refined
