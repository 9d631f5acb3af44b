"""Worth of devices and memory: the fastest plans within limits on both, a few of them or all.

*All*: for a number of devices, memory is lowered to just below the need of the best plan until no plan fits; then
devices are lowered to just below those used by the plans found. Take any plan, and of the numbers of devices searched
the least that is at least the plan's. All plans found with it use no more devices than the plan, as the next number is
below. Of them, the one searched with the least memory that is at least the plan's need is no slower, and needs no more:
otherwise it would have been searched with less. So it equals or beats the plan in time, devices and memory, and in
cost, which grows with time and devices.
"""

from collections.abc import Iterator, Sequence
from math import inf

from attrs import evolve, frozen

from nest.errors import InputError
from nest.instance import Cluster
from nest.public.changes import Solver, devices_used, needed_memory, problem_of
from nest.public.planning import build_cluster
from nest.public.text import SECONDS_AN_HOUR, training_steps
from nest.spec import PlanDocument, Problem
from nest.tolerances import MEMORY_SLACK, TIE
from nest_whatif.outcome import plan_label

MOST_COUNTS = 4  # Most numbers of devices searched: all of them, and halves of that.

NOT_TOLD_APART = 4 * MEMORY_SLACK
"""Share below a plan's need at which it does not fit: far more than the slack of a search."""

MEMORIES = (2.0, 1.5, 1.0, 0.75, 0.5)
"""Memory of a device searched, relative to the problem's; descending."""


@frozen
class FrontierPoint:
    """The fastest plan within limits.

    With less than `memory` the plan does not fit; it is the best up to the memory searched.

    Attributes:
        devices: most devices.
        memory: bytes each, with reserve and margin: the plan's need, or without a plan the memory searched.
        label: the plan's decisions in a few words; None: no plan fits.
        devices_used: None: no plan fits.
        batch_time: seconds; None: no plan fits.
        throughput: samples per second; None: no plan fits.
        efficient: no point with at most as many devices and as much memory is as fast.
        proved: no faster plan is within the limits, or none exists; else time ran out.
        asked: bytes each that were searched: up to this, no plan is faster.
        cost: of the whole training, in the complete front; None: no plan fits, or no price or tokens are given.
    """

    devices: int
    memory: float
    label: str | None
    devices_used: int | None
    batch_time: float | None
    throughput: float | None
    efficient: bool
    proved: bool = True
    asked: float | None = None
    cost: float | None = None


def pareto_front(
    plan: PlanDocument, solver: Solver, *, counts: Sequence[int] | None = None, memories: Sequence[float] = MEMORIES
) -> tuple[FrontierPoint, ...]:
    """Fastest plans of a plan's problem within limits on devices and memory, by falling devices, then memory.

    For each number of devices memory is lowered from the largest to the smallest. Between the best plan's need and the
    memory searched, no other is faster, so values in between are skipped; once no plan fits, none fits with less. More
    devices or memory are never slower: every plan within narrower limits is one within wider ones.

    Args:
        plan: its numbers hold (`nest.api.check`).
        solver: solves, unless known plans imply the answer (`Solver.within`).
        counts: numbers of devices; None: all, and halves of that in whole groups of the innermost level, at most
            `MOST_COUNTS`.
        memories: relative to the problem's, above 0.

    Raises:
        InputError: the problem cannot be used.
    """
    problem = problem_of(plan, solver)
    cluster, _ = build_cluster(problem.cluster, solver.plugins)
    every = sorted(set(counts or device_counts(cluster)), reverse=True)
    return front_of([point for count in every for point in front_points(problem, count, solver, memories)])


def front_points(
    problem: Problem, devices: int, solver: Solver, memories: Sequence[float] = MEMORIES
) -> tuple[FrontierPoint, ...]:
    """Points of `pareto_front` with at most so many devices, by falling memory; none is marked efficient.

    Raises:
        InputError: the problem cannot be used.
    """
    cluster, _ = build_cluster(problem.cluster, solver.plugins)
    points, needed = list[FrontierPoint](), inf
    for memory in sorted({cluster.device_memory * each for each in memories}, reverse=True):
        if memory >= needed or memory <= cluster.reserve:
            continue
        points.append(_point(problem, devices, memory, cluster.size, solver))
        if points[-1].devices_used is None:
            break
        needed = points[-1].memory
    return tuple(points)


def front_of(points: Sequence[FrontierPoint]) -> tuple[FrontierPoint, ...]:
    """Mark the `efficient` points of all numbers of devices."""
    points = [_not_beaten(point, points) for point in points]
    return tuple(evolve(point, efficient=_efficient(point, points)) for point in points)


