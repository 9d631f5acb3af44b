"""What one rank holds and sends adds up to the whole again, for every kind of attention and beside other strategies."""

from collections import Counter

import pytest
from attrs import evolve

import nest_ulysses
from nest.formulate.recompute import recompute_modes, tensor_bytes
from nest.graph import Block, Collective, Communication, Operator, OperatorGraph, Tensor, axis_size
from nest.hooks.protocols import StrategyContext
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.spec import MlaSpec, Training, TransformerSpec
from nest_ulysses.strategy import Ulysses

TOKENS, HIDDEN, HEADS = 96, 96, 12
CONTEXT = StrategyContext(Cluster((Level("node", 48, 1e11, 1e-6),), memory=80e9), Training(global_batch=8))
ULYSSES = Ulysses()
MLA = MlaSpec(q_lora_rank=20, kv_lora_rank=16, qk_nope_head_dim=6, qk_rope_head_dim=2, v_head_dim=4)
COMMON = {"layers": 2, "hidden": HIDDEN, "ffn": 384, "vocab": 1000}

MODELS = {
    "gpt": TransformerSpec(heads=HEADS, gated_mlp=False, tied_embeddings=True, **COMMON),
    "llama": TransformerSpec(heads=HEADS, kv_heads=2, **COMMON),
    "windowed": TransformerSpec(heads=HEADS, kv_heads=4, sliding_window=16, **COMMON),
    "experts": TransformerSpec(heads=HEADS, kv_heads=4, experts=8, top_k=2, moe_ffn=48, dense_layers=1, **COMMON),
    "latent": TransformerSpec(heads=HEADS, mla=MLA, **COMMON),
}
EARLIER: list[dict[str, int]] = [{}, {"tp": 2}, {"tp": 2, "sp": 2}, {"tp": 4}]


def graph_of(model: TransformerSpec, attention: str = "flash", samples: int = 1) -> OperatorGraph:
    training = Training(global_batch=8, sequence_length=TOKENS, attention=attention)
    graph = registry().model_importers()["transformer"].load(model, training)
    return graph.with_samples(samples)


def under(graph: OperatorGraph, context: StrategyContext = CONTEXT, **degrees: int) -> Block:
    """`graph` under strategies in the registry's order, the plug-in's among them."""
    block = Block(graph, 1)
    for name, strategy in registry(extra=[nest_ulysses]).strategies().items():
        if degrees.get(name, 1) > 1:
            assert degrees[name] in strategy.degrees(block, context)
            block = strategy.apply(block, degrees[name], context)
    return block


def computing(graph: OperatorGraph) -> dict[str, Operator]:
    return {operator.name: operator for operator in graph.operators if operator.collective is None}


def calls(operators: tuple[Operator, ...], direction: str, axis: str) -> list[Communication]:
    made = (operator.collective or Collective() for operator in operators)
    return [call for collective in made for call in getattr(collective, direction) if call.axis == axis]


def assert_consistent(whole: OperatorGraph, share: OperatorGraph, degree: int) -> None:
    """Nothing is lost: work and what crosses layers are divided, and who reads a tensor reads what was made."""
    shares = computing(share)
    assert set(shares) == set(computing(whole))
    for name, operator in computing(whole).items():
        assert shares[name].flops * degree == pytest.approx(operator.flops)
        assert shares[name].model_flops * degree == pytest.approx(operator.model_flops)
        assert shares[name].parameters == operator.parameters
    for before, after in zip(whole.layer_tensors, share.layer_tensors, strict=True):
        assert (after.producer, after.consumers) == (before.producer, before.consumers)
        assert after.tensor.name == before.tensor.name
        assert after.tensor.bytes * degree == before.tensor.bytes
    shapes: dict[str, object] = {}
    for operator in share.operators:
        tensors = (*operator.inputs, *operator.outputs)
        assert set(operator.saves) <= {tensor.name for tensor in tensors}
        for tensor in tensors:
            assert shapes.setdefault(tensor.name, tensor.shape) == tensor.shape, tensor.name


