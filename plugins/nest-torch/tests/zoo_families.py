"""Tiny models of 20 unlike families of transformers, called with token ids alone as the modules of `zoo.py` are."""

from typing import Any

import torch
from torch import nn

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

FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama_family": ("LlamaConfig", "LlamaForCausalLM", GROUPED),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", GROUPED),
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
    "stablelm": ("StableLmConfig", "StableLmForCausalLM", GROUPED),
    "cohere": ("CohereConfig", "CohereForCausalLM", GROUPED),
}
"""By name the classes of the configuration and of the model, and the sizes."""


class Tokens(nn.Module):
    """A model that token ids alone go into; those of two towers go into both."""

    def __init__(self, name: str) -> None:
        super().__init__()
        import transformers

        config, model, sizes = FAMILIES[name]
        self.model = getattr(transformers, model)(getattr(transformers, config)(**sizes))
        self.towers = name == "t5"

    def forward(self, tokens: torch.Tensor) -> Any:
        """Logits."""
        more = {"decoder_input_ids": tokens} if self.towers else {}
        return self.model(input_ids=tokens, **more).logits


TRAINED = {name: (lambda name=name: Tokens(name)) for name in FAMILIES}
