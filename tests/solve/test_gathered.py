"""What ZeRO 3 holds whole counts for the stages that choose it, and for no other."""

from math import isclose
from random import Random

import pytest
from attrs import asdict, evolve

from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Instance, Solution
from nest.io import structure
from nest.plan.evaluate import evaluate
from nest.solve.dp import solve
from nest.spec import Problem
from nest_cpsat import Price, verify
from tests.agreement.problems import random_problem
from tests.seeds import seeds

KINDS = ("plain", "mixed", "chunked")


def random_instance(seed: int, kind: str) -> Instance:
    return build_instance(structure(random_problem(Random(seed), kind), Problem), registry())


def gathering(instance: Instance, share: float) -> Instance:
    """The instance in which ZeRO 3 needs this share of a device."""
    size = share * instance.cluster.memory
    return evolve(instance, candidates=tuple(evolve(each, gathered=size) for each in instance.candidates))


def with_zero(instance: Instance, *zero: int) -> Instance:
    return evolve(instance, space=evolve(instance.space, zero=zero))


def with_peaks(instance: Instance, share: float) -> Instance:
    """The instance in which every stage needs this share of a device more."""
    size = share * instance.cluster.memory
    candidates = (
        evolve(each, recompute=tuple(evolve(mode, peak=mode.peak + size) for mode in each.recompute))
        for each in instance.candidates
    )
    return evolve(instance, candidates=tuple(candidates))


def seconds(instance: Instance) -> float | None:
    """The least step time, which CP-SAT agrees with and the plan evaluates to."""

    def pricing(solution: Solution) -> Price:
        priced = evaluate(instance, solution)
        return Price(priced.batch_time, priced.overfull)

    result = solve(instance)
    assert verify(instance, result.batch_time, pricing).status == "proved"
    if result.solution is not None:
        priced = evaluate(instance, result.solution)
        assert priced.batch_time == pytest.approx(result.batch_time, rel=1e-9)
        assert priced.fits
        for stage in priced.stages:
            assert sum(asdict(stage.parts).values()) == pytest.approx(stage.memory)
    return result.batch_time


def same(one: float | None, other: float | None) -> bool:
    return one == other if one is None or other is None else isclose(one, other, rel_tol=1e-9)


@pytest.mark.longer
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds(3, 40))
def test_where_all_stages_gather_it_is_memory_of_every_stage(seed: int, kind: str) -> None:
    instance = with_zero(random_instance(seed, kind), 3)
    assert same(seconds(gathering(instance, 0.2)), seconds(with_peaks(instance, 0.2)))