@pytest.mark.parametrize("earlier", EARLIER, ids=str)
@pytest.mark.parametrize("attention", ["flash", "unfused"])
@pytest.mark.parametrize("model", MODELS)
def test_the_shares_add_up(model: str, attention: str, earlier: dict[str, int]) -> None:
    whole = under(graph_of(MODELS[model], attention), **earlier)
    degrees = [degree for degree in ULYSSES.degrees(whole, CONTEXT) if degree > 1]
    assert degrees
    for degree in degrees:
        share = ULYSSES.apply(whole, degree, CONTEXT)
        assert_consistent(whole.graph, share.graph, degree)
        assert share.width == whole.width * degree
        assert share.degree("ulysses") == degree


def test_degrees_divide_heads_and_tokens_and_suit_key_value_heads_and_cluster() -> None:
    block = Block(graph_of(MODELS["gpt"]), 1)
    assert list(ULYSSES.degrees(block, CONTEXT)) == [1, 2, 3, 4, 6, 12]
    # 4 key-value heads: 3 and 6 neither divide them nor are multiples of them.
    assert list(ULYSSES.degrees(Block(graph_of(MODELS["windowed"]), 1), CONTEXT)) == [1, 2, 4, 12]
    assert list(ULYSSES.degrees(under(graph_of(MODELS["gpt"]), tp=4), CONTEXT)) == [1, 3]
    small = StrategyContext(Cluster((Level("node", 4, 1e11, 1e-6),), memory=80e9), CONTEXT.training)
    assert list(ULYSSES.degrees(block, small)) == [1, 2, 4]


def test_what_has_no_heads_to_divide_is_left_alone() -> None:
    tokens = (("batch", 1), ("sequence", TOKENS))
    source, result = Tensor("x", (*tokens, ("hidden", 8))), Tensor("y", (*tokens, ("hidden", 8)))
    norm = Operator("a/norm", "a", "norm", result.shape, inputs=(source,), outputs=(result,))
    headless = Operator("a/core", "a", "attention", (*tokens, ("keys", TOKENS)), inputs=(source,), outputs=(result,))
    unclear = Operator("a/core", "a", "attention", result.shape, inputs=(source,), outputs=(result,))
    for operator in (norm, headless, unclear):
        block = Block(OperatorGraph((operator,), ("a",)), 1)
        assert list(ULYSSES.degrees(block, CONTEXT)) == [1]
        with pytest.raises(ValueError, match="no attention"):
            ULYSSES.apply(block, 2, CONTEXT)


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("degree", [2, 4, 12])
def test_the_paper_exchanges_four_times_its_activations(degree: int, samples: int) -> None:
    """Section 3.2: with N tokens of width h, all-to-alls of 3Nh for queries, keys and values and of Nh behind."""
    block = under(graph_of(MODELS["gpt"], samples=samples), ulysses=degree)
    held = samples * TOKENS * HIDDEN * 2.0 / degree
    for direction in ("forward", "backward"):
        assert (
            calls(block.graph.by_layer[1], direction, "ulysses") == [Communication("all_to_all", held, "ulysses")] * 4
        )
    ends = (*block.graph.by_layer[0], *block.graph.by_layer[-1])
    assert calls(ends, "forward", "ulysses") == []


def test_key_value_heads_that_do_not_suffice_are_repeated() -> None:
    """2 key-value heads on 12 ranks: each receives a whole sequence of one."""
    block = under(graph_of(MODELS["llama"]), ulysses=12)
    channel = HIDDEN // HEADS
    query, key_value = TOKENS * channel * 2.0, TOKENS * channel * 2.0
    sizes = Counter(call.bytes for call in calls(block.graph.by_layer[1], "forward", "ulysses"))
    assert sizes == Counter([query, key_value, key_value, query])
    (core,) = (operator for operator in block.graph.by_layer[1] if operator.kind == "attention")
    for tensor in core.inputs:
        assert axis_size(tensor.shape, "sequence") == TOKENS
        assert axis_size(tensor.shape, "heads") == axis_size(tensor.shape, "kv_heads") == 1
    fewer = under(graph_of(MODELS["llama"]), ulysses=2)
    split = [call.bytes for call in calls(fewer.graph.by_layer[1], "forward", "ulysses")]
    assert sorted(split) == sorted([TOKENS * HIDDEN * 2.0 / 2] * 2 + [TOKENS * 2 * channel * 2.0 / 2] * 2)


