"""Schedules that weigh parts apart, hold copies or let messages hide: the search against every plan there is."""

from random import Random

import numpy
import pytest
from attrs import evolve

from nest.instance import Candidate, Instance
from nest.plan.evaluate import evaluate
from nest.solve.dp import solve
from tests.seeds import seeds
from tests.small_instances import candidate, cluster, instance
from tests.solve.every_plan import Odd, fastest, fits


def weights(random: Random) -> tuple[float, ...]:
    """Weights that a schedule may have: those of forward passes and of gradients of inputs outweigh the third."""
    if random.random() < 0.2:
        return random.choice([0.0, 1.0, 4.0]), random.choice([0.0, 0.5, 1.0])
    forward, inputs = random.choice([0.0, 0.25, 1.0]), random.choice([0.25, 1.0, 2.0])
    return random.choice([0.5, 1.0, 4.0]), forward, inputs, random.uniform(-min(forward, inputs), 1.0)


def drawn(random: Random, layers: int) -> Candidate:
    """A candidate whose messages may be longer than its compute, perhaps with ports and weight gradients."""
    found = candidate(layers, seed=random.randrange(10**6), scale=random.choice([0.02, 0.3, 1.0]))
    numbers = numpy.random.default_rng(random.randrange(10**6))
    if random.random() < 0.6:
        found = evolve(found, weight_gradients=found.backward * numbers.uniform(0.1, 0.5, layers))
    if random.random() < 0.4:
        busy = numbers.uniform(0.0, 3.0, (2, layers)) * found.forward
        modes = [found.recompute[0], evolve(found.recompute[1], busy=busy / 3)]
        found = evolve(found, busy=busy, recompute=tuple(modes))
    return found


def tightened(problem: Instance, random: Random) -> Instance:
    """The same with devices that hold all, or less than the fastest plan needs."""
    best = solve(problem, runner_up=False).solution
    if best is None:
        return problem
    memory = max(stage.memory for stage in evaluate(problem, best).stages) * random.choice([1.0, 0.9, 0.7, 0.5])
    return evolve(problem, cluster=evolve(problem.cluster, memory=memory, device_memory=memory))


def odd_problem(random: Random) -> Instance:
    layers = random.randint(2, 4)
    flying = tuple(random.choice([1, 1.5, 2, 4]) for _ in range(random.randint(1, 4)))
    odd = Odd(weights(random), flying, copies=random.choice([1, 2]), even=random.random() < 0.2)
    found = instance(
        [drawn(random, layers)],
        machines=cluster(random.choice([(3, 1), (2, 2), (4, 1)])),
        zero=random.choice([(0,), (1, 3), (2, 3)]),
        rank_orders=("pp-inner",),
        global_batch=random.choice([4, 8]),
        exposed=random.choice([1.0, 0.3]),
        hiding=random.random() < 0.3,
        hidden_messages=random.choice([(), ("odd",)]),
    )
    return tightened(evolve(found, space=evolve(found.space, schedules=(odd,))), random)


@pytest.mark.parametrize("seed", seeds(3, of=200))
def test_no_plan_is_faster(seed: int) -> None:
    problem = odd_problem(Random(seed))
    found, (least, _) = solve(problem, runner_up=False), fastest(problem)
    assert (found.solution is None) == (least == float("inf"))
    if found.solution is not None:
        priced = evaluate(problem, found.solution)
        assert fits(priced)
        assert found.batch_time == pytest.approx(priced.batch_time, rel=1e-9)
        assert found.batch_time == pytest.approx(least, rel=1e-9)
