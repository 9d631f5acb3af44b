"""Where blocks lie on a network: the question as asked of CP-SAT, and what plans say of the answer."""

import json
from itertools import combinations, pairwise, permutations
from typing import Any

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import nest
from nest.formulate import embedding as module
from nest.formulate.embedding import embedding_problem, irregular, worst_levels
from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Cluster, Instance, Solution
from nest.instance.pairs import Pairs
from nest.io import structure
from nest.network import LinkGraph, pairs, reduce
from nest.plan.evaluate import evaluate
from nest.report.text.summary import summary
from nest.solve.dp import solve
from nest.solve.placement.problem import EmbeddingProblem, Placement
from nest.spec import PlanDocument, Problem
from tests.network.networks import random_graphs


def written(topology: Any, layers: int = 4, width: int = 1, memory: str = "4 GB", batch: int = 16) -> dict[str, Any]:
    """Equal layers in a chain, 20 MB between two, 400 MB of gradients each."""
    candidate = {
        "name": "only",
        "degrees": {"tp": width},
        "width": width,
        "samples": 1,
        "forward": ["4 ms"] * layers,
        "backward": ["8 ms"] * layers,
        "state": {
            "dense": {
                "ranks": [0],
                "weights": ["400 MB"] * layers,
                "gradients": ["400 MB"] * layers,
                "optimizer": ["1.2 GB"] * layers,
                "update": ["0.1 ms"] * layers,
            }
        },
        "recompute": {
            "none": {
                "extra": [0] * layers,
                "first": ["50 MB"] * layers,
                "more": ["50 MB"] * layers,
                "peak": [0] * layers,
            }
        },
        "edge_bytes": ["20 MB"] * (layers - 1),
    }
    return {
        "nest": 1,
        "training": {"global_batch": batch},
        "cluster": {"memory": memory, "topology": topology},
        "profile": {
            "layers": [f"layer.{index}" for index in range(layers)],
            "edges": [[index, index + 1] for index in range(layers - 1)],
            "candidates": [candidate],
        },
    }


def ring(devices: int, slow: int) -> dict[str, Any]:
    """A ring, of whose links one has a tenth of the bandwidth."""
    return {
        "nodes": [{"id": f"d{index}"} for index in range(devices)],
        "edges": [
            {
                "source": f"d{index}",
                "target": f"d{(index + 1) % devices}",
                "bandwidth": "1 GB/s" if index == slow else "10 GB/s",
                "latency": "1 us",
            }
            for index in range(devices)
        ],
    }


TORUS = {"torus": {"shape": [4, 4, 4], "bandwidth": "45 GB/s", "latency": "0.5 us"}}
MESH = {"mesh": {"shape": [8, 8], "bandwidth": "45 GB/s", "latency": "0.5 us"}}
DRAGONFLY = {"dragonfly": {"p": 2, "a": 4, "h": 2, "bandwidth": "25 GB/s", "latency": "1 us"}}


def formulated(problem: dict[str, Any]) -> tuple[Instance, Solution, Pairs]:
    read = structure(problem, Problem)
    instance = build_instance(read, registry())
    network = irregular(read.cluster, registry())
    solution = solve(instance).solution
    assert network is not None
    assert solution is not None
    return instance, solution, network


def by_pairs(instance: Instance, solution: Solution, network: Pairs, placement: Placement) -> float:
    """Step time of a plan of blocks of one device, each pair as the network has it, gradients in a flat ring."""
    stages, replicas = len(solution.stages), solution.replicas
    times, syncs = [], []
    micro_batches = 16 // replicas
    for index, stage in enumerate(solution.stages):
        layers = len(stage.layers)
        time = 12e-3 * layers
        for front in (index, index + 1):
            if 0 < front < stages:
                met = [(row[front - 1][0], row[front][0]) for row in placement]
                time += max(network.latency[pair] + 20e6 / network.bandwidth[pair] for pair in met)
        size = 400e6 * layers
        sync = 0.1e-3 * layers / (replicas if stage.zero else 1)
        peers = list(combinations([row[index][0] for row in placement], 2))
        if peers:
            each = max(
                (replicas - 1) * network.latency[pair] + (replicas - 1) / replicas * size / network.bandwidth[pair]
                for pair in peers
            )
            assert stage.zero in (0, 1)
            sync += 2 * each
        times.append(time)
        syncs.append(sync)
    return (micro_batches - 1) * max(times) + sum(times) + max(syncs)


