"""Qwen1.5-MoE and Qwen2-MoE (arXiv 2407.10671): routed experts and a gated shared expert."""

from attrs import evolve

from nest.models.building.config import ConfigImporter, ConfigReader
from nest.models.building.decoder import (
    decoder_widths,
    grouped_query_attention,
    qwen_feed_forwards,
    qwen_windows,
)
from nest.spec.architecture import Architecture, MixtureOfExperts, TransformerBlock


def _read(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    attention = grouped_query_attention(config, widths, bias=config.boolean("qkv_bias", True))
    mixture = MixtureOfExperts(
        experts=config.integer("num_experts"),
        top_k=config.integer("num_experts_per_tok"),
        width=config.integer("moe_intermediate_size"),
        shared_width=config.integer("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    config.at_most("num_experts_per_tok", mixture.top_k, "num_experts", mixture.experts)
    # Windows on every second layer below `max_window_layers`: Qwen2MoeConfig in Hugging Face transformers.
    windows = qwen_windows(config, widths.layers, lambda index, first: index % 2 == 0 and index < first)
    networks = qwen_feed_forwards(config, widths.layers, mixture)
    blocks = tuple(
        TransformerBlock(evolve(attention, window=window), network)
        for window, network in zip(windows, networks, strict=False)
    )
    return Architecture("qwen2_moe", widths.hidden, widths.vocab, blocks, tied=widths.tied)


importer = ConfigImporter("qwen2_moe", "Qwen2MoeForCausalLM", _read)
