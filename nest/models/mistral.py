"""Mistral (arXiv 2310.06825): Llama's shape with sliding-window attention."""

from attrs import evolve

from nest.models.building.config import ConfigImporter, ConfigReader
from nest.models.building.decoder import decoder_widths, grouped_query_attention
from nest.spec.architecture import Architecture, FeedForward, TransformerBlock


def _read(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    # 8 key-value heads and a window of 4096: defaults of MistralConfig in Hugging Face transformers.
    attention = grouped_query_attention(config, widths, kv_heads=8)
    attention = evolve(attention, window=config.optional_integer("sliding_window", 4096))
    block = TransformerBlock(attention, FeedForward(config.integer("intermediate_size")))
    return Architecture("mistral", widths.hidden, widths.vocab, (block,) * widths.layers, tied=widths.tied)


importer = ConfigImporter("mistral", "MistralForCausalLM", _read)
