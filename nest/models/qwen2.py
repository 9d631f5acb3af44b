"""Qwen2 and Qwen2.5, dense (arXiv 2407.10671): Llama's shape with biased query, key and value projections."""

from attrs import evolve

from nest.models.building.config import ConfigImporter, ConfigReader
from nest.models.building.decoder import decoder_widths, grouped_query_attention, qwen_windows
from nest.spec.architecture import Architecture, FeedForward, TransformerBlock


def _read(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    attention = grouped_query_attention(config, widths, bias=True)
    network = FeedForward(config.integer("intermediate_size"))
    windows = qwen_windows(config, widths.layers, lambda index, first: index >= first)
    blocks = tuple(TransformerBlock(evolve(attention, window=window), network) for window in windows)
    return Architecture("qwen2", widths.hidden, widths.vocab, blocks, tied=widths.tied)


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

importer = ConfigImporter("qwen2", "Qwen2ForCausalLM", _read, examples=(SEVEN_BILLION,))
