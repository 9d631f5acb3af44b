"""Descriptions in place give the graphs of the families they describe."""

import pytest
from attrs import evolve

from nest.errors import InputErrors
from nest.formulate.model import describe
from nest.spec import MlaSpec, Training, TransformerSpec

LLAMA = TransformerSpec(layers=3, hidden=24, ffn=40, heads=6, vocab=96, kv_heads=2)


def same_operators(one, other):
    return one.operators == other.operators and one.layers == other.layers


def test_widths_of_llama_give_llama(llama, load):
    assert same_operators(load(LLAMA), load(llama))


def test_a_window_gives_mistral(llama, load):
    mistral = {**llama, "model_type": "mistral", "architectures": None, "sliding_window": 8}
    assert same_operators(load(evolve(LLAMA, sliding_window=8)), load(mistral))


def test_experts_give_mixtral(llama, load):
    mixtral = {
        **llama,
        "model_type": "mixtral",
        "architectures": None,
        "num_local_experts": 8,
        "num_experts_per_tok": 3,
    }
    assert same_operators(load(evolve(LLAMA, experts=8, top_k=3)), load(mixtral))


def test_latent_attention_and_shared_experts_give_deepseek(deepseek, load):
    spec = TransformerSpec(
        layers=3,
        hidden=24,
        ffn=40,
        heads=6,
        vocab=96,
        experts=8,
        top_k=3,
        moe_ffn=7,
        shared_expert_ffn=14,
        dense_layers=1,
        mla=MlaSpec(10, 9, 5, 2, 3),
    )
    assert same_operators(load(spec), load(deepseek))
    limited = load({**deepseek, "n_group": 4, "topk_group": 2})
    assert same_operators(load(evolve(spec, expert_groups=4, visited_groups=2)), limited)


@pytest.mark.parametrize(
    "experts", [{}, {"experts": 4, "top_k": 2, "moe_ffn": 7, "dense_layers": 1}], ids=["dense", "experts"]
)
def test_a_layer_that_predicts_further_tokens_is_like_the_last_with_a_pass_through_the_head(load, experts):
    training = Training(global_batch=1, sequence_length=32)
    described = evolve(LLAMA, **experts)
    three, four = (describe(load(evolve(described, layers=count)), training) for count in (3, 4))
    found = describe(load(evolve(described, mtp_layers=1)), training)
    assert found["layers"] == four["layers"]
    assert found["parameters"] == four["parameters"]
    head = 2 * LLAMA.hidden * LLAMA.vocab
    assert found["flops_per_token"] == pytest.approx(four["flops_per_token"] + head, rel=1e-12)
    assert three["parameters"] < four["parameters"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"heads": 5, "kv_heads": None}, "`heads`"),
        ({"kv_heads": 4}, "`kv_heads`"),
        ({"experts": 2, "top_k": 3}, "`top_k`"),
        ({"dense_layers": 4}, "`dense_layers`"),
        ({"mtp_layers": 4}, "`mtp_layers`"),
        ({"experts": 8, "top_k": 2, "expert_groups": 3}, "`expert_groups`"),
        ({"experts": 8, "top_k": 2, "visited_groups": 2}, "`visited_groups`"),
        ({"shared_expert_ffn": 8}, "`shared_expert_ffn`"),
        ({"moe_ffn": 8}, "`moe_ffn`"),
        ({"sliding_window": 8, "mla": MlaSpec(10, 9, 5, 2, 3)}, "`sliding_window`"),
        ({"layers": 10**7}, "`layers`"),
    ],
)
def test_contradictions_are_named(load, change, named):
    with pytest.raises(InputErrors, match=named):
        load(evolve(LLAMA, **change))