def test_keys_of_latent_attention_have_all_heads() -> None:
    block = under(graph_of(MODELS["latent"]), ulysses=4)
    layer = block.graph.by_layer[1]
    (core,) = (operator for operator in layer if operator.kind == "attention")
    assert {axis_size(tensor.shape, "heads") for tensor in core.inputs} == {3}
    sent = sorted(call.bytes for call in calls(layer, "forward", "ulysses"))
    # Queries and keys are 8 wide per head, values and results 4.
    assert sent == sorted([TOKENS * HEADS * 8 * 2.0 / 4] * 2 + [TOKENS * HEADS * 4 * 2.0 / 4] * 2)


def test_what_has_no_heads_is_gathered() -> None:
    """A key all heads share, without an axis of its own, as in multi-query attention."""
    tokens = (("batch", 1), ("sequence", TOKENS))
    query = Tensor("query", (*tokens, ("heads", 4), ("head", 8)))
    key, result = Tensor("key", (*tokens, ("head", 8))), Tensor("result", query.shape)
    made = Operator("a/made", "a", "matmul", query.shape, outputs=(query, key))
    space = (("batch", 1), ("heads", 4), ("sequence", TOKENS), ("keys", TOKENS), ("head", 8))
    core = Operator("a/core", "a", "attention", space, inputs=(query, key), outputs=(result,), saves=("query", "key"))
    used = Operator("a/used", "a", "elementwise", result.shape, inputs=(result,))
    graph = OperatorGraph((made, core, used), ("a",))
    block = ULYSSES.apply(Block(graph, 1), 4, CONTEXT)
    assert Counter(call.kind for call in calls(block.graph.operators, "forward", "ulysses")) == {
        "all_to_all": 2,
        "all_gather": 1,
    }
    assert Communication("reduce_scatter", key.bytes, "ulysses") in calls(block.graph.operators, "backward", "ulysses")


@pytest.mark.parametrize("degree", [2, 4, 12])
def test_the_backward_pass_keeps_what_was_exchanged(degree: int) -> None:
    """Activations of a layer without dropout are `32sbh` and the statistics of flash attention `4as` bytes.

    (arXiv 2205.05198, table 2; arXiv 2307.08691.) One more copy of the attention result, `2sbh`, is kept: by heads for
    attention, and by tokens for the projection behind it.
    """
    layer = under(graph_of(MODELS["gpt"]), ulysses=degree).graph.by_layer[1]
    kept = recompute_modes(layer, ("attention",), repeated=True)
    sizes = tensor_bytes(layer)
    assert kept["none"].stored_bytes(sizes) == (34 * TOKENS * HIDDEN + 4 * HEADS * TOKENS) / degree
    assert kept["full"].stored_bytes(sizes) == 2 * TOKENS * HIDDEN / degree
    # Selective recomputation exchanges again: a checkpointed core begins with what it is given.
    again = [operator.name for operator in kept["selective"].again]
    assert [name for name in again if "exchange of" in name] == [
        f"layers.0/attention.ulysses exchange of layers.0/{name}" for name in ("rotated_query", "rotated_key", "value")
    ]
    assert kept["selective"].stored_bytes(sizes) == 32 * TOKENS * HIDDEN / degree


def test_its_ranks_hold_the_same_parameters_of_every_group() -> None:
    block = under(graph_of(MODELS["experts"]), tp=2, sp=2, ulysses=2)
    assert block.degrees[:2] == (("tp", 2), ("sp", 2))
    assert block.ranks("tp") == (0, 1)
    assert block.replica_ranks("dense") == (0, 2)
    assert {0, 2} <= set(block.replica_ranks("expert"))


