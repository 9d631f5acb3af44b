"""A model as flags of Megatron-LM: its widths, and details of its configuration that cost nothing.

Keys: configurations of Hugging Face transformers (`PretrainedConfig` and those of each family). Flags:
megatron/training/arguments.py and `TransformerConfig`, `MLATransformerConfig` (megatron/core/transformer/
transformer_config.py), gpt_builders.py and `RotaryEmbedding` of Megatron-LM core_v0.16.1.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import evolve

from nest.errors import InputError
from nest.spec import Architecture
from nest.spec.architecture import LatentAttention, MixtureOfExperts
from nest_frameworks.configurations import configuration
from nest_frameworks.limits.megatron import (
    SIGMOID_ROUTERS,
    biased_sigmoid_router,
    biases,
    feed_forwards,
    model_obstacles,
    rotates,
    windows,
)
from nest_frameworks.megatron.notation import Flags, write_pattern


def model_flags(model: Architecture, sequence_length: int) -> Flags:
    """The flags that build `model` for sequences of `sequence_length` tokens.

    Raises:
        InputError: Megatron-LM has no flags for it; the text says what is missing.
    """
    for obstacle in model_obstacles(model, sequence_length):
        raise InputError(f"the model cannot be trained with Megatron-LM, because {obstacle}.")
    dense, sparse = feed_forwards(model)
    return {
        "--num-layers": len(decoder(model).blocks),
        "--mtp-num-layers": model.predicting or None,
        "--hidden-size": model.hidden,
        "--ffn-hidden-size": (dense or sparse)[0].width,
        "--num-attention-heads": model.blocks[0].attention.heads,
        **_attention_flags(model),
        "--normalization": "LayerNorm" if model.norm_bias else "RMSNorm",
        "--position-embedding-type": _positions(model),
        "--max-position-embeddings": model.positions or sequence_length,
        "--seq-length": sequence_length,
        "--vocab-size": model.vocab,
        "--untie-embeddings-and-output-weights": not model.tied,
        "--swiglu": (dense or sparse)[0].gated,
        "--disable-bias-linear": biases(model)[1] == {False},
        "--add-qkv-bias": biases(model) == ({True}, {False}),
        **_expert_flags(model),
    }


def decoder(model: Architecture) -> Architecture:
    """The model without the blocks that predict further tokens, which Megatron-LM counts apart."""
    return evolve(model, blocks=model.blocks[: len(model.blocks) - model.predicting], predicting=0)


def _positions(model: Architecture) -> str:
    if model.positions:
        return "learned_absolute"
    return "rope" if rotates(model.blocks[0].attention) else "none"


def _attention_flags(model: Architecture) -> Flags:
    attention = model.blocks[0].attention
    if isinstance(attention, LatentAttention):
        # With --qk-layernorm Megatron Core normalises latent queries, keys and values, as DeepSeek-V2 does
        # (megatron/core/models/gpt/gpt_layer_specs.py).
        return {
            "--multi-latent-attention": True,
            "--qk-layernorm": True,
            "--q-lora-rank": attention.query_rank,
            "--kv-lora-rank": attention.key_value_rank,
            "--qk-head-dim": attention.plain,
            "--qk-pos-emb-head-dim": attention.rotary,
            "--v-head-dim": attention.value,
            "--kv-channels": attention.value,
        }
    grouped = attention.kv_heads != attention.heads
    return {
        "--kv-channels": attention.head,
        "--group-query-attention": grouped,
        "--num-query-groups": attention.kv_heads if grouped else None,
        "--qk-layernorm": attention.normalised,
        **_window_flags(windows(decoder(model))),
    }


def _window_flags(widths: tuple[int | None, ...]) -> Flags:
    """A window of `w` keys ends with the query's own: `w - 1` to the left, none to the right.

    Sources: `window_size` and `window_attn_skip_freq` of Megatron Core's TransformerConfig; 1 stands for a window.
    """
    widths_given = [width for width in widths if width is not None]
    if not widths_given:
        return {}
    pattern = [int(width is not None) for width in widths]
    return {
        "--window-size": f"{widths_given[0] - 1},0",
        "--window-attn-skip-freq": None if all(pattern) else write_pattern(pattern),
    }


def _expert_flags(model: Architecture) -> Flags:
    dense, sparse = feed_forwards(model)
    if not sparse:
        return {}
    mixture = sparse[0]
    pattern = [int(isinstance(block.feed_forward, MixtureOfExperts)) for block in decoder(model).blocks]
    return {
        "--num-experts": mixture.experts,
        "--moe-router-topk": mixture.top_k,
        "--moe-ffn-hidden-size": mixture.width,
        "--moe-shared-expert-intermediate-size": mixture.shared_width or None,
        "--moe-shared-expert-gate": mixture.shared_gate,
        "--moe-layer-freq": write_pattern(pattern) if dense else None,
        "--moe-grouped-gemm": True,
    }


LLAMA_SCALING = {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}
"""All that `--use-rope-scaling` can do: gpt_builders.py passes no other factor on."""

YARN_DEFAULTS = {"original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1}
"""Fields of `MLATransformerConfig` that have no flag."""

GATED, UNGATED = ("silu", "swish"), ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")
"""Activations that `--swiglu` stands for, and those that no flag does."""

SQUARED_RELU = "relu2"  # The activation that `--squared-relu` stands for.


CHOOSE_FIRST = ("mixtral", "gpt_oss", "ernie4_5_moe", "hunyuan_v1_moe")
"""Families whose softmax follows the choice of experts (arXiv 2401.04088, section 2.1), as Megatron-LM's does, or is
normalised over those chosen, which is the same."""


def detail_flags(source: Any, model: Architecture) -> Flags:
    """Flags for what the configuration `source` says beside widths; dropout is none where nobody says another.

    Args:
        source: `model` of a self-contained problem.
        model: the same, as its family reads it.
    """
    config = configuration(source)
    flags: Flags = {
        "--norm-epsilon": _number(config, "rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"),
        "--init-method-std": _number(config, "initializer_range"),
        # Megatron-LM drops a tenth unless it is told otherwise.
        "--attention-dropout": _number(config, "attention_dropout", "attn_pdrop") or 0.0,
        "--hidden-dropout": _number(config, "resid_pdrop", "hidden_dropout") or 0.0,
        "--squared-relu": config.get("hidden_act") == SQUARED_RELU and not model.blocks[0].feed_forward.gated,
    }
    if rotates(model.blocks[0].attention):
        flags |= {
            "--rotary-base": _whole(_number(_rope(config), "rope_theta")),
            "--rotary-percent": _number(_rope(config), "partial_rotary_factor"),
            **(_scaling_flags(config, model) or {}),
        }
    return {**flags, **(_router_flags(config, model) if feed_forwards(model)[1] else {})}


def left_out(source: Any, model: Architecture) -> Iterator[str]:
    """Parts of the model's computation that the flags do not say, a sentence each without its full stop."""
    config = configuration(source)
    flags = detail_flags(source, model)
    silent = [flag for flag in ("--norm-epsilon", "--init-method-std") if flags[flag] is None]
    silent += ["--rotary-base"] if rotates(model.blocks[0].attention) and flags["--rotary-base"] is None else []
    sparse = feed_forwards(model)[1]
    known = {"norm_topk_prob", "scoring_func"} & config.keys() or _family(config) in (*SIGMOID_ROUTERS, *CHOOSE_FIRST)
    if sparse and sparse[0].top_k > 1 and not known:
        silent.append("--moe-router-pre-softmax")
    if silent:
        yield f"The model's description says nothing of {', '.join(silent)}: Megatron-LM's defaults hold"
    if rotates(model.blocks[0].attention) and _scaling_flags(config, model) is None:
        yield f"Megatron-LM's flags cannot say the configuration's rope_scaling {_scaling(config)!r:.300}"
    activation = config.get("hidden_act", config.get("activation_function"))
    gated = model.blocks[0].feed_forward.gated
    if activation is not None and activation not in (GATED if gated else (*UNGATED, SQUARED_RELU)):
        built = "SwiGLU" if gated else "GELU"
        yield f"The configuration's activation is {activation!r:.60}, and the flags build {built}"
    if config.get("num_nextn_predict_layers") and not model.predicting:
        yield "Neither plan nor flags have the layers that predict further tokens (num_nextn_predict_layers)"
    if flags["--attention-dropout"] or flags["--hidden-dropout"]:
        yield "Dropout is what the configuration says; the plan has no room for its masks"