@pytest.mark.parametrize(
    ("devices", "slow", "memory"), [(5, 0, "8 GB"), (5, 2, "8 GB"), (5, 1, "4 GB"), (6, 3, "8 GB")]
)
def test_rings_with_a_slow_link_equal_every_placement_tried(devices: int, slow: int, memory: str) -> None:
    problem = written(ring(devices, slow), memory=memory)
    instance, solution, network = formulated(problem)
    plan = nest.solve(problem)
    assert plan.placement is not None
    assert plan.placement.status == "optimal"
    place = {name: index for index, name in enumerate(network.names)}
    told: Placement = tuple(
        tuple(tuple(place[name] for name in block) for block in replica) for replica in plan.placement.replicas
    )
    asked = embedding_problem(instance, solution, network)
    stages, replicas = len(solution.stages), solution.replicas
    everywhere = [
        tuple(tuple((device,) for device in order[first : first + stages]) for first in range(0, len(order), stages))
        for order in permutations(range(devices), stages * replicas)
    ]
    for placement in everywhere[::7]:
        flat = by_pairs(instance, solution, network, placement)
        assert asked.price(placement) <= flat * (1 + 1e-12)
        if not any(link.aligned for link in asked.links):
            assert asked.price(placement) == pytest.approx(flat, rel=1e-12)
    least = min(asked.price(placement) for placement in everywhere)
    assert plan.placement.batch_time == pytest.approx(least, rel=1e-6)
    assert plan.placement.batch_time == pytest.approx(asked.price(told), rel=1e-12)


def test_a_slow_link_is_avoided_and_a_plan_says_so() -> None:
    plan = nest.solve(written(ring(6, 1), memory="8 GB", batch=32))
    assert plan.placement is not None
    assert len(plan.placement.replicas) == 2
    for replica in plan.placement.replicas:
        for (one,), (two,) in pairwise(replica):
            assert {one, two} != {"d1", "d2"}
    assert plan.batch_time is not None
    assert plan.placement.batch_time < plan.batch_time
    told = summary(plan)
    assert "On the network itself: " in told
    assert "proved optimal for this plan; levels said " in told
    assert nest.check(plan).ok


def test_ports_are_as_full_as_on_levels_wherever_blocks_lie() -> None:
    problem = written(ring(6, 1), memory="8 GB", batch=32)
    free = nest.solve(problem)
    (candidate,) = problem["profile"]["candidates"]
    levels = len(formulated(problem)[0].cluster.levels)
    for milliseconds, held in ((1, False), (40, True)):
        candidate["busy"] = [[f"{milliseconds} ms"] * 4] * levels
        plan = nest.solve(problem)
        assert nest.check(plan).ok
        assert plan.placement is not None
        assert free.placement is not None
        instance, solution, network = formulated(problem)
        asked = embedding_problem(instance, solution, network)
        assert asked.price(asked.start) <= evaluate(instance, solution).batch_time * (1 + 1e-12)
        assert (plan.placement.batch_time > free.placement.batch_time) == held
        if held:
            assert min(asked.least_times) >= 0.04


def test_the_same_plan_twice() -> None:
    problem = written(ring(6, 1), memory="8 GB", batch=32)
    one, two = (json.dumps(nest.solve(problem).to_dict()) for _ in range(2))
    assert one == two
    assert structure(json.loads(one), PlanDocument).placement is not None


def test_a_hierarchy_needs_no_placement() -> None:
    levels = [{"fanout": 4, "bandwidth": "10 GB/s", "latency": "1 us"}]
    problem = written({"matrix": {"bandwidth": [[None, 1e9], [1e9, None]], "latency": 0}}, memory="8 GB")
    assert nest.solve(problem).placement is None
    problem["cluster"] = {"memory": "8 GB", "levels": levels}
    assert nest.solve(problem).placement is None


def ordered(graph: LinkGraph) -> tuple[Pairs, Cluster, bool]:
    reduced = reduce(pairs(graph))
    best = reduced.best
    return reduced.pairs.reordered(best.order), Cluster(best.levels, 1.0), best.exact


