"""Mistral (arXiv 2310.06825), Llama's shape with sliding-window attention, and Mixtral (arXiv 2401.04088).

Every feed-forward network of Mixtral is a mixture of experts.
"""

from attrs import evolve

from nest.models.building.config import ConfigImporter, ConfigReader, decoder_widths, grouped_query_attention
from nest.spec.architecture import Architecture, FeedForward, MixtureOfExperts, TransformerBlock


def _read_mistral(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    # 8 key-value heads and a window of 4096: defaults of MistralConfig in Hugging Face transformers.
    attention = grouped_query_attention(config, widths, kv_heads=8)
    attention = evolve(attention, window=config.optional_integer("sliding_window", 4096))
    block = TransformerBlock(attention, FeedForward(config.integer("intermediate_size")))
    return Architecture("mistral", widths.hidden, widths.vocab, (block,) * widths.layers, tied=widths.tied)


mistral = ConfigImporter("mistral", "MistralForCausalLM", _read_mistral)


def _read_mixtral(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    # 8 key-value heads: default of MixtralConfig in Hugging Face transformers.
    attention = grouped_query_attention(config, widths, kv_heads=8)
    attention = evolve(attention, window=config.optional_integer("sliding_window"))
    mixture = MixtureOfExperts(
        experts=config.integer("num_local_experts"),
        top_k=config.integer("num_experts_per_tok"),
        width=config.integer("intermediate_size"),
    )
    config.at_most("num_experts_per_tok", mixture.top_k, "num_local_experts", mixture.experts)
    blocks = (TransformerBlock(attention, mixture),) * widths.layers
    return Architecture("mixtral", widths.hidden, widths.vocab, blocks, tied=widths.tied)


mixtral = ConfigImporter("mixtral", "MixtralForCausalLM", _read_mixtral)