def _family(config: Mapping[str, Any]) -> str:
    return str(config.get("model_type", ""))


def _number(config: Mapping[str, Any], *keys: str) -> float | None:
    """The first of `keys` that is a number."""
    values = (config.get(key) for key in keys)
    return next((v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)), None)


def _whole(value: float | None) -> int | None:
    """`--rotary-base` takes whole numbers only."""
    return int(value) if value is not None and float(value).is_integer() else None


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the description of rotary embeddings: the configuration, or its `rope_parameters` since transformers 5."""
    inner = config.get("rope_parameters")
    return {**config, **inner} if isinstance(inner, Mapping) else config


def _scaling(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the stretching of positions; empty: none."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, Mapping):
        return {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    return {} if kind == "default" else {**scaling, "rope_type": kind}


def _scaling_flags(config: Mapping[str, Any], model: Architecture) -> Flags | None:
    """Flags for how positions are stretched; None: there are none for it."""
    scaling = _scaling(config)
    if not scaling:
        return {}
    kind, factor = scaling["rope_type"], _number(scaling, "factor")
    latent = isinstance(model.blocks[0].attention, LatentAttention)
    if latent and kind == "yarn" and all(scaling.get(key, value) == value for key, value in YARN_DEFAULTS.items()):
        return {
            "--rope-type": "yarn",
            "--rotary-scaling-factor": factor,
            "--mscale": _number(scaling, "mscale"),
            "--mscale-all-dim": _number(scaling, "mscale_all_dim"),
        }
    if not latent and kind == "yarn":
        return _plain_yarn(scaling, model)
    if not latent and kind == "llama3" and all(scaling.get(key) == value for key, value in LLAMA_SCALING.items()):
        return {"--use-rope-scaling": True}
    if not latent and kind == "linear" and _whole(factor) is not None:
        return {"--rotary-seq-len-interpolation-factor": _whole(factor)}
    return None


YARN_KEYS = frozenset(
    {"rope_type", "type", "factor", "original_max_position_embeddings", "rope_theta"}
    | {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}
)
"""What a description of YaRN may have for Megatron Core's flags to say it."""


