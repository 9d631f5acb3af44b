"""The Qwen families: Llama's shape, dense or with routed experts.

Qwen2 and Qwen2.5 (arXiv 2407.10671) have biased query, key and value projections, Qwen1.5-MoE and Qwen2-MoE beside
their routed experts a gated shared one; Qwen3 and Qwen3-MoE (arXiv 2505.09388) normalise queries and keys per head.
"""

from collections.abc import Callable

from attrs import evolve

from nest.models.building.config import (
    SLIDING,
    ConfigImporter,
    ConfigReader,
    DecoderWidths,
    Network,
    decoder,
    decoder_widths,
    dense_and_sparse,
    experts_behind_dense_layers,
    grouped_query_attention,
    layer_kinds,
    layer_windows,
    mixture_of_experts,
)
from nest.spec.architecture import Architecture, FeedForward, GroupedQueryAttention, MixtureOfExperts


def _dense(config: ConfigReader, widths: DecoderWidths, attention: GroupedQueryAttention) -> Architecture:
    network = FeedForward(config.integer("intermediate_size"))
    windows = _windows(config, widths.layers, lambda index, first: index >= first)
    return decoder(config, widths, attention, network, windows=windows)


def _read_qwen2(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    attention = grouped_query_attention(config, widths, bias=True)
    return _dense(config, widths, attention)


SEVEN_BILLION = {
    "model_type": "qwen2",
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
}
"""Qwen2-7B (table 1 of the paper; the rows of its embedding as its `config.json` has them)."""

qwen2 = ConfigImporter("qwen2", "Qwen2ForCausalLM", _read_qwen2, examples=(SEVEN_BILLION,))
# MiMo-7B (arXiv 2505.07608) is Qwen2 with layers for multi-token prediction, which are left out.
mimo = ConfigImporter("mimo", "MiMoForCausalLM", _read_qwen2, examples=({**SEVEN_BILLION, "model_type": "mimo"},))


def _read_qwen2_moe(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    attention = grouped_query_attention(config, widths, bias=config.boolean("qkv_bias", True))
    shared = config.integer("shared_expert_intermediate_size")
    mixture = mixture_of_experts(config, shared_width=shared, shared_gate=True)
    # Windows on every second layer below `max_window_layers`: Qwen2MoeConfig in Hugging Face transformers.
    windows = _windows(config, widths.layers, lambda index, first: index % 2 == 0 and index < first)
    return decoder(config, widths, attention, feed_forwards(config, widths.layers, mixture), windows=windows)


qwen2_moe = ConfigImporter("qwen2_moe", "Qwen2MoeForCausalLM", _read_qwen2_moe)


def _read_qwen3(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    bias = config.boolean("attention_bias", False)
    # 128 channels per head: default of Qwen3Config in Hugging Face transformers.
    attention = grouped_query_attention(config, widths, head=128, bias=bias, output_bias=bias, normalised=True)
    return _dense(config, widths, attention)


qwen3 = ConfigImporter("qwen3", "Qwen3ForCausalLM", _read_qwen3)


def _read_qwen3_moe(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    bias = config.boolean("attention_bias", False)
    # 4 key-value heads and a window of 4096: defaults of Qwen3MoeConfig in Hugging Face transformers.
    attention = grouped_query_attention(config, widths, kv_heads=4, bias=bias, output_bias=bias, normalised=True)
    if config.boolean("use_sliding_window", False):
        attention = evolve(attention, window=config.optional_integer("sliding_window", 4096))
    # Newer configurations say `num_local_experts`.
    experts_key = "num_local_experts" if config.has("num_local_experts") else "num_experts"
    mixture = mixture_of_experts(config, experts=experts_key)
    return decoder(config, widths, attention, feed_forwards(config, widths.layers, mixture))


qwen3_moe = ConfigImporter("qwen3_moe", "Qwen3MoeForCausalLM", _read_qwen3_moe)


def _read_mimo_v2(config: ConfigReader) -> Architecture:
    """Read MiMo-V2-Flash (`MiMoV2FlashConfig`): windows with sinks and twice the key-value heads, and narrow values."""
    widths = decoder_widths(config)
    config.fill(first_k_dense_replace=1)
    attention = grouped_query_attention(
        config, widths, head=192, kv_heads=4, bias=config.boolean("attention_bias", False)
    )
    attention = evolve(attention, value=config.integer("v_head_dim", 128))
    # The window counts the token itself, `sliding_window_size` does not: 129 in the class.
    window = config.integer("sliding_window_size", config.integer("sliding_window", 129) - 1) + 1
    narrow = evolve(attention, kv_heads=2 * attention.kv_heads, window=window, sinks=True)
    config.divides("num_key_value_heads, doubled,", narrow.kv_heads, "num_attention_heads", widths.heads)
    for key, built in (("num_attention_heads", widths.heads), ("num_key_value_heads", narrow.kv_heads)):
        config.builds(**{f"swa_{key}": built})
    config.builds(swa_head_dim=attention.head, swa_v_head_dim=attention.value)
    pattern = config.integers("hybrid_layer_pattern")
    slides = layer_kinds(
        config,
        widths.layers,
        SLIDING,
        lambda index: bool(pattern[index] if index < len(pattern) else index and (index + 1) % 6),
    )
    attentions = tuple(narrow if each else attention for each in slides)
    return decoder(config, widths, attentions, experts_behind_dense_layers(config, widths))


SIX_BLOCKS = {
    **SEVEN_BILLION,
    "model_type": "mimo_v2_flash",
    "num_hidden_layers": 6,
    "num_attention_heads": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 2048,
    "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0],
    "moe_layer_freq": [0, 1, 1, 1, 1, 1],
}

mimo_v2 = ConfigImporter("mimo_v2_flash", "MiMoV2FlashForCausalLM", _read_mimo_v2, examples=(SIX_BLOCKS,))


def _windows(config: ConfigReader, layers: int, slides: Callable[[int, int], bool]) -> tuple[int | None, ...]:
    """Read the window of each layer of a Qwen model: `use_sliding_window`, `sliding_window` and `layer_types`.

    Args:
        slides: whether a layer has a window, from its index and `max_window_layers`, for configurations without
            `layer_types`.
    """
    if not config.boolean("use_sliding_window", False):
        return (None,) * layers
    # 4096 and 28: defaults of Qwen2Config, Qwen3Config and Qwen2MoeConfig in Hugging Face transformers.
    window = config.optional_integer("sliding_window", 4096)
    first = config.integer("max_window_layers", 28, minimum=0) if config.words("layer_types") is None else 0
    return layer_windows(config, layers, window, lambda index: slides(index, first))


def feed_forwards(config: ConfigReader, layers: int, mixture: MixtureOfExperts) -> tuple[Network, ...]:
    """Read the dense layers of a Qwen mixture of experts: `decoder_sparse_step` and `mlp_only_layers`."""
    step = config.integer("decoder_sparse_step", 1)
    dense_layers = frozenset(config.integers("mlp_only_layers"))
    sparse = [index not in dense_layers and (index + 1) % step == 0 for index in range(layers)]
    return dense_and_sparse(config, sparse, mixture)