@given(random_graphs(switches=True), st.sampled_from([1, 2, 16]))
def test_levels_of_the_matrix_lie_between_network_and_levels(graph: LinkGraph, most: int) -> None:
    network, cluster, _ = ordered(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_LEVELS", most)
        matrix = worst_levels(network, cluster)
    assert (matrix.level == matrix.level.T).all()
    distinct = set()
    for one, two in permutations(range(network.size), 2):
        level = matrix.level[one, two]
        said = cluster.levels[cluster.level(one, two)]
        assert said.bandwidth <= matrix.bandwidth[level] <= network.bandwidth[one, two]
        assert said.latency >= matrix.latency[level] >= network.latency[one, two]
        distinct.add((network.bandwidth[one, two], network.latency[one, two]))
        if len(distinct) <= most == 16:
            assert (matrix.bandwidth[level], matrix.latency[level]) == (
                network.bandwidth[one, two],
                network.latency[one, two],
            )
    assert (numpy.diag(matrix.level) == -1).all()


@settings(max_examples=40)
@given(random_graphs(switches=True), st.sampled_from([1, 2]), st.sampled_from(["4 GB", "8 GB", "40 GB"]))
def test_placements_are_never_worse_than_levels_said(graph: LinkGraph, width: int, memory: str) -> None:
    _, cluster, exact = ordered(graph)
    assume(not exact and cluster.admits(width))
    rows = zip(graph.ends.tolist(), graph.bandwidth.tolist(), graph.latency.tolist(), strict=True)
    topology = {
        "graph": {"shared": graph.shared},
        "nodes": [
            {"id": name, "kind": "device" if device else "switch"}
            for name, device in zip(graph.names, graph.is_device, strict=True)
        ],
        "edges": [
            {"source": graph.names[one], "target": graph.names[two], "bandwidth": bandwidth, "latency": latency}
            for (one, two), bandwidth, latency in rows
        ],
    }
    problem = written(topology, width=width, memory=memory)
    plan = nest.solve(problem)
    if plan.status == "infeasible":
        return
    assert plan.placement is not None
    asked = holds(problem, plan)
    assert plan.batch_time is not None
    increasing = all(
        inner.bandwidth >= outer.bandwidth and inner.latency <= outer.latency
        for inner, outer in combinations(cluster.levels, 2)
    )
    if increasing:
        assert asked.price(asked.start) <= plan.batch_time * (1 + 1e-12)


def holds(problem: dict[str, Any], plan: PlanDocument) -> EmbeddingProblem:
    """Check a plan's placement; the answer is what was asked."""
    instance, solution, network = formulated(problem)
    asked = embedding_problem(instance, solution, network)
    assert plan.placement is not None
    place = {name: index for index, name in enumerate(network.names)}
    told: Placement = tuple(
        tuple(tuple(place[name] for name in block) for block in replica) for replica in plan.placement.replicas
    )
    assert asked.allowed(told)
    assert asked.price(told) == pytest.approx(plan.placement.batch_time, rel=1e-12)
    assert plan.placement.lower_bound <= plan.placement.batch_time <= asked.price(asked.start)
    # No pair inside a block is slower than its collectives were priced with.
    for block in (block for replica in told for block in replica):
        for mine, other in permutations(range(len(block)), 2):
            level = instance.cluster.levels[instance.cluster.level(mine, other)]
            assert network.bandwidth[block[mine], block[other]] >= level.bandwidth
            assert network.latency[block[mine], block[other]] <= level.latency
    assert evaluate(instance, solution).batch_time == plan.batch_time
    return asked


@pytest.mark.slow
def test_a_pipeline_through_a_torus_has_a_bound() -> None:
    problem = written(TORUS, layers=16, width=4, memory="6 GB", batch=1)
    plan = nest.solve(problem)
    holds(problem, plan)
    assert plan.placement is not None
    assert plan.placement.batch_time < plan.placement.lower_bound * 1.001


@pytest.mark.slow
@pytest.mark.parametrize("topology", [TORUS, MESH, DRAGONFLY], ids=["torus", "mesh", "dragonfly"])
@pytest.mark.parametrize(("layers", "width", "memory"), [(64, 1, "4 GB"), (18, 1, "8 GB"), (18, 2, "8 GB")])
def test_large_networks_give_placements_with_bounds(topology: Any, layers: int, width: int, memory: str) -> None:
    problem = written(topology, layers=layers, width=width, memory=memory, batch=32)
    plan = nest.solve(problem)
    holds(problem, plan)
    assert plan.placement is not None
    assert plan.placement.batch_time / plan.placement.lower_bound < 1.05


def test_with_several_chunks_the_last_stage_is_a_neighbour_of_the_first() -> None:
    """On a network where all pairs are alike, levels and network say the same of any placement."""
    problem = written(None, layers=8, memory="40 GB", batch=4)
    level = {"fanout": 4, "bandwidth": "10 GB/s", "latency": "1 us"}
    problem["cluster"] = {"memory": "40 GB", "levels": [level]}
    problem["training"]["schedule"] = "interleaved"
    problem["constraints"] = ["pp == 4"]
    instance = build_instance(structure(problem, Problem), registry())
    solution = solve(instance).solution
    assert solution is not None
    assert solution.chunks == 2
    apart = ~numpy.eye(4, dtype=bool)
    network = Pairs(tuple("abcd"), numpy.where(apart, 10e9, numpy.inf), numpy.where(apart, 1e-6, 0.0))
    asked = embedding_problem(instance, solution, network)
    assert asked.price(asked.start) == pytest.approx(evaluate(instance, solution).batch_time)
