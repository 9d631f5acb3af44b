"""Qwen3-MoE (arXiv 2505.09388): routed experts only, queries and keys normalised per head."""

from attrs import evolve

from nest.models.building.config import ConfigImporter, ConfigReader
from nest.models.building.decoder import (
    decoder_widths,
    grouped_query_attention,
    qwen_feed_forwards,
)
from nest.spec.architecture import Architecture, MixtureOfExperts, TransformerBlock


def _read(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    bias = config.boolean("attention_bias", False)
    # 4 key-value heads and a window of 4096: defaults of Qwen3MoeConfig in Hugging Face transformers.
    attention = grouped_query_attention(config, widths, kv_heads=4, bias=bias, output_bias=bias, normalised=True)
    if config.boolean("use_sliding_window", False):
        attention = evolve(attention, window=config.optional_integer("sliding_window", 4096))
    # Newer configurations say `num_local_experts`.
    experts_key = "num_local_experts" if config.has("num_local_experts") else "num_experts"
    mixture = MixtureOfExperts(
        experts=config.integer(experts_key),
        top_k=config.integer("num_experts_per_tok"),
        width=config.integer("moe_intermediate_size"),
    )
    config.at_most("num_experts_per_tok", mixture.top_k, experts_key, mixture.experts)
    networks = qwen_feed_forwards(config, widths.layers, mixture)
    blocks = tuple(TransformerBlock(attention, network) for network in networks)
    return Architecture("qwen3_moe", widths.hidden, widths.vocab, blocks, tied=widths.tied)


importer = ConfigImporter("qwen3_moe", "Qwen3MoeForCausalLM", _read)
