"""What a configuration may not say, and how it is told."""

import pytest

from nest.errors import InputError, InputErrors
from tests.models.conftest import LLAMA

EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 1, "intermediate_size_mlp": 50, "head_dim": 4}
DEEPSEEK = {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 7}
LATENT = {"q_lora_rank": 10, "kv_lora_rank": 9, "qk_nope_head_dim": 5, "qk_rope_head_dim": 2, "v_head_dim": 3}
LATENT |= DEEPSEEK

REQUIRED = {
    "gemma3_text": ["hidden_size", "intermediate_size"],
    "deepseek_v32": ["kv_lora_rank", "q_lora_rank", "v_head_dim", "n_routed_experts", "moe_intermediate_size"],
    "llama4_text": ["num_local_experts", "num_experts_per_tok", "intermediate_size"],
    "ernie4_5_moe": ["moe_num_experts", "moe_k", "moe_intermediate_size", "intermediate_size"],
    "hunyuan_v1_moe": ["num_experts", "moe_topk", "intermediate_size"],
    "llama": ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"],
    "gpt2": ["n_embd", "n_head", "n_layer", "n_positions", "vocab_size"],
    "bert": ["hidden_size", "max_position_embeddings", "num_attention_heads", "vocab_size"],
    "mixtral": ["num_local_experts", "num_experts_per_tok"],
    "qwen2_moe": ["num_experts", "moe_intermediate_size", "shared_expert_intermediate_size"],
    "qwen3_moe": ["num_experts", "moe_intermediate_size", "intermediate_size"],
    "gpt_oss": ["num_local_experts", "num_experts_per_tok", "intermediate_size"],
    "glm4_moe": ["n_routed_experts", "moe_intermediate_size", "intermediate_size"],
    "exaone_moe": ["num_experts", "num_experts_per_tok", "moe_intermediate_size", "intermediate_size"],
    "glm4_moe_lite": ["kv_lora_rank", "q_lora_rank", "n_routed_experts", "moe_intermediate_size"],
    "glm_moe_dsa": ["kv_lora_rank", "q_lora_rank", "n_routed_experts", "moe_intermediate_size"],
    "granitemoe": ["num_local_experts", "num_experts_per_tok", "intermediate_size"],
    "mimo_v2_flash": ["n_routed_experts", "moe_intermediate_size", "intermediate_size"],
    "solar_open": ["n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"],
    "youtu": ["kv_lora_rank", "intermediate_size"],
    "deepseek_v3": ["kv_lora_rank", "q_lora_rank", "v_head_dim", "n_routed_experts", "moe_intermediate_size"],
}


def test_missing_keys_are_named_all_at_once(small, load):
    family = small.config["model_type"]
    gone = REQUIRED.get(family, ["hidden_size", "vocab_size"])
    with pytest.raises(InputErrors) as caught:
        load({key: value for key, value in small.config.items() if key not in gone})
    assert all(any(f"`{key}`" in problem for problem in caught.value.problems) for key in gone)
    assert all(family in problem for problem in caught.value.problems)


@pytest.mark.parametrize("value", [0, -1, 2.5, "many", True, [], 10**12, float("nan")])
def test_widths_must_be_whole_positive_numbers(small, load, value):
    for key in ("vocab_size", "n_layer" if "n_layer" in small.config else "num_hidden_layers"):
        with pytest.raises(InputErrors, match=f"`{key}` must be a whole number"):
            load({**small.config, key: value})


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("num_attention_heads", 7, "`num_attention_heads`"),
        ("num_key_value_heads", 4, "`num_key_value_heads`"),
        ("tie_word_embeddings", "yes", "`tie_word_embeddings`"),
        ("attention_bias", 1, "`attention_bias`"),
        ("architectures", "LlamaForCausalLM", "`architectures`"),
        ("architectures", ["LlamaForSequenceClassification"], "LlamaForSequenceClassification"),
    ],
)
def test_values_that_cannot_be_are_named(llama, load, key, value, named):
    with pytest.raises(InputErrors, match=named):
        load({**llama, key: value})


def test_whole_numbers_may_be_written_with_an_exponent(llama, load):
    assert load({**llama, "vocab_size": 1e2}) == load({**llama, "vocab_size": 100})


@pytest.mark.parametrize("architectures", [None, [], ["LlamaForCausalLM"], ["LLaMAForCausalLM"]])
def test_language_model_heads_are_taken_and_none_is_presumed_one(llama, load, architectures):
    assert load({**llama, "architectures": architectures}).parameter_count == load(llama).parameter_count


def test_more_experts_per_token_than_experts_is_refused(deepseek, load):
    with pytest.raises(InputErrors, match="`num_experts_per_tok`"):
        load({**deepseek, "num_experts_per_tok": 9})


def test_layer_types_must_cover_the_layers(llama, load):
    config = {**llama, "model_type": "qwen2", "architectures": None, "use_sliding_window": True}
    for types in (["full_attention"], ["linear_attention"] * 3):
        with pytest.raises(InputErrors, match="`layer_types`"):
            load({**config, "layer_types": types})


