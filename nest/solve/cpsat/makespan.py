"""The least makespan of tasks on engines that each run one task at a time, with a proof.

Job-shop scheduling with general precedence (Pinedo, Scheduling, 5th edition, section 7.1; NP-hard with two engines).
Bounds and list schedules come first, because they meet on most layers; CP-SAT is asked where they do not.
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
"""All tasks together are this many ticks, so that a rounded task is wrong by less than 1e-6 of them. With 2**24, CP-SAT
9.15 creeps through the horizon tick by tick on some layers, for minutes its own count of work does not see; above 2**31
it can be wrong (see `scaling.LARGEST_COEFFICIENT`)."""

EFFORT = 4.0
"""CP-SAT's deterministic seconds for a layer; a limit by the clock would make plans depend on the machine."""

MOST_TASKS = 1_000
"""Tasks up to which CP-SAT is asked; the sums above stay within `SUM_ERROR`, and a model within a few megabytes."""

SEED = 0


@frozen
class Makespan:
    """What was found.

    Attributes:
        seconds: from the first start to the last end, of a schedule that is known.
        bound: seconds no schedule is below.
        proved: whether no schedule is better by more than rounding: a share of `tasks / 2**20` of the sum of all
            durations, plus 1e-12. Otherwise the work limit was hit, and `seconds` is that
            of the best schedule found: never below the least makespan.
    """

    seconds: float
    bound: float
    proved: bool


def makespan(
    durations: Sequence[float], engines: Sequence[str], precedence: Sequence[tuple[int, int]], effort: float = EFFORT
) -> Makespan:
    """The least makespan of tasks that are not interrupted once they have begun.

    Args:
        durations: seconds of each task, finite, none negative. Shape `(tasks,)`. A task of no duration occupies no
            engine.
        engines: the engine of each task. Shape `(tasks,)`.
        precedence: `(before, after)`, indices of two tasks, the second of which starts when the first has ended or
            later; without cycles.
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
    """Tasks that take time, in an order in which precedence runs forward.

    Attributes:
        durations: seconds.
        engines: by number.
        before: for each task, the tasks that must have ended.
        after: for each task, the tasks that wait for it.
        heads: seconds before which each task cannot start, by precedence alone.
        tails: seconds from each task's end to the last end, at least, by precedence alone.
    """

    durations: tuple[float, ...]
    engines: tuple[str, ...]
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    heads: tuple[float, ...]
    tails: tuple[float, ...]

    @property
    def total(self) -> float:
        """Seconds of all tasks one after the other."""
        return fsum(self.durations)

    def ends(self, starts: Sequence[float]) -> float:
        """When the last task ends."""
        return max(start + duration for start, duration in zip(starts, self.durations, strict=True))

    def bound(self) -> float:
        """The critical path; or an engine's load, with what must come before its first and after its last task."""
        tasks = range(len(self.durations))
        longest = max(self.heads[task] + self.durations[task] + self.tails[task] for task in tasks)
        for engine in sorted(set(self.engines)):
            own = [task for task in tasks if self.engines[task] == engine]
            load = fsum(self.durations[task] for task in own)
            longest = max(longest, min(self.heads[task] for task in own) + load + min(self.tails[task] for task in own))
        return min(longest, self.total)

    def in_series(self) -> list[_Problem]:
        """Runs of tasks that take turns: every task of one run waits for all of the run before."""
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
        """The tasks from `first` up to `last`, alone."""
        before = [tuple(other - first for other in others if other >= first) for others in self.before[first:last]]
        return _ordered(self.durations[first:last], self.engines[first:last], before)

    def reversed(self) -> _Problem:
        """The same run backwards, with the order of tasks turned round; its least makespan is the same."""
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
    """The problem of tasks in topological order."""
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
    """For each task, in topological order, what takes time and must have ended, also by way of what takes none."""
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
    """Starts: of the tasks that all others they wait for have started, the one of least `rank` is always next.

    `rank` is given a task and when it could start. Precedence holds whatever the ranks, which rounding may turn round.
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
    """Starts: always the task next that can start first, and of several the one with the longest path behind it."""
    return _scheduled(problem, lambda task, start: (start, -problem.tails[task] - problem.durations[task], task))


def _reversed_list_schedule(problem: _Problem) -> list[float]:
    """Starts: as a list schedule of the problem run backwards orders tasks, from the first start on."""
    backward = problem.reversed()
    starts = _list_schedule(backward)
    ends = [start + duration for start, duration in zip(starts, backward.durations, strict=True)]
    last = max(ends)
    return _packed(problem, [last - end for end in reversed(ends)])


def _packed(problem: _Problem, rough: Sequence[float]) -> list[float]:
    """Starts as early as the order of `rough` starts on each engine allows, in exact durations."""
    return _scheduled(problem, lambda task, _: (rough[task], task))


def _query(problem: _Problem, known: Sequence[float], bound: float, effort: float) -> tuple[list[float], float, bool]:
    """CP-SAT's schedule, the seconds no schedule is below, and whether both are as near as rounding lets them be.

    Durations are rounded up to ticks. So an order's makespan in ticks is none too short, and too long by a tick for
    each task at most.
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
    """The starts, with what must hold between them."""
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
    """Tell CP-SAT of a schedule."""
    rounded = evolve(problem, durations=tuple(float(length) for length in ticks))
    for start, value in zip(starts, _packed(rounded, known), strict=True):
        model.add_hint(start, int(value))