def complete_front(plan: PlanDocument, solver: Solver, *, memory_step: float = 0.0) -> tuple[FrontierPoint, ...]:
    """Steps of the fastest plans within limits on devices and memory: all Pareto-optimal plans, by falling limits.

    The `efficient` ones are the front in step time, devices, memory of a device and cost. The steps are the proof that
    there is no other: each gives limits within which no plan is faster, and together they cover all limits.

    Args:
        plan: its numbers hold (`nest.api.check`).
        solver: solves, unless known plans imply the answer (`Solver.within`).
        memory_step: least share by which memory is lowered; 0: skip only differences below rounding. Above 0, for every
            plan the front has one that is no slower, uses no more devices, and needs at most this share more memory.

    Raises:
        InputError: the problem cannot be used, or that is no share.
    """
    if not 0 <= memory_step < 1:
        raise InputError("memory_step must be at least 0 and below 1.")
    problem = problem_of(plan, solver)
    cluster, _ = build_cluster(problem.cluster, solver.plugins)
    points: list[FrontierPoint] = []
    devices, below = cluster.size, 1 - max(memory_step, NOT_TOLD_APART)
    while devices > 0:
        memory, used = cluster.device_memory, 0
        while memory > cluster.reserve:
            points.append(_point(problem, devices, memory, cluster.size, solver))
            if points[-1].devices_used is None:
                break
            used = max(used, points[-1].devices_used)
            memory = min(points[-1].memory, memory) * below
        devices = used - 1
    rate = _cost_of_a_second(problem)
    points = [_not_beaten(point, points) for point in points]
    return _with_front([evolve(point, cost=_cost(point, rate)) for point in points])


def _cost_of_a_second(problem: Problem) -> float | None:
    """Cost of the whole training per second of a step and device; None: unknown."""
    steps, price = training_steps(problem.training), problem.cluster.price
    return None if steps is None or price is None else steps * price / SECONDS_AN_HOUR


def _cost(point: FrontierPoint, rate: float | None) -> float | None:
    if rate is None or point.batch_time is None or point.devices_used is None:
        return None
    return point.batch_time * point.devices_used * rate


def _with_front(points: Sequence[FrontierPoint]) -> tuple[FrontierPoint, ...]:
    """Mark as `efficient` the points that no other equals or beats in time, devices and memory; one of equal ones."""
    front: list[FrontierPoint] = []
    found = []
    for point in sorted(points, key=_by_figures):
        beaten = point.batch_time is None or any(_as_good(other, point) for other in front)
        if not beaten:
            front.append(point)
        found.append(evolve(point, efficient=not beaten))
    return tuple(sorted(found, key=lambda each: (-each.devices, -(each.asked or 0.0))))


def _by_figures(point: FrontierPoint) -> tuple[float, ...]:
    return (inf if point.batch_time is None else point.batch_time, point.devices_used or 0, point.memory)


def _as_good(one: FrontierPoint, other: FrontierPoint) -> bool:
    """True if a point with a plan equals or beats another, up to rounding."""
    return (
        (one.batch_time or 0.0) <= (other.batch_time or 0.0) * (1 + TIE)
        and (one.devices_used or 0) <= (other.devices_used or 0)
        and one.memory <= other.memory * (1 + NOT_TOLD_APART)
    )


def device_counts(cluster: Cluster) -> tuple[int, ...]:
    """All devices and halves of that: whole groups of the innermost level while there are several."""
    return tuple(_halves(cluster.size, cluster.levels[0].fanout))[:MOST_COUNTS]


def _halves(devices: int, group: int) -> Iterator[int]:
    while devices >= 1:
        yield devices
        devices //= 2
        if devices > group:
            devices -= devices % group


def _point(problem: Problem, devices: int, memory: float, size: int, solver: Solver) -> FrontierPoint:
    """Fastest plan within limits on a cluster of `size` devices."""
    asking = f"at most {devices} devices of {memory / 2**30:.4g} GiB"
    best = solver.within(problem, devices, memory, size, asking, diagnosed=False)
    if best is None or best.batch_time is None:
        return FrontierPoint(devices, memory, None, None, None, None, efficient=False, asked=memory)
    return FrontierPoint(
        devices,
        needed_memory(best),
        plan_label(best),
        devices_used(best),
        best.batch_time,
        best.throughput,
        efficient=True,
        proved=best.status == "optimal",
        asked=memory,
    )


def _not_beaten(point: FrontierPoint, points: Sequence[FrontierPoint]) -> FrontierPoint:
    """Point with the fastest plan found within its limits: a stopped search may have missed it."""
    within = [each for each in points if each.devices <= point.devices and each.memory <= point.memory]
    fastest = min((each for each in within if each.batch_time), key=lambda each: each.batch_time or 0, default=point)
    if point.proved or fastest.batch_time is None or fastest.batch_time >= (point.batch_time or 0):
        return point
    return evolve(fastest, devices=point.devices, asked=point.asked, proved=False)


def _efficient(point: FrontierPoint, points: Sequence[FrontierPoint]) -> bool:
    """True if no point with at most the same limits is as fast."""
    if point.batch_time is None:
        return False
    return not any(
        other.batch_time is not None
        and other.batch_time <= point.batch_time
        and other.devices <= point.devices
        and other.memory <= point.memory
        and (other.devices, other.memory) != (point.devices, point.memory)
        for other in points
    )
