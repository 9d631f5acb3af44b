"""Searches rely on little that schedules say: any weights from 0 on, any micro-batches in flight from 1 on."""

from random import Random

import pytest
from attrs import evolve, frozen

from nest.instance import Instance, Solution
from nest.plan.evaluate import evaluate
from nest.solve.dp import solve
from nest.tolerances import CONTENDING_MEMORY_SLACK
from nest_cpsat import Price, verify
from tests.seeds import seeds
from tests.small_instances import candidate, cluster, instance


@frozen
class Odd:
    """A schedule with one weight or none, whose stages hold more or less than those behind them."""

    slowest: float
    total: float
    flying: tuple[float, ...]

    name = "odd"

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        return self.slowest * (1 + stages % 3), self.total * (1 + stages * 7 % 4)

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> float:
        return min(self.flying[(stage * 5 + stages) % len(self.flying)], micro_batches)


def odd_instance(random: Random) -> Instance:
    """Few layers under an odd schedule, on devices that hold all or less than the best plan needs."""
    layers, seed = random.randint(2, 6), random.randrange(10**6)
    used = [candidate(layers, seed=seed)]
    if random.random() < 0.4:
        used.append(candidate(layers, seed=seed + 1, name="wide", width=2, scale=0.6))
    flying = tuple(random.choice([1, 1, 1.5, 2, 4, 8]) for _ in range(random.randint(1, 5)))
    odd = Odd(random.choice([0.0, 0.5, 3.0]), random.choice([0.0, 0.25, 1.0]), flying)
    found = instance(
        used,
        machines=cluster(random.choice([(2,), (3,), (2, 2), (4,)])),
        zero=random.choice([(0,), (0, 1, 3)]),
        global_batch=random.choice([4, 8]),
        mixed=len(used) > 1 and random.random() < 0.7,
        constraints=random.choice([(), ("pp >= 2",), ("pp == 3",)]),
    )
    found = evolve(found, space=evolve(found.space, schedules=(odd,)))
    best = solve(found, runner_up=False).solution
    if best is None:
        return found
    needed = max(stage.memory for stage in evaluate(found, best).stages) * random.choice([1.0, 0.9, 0.7, 0.5, 0.3])
    return evolve(found, cluster=evolve(found.cluster, memory=needed, device_memory=needed))


@pytest.mark.parametrize("seed", seeds(5, of=200, first=72))
def test_the_two_solvers_agree(seed: int) -> None:
    problem = odd_instance(Random(seed))

    def pricing(solution: Solution) -> Price:
        priced = evaluate(problem, solution)
        return Price(priced.batch_time, priced.exceeding(CONTENDING_MEMORY_SLACK))

    found = solve(problem, runner_up=False)
    assert verify(problem, found.batch_time, pricing).status == "proved"
    if found.solution is not None:
        assert found.batch_time == pytest.approx(evaluate(problem, found.solution).batch_time, rel=1e-9)
