"""What more or less devices and memory are worth: the fastest plans within limits on both."""

from collections.abc import Iterator, Sequence

from attrs import evolve, frozen

from nest.formulate.cluster import build_cluster
from nest.instance import Cluster
from nest.report.plan_summary import needed_memory
from nest.spec import PlanDocument
from nest.whatif.outcome import plan_label
from nest.whatif.solver import Solver, devices_used, problem_of

MOST_COUNTS = 4
"""Numbers of devices that are asked about: all of them, and halves of that."""

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
    """

    devices: int
    memory: float
    label: str | None
    devices_used: int | None
    batch_time: float | None
    throughput: float | None
    efficient: bool
    proved: bool = True


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
    memory_limits = sorted({cluster.device_memory * each for each in memories}, reverse=True)
    points: list[FrontierPoint] = []
    for devices in sorted(set(counts or device_counts(cluster)), reverse=True):
        needed = float("inf")
        for memory in memory_limits:
            if memory >= needed or memory <= cluster.reserve:
                continue
            asking = f"at most {devices} devices of {memory / 2**30:.4g} GiB"
            best = solver.within(problem, devices, memory, cluster.size, asking)
            points.append(_point(devices, memory, best))
            if best is None or best.batch_time is None:
                break
            needed = needed_memory(best)
    points = [_not_beaten(point, points) for point in points]
    return tuple(evolve(point, efficient=_efficient(point, points)) for point in points)


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
        return FrontierPoint(devices, memory, None, None, None, None, efficient=False)
    return FrontierPoint(
        devices,
        needed_memory(best),
        plan_label(best),
        devices_used(best),
        best.batch_time,
        best.throughput,
        efficient=True,
        proved=best.status == "optimal",
    )


def _not_beaten(point: FrontierPoint, points: Sequence[FrontierPoint]) -> FrontierPoint:
    """The point with the fastest plan found within its limits: a search that was stopped early may have missed it."""
    within = [each for each in points if each.devices <= point.devices and each.memory <= point.memory]
    fastest = min((each for each in within if each.batch_time), key=lambda each: each.batch_time or 0, default=point)
    if point.proved or fastest.batch_time is None or fastest.batch_time >= (point.batch_time or 0):
        return point
    return evolve(fastest, devices=point.devices, proved=False)


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
