"""FLOP of matrix products and attention follow closed forms."""

import json
from fractions import Fraction
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.graph import OperatorGraph, axis_size
from nest.models.building.attention import mean_keys

SEQUENCE = 32


def attention_flops(graph: OperatorGraph) -> float:
    return sum(operator.flops for operator in graph.operators if operator.kind == "attention")


def test_products_cost_two_flop_per_active_weight_and_token(small, load):
    graph = load(small.config, SEQUENCE)
    weights = sum(small.active) + small.outside_active
    assert graph.flops - attention_flops(graph) == 2 * weights * SEQUENCE


def test_flash_attention_skips_masked_keys(small, load):
    graph = load(small.config, SEQUENCE)
    keys = SEQUENCE if "bert" in small.config["model_type"] else (SEQUENCE + 1) / 2
    expected = len(graph.blocks) * 2 * small.channels * SEQUENCE * keys
    assert isclose(attention_flops(graph), expected, rel_tol=1e-12)


def test_unfused_attention_computes_masked_keys_too(small, load):
    graph = load(small.config, SEQUENCE, attention="unfused")
    assert attention_flops(graph) == len(graph.blocks) * 2 * small.channels * SEQUENCE * SEQUENCE


@pytest.mark.parametrize("attention", ["flash", "unfused"])
def test_model_flops_follow_palm_whatever_kernel_runs(small, load, attention):
    graph = load(small.config, SEQUENCE, attention=attention)
    weights = sum(small.active) + small.outside_active
    per_token = 2 * weights + len(graph.blocks) * 2 * small.channels * SEQUENCE
    assert isclose(graph.model_flops, per_token * SEQUENCE, rel_tol=1e-12)


@pytest.mark.parametrize("attention", ["flash", "unfused"])
def test_a_window_shortens_what_the_model_asks_for(llama, load, attention):
    windowed = {**llama, "model_type": "mistral", "architectures": None, "sliding_window": 8}
    graph = load(windowed, SEQUENCE, attention=attention)
    full = load({**windowed, "sliding_window": None}, SEQUENCE, attention=attention)
    saved = len(graph.blocks) * 4 * 6 * 4 * (SEQUENCE - 8) * SEQUENCE
    assert isclose(full.model_flops - graph.model_flops, saved, rel_tol=1e-12)
    if attention == "unfused":
        assert graph.flops == full.flops
    else:
        assert graph.flops < full.flops


@given(st.integers(1, 60), st.none() | st.integers(1, 80))
def test_mean_keys_counts_every_position(sequence, window):
    reach = window or sequence
    counted = Fraction(sum(min(position, reach) for position in range(1, sequence + 1)), sequence)
    assert isclose(mean_keys(sequence, True, window), counted, rel_tol=1e-12)
    half = sequence if window is None else window // 2
    near = sum(abs(query - key) <= half for query in range(sequence) for key in range(sequence))
    assert isclose(mean_keys(sequence, False, window), near / sequence, rel_tol=1e-12)


def test_a_flash_backward_pass_computes_the_scores_again(llama, deepseek, load):
    equal = [o for o in load(llama).operators if o.kind == "attention"]
    assert {o.backward_flops_ratio for o in equal} == {2.5}
    # Query-key width 7 and value width 3: five products against two.
    latent = [o for o in load(deepseek).operators if o.kind == "attention"]
    assert {o.backward_flops_ratio for o in latent} == {(3 * 7 + 2 * 3) / (7 + 3)}
    # Of keys chosen by an indexer also for its loss: three and once more of width 9 + 2, and two of width 9.
    indexer = {"index_n_heads": 4, "index_head_dim": 6, "index_topk": 8}
    sparse = load({**deepseek, **indexer, "model_type": "deepseek_v32", "architectures": None}, SEQUENCE)
    chosen = [o for o in sparse.operators if o.name.endswith("/attention")]
    assert {o.backward_flops_ratio for o in chosen} == {(4 * 11 + 2 * 9) / (11 + 9)}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, [None, None, None]),
        ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, [None, 8, 8]),
        (
            {
                "use_sliding_window": True,
                "sliding_window": 8,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
            [8, None, 8],
        ),
    ],
)
def test_qwen_windows_apply_to_the_layers_named(llama, load, overrides, expected):
    config = {**llama, "model_type": "qwen2", "architectures": None, "sliding_window": 8, **overrides}
    keys = [axis_size(o.space, "keys") for o in load(config, SEQUENCE).operators if o.kind == "attention"]
    assert keys == [window or SEQUENCE for window in expected]


@pytest.mark.parametrize(
    ("family", "expected"), [("qwen2_moe", [8, 32, 8]), ("qwen3_moe", [8, 8, 8]), ("mixtral", [8, 8, 8])]
)
def test_mixtures_have_windows_where_their_family_puts_them(llama, load, family, expected):
    experts = {
        "num_experts": 4,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 7,
        "shared_expert_intermediate_size": 7,
    }
    windows = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3}
    config = {**llama, **experts, **windows, "model_type": family, "architectures": None}
    keys = [axis_size(o.space, "keys") for o in load(config, SEQUENCE).operators if o.kind == "attention"]
    assert keys == expected


