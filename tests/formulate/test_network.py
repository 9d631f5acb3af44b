"""Networks that are no hierarchy: which are, what candidates cost there, and that the optimistic level bounds all."""

from random import Random
from typing import Any

import numpy
import pytest
from attrs import evolve

from nest.formulate.instance import formulate
from nest.hooks.registry import registry
from nest.instance import Instance, Solution
from nest.io import structure
from nest.plan.evaluate import evaluate
from nest.plan.on_network import block_levels
from nest.solve.dp import solve
from nest.spec import Problem
from tests.agreement.random_networks import random_network_problem
from tests.seeds import seeds


def instance_of(problem: dict[str, Any]) -> Instance:
    return formulate(structure(problem, Problem), registry())[0]


def shuffled(instance: Instance, solution: Solution, random: Random) -> Solution:
    """The plan with its blocks on devices drawn."""
    devices = list(range(instance.cluster.size))
    random.shuffle(devices)
    drawn = iter(devices)
    widths = [instance.candidates[stage.candidate].width for stage in solution.stages]
    placement = tuple(
        tuple(tuple(next(drawn) for _ in range(width)) for width in widths) for _ in range(solution.replicas)
    )
    return evolve(solution, placement=placement)


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(16, 60))
def test_no_placement_is_faster_than_the_optimistic_level(seed: int) -> None:
    random = Random(seed)
    instance = instance_of(random_network_problem(random))
    assert instance.network is not None
    solution = solve(instance).solution
    if solution is None:
        return
    least = evaluate(evolve(instance, network=None), solution)
    for _ in range(10):
        priced = evaluate(instance, shuffled(instance, solution, random))
        for bound, stage in zip(least.stages, priced.stages, strict=True):
            assert bound.time <= stage.time * (1 + 1e-12)
            assert bound.sync <= stage.sync * (1 + 1e-12)
            assert bound.memory == stage.memory


LLAMA = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 1024, "ffn": 2816, "heads": 16, "vocab": 32000}},
    "training": {"global_batch": 32, "sequence_length": 1024},
    "cluster": {
        "device": "h100-sxm",
        "topology": {"mesh": {"shape": [2, 4], "bandwidth": "50 GB/s", "latency": "2 us"}},
    },
    "search": {"target": "none"},
}


@pytest.mark.longer
def test_collectives_inside_blocks_cost_what_their_devices_do() -> None:
    instance = instance_of(LLAMA)
    network = instance.network
    assert network is not None
    wide = [index for index, each in enumerate(instance.candidates) if each.width == 4]
    assert wide
    for index in wide:
        factors = network.factors[index]
        assert numpy.prod(factors) == 4
        near = network.repriced(index, block_levels(network.model, factors, [(0, 1, 4, 5)]))
        far = network.repriced(index, block_levels(network.model, factors, [(0, 3, 4, 7)]))
        least = instance.candidates[index]
        for name in ("forward", "backward"):
            low, middle, high = (getattr(each, name) for each in (least, near, far))
            assert (low <= middle * (1 + 1e-12)).all()
            assert (middle <= high * (1 + 1e-12)).all()
        assert near.busy is not None
        assert least.busy is None


def test_the_slowest_replica_prices_the_block() -> None:
    network = instance_of(LLAMA).network
    assert network is not None
    near, far = ((0, 1),), ((0, 7),)
    both = block_levels(network.model, (2,), [*near, *far])
    assert both == block_levels(network.model, (2,), far)
    assert both != block_levels(network.model, (2,), near)


@pytest.mark.parametrize(
    "topology",
    [
        {"mesh": {"shape": [4], "bandwidth": "50 GB/s"}},
        {"torus": {"shape": [4, 4, 4], "bandwidth": "50 GB/s"}},
        {"matrix": {"bandwidth": [[0, 1e9, 1e9], [1e9, 0, 2e9], [1e9, 2e9, 0]], "latency": "1 us"}},
    ],
)
def test_what_is_no_hierarchy_has_a_network(topology: dict[str, Any]) -> None:
    cluster = {**LLAMA["cluster"], "topology": topology}  # type: ignore[dict-item]
    assert instance_of({**LLAMA, "cluster": cluster}).network is not None
