"""Formulas of the papers and reports that strategies are built on, for the models they were written about."""

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest

from nest.catalogue import library_models, optimizer, precision
from nest.formulate.candidate_costs import candidate
from nest.formulate.layer_classes import layer_classes
from nest.formulate.pricing import Pricing
from nest.formulate.recompute import recompute_modes, tensor_bytes
from nest.graph import Block, Communication, Operator, OperatorGraph, Routing
from nest.hooks.protocols import OperatorCost, StrategyContext
from nest.hooks.registry import registry
from nest.instance import Candidate, Cluster, Level
from nest.spec import DeviceSpec, MatrixPeaks, Training, TransformerSpec

DEVICES = 64
FLOP_RATE, BANDWIDTH = 1e15, 1e10
"""A device and a link, in FLOP/s and bytes/s."""

NETWORK = Cluster((Level("node", DEVICES, BANDWIDTH, 0.0),), memory=inf)

Shard = Callable[..., Block]


@pytest.fixture
def shard() -> Shard:
    """A model under strategies: `shard(source, training, cp=4)`, one sample per micro-batch."""

    def sharded(source: Any, training: Training, **degrees: int) -> Block:
        graph = build(source, training)
        context = StrategyContext(NETWORK, training)
        block = Block(layer_classes(graph).graph, 1)
        for name, strategy in registry().strategies().items():
            degree = degrees.get(name, 1)
            assert degree in {1, *strategy.degrees(block, context)}
            block = strategy.apply(block, degree, context) if degree > 1 else block.applied(name, 1, block.graph)
        return block

    return sharded


def build(source: Any, training: Training) -> OperatorGraph:
    (importer,) = (each for each in registry().model_importers().values() if each.accepts(source))
    graph: OperatorGraph = importer.load(source, training)
    return graph


def calls(operators: tuple[Operator, ...], direction: str) -> Iterator[Communication]:
    for operator in operators:
        yield from getattr(operator.collective, direction, ())


