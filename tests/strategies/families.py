"""A small model of every family, its sizes with divisors to split by; hypothesis draws further descriptions."""

from itertools import chain
from typing import Any

from hypothesis import strategies as st

from nest.spec import MlaSpec, TransformerSpec

TOKENS = 48

LLAMA = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
"""The vocabulary is padded by 8 ranks, the two key-value heads are repeated by 4."""

BERT = {
    "model_type": "bert",
    "vocab_size": 100,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "max_position_embeddings": 64,
}
GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 100,
    "n_embd": 48,
    "n_inner": None,
    "n_layer": 2,
    "n_head": 8,
    "n_positions": 64,
}
QWEN_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
DEEPSEEK = {
    **LLAMA, "num_key_value_heads": 8, "q_lora_rank": 10, "kv_lora_rank": 9, "qk_nope_head_dim": 5,
    "qk_rope_head_dim": 2, "v_head_dim": 3, "first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 2,
    "num_experts_per_tok": 3, "moe_intermediate_size": 16,
}  # fmt: skip

DELTA = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 4,
    "shared_expert_intermediate_size": 32,
}
MAMBA = {
    **LLAMA,
    "mamba_n_heads": 8,
    "mamba_d_head": 12,
    "mamba_n_groups": 2,
    "mamba_d_state": 5,
    "mamba_chunk_size": 16,
    "shared_intermediate_size": 32,
}
NEMOTRON = {
    "mamba_num_heads": 8,
    "mamba_head_dim": 12,
    "n_groups": 2,
    "ssm_state_size": 5,
    "chunk_size": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
}

