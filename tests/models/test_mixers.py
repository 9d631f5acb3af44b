"""Mixers with states and compressed keys: parameters and FLOP restated as lists of matrix products."""

import pytest

from tests.strategies.families import FAMILIES

S, H = 48, 48
"""Tokens and model width of the small families."""


def products(*shapes: tuple[int, int, int]) -> float:
    """FLOP of matrix products of these rows, contracted widths and columns."""
    return sum(2.0 * rows * inner * columns for rows, inner, columns in shapes)


def found(load, family, kind, layer=0):
    graph = load(FAMILIES[family], sequence_length=S)
    return [operator for operator in graph.by_layer[1 + layer] if operator.kind == kind]


@pytest.mark.parametrize("family", ["qwen3_next", "kimi_linear"])
def test_a_delta_rule_costs_its_products_within_and_between_chunks(load, family):
    (scan,) = found(load, family, "scan")
    heads, key, value, chunk = 8, 6, 4 if family == "qwen3_next" else 6, S
    keys_meet, queries_meet, solved = (chunk, key, chunk), (chunk, key, chunk), (chunk, chunk, key + value)
    corrected, read, written = (chunk, chunk, value), (chunk, key, value), (key, chunk, value)
    chunks = S // chunk
    forward = heads * chunks * products(keys_meet, queries_meet, solved, corrected, read, read, written)
    again = heads * chunks * products(solved, read, written)
    assert scan.flops == pytest.approx(forward)
    assert scan.backward_flops == pytest.approx(2 * forward + again)
    assert scan.model_flops == heads * S * 3 * products((1, key, value))


@pytest.mark.parametrize("family", ["bamba", "nemotron_h"])
def test_mamba_2_costs_its_products_within_and_between_chunks(load, family):
    (scan,) = found(load, family, "scan")
    heads, head, groups, state, chunk = 8, 12, 2, 5, 16
    met, mixed, entered, left = (chunk, state, chunk), (chunk, chunk, head), (state, chunk, head), (chunk, state, head)
    chunks = S // chunk
    forward = chunks * (groups * products(met) + heads * products(mixed, entered, left))
    again = chunks * (groups * products(met) + heads * products(mixed, entered))
    assert scan.flops == pytest.approx(forward)
    assert scan.backward_flops == pytest.approx(2 * forward + again)
    assert scan.model_flops == heads * S * 2 * products((1, state, head))


def test_lightning_attention_costs_its_products_within_and_between_chunks(load):
    (scan,) = found(load, "minimax", "scan")
    heads, head, chunk = 8, 6, 16
    met, mixed, written, read = (chunk, head, chunk), (chunk, chunk, head), (head, chunk, head), (chunk, head, head)
    assert scan.flops == pytest.approx(heads * S // chunk * products(met, mixed, written, read))


WEIGHTS = {
    "qwen3_5": (H * 2 * (12 + 32) + H * 2 * 8, 4 * (2 * 12 + 32) + 2 * 8 + 4 + 8 * 4 * H),
    "kimi_linear": (3 * H * 48 + H * 8, 4 * 3 * 48 + 2 * (H * 6 + 6 * 48) + 8 + 48 + 6 + 48 * H),
    "bamba": (H * (2 * 96 + 2 * 2 * 5 + 8), (4 + 1) * (96 + 2 * 2 * 5) + 3 * 8 + 96 + 96 * H),
    "jamba": (H * 2 * 96, 5 * 96 + 96 * (3 + 10) + 3 * 96 + 96 + 3 + 10 + 96 * 5 + 96 + 96 * H),
    "lfm2": (H * 3 * H + 3 * H, (3 + 1) * H + H * H + H),
    "minimax": (H * 3 * 48, H * 48 + 48 + 48 * H),
}
"""Parameters of a mixer's first projection, and of the rest: taps, rates, biases, norms and output."""


@pytest.mark.parametrize("family", WEIGHTS)
def test_mixers_have_their_parameters(load, family):
    graph = load(FAMILIES[family], sequence_length=S)
    outside = ("attention_norm", "mlp", "shared_expert", "expert", "router")
    mixer = [each for each in graph.by_layer[1] if not each.name.partition("/")[2].startswith(outside)]
    assert sum(operator.parameter_count for operator in mixer) == sum(WEIGHTS[family])


def test_deepseek_v4_attends_to_its_window_and_to_blocks_before_a_query(load):
    window, rate, kept = 10, 4, 3
    (attention,) = [each for each in found(load, "deepseek_v4", "attention", 1) if "index" not in each.name]
    pairs = sum(min(query, window) + min(query // rate, kept) for query in range(1, S + 1))
    assert attention.flops == pytest.approx(8 * pairs * products((1, 6, 1), (1, 1, 6)))
    (heavily,) = found(load, "deepseek_v4", "attention", 2)
    assert heavily.flops == pytest.approx(8 * sum(min(q, window) + q // 8 for q in range(1, S + 1)) * 4 * 6)


def test_layers_use_the_keys_of_the_last_layer_of_their_kind(load):
    graph = load(FAMILIES["gemma4_text"], sequence_length=S)
    for layer, owner in ((2, 0), (3, 1)):
        (attention,) = [each for each in graph.by_layer[1 + layer] if each.kind == "attention"]
        assert [t.name for t in attention.inputs[1:]] == [f"layers.{owner}/rotated_key", f"layers.{owner}/value_norm"]


def test_layers_use_the_choice_of_an_earlier_indexer(load):
    config = {**FAMILIES["glm_moe_dsa"], "num_hidden_layers": 4, "index_topk_freq": 2, "index_skip_topk_offset": 1}
    graph = load(config, sequence_length=S)
    chosen = [
        [t.name for op in layer if op.name.endswith("/attention") for t in op.inputs if "chosen" in t.name]
        for layer in graph.by_layer[1:-1]
    ]
    assert chosen == [[f"layers.{owner}/chosen_keys"] for owner in (0, 0, 2, 2)]


def test_hyper_connections_keep_several_streams_between_layers(load):
    graph = load(FAMILIES["deepseek_v4"], sequence_length=S)
    between = {t.name: t.shape for op in graph.operators for t in op.outputs if t.name.endswith("/hidden")}
    assert between["layers.1/hidden"] == (("batch", 1), ("sequence", S), ("streams", 2), ("hidden", H))


@pytest.mark.parametrize("family", ["nemotron_h", "deepseek_v4", "glm_moe_dsa", "qwen3_5_moe"])
def test_layers_that_predict_further_tokens_are_planned_if_asked(load, family):
    config = {**FAMILIES[family], "num_nextn_predict_layers": 2}
    without = load(config, sequence_length=S)
    graph = load({**config, "mtp": True}, sequence_length=S)
    assert len(graph.blocks) == len(without.blocks) + 2
    assert sum(operator.kind == "loss" for operator in graph.operators) == 3
    assert [len(each.assumptions) for each in (without, graph)] == [1, 0]
    first, second = (graph.by_layer[graph.layer_index[name]] for name in graph.blocks[-2:])
    assert [each.parameter_count for each in first] == [each.parameter_count for each in second]
    assert {each.kind for each in first} >= {"attention", "matmul"}
