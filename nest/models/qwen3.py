"""Qwen3, dense (arXiv 2505.09388): queries and keys are normalised per head."""

from attrs import evolve

from nest.models.building.config import ConfigImporter, ConfigReader
from nest.models.building.decoder import decoder_widths, grouped_query_attention, qwen_windows
from nest.spec.architecture import Architecture, FeedForward, TransformerBlock


def _read(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    bias = config.boolean("attention_bias", False)
    # 128 channels per head: default of Qwen3Config in Hugging Face transformers.
    attention = grouped_query_attention(config, widths, head=128, bias=bias, output_bias=bias, normalised=True)
    network = FeedForward(config.integer("intermediate_size"))
    windows = qwen_windows(config, widths.layers, lambda index, first: index >= first)
    blocks = tuple(TransformerBlock(evolve(attention, window=window), network) for window in windows)
    return Architecture("qwen3", widths.hidden, widths.vocab, blocks, tied=widths.tied)


importer = ConfigImporter("qwen3", "Qwen3ForCausalLM", _read)