@pytest.mark.parametrize(("family", "every"), [("cohere2", 4), ("olmo3", 4), ("gemma3_text", 6)])
def test_the_last_of_every_few_layers_sees_all_tokens(llama, load, family, every):
    config = {**llama, "model_type": family, "architectures": None, "sliding_window": 8, "num_hidden_layers": 2 * every}
    operators = load(config, SEQUENCE).operators
    keys = [axis_size(o.space, "keys") for o in operators if o.kind == "attention"]
    assert keys == ([8] * (every - 1) + [SEQUENCE]) * 2
    # Command R7B rotates where it has windows.
    rotating = sum(o.name.endswith("/rotary") for o in operators)
    assert rotating == (2 * (every - 1) if family == "cohere2" else 2 * every)


def test_experts_lie_between_the_first_and_the_last_layer_named(small_ernie, load):
    last = {**small_ernie, "num_hidden_layers": 6, "moe_layer_start_index": 2, "moe_layer_end_index": 4}
    for config, expected in ((last, [2, 3, 4]), ({**last, "moe_layer_interval": 2}, [3])):
        graph = load(config, SEQUENCE)
        assert [index for index, block in enumerate(graph.by_layer[1:-1]) if any(o.routing for o in block)] == expected


def test_room_for_more_tokens_is_computed_on_and_nothing_that_the_model_asks_for(small_ernie, load):
    exact, roomy = (load(small_ernie, SEQUENCE, expert_capacity=each) for each in (1.0, 1.5))
    assert roomy.model_flops == exact.model_flops
    for before, after in zip(exact.operators, roomy.operators, strict=True):
        inside = any(parameter.group == "expert" for parameter in before.parameters)
        assert after.flops == (1.5 if inside else 1.0) * before.flops, before.name


@pytest.mark.parametrize("samples", [2, 5])
def test_work_and_activations_grow_with_the_samples_and_weights_do_not(small, load, samples):
    one = load(small.config, SEQUENCE)
    several = one.with_samples(samples)
    assert several.flops == samples * one.flops
    assert several.parameter_count == one.parameter_count
    for before, after in zip(one.operators, several.operators, strict=True):
        assert after.bytes_read == samples * before.bytes_read
        assert after.bytes_written == samples * before.bytes_written


def test_an_exported_llama_counts_the_same(shared, load):
    """PyTorch counts as much: two Llama-2-7B blocks with head, exported by operator at 4,096 tokens."""
    exported = json.loads((shared / "samples" / "llama7b_2layer_aten_graph.json").read_text())
    config = json.loads((shared / "hf_configs" / "meta-llama--Llama-2-7b-hf.json").read_text())
    graph = load({**config, "num_hidden_layers": 2}, 4096)
    unfused = load({**config, "num_hidden_layers": 2}, 4096, attention="unfused")
    assert graph.model_flops == unfused.flops == sum(node["flops"] for node in exported)


def test_queries_meet_the_keys_that_an_indexer_chose(deepseek, load):
    """Its heads score every earlier key. All heads of attention gather the same keys, 9 and 2 channels wide."""
    sparse = {
        **deepseek,
        "model_type": "deepseek_v32",
        "architectures": None,
        "index_n_heads": 4,
        "index_head_dim": 6,
        "index_topk": 8,
    }
    graph, dense = load(sparse, SEQUENCE), load({**sparse, "index_topk": SEQUENCE}, SEQUENCE)
    assert graph.parameter_count == dense.parameter_count
    heads, met, earlier = 6, mean_keys(SEQUENCE, True, 8), mean_keys(SEQUENCE, True, None)
    core, index = 2 * heads * (9 + 2 + 9) * met, 2 * 4 * 6 * earlier
    assert isclose(attention_flops(graph), len(graph.blocks) * SEQUENCE * (core + index), rel_tol=1e-12)
    assert isclose(graph.flops - attention_flops(graph), dense.flops - attention_flops(dense), rel_tol=1e-12)
    stored = [load({**sparse, "index_topk": keys}, SEQUENCE, attention="unfused") for keys in (8, SEQUENCE)]
    assert stored[0].flops == stored[1].flops > dense.flops
    assert isclose(graph.model_flops, stored[0].model_flops, rel_tol=1e-12)
    spared = len(graph.blocks) * SEQUENCE * 2 * heads * (7 + 3) * (SEQUENCE - 8)
    assert isclose(dense.model_flops - graph.model_flops, spared, rel_tol=1e-12)


def test_tokens_of_a_chunk_meet_one_another(llama, load):
    config = {
        **llama,
        "model_type": "llama4_text",
        "architectures": None,
        "num_local_experts": 8,
        "num_experts_per_tok": 1,
        "head_dim": 4,
        "attention_chunk_size": 10,
        "no_rope_layer_interval": 3,
    }
    core = [o for o in load(config, SEQUENCE).operators if o.kind == "attention"]
    per_key = 4 * 6 * 4
    # Three chunks of 10 tokens and one of 2; the third layer does not rotate and attends to all earlier tokens.
    chunked, whole = 3 * 10 * 11 / 2 + 2 * 3 / 2, SEQUENCE * (SEQUENCE + 1) / 2
    for operator, pairs in zip(core, (chunked, chunked, whole), strict=True):
        assert isclose(operator.flops, per_key * pairs, rel_tol=1e-12)
    assert [axis_size(o.space, "keys") for o in core] == [10, 10, SEQUENCE]
