"""What tp, sp, cp, ep and etp, alone and together, leave on the ranks adds up to the unsplit model's, for every family.

The rules by which ranks repeat something stand in `tests.strategies.shares`; nothing here is a tolerance, but for the
last bits of floating-point sums.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.formulate.recompute import recompute_modes, tensor_bytes
from nest.graph import Block, OperatorGraph, elements
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.spec import Training
from tests.strategies.families import FAMILIES, TOKENS, transformers
from tests.strategies.shares import Degrees, expected, holds_experts, parameters

NAMES = ("tp", "sp", "cp", "ep", "etp")
LAST_BITS = Fraction(1, 10**12)


def on(*fanouts: int, **training: Any) -> StrategyContext:
    """A cluster and a training."""
    levels = tuple(Level(f"l{index}", fanout, 1e11, 1e-6) for index, fanout in enumerate(fanouts))
    asked = Training(global_batch=64, sequence_length=TOKENS, **training)
    return StrategyContext(Cluster(levels, memory=80e9), asked)


def build(source: Any, training: Training) -> OperatorGraph:
    """The graph of one sample."""
    (importer,) = (each for each in registry().model_importers().values() if each.accepts(source))
    graph: OperatorGraph = importer.load(source, training)
    return graph


def blocks(graph: OperatorGraph, context: StrategyContext, samples: int = 1) -> Iterator[tuple[Degrees, Block]]:
    """Every combination of degrees that strategies offer, searched or not."""
    strategies = registry().strategies()
    found = [Block(graph.with_samples(samples), samples)]
    for name in NAMES:
        strategy = strategies[name]
        found = [
            strategy.apply(block, degree, context) if degree > 1 else block.applied(name, 1, block.graph)
            for block in found
            for degree in sorted({1, *strategy.degrees(block, context)})
        ]
    assert list(dict.fromkeys(strategies))[: len(NAMES)] == list(NAMES)
    return ((Degrees.of(dict(block.degrees)), block) for block in found)


def close(found: Fraction, wanted: Fraction) -> bool:
    return abs(found - wanted) <= LAST_BITS * wanted


def assert_adds_up(whole: OperatorGraph, degrees: Degrees, block: Block) -> None:
    """Work, activations, parameters and what passes between layers, of all ranks, per sample."""
    made = frozenset(tensor.name for operator in whole.operators for tensor in operator.outputs)
    per_sample = Fraction(block.width, block.samples)
    left = {operator.name: operator for operator in block.graph.operators}
    for operator in whole.operators:
        wanted = degrees.times(operator.space, inside_experts=holds_experts(operator)) * elements(operator.space)
        assert per_sample * elements(left[operator.name].space) == wanted, operator.name
    for operator in block.graph.operators:
        assert {*operator.saves} <= {t.name for t in (*operator.inputs, *operator.outputs)}, operator.name
    for name, before, after in zip(whole.layers, whole.by_layer, block.graph.by_layer, strict=True):
        for mode in ("none", "full"):
            repeated = name in whole.blocks
            kept = recompute_modes(before, (), repeated)[mode].stored
            wanted = expected(before, degrees, kept, made)
            found = recompute_modes(after, (), repeated)[mode]
            assert close(per_sample * Fraction(found.stored_bytes(tensor_bytes(after))), wanted.saved), (name, mode)
        assert close(per_sample * sum(Fraction(o.flops) for o in after), wanted.forward), name
        assert close(per_sample * sum(Fraction(o.backward_flops) for o in after), wanted.backward), name
    for group in dict.fromkeys(p.group for operator in whole.operators for p in operator.parameters):
        held = sum(p.count for o in block.graph.operators for p in o.parameters if p.group == group)
        different = Fraction(block.width, len(block.replica_ranks(group)))
        assert held * different == parameters(whole, group, degrees), group
    for before, after in zip(whole.layer_tensors, block.graph.layer_tensors, strict=True):
        assert (after.tensor.name, after.consumers) == (before.tensor.name, before.consumers)
        assert per_sample * Fraction(after.tensor.bytes) == degrees.alike * Fraction(before.tensor.bytes)


def assert_laid_out(degrees: Degrees, block: Block) -> None:
    """Groups of ranks: what each device holds of parameters and tokens."""
    assert block.width == degrees.width
    assert block.samples == block.micro_batch * degrees.copies
    devices = list(range(block.width))
    # Dense parameters: a device holds those of its place among the tensor-parallel ranks.
    assert block.replica_ranks("dense") == tuple(range(0, block.width, degrees.tp))
    groups = {p.group for operator in block.graph.operators for p in operator.parameters}
    if "expert" not in groups:
        return
    # Expert gradients: over all ranks that hold the same experts and saw other tokens.
    assert block.replica_ranks("expert") == tuple(range(0, block.width, degrees.expert_ranks))
    inner = block.ranks("etp") if degrees.etp > 1 else tuple(range(degrees.alike))
    across = block.ranks("ep")
    assert len(across) == degrees.ep
    assert sorted(a + b + c for a in inner for b in across for c in block.replica_ranks("expert")) == devices
    # A device's tokens: of its copy and its context rank, and of its place in `tp` with sequence parallelism.
    tokens = [device // degrees.alike for device in devices]
    for first in (r + i for r in block.replica_ranks("expert") for i in inner):
        assert len({tokens[first + rank] for rank in across}) == degrees.ep
    for first in (r + a for r in block.replica_ranks("expert") for a in across):
        assert len({tokens[first + rank] for rank in inner}) == (1 if degrees.alike > 1 else degrees.etp)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("exchange", ["ring", "all_gather"])
def test_every_combination_adds_up(family: str, exchange: str) -> None:
    context = on(4, 4, attention="unfused" if exchange == "ring" else "flash", context_exchange=exchange)
    whole = build(FAMILIES[family], context.training)
    tried = set()
    for degrees, block in blocks(whole, context):
        tried.add(degrees)
        assert_laid_out(degrees, block)
        assert_adds_up(whole, degrees, block)
    assert {Degrees(), Degrees(tp=8), Degrees(tp=8, sp=True), Degrees(cp=8), Degrees(tp=4, sp=True, cp=4)} <= tried


def test_every_family_is_tried() -> None:
    assert {*FAMILIES, "operator_graph"} == set(registry().model_importers())


@settings(deadline=None, max_examples=60)
@given(
    transformers(),
    st.sampled_from([(16,), (2, 4), (3, 4), (6, 2), (4, 3), (24,)]),
    st.integers(1, 3),
    st.sampled_from([1.0, 1.25, 2.0]),
    st.sampled_from(["ring", "all_gather"]),
    st.data(),
)
def test_any_transformer_adds_up(
    source: Any, fanouts: tuple[int, ...], samples: int, capacity: float, exchange: str, data: st.DataObject
) -> None:
    if source.experts and source.top_k > source.experts:
        return
    context = on(*fanouts, expert_capacity=capacity, context_exchange=exchange)
    whole = build(source, context.training)
    found = list(blocks(whole, context, samples))
    degrees, block = data.draw(st.sampled_from(found), label="block")
    assert context.cluster.admits(block.width)
    assert_laid_out(degrees, block)
    assert_adds_up(whole, degrees, block)