FAMILIES: dict[str, Any] = {
    "bert": BERT,
    "eurobert": {**LLAMA, "model_type": "eurobert"},
    "modernbert": {**LLAMA, "model_type": "modernbert", "num_key_value_heads": 8, "local_attention": 20},
    "deepseek_v2": {**DEEPSEEK, "model_type": "deepseek_v2", "q_lora_rank": None},
    "deepseek_v3": {**DEEPSEEK, "model_type": "deepseek_v3"},
    "deepseek_v32": {
        **DEEPSEEK, "model_type": "deepseek_v32", "index_n_heads": 4, "index_head_dim": 6, "index_topk": 20,
    },
    "gemma2": {**LLAMA, "model_type": "gemma2", "head_dim": 6, "sliding_window": 20},
    "gemma3_text": {**LLAMA, "model_type": "gemma3_text", "head_dim": 6, "sliding_window_pattern": 2},
    "glm4": {**LLAMA, "model_type": "glm4", "head_dim": 6},
    "glm4_moe": {
        **LLAMA, "model_type": "glm4_moe", "attention_bias": True, "first_k_dense_replace": 1, "n_routed_experts": 8,
        "n_shared_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 16,
    },
    "cohere": {**LLAMA, "model_type": "cohere", "use_qk_norm": True},
    "cohere2": {**LLAMA, "model_type": "cohere2", "sliding_window": 20, "sliding_window_pattern": 2},
    "ernie4_5": {**LLAMA, "model_type": "ernie4_5", "head_dim": 6, "use_bias": True},
    "ernie4_5_moe": {
        **LLAMA, "model_type": "ernie4_5_moe", "moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 16,
    },
    "falcon": {**LLAMA, "model_type": "falcon"},
    "gpt_neox": {**LLAMA, "model_type": "gpt_neox"},
    "hunyuan_v1_dense": {**LLAMA, "model_type": "hunyuan_v1_dense"},
    "hunyuan_v1_moe": {**LLAMA, "model_type": "hunyuan_v1_moe", "num_experts": 8, "moe_topk": 2},
    "llama4_text": {
        **LLAMA, "model_type": "llama4_text", "head_dim": 6, "num_local_experts": 8, "num_experts_per_tok": 1,
        "intermediate_size_mlp": 64, "interleave_moe_layer_step": 2, "no_rope_layer_interval": 2,
        "attention_chunk_size": 20,
    },
    "minimax_m2": {
        **LLAMA, "model_type": "minimax_m2", "head_dim": 6, "num_local_experts": 8, "num_experts_per_tok": 2,
    },
    "olmo2": {**LLAMA, "model_type": "olmo2"},
    "olmo3": {**LLAMA, "model_type": "olmo3", "sliding_window": 20, "attention_bias": True},
    "gpt2": GPT2,
    "gpt_oss": {
        **LLAMA, "model_type": "gpt_oss", "head_dim": 6, "num_local_experts": 8, "num_experts_per_tok": 2,
        "sliding_window": 20,
    },
    "llama": {**LLAMA, "attention_bias": True, "mlp_bias": True},
    "mistral": {**LLAMA, "model_type": "mistral", "sliding_window": 20},
    "mixtral": {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
    "phi3": {**LLAMA, "model_type": "phi3", "sliding_window": 20},
    "qwen2": {**LLAMA, "model_type": "qwen2"},
    "qwen2_moe": {
        **LLAMA, **QWEN_EXPERTS, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 32,
        "mlp_only_layers": [1],
    },
    "qwen3": {**LLAMA, "model_type": "qwen3", "head_dim": 6, "tie_word_embeddings": True},
    "qwen3_moe": {**LLAMA, **QWEN_EXPERTS, "model_type": "qwen3_moe", "head_dim": 6, "decoder_sparse_step": 2},
    "apertus": {**LLAMA, "model_type": "apertus", "attention_bias": True},
    "arcee": {**LLAMA, "model_type": "arcee", "mlp_bias": True},
    "exaone4": {**LLAMA, "model_type": "exaone4", "sliding_window": 20, "sliding_window_pattern": 2},
    "exaone_moe": {**LLAMA, **QWEN_EXPERTS, "model_type": "exaone_moe", "sliding_window": 20},
    "gemma": {**LLAMA, "model_type": "gemma", "head_dim": 6},
    "glm4_moe_lite": {**DEEPSEEK, "model_type": "glm4_moe_lite"},
    "glm_moe_dsa": {**DEEPSEEK, "model_type": "glm_moe_dsa", "index_n_heads": 4, "index_head_dim": 6, "index_topk": 20},
    "granite": {**LLAMA, "model_type": "granite", "tie_word_embeddings": True},
    "granitemoe": {**LLAMA, "model_type": "granitemoe", "num_local_experts": 8, "num_experts_per_tok": 2},
    "mimo_v2_flash": {
        **LLAMA, **QWEN_EXPERTS, "model_type": "mimo_v2_flash", "n_routed_experts": 8, "head_dim": 6, "v_head_dim": 4,
        "sliding_window": 20, "hybrid_layer_pattern": [0, 1],
    },
    "cwm": {**LLAMA, "model_type": "cwm", "head_dim": 6, "sliding_window": 20, "mlp_bias": True},
    "dots1": {
        **LLAMA, "model_type": "dots1", "first_k_dense_replace": 1, "n_routed_experts": 8, "n_shared_experts": 2,
        "num_experts_per_tok": 3, "moe_intermediate_size": 16, "sliding_window": 20, "max_window_layers": 1,
    },
    "flex_olmo": {**LLAMA, "model_type": "flex_olmo", "num_experts": 8, "num_experts_per_tok": 3},
    "glm": {**LLAMA, "model_type": "glm", "head_dim": 6},
    "hy_v3": {**LLAMA, **QWEN_EXPERTS, "model_type": "hy_v3", "head_dim": 6},
    "nemotron": {**LLAMA, "model_type": "nemotron", "mlp_bias": True},
    "olmoe": {**LLAMA, "model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 3},
    "starcoder2": {**LLAMA, "model_type": "starcoder2", "sliding_window": 20},
    "mimo": {**LLAMA, "model_type": "mimo"},
    "ministral3": {**LLAMA, "model_type": "ministral3", "head_dim": 6},
    "mistral4": {**DEEPSEEK, "model_type": "mistral4"},
    "seed_oss": {**LLAMA, "model_type": "seed_oss", "head_dim": 6, "attention_out_bias": True},
    "smollm3": {**LLAMA, "model_type": "smollm3", "no_rope_layer_interval": 2, "mlp_bias": True},
    "solar_open": {
        **LLAMA, "model_type": "solar_open", "head_dim": 6, "n_routed_experts": 8, "num_experts_per_tok": 3,
        "moe_intermediate_size": 16,
    },
    "youtu": {**DEEPSEEK, "model_type": "youtu"},
    "mamba": {**LLAMA, "model_type": "mamba", "state_size": 5},
    "falcon_mamba": {**LLAMA, "model_type": "falcon_mamba", "state_size": 5, "use_bias": True},
    "mamba2": {**LLAMA, "model_type": "mamba2", "num_heads": 8, "head_dim": 12, "n_groups": 2, "state_size": 5},
    "jamba": {
        **LLAMA, "model_type": "jamba", "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 5,
        "num_experts": 8,
    },
    "lfm2": {**LLAMA, "model_type": "lfm2", "full_attn_idxs": [1], "conv_bias": True, "block_multiple_of": 48},
    "lfm2_moe": {
        **LLAMA, **QWEN_EXPERTS, "model_type": "lfm2_moe",
        "layer_types": ["conv", "full_attention"],
        "num_dense_layers": 1,
    },
    "minimax": {**LLAMA, "model_type": "minimax", "head_dim": 6, "block_size": 16, "attn_type_list": [0, 1]},
    "kimi_linear": {
        **DEEPSEEK, "model_type": "kimi_linear", "num_experts": 8,
        "linear_attn_config": {
            "full_attn_layers": [2], "kda_layers": [1], "num_heads": 8, "head_dim": 6, "short_conv_kernel_size": 4,
        },
    },
    "bailing_hybrid": {
        **DEEPSEEK, "model_type": "bailing_hybrid", "num_experts": 8, "n_group": 1, "topk_group": 1, "head_dim": 6,
        "layer_group_size": 2,
    },
    "bamba": {**MAMBA, "model_type": "bamba", "attn_layer_indices": [1]},
    "granitemoehybrid": {
        **MAMBA, "model_type": "granitemoehybrid",
        "layer_types": ["mamba", "attention"],
        "num_local_experts": 8, "num_experts_per_tok": 3,
    },
    "falcon_h1": {**MAMBA, "model_type": "falcon_h1", "mamba_d_ssm": 64, "mamba_rms_norm": True},
    "nemotron_h": {
        **LLAMA, **NEMOTRON, "model_type": "nemotron_h", "head_dim": 6, "hybrid_override_pattern": "M*-E",
        "moe_shared_expert_intermediate_size": 16, "moe_latent_size": 12,
    },
    "qwen3_next": {**LLAMA, **QWEN_EXPERTS, **DELTA, "model_type": "qwen3_next", "head_dim": 6, "mlp_only_layers": [1]},
    "qwen3_5": {**LLAMA, **DELTA, "model_type": "qwen3_5", "head_dim": 6},
    "qwen3_5_moe": {**LLAMA, **QWEN_EXPERTS, **DELTA, "model_type": "qwen3_5_moe", "head_dim": 6},
    "gemma4_text": {
        **LLAMA, **QWEN_EXPERTS, "model_type": "gemma4_text", "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2, "head_dim": 6, "global_head_dim": 8,
        "sliding_window": 20, "attention_k_eq_v": True, "num_kv_shared_layers": 2, "enable_moe_block": True,
        "top_k_experts": 3, "hidden_size_per_layer_input": 5, "vocab_size_per_layer_input": 90,
    },
    "minimax_m3_vl": {
        **LLAMA, "model_type": "minimax_m3_vl", "head_dim": 6, "num_local_experts": 8, "num_experts_per_tok": 2,
        "dense_intermediate_size": 96, "shared_intermediate_size": 32, "moe_layer_freq": [0, 1],
        "layer_types": ["full_attention", "minimax_m3_sparse"],
        "index_block_size": 4, "index_topk_blocks": 3, "index_head_dim": 6,
    },
    "step3p5": {
        **LLAMA, **QWEN_EXPERTS, "model_type": "step3p5", "head_dim": 6, "first_k_dense_replace": 1,
        "share_expert_dim": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        "num_sliding_attention_heads": 16, "sliding_window": 20,
    },
    "deepseek_v4": {
        **LLAMA, **QWEN_EXPERTS, "model_type": "deepseek_v4", "num_key_value_heads": 1, "num_hidden_layers": 3,
        "head_dim": 6, "q_lora_rank": 10, "o_groups": 8, "o_lora_rank": 5, "compress_ratios": [0, 4, 128],
        "compress_rates": {"heavily_compressed_attention": 8},
        "sliding_window": 10, "index_n_heads": 4, "index_head_dim": 6, "index_topk": 3, "hc_mult": 2,
        "n_routed_experts": 8,
    },
    "transformer": TransformerSpec(
        layers=2, hidden=48, ffn=96, heads=8, kv_heads=4, vocab=100, experts=6, top_k=2, moe_ffn=12,
        shared_expert_ffn=16, dense_layers=1,
    ),
}  # fmt: skip
"""By the name of the importer that reads them."""

_EXPERTS = st.fixed_dictionaries(
    {
        "experts": st.sampled_from([4, 6, 8, 16]),
        "top_k": st.integers(1, 4),
        "moe_ffn": st.sampled_from([None, 12, 16, 30]),
        "shared_expert_ffn": st.sampled_from([0, 16, 24]),
        "dense_layers": st.integers(0, 2),
    }
)
_LATENT = st.builds(
    MlaSpec,
    q_lora_rank=st.sampled_from([None, 10]),
    kv_lora_rank=st.just(9),
    qk_nope_head_dim=st.integers(1, 8),
    qk_rope_head_dim=st.integers(1, 4),
    v_head_dim=st.integers(1, 8),
)
_ATTENTION = st.one_of(
    st.fixed_dictionaries({"mla": _LATENT}),
    st.fixed_dictionaries(
        {
            "kv_heads": st.sampled_from([None, 1, 2, 4, 8]),
            "head_dim": st.sampled_from([None, 5]),
            "sliding_window": st.sampled_from([None, 1, 20, 1000]),
        }
    ),
)


@st.composite
def transformers(draw: st.DrawFn) -> TransformerSpec:
    """Descriptions in place, with every combination of their options."""
    options = chain.from_iterable(draw(each).items() for each in (_ATTENTION, st.one_of(st.just({}), _EXPERTS)))
    return TransformerSpec(
        layers=2,
        hidden=48,
        ffn=draw(st.sampled_from([96, 40])),
        heads=8,
        vocab=draw(st.integers(1, 130)),
        gated_mlp=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        **dict(options),
    )
