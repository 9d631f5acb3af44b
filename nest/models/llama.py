"""Llama 2 and 3 (arXiv 2307.09288, arXiv 2407.21783): the pre-norm decoder most families vary."""

from nest.models.building.config import ConfigImporter, ConfigReader, decoder_widths, grouped_query_attention
from nest.spec.architecture import Architecture, FeedForward, TransformerBlock


def _read(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    bias = config.boolean("attention_bias", False)
    attention = grouped_query_attention(config, widths, bias=bias, output_bias=bias)
    network = FeedForward(config.integer("intermediate_size"), bias=config.boolean("mlp_bias", False))
    blocks = (TransformerBlock(attention, network),) * widths.layers
    return Architecture("llama", widths.hidden, widths.vocab, blocks, tied=widths.tied)


importer = ConfigImporter("llama", "LlamaForCausalLM", _read)