def test_an_indexer_needs_compressed_queries(deepseek, load):
    with pytest.raises(InputErrors, match="the indexer reads compressed queries"):
        load({**deepseek, "model_type": "deepseek_v32", "architectures": None, "q_lora_rank": None})


def test_bert_with_relative_positions_is_refused(load):
    config = {**LLAMA, "model_type": "bert", "architectures": None, "max_position_embeddings": 64}
    with pytest.raises(InputErrors, match="`position_embedding_type`"):
        load({**config, "position_embedding_type": "relative_key"})


def test_a_model_needs_a_sequence_length(llama, load):
    with pytest.raises(InputError, match=r"training\.sequence_length"):
        load(llama, sequence_length=None)


def test_sequences_beyond_the_learned_positions_are_refused(gpt2, llama, load):
    assert load(gpt2, 64).flops > 0
    with pytest.raises(InputError, match="64"):
        load(gpt2, 65)
    assert load({**llama, "max_position_embeddings": 64}, 65).flops > 0


def test_gemma_3_that_looks_ahead_is_refused(load):
    with pytest.raises(InputErrors, match="use_bidirectional_attention"):
        load({**LLAMA, "model_type": "gemma3_text", "architectures": None, "use_bidirectional_attention": True})


@pytest.mark.parametrize(
    ("family", "keys", "named"),
    [
        ("falcon", {"alibi": True}, "`alibi`"),
        ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 4}, "`num_kv_heads`"),
        ("llama4_text", {**EXPERTS, "no_rope_layers": [1, 0]}, "`no_rope_layers`"),
        ("llama4_text", {**EXPERTS, "layer_types": ["sliding_attention"] * 3}, "`chunked_attention`"),
        ("olmo3", {"layer_types": ["chunked_attention"] * 3}, "`layer_types`"),
        ("ernie4_5_moe", {"moe_num_experts": 8, "moe_k": 2, **DEEPSEEK, "use_bias": True}, "`use_bias`"),
        ("hunyuan_v1_dense", {"use_cla": True}, "`use_cla`"),
        ("mimo_v2_flash", {**DEEPSEEK, "swa_num_key_value_heads": 2}, "`swa_num_key_value_heads`"),
        ("mimo_v2_flash", {**DEEPSEEK, "moe_layer_freq": [0, 1]}, "`moe_layer_freq`"),
        ("apertus", {"hidden_act": "silu"}, "`hidden_act`"),
        ("smollm3", {"no_rope_layers": [1, 0]}, "`no_rope_layers`"),
        ("exaone4", {"layer_types": ["linear_attention"] * 3}, "`layer_types`"),
        ("glm4_moe", {**DEEPSEEK, "mlp_layer_types": ["dense"]}, "`mlp_layer_types`"),
        ("glm_moe_dsa", {**LATENT, "indexer_types": ["shared", "full", "full"]}, "`indexer_types`"),
        ("glm_moe_dsa", {**LATENT, "indexer_types": ["full", "shared"]}, "`indexer_types`"),
        ("nemotron_h", {"hybrid_override_pattern": "M*X"}, "`layer_types` must name"),
        ("nemotron_h", {"hybrid_override_pattern": ""}, "`num_hidden_layers`"),
        ("qwen3_next", {"linear_num_key_heads": 3, "linear_num_value_heads": 8}, "must divide"),
        ("gemma4_text", {"num_kv_shared_layers": 3}, "`num_kv_shared_layers`"),
        ("deepseek_v4", {**LATENT, "compress_ratios": [0, 4, 5]}, "`layer_types`"),
        ("deepseek_v4", {**LATENT, "o_groups": 5}, "`o_groups`"),
        ("minimax_m3_vl", {"sparse_attention_config": {"sparse_attention_freq": [0, 1]}}, "`sparse_attention_freq`"),
        ("minimax_m2", {**EXPERTS, "attn_type_list": [0, 0, 1]}, "`attn_type_list`"),
        ("hunyuan_v1_moe", {"num_experts": 8, "moe_topk": [2, 2, 3]}, "`moe_topk`"),
        ("hunyuan_v1_moe", {"num_experts": 8, "moe_topk": 2, "moe_intermediate_size": 7}, "`moe_intermediate_size`"),
        ("hunyuan_v1_moe", {"num_experts": 8, "moe_topk": 2, "num_shared_expert": [2, 2, 2]}, "`num_shared_expert`"),
    ],
)
def test_what_a_family_cannot_have_is_named(load, family, keys, named):
    with pytest.raises(InputErrors, match=named):
        load({**LLAMA, "model_type": family, "architectures": None, **keys})


@pytest.mark.parametrize(("family", "tokens"), [("bert", 64), ("roberta", 62), ("xlm-roberta", 62), ("camembert", 62)])
def test_a_sequence_has_a_learned_position_for_each_token(load, family, tokens):
    """RoBERTa counts positions from behind its padding token (transformers 5.24.0, modeling_roberta.py)."""
    config = {**LLAMA, "model_type": family, "architectures": None, "max_position_embeddings": 64}
    assert load(config, sequence_length=tokens).blocks
    with pytest.raises(InputError, match=f"learns only {tokens} positions"):
        load(config, sequence_length=tokens + 1)