def _plain_yarn(scaling: Mapping[str, Any], model: Architecture) -> Flags | None:
    """Flags of YaRN outside latent attention; None: they cannot say it.

    Megatron Core scales scores by `0.1 ln(factor) + 1` or by the ratio of two mscales, as Transformers does
    (yarn_rotary_pos_embedding.py of 0.19.2; modeling_rope_utils.py of 5.24.0), and has no YaRN where layers predict
    further tokens (`validate_args`).
    """
    factor, original = _number(scaling, "factor"), _number(scaling, "original_max_position_embeddings")
    if {key for key, value in scaling.items() if value is not None} - YARN_KEYS or not factor or not original:
        return None
    if model.predicting:
        return None
    both = {"mscale", "mscale_all_dim"} <= scaling.keys()
    return {
        "--position-embedding-type": "yarn",
        "--rotary-scaling-factor": factor,
        "--yarn-original-max-position-embeddings": _whole(original),
        "--yarn-beta-fast": _number(scaling, "beta_fast"),
        "--yarn-beta-slow": _number(scaling, "beta_slow"),
        "--mscale": _number(scaling, "mscale") if both else None,
        "--mscale-all-dim": _number(scaling, "mscale_all_dim") if both else None,
    }


def _router_flags(config: Mapping[str, Any], model: Architecture) -> Flags:
    """Flags of the choice and weights of experts.

    Softmax follows the choice unless `--moe-router-pre-softmax`: of one expert it would always be 1, which Megatron
    Core refuses (`TransformerConfig.__post_init__`), and `norm_topk_prob: false` keeps its values before the choice.
    """
    sigmoid = config.get("scoring_func") == "sigmoid" or _family(config) in SIGMOID_ROUTERS
    unscaled = _number(config, "routed_scaling_factor") in (None, 1)
    mixture = feed_forwards(model)[1][0]
    grouped, once = mixture.groups > 1, mixture.top_k == 1
    return {
        "--moe-router-score-function": "sigmoid" if sigmoid else None,
        "--moe-router-enable-expert-bias": biased_sigmoid_router(config),
        "--moe-router-pre-softmax": not sigmoid and (once or config.get("norm_topk_prob") is False),
        "--moe-router-num-groups": mixture.groups if grouped else None,
        "--moe-router-group-topk": mixture.visited_groups if grouped else None,
        "--moe-router-topk-scaling-factor": None if unscaled else _number(config, "routed_scaling_factor"),
        "--moe-aux-loss-coeff": _number(config, "router_aux_loss_coef", "aux_loss_alpha"),
    }