def test_experts_see_the_tokens_of_their_rank() -> None:
    whole, share = graph_of(MODELS["experts"]), under(graph_of(MODELS["experts"]), ulysses=4).graph
    dispatched = {t.name: t for operator in share.operators for t in operator.outputs if "dispatched" in t.name}
    assert dispatched
    for operator in whole.operators:
        for tensor in operator.outputs:
            if tensor.name in dispatched:
                assert dispatched[tensor.name].bytes * 4 == tensor.bytes
    assert all("ulysses" in operator.split for operator in computing(share).values())


def test_collectives_of_others_carry_the_share() -> None:
    before = under(graph_of(MODELS["gpt"]), tp=2, sp=2).graph
    after = under(graph_of(MODELS["gpt"]), tp=2, sp=2, ulysses=3).graph
    for direction in ("forward", "backward"):
        whole, share = (calls(graph.operators, direction, "tp") for graph in (before, after))
        assert whole
        assert [(call.kind, call.bytes) for call in share] == [(call.kind, call.bytes / 3) for call in whole]


def test_rings_of_others_go_round_by_heads() -> None:
    """Another strategy's exchange of keys and values serves attention alone, so it carries a share of the heads."""
    graph = graph_of(MODELS["gpt"])
    (core,) = (operator for operator in graph.by_layer[1] if operator.kind == "attention")
    travelling = core.inputs[1:]
    sent = Communication("point_to_point", sum(tensor.bytes for tensor in travelling), "ring")
    ring = Operator(f"{core.name}.ring", core.layer, "collective", inputs=travelling, collective=Collective((sent,)))
    with_ring = graph.map_operators(lambda operator: (ring, operator) if operator.name == core.name else (operator,))
    share = ULYSSES.apply(Block(with_ring, 1), 4, CONTEXT).graph
    (found,) = (operator for operator in share.operators if operator.name == ring.name)
    assert [axis_size(tensor.shape, "sequence") for tensor in found.inputs] == [TOKENS, TOKENS]
    assert calls((found,), "forward", "ring") == [Communication("point_to_point", sent.bytes / 4, "ring")]


@pytest.mark.parametrize("earlier", [{"cp": 2}, {"tp": 2, "sp": 2, "cp": 2}, {"ep": 2}, {"cp": 2, "ep": 4}], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_it_goes_with_context_and_expert_parallelism(model: str, earlier: dict[str, int]) -> None:
    known = registry().strategies()
    if not earlier.keys() <= known.keys():
        pytest.skip(f"{', '.join(earlier.keys() - known.keys())} is not registered")
    if "ep" in earlier and model != "experts":
        pytest.skip("ep divides experts, and this model has none")
    whole = under(graph_of(MODELS[model]), **earlier)
    share = ULYSSES.apply(whole, 2, CONTEXT)
    assert_consistent(whole.graph, share.graph, 2)
    made = {operator.name: operator.collective for operator in share.graph.operators}
    for operator in whole.graph.operators:
        found = made[operator.name]
        if operator.collective is not None and found is not None:
            # What they hide under, and whatever else they have, stays.
            assert evolve(found, forward=(), backward=()) == evolve(operator.collective, forward=(), backward=())
    for axis in earlier:
        for direction in ("forward", "backward"):
            before, after = (calls(block.graph.operators, direction, axis) for block in (whole, share))
            # The one key-value head tp leaves a rank of `llama` goes round on both ranks.
            parts = 1 if axis == "cp" and model == "llama" and "tp" in earlier else 2
            assert [(call.kind, call.bytes / parts) for call in before] == [(call.kind, call.bytes) for call in after]
    assert set(share.replica_ranks("dense")) == {
        rank + step for rank in whole.replica_ranks("dense") for step in (0, whole.width)
    }
