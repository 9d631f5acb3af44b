"""Of plans of equal step time the one that PROBLEM.md section 5 asks for: devices, stages, then bytes."""

from random import Random

import numpy
import pytest

from nest.instance import Candidate, Instance, ParameterGroup, RecomputeMode, Solution
from nest.plan.evaluate import evaluate
from nest.solve.dp import solve
from nest.tolerances import TIE
from tests.small_instances import cluster, instance
from tests.solve.every_plan import fits, plans

LONG = [range(start, start + 40) for start in range(8, 408, 40)]
"""Seeds that only `pytest -m slow` draws."""


def alike(draw: Random) -> Instance:
    """Layers of few kinds on one level: many plans take equally long, and need unequal memory."""
    kinds, count = draw.choice((1, 1, 2)), draw.randint(3, 4)
    of_layer = [draw.randrange(kinds) for _ in range(count)]
    figures = [[draw.randint(1, 3) for _ in range(6)] for _ in range(kinds)]
    forward, held, weights, gradients, optimizer, more = numpy.array([figures[kind] for kind in of_layer], float).T
    zeros = numpy.zeros(count)
    used = Candidate(
        name="c",
        degrees={},
        width=1,
        samples=1,
        forward=forward,
        backward=2 * forward,
        state=(ParameterGroup("dense", (0,), weights, gradients, optimizer, zeros),),
        recompute=(
            RecomputeMode("none", zeros, 3 * held, 3 * held, zeros),
            RecomputeMode("full", zeros if draw.random() < 0.5 else forward, held, more, 2 * held, stash_inputs=True),
        ),
        tensor_bytes=numpy.full(count - 1, float(draw.randint(0, 2))),
    )
    machines = cluster((draw.choice((2, 4)),), memory=float(draw.choice((60, 120, 1000))))
    space = {"global_batch": draw.choice((2, 4, 8)), "zero": (0, 1), "exposed": float(draw.choice((0, 1)))}
    return instance([used], machines=machines, schedules=draw.choice((("1f1b",), ("gpipe", "1f1b"))), **space)


def place(problem: Instance, plan: Solution) -> tuple[int, int, float]:
    """Devices, stages and bytes of the fullest stage."""
    return (
        plan.replicas * len(plan.stages),
        len(plan.stages),
        max(stage.memory for stage in evaluate(problem, plan).stages),
    )


@pytest.mark.longer
@pytest.mark.parametrize("seeds", [range(8), *(pytest.param(each, marks=pytest.mark.slow) for each in LONG)])
def test_ties_go_to_fewer_devices_stages_and_bytes(seeds: range) -> None:
    told_apart = 0
    for seed in seeds:
        problem = alike(Random(seed))
        priced = [(evaluate(problem, plan), plan) for plan in plans(problem)]
        fitting = [(each.batch_time, plan) for each, plan in priced if fits(each)]
        answer = solve(problem)
        assert (answer.solution is None) == (not fitting), seed
        if answer.solution is None:
            continue
        least = min(seconds for seconds, _ in fitting)
        equals = [place(problem, plan) for seconds, plan in fitting if seconds <= least * (1 + TIE)]
        assert place(problem, answer.solution) == pytest.approx(min(equals), rel=1e-9), seed
        told_apart += len({each[2] for each in equals if each[:2] == min(equals)[:2]}) > 1
    assert told_apart > 1
