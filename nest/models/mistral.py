"""Mistral (arXiv 2310.06825), Llama's shape with sliding-window attention, and mixtures of experts built like it.

Mixtral (arXiv 2401.04088) has experts on every layer; MiniMax-M2 also normalises queries and keys over all heads
(`MiniMaxM2Config` of Hugging Face transformers 5.23.0).
"""

from attrs import evolve

from nest.models.building.config import (
    ConfigImporter,
    ConfigReader,
    decoder,
    decoder_widths,
    grouped_query_attention,
    mixture_of_experts,
)
from nest.spec.architecture import Architecture, FeedForward


def _read_mistral(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    # 8 key-value heads and a window of 4096: defaults of MistralConfig in Hugging Face transformers.
    attention = grouped_query_attention(config, widths, kv_heads=8)
    attention = evolve(attention, window=config.optional_integer("sliding_window", 4096))
    return decoder(config, widths, attention, FeedForward(config.integer("intermediate_size")))


mistral = ConfigImporter("mistral", "MistralForCausalLM", _read_mistral)


def _read_mixtral(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    # 8 key-value heads: default of MixtralConfig in Hugging Face transformers.
    attention = grouped_query_attention(config, widths, kv_heads=8)
    attention = evolve(attention, window=config.optional_integer("sliding_window"))
    mixture = mixture_of_experts(config, experts="num_local_experts", width="intermediate_size")
    return decoder(config, widths, attention, mixture)


mixtral = ConfigImporter("mixtral", "MixtralForCausalLM", _read_mixtral)


def _read_minimax_m2(config: ConfigReader) -> Architecture:
    """Read MiniMax-M2; as DeepSeek-V3's, without the router's correction bias."""
    widths = decoder_widths(config)
    config.builds(use_qk_norm=True, qk_norm_type="per_layer", shared_intermediate_size=0, attn_type_list=1)
    # 8 key-value heads of 128 channels: defaults of MiniMaxM2Config.
    attention = grouped_query_attention(config, widths, head=128, kv_heads=8, normalised=True)
    mixture = mixture_of_experts(config, experts="num_local_experts", width="intermediate_size")
    return decoder(config, widths, evolve(attention, norm="own"), mixture)


minimax_m2 = ConfigImporter("minimax_m2", "MiniMaxM2ForCausalLM", _read_minimax_m2)
