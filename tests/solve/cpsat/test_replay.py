"""Plans priced by their replay: CP-SAT against every plan there is, priced one by one."""

from collections.abc import Iterator

import numpy
import pytest
from attrs import evolve

from nest.hooks.registry import registry
from nest.instance import Instance, Solution
from nest.plan.evaluate import evaluate, makespan
from nest.solve.cpsat import Price, verify
from nest.spec.constraints import parse
from tests.seeds import seeds
from tests.solve.cpsat.test_chunks import CLOSE, draw, every_plan

PLAIN = ("1f1b", "gpipe", "zero-bubble", "zero-bubble-h2", "dualpipe")
CHUNKED = ("interleaved", "interleaved-zero-bubble", "zb-v", "dualpipe-v")


def replayed(seed: int, name: str | None = None) -> Instance:
    """A small problem with a real schedule, its plans priced by their replay."""
    random = numpy.random.default_rng([57, seed])
    name = name or str(random.choice(PLAIN + CHUNKED))
    chunks = 1 if name in PLAIN else 2
    problem = draw(seed, chunks)
    schedule = registry().schedules()[name]
    (used,) = problem.candidates
    backward = used.forward * numpy.exp(random.uniform(-2.0, 2.0, len(used.forward)))
    found = None if used.weight_gradients is None else backward * random.uniform(0.1, 0.5)
    used = evolve(used, backward=backward, weight_gradients=found)
    space = evolve(problem.space, schedules=(schedule,), replayed=True, constraints=(parse("pp > 1"),))
    space = evolve(space, hidden_messages=(name,) if space.hidden_messages else ())
    return evolve(problem, candidates=(used,), space=space, makespan=makespan)


def plans(problem: Instance) -> Iterator[Solution]:
    """Every plan of two stages or more whose chunks differ by one block; those at the ends may be smaller."""
    layers = len(problem.graph.layers)
    others = {0, layers - 1} if problem.space.blocks_and_ends else set()
    for plan in every_plan(problem):
        runs = sorted((chunk for stage in plan.stages for chunk in stage.chunks), key=min)
        sizes = [len(set(run) - others) for run in runs]
        if len(plan.stages) > 1 and (not sizes or max(sizes) - min(sizes[1:-1]) <= 1):
            yield plan


def examine(problem: Instance) -> None:
    """The best plan is proved, a worse one refuted."""

    def pricing(solution: Solution) -> Price:
        priced = evaluate(problem, solution)
        return Price(priced.batch_time, priced.overfull)

    every = [evaluate(problem, plan) for plan in plans(problem)]
    best = min((each.batch_time for each in every if each.fits), default=None)
    answer = verify(problem, best, pricing)
    assert answer.status == "proved", (best, answer)
    if best is not None:
        again = verify(problem, best * 1.5, pricing)
        assert again.status == "refuted"
        assert again.settled
        assert again.better_batch_time == pytest.approx(best, rel=CLOSE)


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_it_agrees_with_every_plan_priced(seed: int) -> None:
    examine(replayed(seed))
