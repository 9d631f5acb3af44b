"""Least makespan of tasks on engines that each run one task at a time, with a proof.

Job-shop scheduling with general precedence (Pinedo, Scheduling, 5th edition, section 7.1; NP-hard with two engines).
Bounds and list schedules meet on most layers; CP-SAT solves the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil, fsum, inf
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from nest.tolerances import SUM_ERROR

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar

TICKS = 2**20
"""Ticks of all tasks together, so that rounding errs by less than 1e-6 per task.

With 2**24, CP-SAT 9.15 steps through the horizon for minutes on some layers, uncounted by its deterministic time; above
2**31 it can be wrong (see `scaling.LARGEST_COEFFICIENT`)."""

EFFORT = 4.0  # CP-SAT's deterministic seconds per layer; a wall-clock limit would make plans depend on the machine.
MOST_TASKS = 1_000  # Most tasks for CP-SAT; sums stay within `SUM_ERROR`, and a model within a few megabytes.

SEED = 0


@frozen
class Makespan:
    """Makespan of the best schedule found."""

    seconds: float  # From the first start to the last end.
    bound: float  # Lower bound in seconds.
    # No schedule is better by more than rounding: `tasks / 2**20` of the sum of durations, plus 1e-12. Otherwise the
    # work limit was hit.
    proved: bool


def makespan(
    durations: Sequence[float], engines: Sequence[str], precedence: Sequence[tuple[int, int]], effort: float = EFFORT
) -> Makespan:
    """Least makespan of tasks without preemption.

    Args:
        durations: seconds, finite, not negative. Shape `(tasks,)`. A task of duration 0 occupies no engine.
        engines: engine of each task. Shape `(tasks,)`.
        precedence: `(before, after)`, indices of tasks; acyclic.
        effort: CP-SAT's deterministic seconds; 0: list schedules only.

    Raises:
        ValueError: a duration is negative or not finite, lengths differ, or precedence has a cycle.
    """
    problem = _problem(durations, engines, precedence)
    runs = [_least(run, effort) for run in problem.in_series()]
    seconds, bound = (fsum(values) for values in ([run.seconds for run in runs], [run.bound for run in runs]))
    return Makespan(seconds, bound, all(run.proved for run in runs))


def _least(problem: _Problem, effort: float) -> Makespan:
    bound = problem.bound()
    starts = min((_list_schedule(problem), _reversed_list_schedule(problem)), key=problem.ends)
    ends = problem.ends(starts)
    if ends <= bound * (1 + SUM_ERROR):
        return Makespan(bound, bound, True)
    proved = False
    if effort > 0 and len(problem.durations) <= MOST_TASKS:
        starts, proven, proved = _query(problem, starts, bound, effort)
        ends = min(ends, problem.ends(starts))
        bound = max(min(proven, ends), bound)
    return Makespan(min(max(ends, bound), problem.total), bound, proved)


@frozen
class _Problem:
    """Tasks that take time, in topological order."""

    durations: tuple[float, ...]  # Seconds.
    engines: tuple[str, ...]
    before: tuple[tuple[int, ...], ...]  # Predecessors of each task.
    after: tuple[tuple[int, ...], ...]  # Successors of each task.
    heads: tuple[float, ...]  # Earliest start of each task by precedence alone.
    tails: tuple[float, ...]  # Least seconds from each task's end to the last end, by precedence alone.

    @property
    def total(self) -> float:
        return fsum(self.durations)

    def ends(self, starts: Sequence[float]) -> float:
        return max(start + duration for start, duration in zip(starts, self.durations, strict=True))

    def bound(self) -> float:
        """Lower bound: the critical path, or an engine's load with the least head and tail of its tasks."""
        tasks = range(len(self.durations))
        longest = max(self.heads[task] + self.durations[task] + self.tails[task] for task in tasks)
        for engine in sorted(set(self.engines)):
            own = [task for task in tasks if self.engines[task] == engine]
            load = fsum(self.durations[task] for task in own)
            longest = max(longest, min(self.heads[task] for task in own) + load + min(self.tails[task] for task in own))
        return min(longest, self.total)

    def in_series(self) -> list[_Problem]:
        """Split into runs of tasks that each wait for all of the run before."""
        count = len(self.durations)
        # Sets of tasks as bits of a number; a task's number is its place in a topological order.
        ancestors = [0] * count
        for task, others in enumerate(self.before):
            for other in others:
                ancestors[task] |= ancestors[other] | 1 << other
        shared, cuts = -1, [count]
        for task in reversed(range(count)):
            shared &= ancestors[task]
            front = (1 << task) - 1
            if shared & front == front:
                cuts.append(task)
        return [self._between(first, last) for first, last in pairwise(reversed(cuts))]

    def _between(self, first: int, last: int) -> _Problem:
        before = [tuple(other - first for other in others if other >= first) for others in self.before[first:last]]
        return _ordered(self.durations[first:last], self.engines[first:last], before)

    def reversed(self) -> _Problem:
        """Reverse the problem, tasks included; its least makespan is the same."""
        last = len(self.durations) - 1

        def turned(rows: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
            return tuple(tuple(last - task for task in row) for row in rows[::-1])

        return _Problem(
            durations=self.durations[::-1],
            engines=self.engines[::-1],
            before=turned(self.after),
            after=turned(self.before),
            heads=self.tails[::-1],
            tails=self.heads[::-1],
        )


def _problem(durations: Sequence[float], engines: Sequence[str], precedence: Sequence[tuple[int, int]]) -> _Problem:
    if len(durations) != len(engines):
        raise ValueError(f"{len(durations)} durations, but {len(engines)} engines")
    if not all(0 <= duration < inf for duration in durations):
        raise ValueError("durations must be finite and not negative")
    waits = _through_instants(durations, precedence)
    order = [task for task in waits if durations[task] > 0]
    place = {task: index for index, task in enumerate(order)}
    before = [tuple(sorted(place[other] for other in waits[task])) for task in order]
    return _ordered([float(durations[task]) for task in order], [engines[task] for task in order], before)


def _ordered(durations: Sequence[float], engines: Sequence[str], before: Sequence[tuple[int, ...]]) -> _Problem:
    """Build the problem of tasks in topological order."""
    after: list[list[int]] = [[] for _ in durations]
    for task, others in enumerate(before):
        for other in others:
            after[other].append(task)
    heads, tails = [0.0] * len(durations), [0.0] * len(durations)
    for task in range(len(durations)):
        heads[task] = max((heads[other] + durations[other] for other in before[task]), default=0.0)
    for task in reversed(range(len(durations))):
        tails[task] = max((tails[other] + durations[other] for other in after[task]), default=0.0)
    return _Problem(
        durations=tuple(durations),
        engines=tuple(engines),
        before=tuple(before),
        after=tuple(tuple(others) for others in after),
        heads=tuple(heads),
        tails=tuple(tails),
    )


def _through_instants(durations: Sequence[float], precedence: Sequence[tuple[int, int]]) -> dict[int, set[int]]:
    """Predecessors that take time of each task, in topological order, also through tasks of duration 0."""
    waits: list[set[int]] = [set() for _ in durations]
    feeds: list[set[int]] = [set() for _ in durations]
    for first, second in precedence:
        waits[second].add(first)
        feeds[first].add(second)
    missing = [len(others) for others in waits]
    ready = [task for task, count in enumerate(missing) if not count]
    by_instant: dict[int, set[int]] = {}
    for task in ready:
        by_instant[task] = set().union(*({each} if durations[each] > 0 else by_instant[each] for each in waits[task]))
        for other in sorted(feeds[task]):
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
    if len(by_instant) < len(durations):
        raise ValueError("precedence has a cycle")
    return by_instant


def _scheduled(problem: _Problem, rank: Callable[[int, float], tuple[float, ...]]) -> list[float]:
    """Starts by list scheduling: of the ready tasks, the one with the least `rank` is next.

    `rank` takes a task and its earliest start. Precedence holds for any ranks, even if rounding reverses them.
    """
    free = dict.fromkeys(problem.engines, 0.0)
    starts = [0.0] * len(problem.durations)
    missing = [len(others) for others in problem.before]
    ready = {task: 0.0 for task, count in enumerate(missing) if not count}
    while ready:
        possible = {task: max(earliest, free[problem.engines[task]]) for task, earliest in ready.items()}
        task = min(possible, key=lambda each: rank(each, possible[each]))
        del ready[task]
        starts[task] = possible[task]
        free[problem.engines[task]] = starts[task] + problem.durations[task]
        for other in problem.after[task]:
            missing[other] -= 1
            if not missing[other]:
                ready[other] = max(starts[each] + problem.durations[each] for each in problem.before[other])
    return starts


def _list_schedule(problem: _Problem) -> list[float]:
    """Starts with the earliest-starting task next; ties go to the longest remaining path."""
    return _scheduled(problem, lambda task, start: (start, -problem.tails[task] - problem.durations[task], task))


def _reversed_list_schedule(problem: _Problem) -> list[float]:
    """Starts of a list schedule of the reversed problem, turned forward."""
    backward = problem.reversed()
    starts = _list_schedule(backward)
    ends = [start + duration for start, duration in zip(starts, backward.durations, strict=True)]
    last = max(ends)
    return _packed(problem, [last - end for end in reversed(ends)])


def _packed(problem: _Problem, rough: Sequence[float]) -> list[float]:
    """Starts as early as the order of `rough` on each engine allows, with exact durations."""
    return _scheduled(problem, lambda task, _: (rough[task], task))


def _query(problem: _Problem, known: Sequence[float], bound: float, effort: float) -> tuple[list[float], float, bool]:
    """CP-SAT's schedule, a lower bound (s), and whether they meet up to rounding.

    Durations are rounded up to ticks, so an order's makespan is never too short, and too long by at most a tick per
    task.
    """
    from ortools.sat.python import cp_model

    tick = problem.total / TICKS
    ticks = [max(ceil(duration / tick), 1) for duration in problem.durations]
    model = cp_model.CpModel()
    starts = _modelled(model, problem, ticks)
    _hint(model, problem, ticks, starts, known)
    last = model.new_int_var(0, sum(ticks), "")
    for start, length in zip(starts, ticks, strict=True):
        model.add(last >= start + length)
    model.add(last >= int(bound / tick * (1 - SUM_ERROR)))
    model.minimize(last)
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = SEED
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = effort
    status = solver.status_name(solver.solve(model))
    starts_chosen = [float(solver.value(start)) for start in starts] if status in ("OPTIMAL", "FEASIBLE") else None
    proven = (solver.best_objective_bound - len(ticks)) * tick * (1 - SUM_ERROR)
    return (
        _packed(problem, starts_chosen if starts_chosen is not None else known),
        max(proven, bound),
        status == "OPTIMAL",
    )


def _modelled(model: CpModel, problem: _Problem, ticks: Sequence[int]) -> list[IntVar]:
    horizon = sum(ticks)
    starts = [model.new_int_var(0, horizon - length, "") for length in ticks]
    for task, others in enumerate(problem.before):
        for other in others:
            model.add(starts[task] >= starts[other] + ticks[other])
    for engine in sorted(set(problem.engines)):
        own = [task for task, used in enumerate(problem.engines) if used == engine]
        model.add_no_overlap([model.new_fixed_size_interval_var(starts[task], ticks[task], "") for task in own])
    return starts


def _hint(
    model: CpModel, problem: _Problem, ticks: Sequence[int], starts: Sequence[IntVar], known: Sequence[float]
) -> None:
    rounded = evolve(problem, durations=tuple(float(length) for length in ticks))
    for start, value in zip(starts, _packed(rounded, known), strict=True):
        model.add_hint(start, int(value))
