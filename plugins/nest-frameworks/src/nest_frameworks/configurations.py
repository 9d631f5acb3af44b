"""Configurations of Hugging Face's kind, with what its classes take where they leave out what costs nothing.

Source: transformers 5.23.0, `LlamaConfig` and so on (models/*/configuration_*.py); 4.57.1 has the same numbers. Kimi K2
brings a class of its own, which is not among them.
"""

from collections.abc import Mapping
from typing import Any

_DECODER: Mapping[str, Any] = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
}
_QWEN_MOE: Mapping[str, Any] = {**_DECODER, "norm_topk_prob": False, "router_aux_loss_coef": 0.001}

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": _DECODER,
    "mistral": _DECODER,
    "qwen2": _DECODER,
    "qwen3": _DECODER,
    "qwen2_moe": _QWEN_MOE,
    "qwen3_moe": _QWEN_MOE,
    "phi3": {**_DECODER, "rms_norm_eps": 1e-5},
    "mixtral": {**_DECODER, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001},
    "deepseek_v2": {**_DECODER, "norm_topk_prob": False, "routed_scaling_factor": 1.0},
    "deepseek_v3": {**_DECODER, "norm_topk_prob": True, "routed_scaling_factor": 2.5},
    "glm4_moe": {
        **_DECODER,
        "rms_norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
    },
    "ernie4_5": {**_DECODER, "rms_norm_eps": 1e-5, "rope_theta": 500000.0},
    "apertus": {**_DECODER, "hidden_act": "xielu", "rms_norm_eps": 1e-5, "rope_theta": 12000000.0},
    "arcee": {**_DECODER, "hidden_act": "relu2", "rms_norm_eps": 1e-5},
    "gpt_neox": {
        **_DECODER,
        "hidden_act": "gelu",
        "rms_norm_eps": None,
        "layer_norm_eps": 1e-5,
        "partial_rotary_factor": 0.25,
        "hidden_dropout": 0.0,
    },
    "gpt2": {
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "attn_pdrop": 0.1,
        "resid_pdrop": 0.1,
        "initializer_range": 0.02,
    },
    "bert": {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "initializer_range": 0.02},
}
"""By `model_type`. Keys that stand in a configuration, null or not, are as it says."""


RENAMED = {
    "rotary_pct": "partial_rotary_factor",
    "rotary_emb_base": "rope_theta",
    "activation": "hidden_act",
    "hidden_activation": "hidden_act",
}
"""Keys of GPT-NeoX, Falcon and Gemma, by those that most families have."""


def configuration(model: Any) -> Mapping[str, Any]:
    """The configuration of Hugging Face's kind that `model` of a problem is, with its family's `DEFAULTS`.

    Empty: it is none.
    """
    if not isinstance(model, Mapping) or "model_type" not in model:
        return {}
    named = {RENAMED.get(str(key), str(key)): value for key, value in model.items()}
    return {**DEFAULTS.get(str(model["model_type"]), {}), **named}
