"""What more or less devices and memory are worth: the fastest plans within limits on both, a few of them or all.

*All*: for a number of devices, memory is lowered to just below what the best plan needs until no plan fits; then
devices are lowered to just below what the plans found use. Take any plan, and of the numbers of devices that were
asked about the least that is no less than it uses. All plans found with it use no more devices than the plan, as the
next number lies below. Of them, the one asked with the least memory that is no less than the plan needs is no slower,
and needs no more: had it needed more, it would have been asked with less. So it equals or beats the plan in time,
devices and memory, and in cost, which grows with time and devices.
"""

from collections.abc import Iterator, Sequence
from math import inf

from attrs import evolve, frozen

from nest.errors import InputError
from nest.formulate.cluster import build_cluster
from nest.instance import Cluster
from nest.report.plan_summary import SECONDS_AN_HOUR, needed_memory, training_steps
from nest.spec import PlanDocument, Problem
from nest.tolerances import MEMORY_SLACK, TIE
from nest.whatif.outcome import plan_label
from nest.whatif.solver import Solver, devices_used, problem_of

MOST_COUNTS = 4
"""Numbers of devices that are asked about: all of them, and halves of that."""

NOT_TOLD_APART = 4 * MEMORY_SLACK
"""Share by which memory is lowered below what a plan needs, so that it does not fit: far more than a search allows."""

MEMORIES = (2.0, 1.5, 1.0, 0.75, 0.5)
"""Memory of a device that is asked about, in that of the problem's; descending."""


@frozen
class FrontierPoint:
    """The fastest plan within limits.

    With less than `memory` the plan does not fit; it is the best up to the memory that was asked about.

    Attributes:
        devices: at most so many are used.
        memory: bytes each, the reserve and the margin included: what the plan needs, or where none fits what was asked
            about.
        label: what the plan decides in a few words; None: no plan fits.
        devices_used: devices the plan uses; None: no plan fits.
        batch_time: seconds; None: no plan fits.
        throughput: samples per second; None: no plan fits.
        efficient: no point with no more devices and no more memory is as fast.
        proved: whether no faster plan is within the limits, or none was found in the time there was.
        asked: bytes each that were asked about: up to so many, no plan is faster.
        cost: of the whole training, in the complete front; None: no plan fits, or the problem has no price or tokens.
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
    plan: PlanDocument,
    solver: Solver,
    *,
    counts: Sequence[int] | None = None,
    memories: Sequence[float] = MEMORIES,
) -> tuple[FrontierPoint, ...]:
    """The fastest plans of a plan's problem within limits on devices and on their memory.

    For each number of devices memory is lowered from the largest asked about to the smallest. Between what the best
    plan needs and what it was asked with, no other is faster, so memories in between are not asked about; once no plan
    fits, none fits with less. More devices or more memory are never slower: every plan within narrower limits is one
    within wider ones.

    Args:
        plan: its numbers hold (`nest.api.check`).
        solver: solves, unless what it knows implies the answer (`Solver.within`).
        counts: numbers of devices; None: all, and halves of that in whole groups of the innermost level while there
            are such, `MOST_COUNTS` at most.
        memories: in the memory of the problem's devices, above 0.

    Returns:
        By falling number of devices, then by falling memory.

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
    """The points of `pareto_front` with at most so many devices, by falling memory; none is told to be efficient.

    Raises:
        InputError: the problem cannot be used.
    """
    cluster, _ = build_cluster(problem.cluster, solver.plugins)
    points, needed = list[FrontierPoint](), inf
    for memory in sorted({cluster.device_memory * each for each in memories}, reverse=True):
        if memory >= needed or memory <= cluster.reserve:
            continue
        asking = f"at most {devices} devices of {memory / 2**30:.4g} GiB"
        best = solver.within(problem, devices, memory, cluster.size, asking, diagnosed=False)
        points.append(_point(devices, memory, best))
        if best is None or best.batch_time is None:
            break
        needed = needed_memory(best)
    return tuple(points)


def front_of(points: Sequence[FrontierPoint]) -> tuple[FrontierPoint, ...]:
    """Points of all numbers of devices, with those told that are `efficient`."""
    points = [_not_beaten(point, points) for point in points]
    return tuple(evolve(point, efficient=_efficient(point, points)) for point in points)


def complete_front(plan: PlanDocument, solver: Solver, *, memory_step: float = 0.0) -> tuple[FrontierPoint, ...]:
    """All steps of the fastest plans of a plan's problem within limits on devices and memory: all Pareto-optimal plans.

    Those that are `efficient` are the front in step time, devices, memory of a device and cost. The steps are the proof
    that there is no other: each says within which limits no plan is faster, and together they leave no limits out.

    Args:
        plan: its numbers hold (`nest.api.check`).
        solver: solves, unless what it knows implies the answer (`Solver.within`).
        memory_step: share of memory by which it is lowered at least; 0: only what no computation tells apart is
            skipped. Above 0, every plan has one on the front that is no slower, uses no more devices, and needs at most
            so large a share of its own memory more.

    Returns:
        By falling number of devices, then by falling memory.

    Raises:
        InputError: the problem cannot be used, or that is no share.
    """
    if not 0 <= memory_step < 1:
        raise InputError("the step of memory must be a share from 0 to below 1.")
    problem = problem_of(plan, solver)
    cluster, _ = build_cluster(problem.cluster, solver.plugins)
    points: list[FrontierPoint] = []
    devices, below = cluster.size, 1 - max(memory_step, NOT_TOLD_APART)
    while devices > 0:
        memory, used = cluster.device_memory, 0
        while memory > cluster.reserve:
            asking = f"at most {devices} devices of {memory / 2**30:.4g} GiB"
            best = solver.within(problem, devices, memory, cluster.size, asking, diagnosed=False)
            points.append(_point(devices, memory, best))
            if best is None or best.batch_time is None:
                break
            used = max(used, devices_used(best))
            memory = min(needed_memory(best), memory) * below
        devices = used - 1
    rate = _cost_of_a_second(problem)
    points = [_not_beaten(point, points) for point in points]
    return _with_front([evolve(point, cost=_cost(point, rate)) for point in points])


def _cost_of_a_second(problem: Problem) -> float | None:
    """What the whole training costs for each second of a step and device; None: the problem does not say."""
    steps, price = training_steps(problem.training), problem.cluster.price
    return None if steps is None or price is None else steps * price / SECONDS_AN_HOUR


def _cost(point: FrontierPoint, rate: float | None) -> float | None:
    if rate is None or point.batch_time is None or point.devices_used is None:
        return None
    return point.batch_time * point.devices_used * rate


def _with_front(points: Sequence[FrontierPoint]) -> tuple[FrontierPoint, ...]:
    """The points; `efficient` are those that no other equals or beats in time, devices and memory; of equals one."""
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
    """Whether a point with a plan equals or beats another one; what is no further apart than rounding is equal."""
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


def _point(devices: int, memory: float, best: PlanDocument | None) -> FrontierPoint:
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
    """The point with the fastest plan found within its limits: a search that was stopped early may have missed it."""
    within = [each for each in points if each.devices <= point.devices and each.memory <= point.memory]
    fastest = min((each for each in within if each.batch_time), key=lambda each: each.batch_time or 0, default=point)
    if point.proved or fastest.batch_time is None or fastest.batch_time >= (point.batch_time or 0):
        return point
    return evolve(fastest, devices=point.devices, asked=point.asked, proved=False)


def _efficient(point: FrontierPoint, points: Sequence[FrontierPoint]) -> bool:
    """Whether a point is as fast as none that asks for no more."""
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
