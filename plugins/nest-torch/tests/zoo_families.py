"""Tiny models of 20 unlike families of transformers."""

from typing import Any

import torch

import zoo

SIZES = {
    "vocab_size": zoo.VOCABULARY,
    "hidden_size": zoo.WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": zoo.LAYERS,
    "num_attention_heads": zoo.HEADS,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
ROUTED = {"moe_intermediate_size": 16, "num_experts_per_tok": 2}
LATENT = {
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": zoo.HEADS,
}  # fmt: skip
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GPT = {"n_embd": zoo.WIDTH, "n_layer": zoo.LAYERS, "n_head": zoo.HEADS, "n_positions": 64}
NO_GPT_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}

SIDES = {"layers": zoo.LAYERS, "attention_heads": zoo.HEADS, "ffn_dim": 48}
WHISPER = {
    "d_model": zoo.WIDTH, "num_mel_bins": 8, "max_source_positions": 8, "max_target_positions": 16,
    **{f"{side}_{key}": size for side in ("encoder", "decoder") for key, size in SIDES.items()},
}  # fmt: skip

FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama_family": ("LlamaConfig", "LlamaForCausalLM", GROUPED),
    "albert": ("AlbertConfig", "AlbertForMaskedLM", {**SIZES, **NO_DROPOUT, "embedding_size": 16}),
    "qwen3_family": ("Qwen3Config", "Qwen3ForCausalLM", {**GROUPED, "head_dim": 16}),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", {**GROUPED, **ROUTED, "num_experts": 4, "head_dim": 8}),
    "mixtral_family": ("MixtralConfig", "MixtralForCausalLM", {**GROUPED, "num_local_experts": 4}),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", SIZES),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {**GROUPED, "head_dim": 8, "sliding_window": 4}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", GROUPED),
    "deepseek_v3": ("DeepseekV3Config", "DeepseekV3ForCausalLM", {**SIZES, **ROUTED, **LATENT}),
    "gpt_oss": ("GptOssConfig", "GptOssForCausalLM", {**GROUPED, "num_local_experts": 4, "head_dim": 8}),
    "gpt2_family": ("GPT2Config", "GPT2LMHeadModel", {**SIZES, **GPT, **NO_GPT_DROPOUT}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {**SIZES, "rotary_pct": 0.5}),
    "bloom": ("BloomConfig", "BloomForCausalLM", {**SIZES, "n_layer": zoo.LAYERS, "n_head": zoo.HEADS}),
    "falcon": ("FalconConfig", "FalconForCausalLM", {**SIZES, "new_decoder_architecture": False}),
    "opt": ("OPTConfig", "OPTForCausalLM", {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.0}),
    "bert_family": ("BertConfig", "BertForMaskedLM", {**SIZES, **NO_DROPOUT}),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        {**SIZES, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 4, "num_heads": 4, "dropout_rate": 0.0},
    ),
    "mamba": ("MambaConfig", "MambaForCausalLM", {**SIZES, "state_size": 4}),
    "vit_family": ("ViTConfig", "ViTForImageClassification", {**SIZES, "image_size": 8, "patch_size": 4}),
    "whisper": ("WhisperConfig", "WhisperForConditionalGeneration", {**SIZES, **WHISPER}),
    "cohere": ("CohereConfig", "CohereForCausalLM", GROUPED),
}
"""By name the classes of the configuration and of the model, and the sizes."""


def made(name: str) -> Any:
    import transformers

    config, model, sizes = FAMILIES[name]
    return getattr(transformers, model)(getattr(transformers, config)(**sizes))


TRAINED = {name: (lambda name=name: made(name)) for name in FAMILIES}

IDS = torch.zeros(1, zoo.LENGTH, dtype=torch.long)
INPUTS = {
    **{name: {"input_ids": IDS} for name in FAMILIES},
    "t5": {"input_ids": IDS, "decoder_input_ids": IDS},
    "vit_family": {"pixel_values": torch.zeros(1, 3, 8, 8)},
    "whisper": {"input_features": torch.zeros(1, 8, 16), "decoder_input_ids": IDS},
}
ROUTED_FAMILIES = ("qwen3_moe", "mixtral_family", "deepseek_v3", "gpt_oss")