class FlopOnly:
    """A device bound by its FLOP/s alone."""

    name = "flop-only"

    def price(self, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost:
        return OperatorCost(operator.flops / FLOP_RATE, operator.backward_flops / FLOP_RATE)


def priced(source: Any, training: Training, block: Block, layer_times: str = "sequential") -> Candidate:
    engines = ("matrix", "vector", "communication")
    device = DeviceSpec("toy", memory=1e15, memory_bandwidth=1.0, peak=MatrixPeaks(bf16=1.0), engines=engines)
    pricing = Pricing(
        NETWORK,
        device,
        training,
        precision("bf16"),
        optimizer("adam"),
        FlopOnly(),
        registry().collective_models()["alpha-beta"],
        registry().layer_times()[layer_times],
    )
    return candidate("c", block, layer_classes(build(source, training)), pricing)


MULTI_HEAD = {
    "model_type": "bert",
    "vocab_size": 100,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 1,
    "num_attention_heads": 16,
    "max_position_embeddings": 1 << 22,
}
"""Attention as the papers count it: every head has keys and values, no mask."""


@pytest.mark.parametrize("degree", [2, 8, 32])
def test_each_host_of_a_ring_sends_a_block_of_keys_and_values_per_step(degree: int, shard: Shard) -> None:
    """Section 3 of arXiv 2310.01889: `4*c*d` bytes a step for blocks of `c` tokens in bfloat16, all but one's own.

    Backward they travel again, and with them as many bytes of gradients.
    """
    tokens, hidden = 8192, 1024
    layer = shard(MULTI_HEAD, Training(1, sequence_length=tokens), cp=degree).graph.by_layer[1]
    block = tokens // degree
    step = Communication("point_to_point", 4.0 * block * hidden, "cp", degree - 1)
    assert list(calls(layer, "forward")) == [step]
    assert list(calls(layer, "backward")) == [step, step]


@pytest.mark.parametrize("layer_times", ["sequential", "scheduled"])
@pytest.mark.parametrize(("block", "hidden_behind"), [(1 << 16, False), (1 << 17, True)])
def test_blocks_longer_than_compute_over_bandwidth_hide_the_ring(
    block: int, hidden_behind: bool, layer_times: str, shard: Shard
) -> None:
    """Section 3 of arXiv 2310.01889: `4*d*c^2/F >= 4*c*d/B`, so `c >= F/B`, here 100,000 tokens.

    The backward pass computes 2.5 times as much (arXiv 2307.08691) and sends twice as much. Attention that runs again
    has its ring again. With engines of their own, what is not hidden runs beside the projection of the queries and
    nothing else: attention waits for it, and it for the keys and values.
    """
    degree, width = 4, 1024
    training = Training(1, sequence_length=degree * block)
    sharded = shard(MULTI_HEAD, training, cp=degree)
    (core,) = (operator for operator in sharded.graph.by_layer[1] if operator.kind == "attention")
    assert core.flops == degree * 4.0 * width * block**2
    found = priced(MULTI_HEAD, training, sharded, layer_times)
    computed = sum(operator.flops for operator in sharded.graph.by_layer[1]) / FLOP_RATE
    step, work = 4.0 * block * width / BANDWIDTH, 4.0 * width * block**2 / FLOP_RATE
    assert (step <= work) == hidden_behind
    exposed = (degree - 1) * max(step - work, 0.0)
    queries = 2.0 * block * width**2 / FLOP_RATE if layer_times == "scheduled" else 0.0
    assert found.forward[1] - computed == pytest.approx(max(exposed - queries, 0.0), abs=1e-9 * computed)
    assert found.mode("selective").extra[1] == pytest.approx(core.flops / FLOP_RATE + exposed)
    assert found.mode("full").extra[1] == pytest.approx(found.forward[1])
    assert found.mode("stage").extra[1] == pytest.approx(found.forward[1])
    backward = sum(operator.backward_flops for operator in sharded.graph.by_layer[1]) / FLOP_RATE
    exposed = (degree - 1) * max(2 * step - 2.5 * work, 0.0)
    assert found.backward[1] - backward == pytest.approx(max(exposed - 2 * queries, 0.0), abs=1e-9 * backward)


def test_gathered_keys_and_values_are_small_beside_attention(shard: Shard) -> None:
    """Section 3.3.2 of arXiv 2407.21783: few key-value heads make the gathered tensors small.

    Llama 3 405B: 8 of 128 heads, so that a layer gathers `2 * 2 * s * 8 * 128` bytes in place of 16 times as many; they
    are not kept.
    """
    source = library_models()["llama-3.1-405b"].config
    training = Training(1, sequence_length=131072, context_exchange="all_gather")
    layer = shard(source, training, cp=16).graph.by_layer[1]
    whole = 2.0 * 131072 * 8 * 128
    gather, scatter = (Communication(kind, whole, "cp") for kind in ("all_gather", "reduce_scatter"))
    assert list(calls(layer, "forward")) == [gather, gather]
    assert sorted(call.kind for call in calls(layer, "backward")) == ["all_gather"] * 2 + ["reduce_scatter"] * 2
    assert {*calls(layer, "backward")} == {gather, scatter}
    kept, sizes = recompute_modes(layer, (), repeated=True)["none"].stored, tensor_bytes(layer)
    assert all(sizes[name] < whole for name in kept if name.endswith(("key", "value")))


@pytest.mark.parametrize("top_k", [1, 2])
@pytest.mark.parametrize("capacity", [1.0, 1.25, 2.0])
@pytest.mark.parametrize("degree", [2, 8])
def test_tokens_go_to_experts_and_back(top_k: int, capacity: float, degree: int, shard: Shard) -> None:
    """GShard (arXiv 2006.16668, section 3) and Switch (arXiv 2101.03961, section 2.2): all-to-alls of `E*C*M`.

    `E` experts have room for `C = top_k * tokens * capacity / E` tokens of `M` channels of every rank. Four calls a
    layer: dispatch and combine, forward and backward.
    """
    tokens, hidden, experts = 512, 64, 16
    source = TransformerSpec(
        layers=1, hidden=hidden, ffn=128, heads=4, vocab=100, experts=experts, top_k=top_k, moe_ffn=32
    )
    training = Training(1, sequence_length=tokens, expert_capacity=capacity)
    layer = shard(source, training, ep=degree).graph.by_layer[1]
    room, routing = top_k * tokens * capacity / experts, Routing(top_k)
    for direction in ("forward", "backward"):
        found = [call for call in calls(layer, direction) if call.bytes > 4.0 * tokens * top_k]
        assert found == [Communication("all_to_all", experts * room * hidden * 2.0, "ep", routing=routing)] * 2
        weights = [call for call in calls(layer, direction) if call not in found]
        assert weights == [Communication("all_to_all", 4.0 * tokens * top_k, "ep", routing=routing)]


@pytest.mark.parametrize(("degree", "etp"), [(64, 1), (32, 1), (32, 2), (8, 8)])
def test_deepseek_v3_splits_its_experts(degree: int, etp: int, shard: Shard) -> None:
    """Section 4.2 of arXiv 2412.19437: 61 layers, the first three dense; 256 experts of width 2,048 on 7,168 channels.

    On 64 ranks (section 3.2) each has 4 of every layer; all else, 17 billion of the 671, is on each of them.
    """
    source = library_models()["deepseek-v3"].config
    training = Training(1, sequence_length=4096)
    block = shard(source, training, ep=degree, etp=etp)
    kinds = layer_classes(build(source, training)).class_of
    count = {
        group: sum(
            p.count for kind in kinds for o in block.graph.by_layer[kind] for p in o.parameters if p.group == group
        )
        for group in ("expert", "dense")
    }
    assert count["expert"] == 58 * (256 // degree) * 3 * 7168 * 2048 // etp
    assert block.width == degree * etp
    assert block.replica_ranks("dense") == tuple(range(block.width))
    assert block.replica_ranks("expert") == (0,)
    total = count["expert"] * degree * etp + count["dense"]
    assert round(total / 1e9) == 671
    assert round(count["dense"] / 1e9) == 17


@pytest.mark.parametrize("degree", [1, 2, 8, 16])
def test_llama_3_8b_keeps_its_parameters_and_a_share_of_its_activations(degree: int, shard: Shard) -> None:
    """Table 3 of arXiv 2407.21783: 32 layers, 4,096 channels, 14,336 inside, 32 heads of 128, 8 for keys and values.

    Context ranks hold all 8.03 billion parameters; of activations per token what FlashAttention leaves to be kept: the
    stream twice, its norms, queries, keys and values, their result, both branches and their product.
    """
    tokens = 131072
    source = library_models()["llama-3-8b"].config
    training = Training(1, sequence_length=tokens)
    block = shard(source, training, cp=degree)
    found = priced(source, training, block)
    dense = found.state[0]
    assert dense.weights.sum() == 2 * 8030261248
    assert dense.ranks == tuple(range(degree))
    h, f, heads, kv, head = 4096, 14336, 32, 8, 128
    token = 2 * (2 * h + 2 * h + heads * head + 2 * kv * head + heads * head + 3 * f) + 4 * heads
    assert found.mode("none").first[1:-1].tolist() == [tokens / degree * token] * 32
    assert found.mode("full").first[1:-1].tolist() == [tokens / degree * 2 * h] * 32
    assert found.tensor_bytes.tolist() == [tokens / degree * 2 * h] * 33


@pytest.mark.parametrize("tokens", [512, 8192])
def test_gradients_of_weights_take_as_long_as_products_with_weights(tokens: int, shard: Shard) -> None:
    """Table 1 of arXiv 2401.10241: of a layer `sh(24h + 4s)` FLOP forward, `sh(24h + 8s)` and `24sh^2` backward.

    `s` tokens, `h` channels; the first are gradients of inputs, the second those of weights.
    """
    training, hidden = Training(1, sequence_length=tokens, attention="unfused"), 1024
    found = priced(MULTI_HEAD, training, shard(MULTI_HEAD, training))
    assert found.weight_gradients is not None
    forward, weights = found.forward[1] * FLOP_RATE, found.weight_gradients[1] * FLOP_RATE
    assert forward == pytest.approx(tokens * hidden * (24 * hidden + 4 * tokens))
    assert found.backward[1] * FLOP_RATE - weights == pytest.approx(tokens * hidden * (24 * hidden + 8 * tokens))
    assert weights == pytest.approx(24 * tokens * hidden**2)


def test_inputs_gathered_again_serve_gradients_of_weights(shard: Shard) -> None:
    """Section 4.2.2 of arXiv 2205.05198: of the gathers and scatters of a backward pass, those of saved inputs.

    Two of a layer, of what attention and the feed-forward network read, beside the gathers and scatters of gradients.
    """
    training, degree = Training(1, sequence_length=4096), 8
    alone, split = (shard(MULTI_HEAD, training, tp=degree, sp=each) for each in (1, degree))
    gather = (degree - 1) / degree * 2 * 4096 * 1024 / BANDWIDTH
    one, two = (priced(MULTI_HEAD, training, each) for each in (alone, split))
    assert one.weight_gradients is not None
    assert two.weight_gradients is not None
    assert two.weight_gradients[1] - one.weight_gradients[1] == pytest.approx(2 * gather)
    assert two.backward[1] - one.backward[1] == pytest.approx(2 * gather)
