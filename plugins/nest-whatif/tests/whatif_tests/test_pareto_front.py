"""The frontier: its points are the best within their limits, by who looks at every plan."""

from itertools import product
from typing import Any

import pytest

from nest.errors import InputError
from nest.formulate.cluster import build_cluster
from nest.instance import Cluster, Level
from nest.whatif.parameters import with_memory
from nest.whatif.solver import at_most
from nest_whatif.pareto_front import MEMORIES, MOST_COUNTS, complete_front, device_counts, pareto_front
from tests.oracle.brute_force import solve
from tests.oracle.check import same
from tests.oracle.enumerate_plans import every_plan
from tests.oracle.price import candidates_of, price
from tests.whatif.small import MOST_PLANS, solved


@pytest.mark.longer
def test_between_points_the_plan_of_the_lower_one_is_the_best_up_to_what_was_asked() -> None:
    for plan, problem, solver in solved(range(4)):
        cluster, _ = build_cluster(problem.cluster, solver.plugins)
        found = pareto_front(plan, solver, counts=[cluster.size])
        for point in found:
            asked = min(
                each * cluster.device_memory for each in MEMORIES if each * cluster.device_memory >= point.memory
            )
            best = solve(with_memory(problem, asked).to_dict())
            assert same(best.batch_time, point.batch_time)


@pytest.mark.longer
def test_more_is_never_slower() -> None:
    for plan, _, solver in solved(range(5)):
        points = pareto_front(plan, solver)
        for one, other in product(points, points):
            if one.devices <= other.devices and one.memory <= other.memory and one.batch_time is not None:
                assert other.batch_time is not None
                assert other.batch_time <= one.batch_time * (1 + 1e-12)


@pytest.mark.longer
def test_efficient_points_are_those_that_no_other_is_as_good_as() -> None:
    beaten = 0
    for plan, _, solver in solved(range(5)):
        points = pareto_front(plan, solver)
        for point in points:
            as_good = [
                other
                for other in points
                if other is not point
                and other.batch_time is not None
                and point.batch_time is not None
                and (other.devices, other.memory, other.batch_time) <= (point.devices, point.memory, point.batch_time)
                and other.memory <= point.memory
                and other.batch_time <= point.batch_time
            ]
            assert point.efficient == (point.batch_time is not None and not as_good)
            beaten += bool(as_good)
    assert beaten


@pytest.mark.longer
def test_a_point_at_the_limits_of_the_problem_is_the_plan_itself() -> None:
    for plan, _, solver in solved(range(6)):
        (point,) = pareto_front(plan, solver, counts=[10**6], memories=[1.0])
        assert point.batch_time == plan.batch_time
        assert solver.solves == 0


def test_devices_are_halved_in_whole_groups() -> None:
    def counts(*fanouts: int) -> tuple[int, ...]:
        return device_counts(Cluster(tuple(Level("", fanout, 1.0, 0.0) for fanout in fanouts), memory=1.0))

    assert counts(8, 128) == (1024, 512, 256, 128, 64)[:MOST_COUNTS]
    assert counts(72, 8) == (576, 288, 144, 72, 36)[:MOST_COUNTS]
    assert counts(8, 3) == (24, 8, 4, 2, 1)[:MOST_COUNTS]
    assert counts(3) == (3, 1)


def every_figure(written: dict[str, Any]) -> list[tuple[float, int, float]] | None:
    """Step time, devices and memory of every plan that fits; None: there are too many to look at."""
    found = []
    for plan in every_plan(written, limit=MOST_PLANS):
        if plan is None:
            return None
        priced = price(written, plan)
        if priced["fits"]:
            widths = [candidate["width"] for candidate in candidates_of(written, plan)]
            memory = max(stage["memory"] for stage in priced["stages"])
            found.append((priced["batch_time"], plan["replicas"] * sum(widths), memory))
    return found


def equals_or_beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """In all figures; a share of 1e-11 is rounding."""
    return all(a <= b * (1 + 1e-11) for a, b in zip(one, other, strict=True))


def undominated(figures: list[tuple[float, int, float]]) -> list[tuple[float, int, float]]:
    """Those that no other equals or beats, of equals the first."""
    front: list[tuple[float, int, float]] = []
    for own in sorted(figures):
        if not any(equals_or_beats(each, own) for each in front):
            front.append(own)
    return front


FRONTS, PARTS = 201, 67
"""Problems whose front is held against all of their plans, and parts of them, of which the default run takes one."""


@pytest.mark.longer
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_the_complete_front_equals_brute_force(part: int) -> None:
    """Of a part of so many problems: the same plans, and no other one."""
    compared, steps = 0, 0
    seeds = range(part, 10**6, PARTS)
    for plan, problem, solver in solved(seeds):
        figures = every_figure(problem.to_dict())
        if figures is None:
            continue
        points = complete_front(plan, solver)
        front = [
            (point.batch_time or 0.0, point.devices_used or 0, point.memory) for point in points if point.efficient
        ]
        expected = undominated(figures)
        assert all(point.proved for point in points)
        assert len(front) == len(expected), plan.problem
        for one, other in ((front, expected), (expected, front)):
            assert all(any(equals_or_beats(each, own) for each in other) for own in one)
        compared, steps = compared + 1, steps + len(front)
        if compared == FRONTS // PARTS:
            break
    assert compared == FRONTS // PARTS
    assert part or steps > 2 * compared  # The default run's fronts are no single plans.


def test_steps_leave_no_limits_out() -> None:
    """What was asked about covers all devices and all memory up to the problem's: that is the proof."""
    for plan, problem, solver in solved(range(3, 6)):
        cluster, _ = build_cluster(problem.cluster, solver.plugins)
        points = complete_front(plan, solver)
        for devices, share in product(range(1, cluster.size + 1), (0.05, 0.3, 0.6, 0.9, 1.0)):
            limit = share * cluster.device_memory
            within = [each for each in points if each.devices >= devices and (each.asked or 0.0) >= limit]
            # Of what was asked with no less, the tightest says what is best here: its plan fits, or nothing does.
            tight = min(within, key=lambda each: (each.devices, each.asked))
            fits = tight.batch_time is not None and (tight.devices_used or 0) <= devices and tight.memory <= limit
            best = solve(with_memory(at_most(problem, devices), limit).to_dict()).batch_time
            assert same(best, tight.batch_time if fits else None)


@pytest.mark.longer
def test_a_step_of_memory_leaves_out_what_is_hardly_less() -> None:
    for plan, _, solver in solved(range(4)):
        every = [point for point in complete_front(plan, solver) if point.efficient]
        few = [point for point in complete_front(plan, solver, memory_step=0.2) if point.efficient]
        for point in every:
            assert any(
                equals_or_beats(
                    (each.batch_time or 0.0, each.devices_used or 0, each.memory * 0.8),
                    (point.batch_time or 0.0, point.devices_used or 0, point.memory),
                )
                for each in few
            )
    with pytest.raises(InputError, match="must be at least 0 and below 1"):
        complete_front(plan, solver, memory_step=1.0)
