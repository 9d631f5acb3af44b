"""Phi-3 and Phi-4 (arXiv 2404.14219, arXiv 2412.08905): Llama's shape, with a window on every layer or none."""

from attrs import evolve

from nest.models.building.config import (
    ConfigImporter,
    ConfigReader,
    decoder,
    decoder_widths,
    grouped_query_attention,
)
from nest.spec.architecture import Architecture, FeedForward


def _read(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    attention = grouped_query_attention(config, widths)
    attention = evolve(attention, window=config.optional_integer("sliding_window"))
    return decoder(config, widths, attention, FeedForward(config.integer("intermediate_size")))


importer = ConfigImporter("phi3", "Phi3ForCausalLM", _read)
