"""Mixtral (arXiv 2401.04088): Mistral's attention, every feed-forward network a mixture of experts."""

from attrs import evolve

from nest.models.building.config import ConfigImporter, ConfigReader
from nest.models.building.decoder import decoder_widths, grouped_query_attention
from nest.spec.architecture import Architecture, MixtureOfExperts, TransformerBlock


def _read(config: ConfigReader) -> Architecture:
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


importer = ConfigImporter("mixtral", "MixtralForCausalLM", _read)
