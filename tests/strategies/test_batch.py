"""Batch parallelism: shares that add up, ranks that are replicas, and a search that leaves it alone unless asked."""

from collections.abc import Callable
from typing import Any

import pytest

import nest
from nest.errors import InputError
from nest.graph import OTHER_SAMPLES, Block, Collective, Operator, OperatorGraph, Tensor
from nest.hooks.protocols import Strategy, StrategyContext
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.spec import Training

Build = Callable[..., OperatorGraph]
Shard = Callable[..., Block]

WAYS = [{}, {"tp": 2}, {"tp": 4, "sp": 4}]


@pytest.fixture
def batch() -> Strategy:
    return registry().strategies()["batch"]


def on(*fanouts: int) -> StrategyContext:
    levels = tuple(Level(f"l{index}", fanout, 1e11, 1e-6) for index, fanout in enumerate(fanouts))
    return StrategyContext(Cluster(levels, memory=80e9), Training(global_batch=12))


def test_degrees_divide_the_samples_and_suit_the_cluster(build: Build, batch: Strategy) -> None:
    graph = build("gpt")
    assert list(batch.degrees(Block(graph.with_samples(12), 12), on(48))) == [1, 2, 3, 4, 6, 12]
    assert list(batch.degrees(Block(graph.with_samples(12), 12), on(8, 4))) == [1, 2, 4]
    assert list(batch.degrees(Block(graph.with_samples(12), 12).with_axis("tp", 4), on(4, 3))) == [1, 3]
    assert list(batch.degrees(Block(graph, 1), on(48))) == [1]


@pytest.mark.parametrize("degrees", WAYS, ids=str)
def test_the_shares_add_up(shape: str, degrees: dict[str, int], build: Build, shard: Shard) -> None:
    whole = shard(build(shape), samples=4, **degrees)
    share = shard(build(shape), samples=4, **degrees, batch=2)
    assert share.samples == whole.samples == 4
    for before, after in zip(whole.graph.operators, share.graph.operators, strict=True):
        assert after.name == before.name
        assert after.flops * 2 == before.flops
        assert after.parameters == before.parameters
        for a, b in zip((*before.inputs, *before.outputs), (*after.inputs, *after.outputs), strict=True):
            assert (b.name, b.bytes * 2) == (a.name, a.bytes)
        for direction in ("forward", "backward"):
            calls, shares = (getattr(o.collective or Collective(), direction) for o in (before, after))
            assert [(c.kind, c.axis, c.bytes) for c in calls] == [(c.kind, c.axis, c.bytes * 2) for c in shares]


def test_its_ranks_lie_outermost_and_hold_every_parameter(build: Build, shard: Shard) -> None:
    block = shard(build("experts"), samples=2, tp=4, sp=4, batch=2)
    assert block.width == 8
    assert block.degrees == (("tp", 4), ("sp", 4), ("batch", 2))
    assert block.ranks("tp") == (0, 1, 2, 3)
    assert block.replica_ranks("dense") == (0, 4)
    # Tensor parallelism leaves experts whole, and with sequence parallelism each of its ranks has other tokens.
    assert block.replica_ranks("expert") == tuple(range(8))


PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 512, "ffn": 2048, "heads": 8, "vocab": 1000}},
    "training": {"global_batch": 16, "sequence_length": 512, "micro_batch": [1, 2]},
    "cluster": {
        "device": "a100-sxm-80g",
        "levels": [{"fanout": 4, "link": "nvlink3"}, {"fanout": 4, "link": "infiniband-hdr"}],
    },
}


@pytest.mark.longer
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_ranks_of_a_block_cost_what_replicas_side_by_side_do(zero: int, recompute: str) -> None:
    decided = {"tp": 2, "pp": 2, "rank_order": "dp-inner", "zero": zero, "recompute": recompute}
    replicas = nest.evaluate({**PROBLEM, "fixed": {**decided, "dp": 4, "micro_batch": 1}})
    ranks = nest.evaluate({**PROBLEM, "fixed": {**decided, "dp": 2, "micro_batch": 2, "batch": 2}})
    assert (replicas.data_parallel, ranks.data_parallel) == (4, 2)
    assert replicas.micro_batches == ranks.micro_batches == 4
    assert ranks.batch_time == pytest.approx(replicas.batch_time, rel=1e-12)
    for one, other in zip(replicas.stages, ranks.stages, strict=True):
        assert other.memory == pytest.approx(one.memory, rel=1e-12)
        assert (other.devices[1], one.devices[1]) == (4, 2)
    assert nest.check(ranks).ok


def candidates(problem: dict[str, Any]) -> list[dict[str, int]]:
    from nest.formulate.instance import build_instance
    from nest.io import structure
    from nest.spec import Problem

    return [each.degrees for each in build_instance(structure(problem, Problem), registry()).candidates]


@pytest.mark.longer
def test_it_takes_part_only_where_asked_for() -> None:
    usual = candidates(PROBLEM)
    assert all("batch" not in degrees for degrees in usual)
    assert candidates({**PROBLEM, "constraints": ["batch <= 4"]}) == usual
    assert {d["batch"] for d in candidates({**PROBLEM, "strategies": {"batch": [1, 2]}})} == {1, 2}
    assert {d["batch"] for d in candidates({**PROBLEM, "fixed": {"batch": 2}})} == {2}
    mixed = candidates({**PROBLEM, "search": {"mixed": True}})
    assert {d["batch"] for d in mixed} == {1, 2}
    assert [d for d in mixed if d["batch"] == 1] == [{**degrees, "batch": 1} for degrees in usual]


def test_a_degree_no_micro_batch_allows_is_told() -> None:
    with pytest.raises(InputError, match=r"fixed.batch allows 3, .* micro-batches of 1 or 2 only allow batch 1, 2"):
        nest.solve({**PROBLEM, "fixed": {"batch": 3}})


def test_samples_that_are_compared_are_those_of_a_rank(batch: Strategy) -> None:
    """As between replicas: two ranks of four samples compare 2 * 4 * 4 pairs, one of eight 8 * 8."""
    left, right = (Tensor(name, (("batch", 1), ("hidden", 32)), 2.0, differentiable=False) for name in "ab")
    pairs = (("batch", 1), (OTHER_SAMPLES, 1))
    product = Operator(
        "head/pairs",
        "head",
        "matmul",
        space=(*pairs, ("hidden", 32)),
        flops_per_point=2.0,
        inputs=(left, right),
        outputs=(Tensor("logits", pairs, 2.0),),
        contracted=("hidden",),
    )
    whole = Block(OperatorGraph((product,), ("head",)).with_samples(8), 8)
    assert whole.graph.flops == 2 * 8 * 8 * 32
    shared = batch.apply(whole, 2, on(2))
    assert shared.graph.flops == 2 * 4 * 4 * 32
    assert shared.graph.operators[0].outputs[0].shape == (("batch", 4), (OTHER_SAMPLES, 4))
