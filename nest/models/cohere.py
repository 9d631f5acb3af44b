"""Command R, Command R+ and Command A: attention and feed-forward network side by side behind one norm, tied head.

`CohereConfig`, `Cohere2Config`, modeling_cohere.py and modeling_cohere2.py of Hugging Face transformers 5.23.0. In
Command R7B and Command A windows alternate with layers that see all tokens and do not rotate. The factor of the logits,
one pass over them, is left out.
"""

from attrs import evolve

from nest.models.building.config import (
    ConfigImporter,
    ConfigReader,
    decoder,
    decoder_widths,
    grouped_query_attention,
    layer_windows,
)
from nest.spec.architecture import Architecture, FeedForward, GroupedQueryAttention


def _read(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config, tied=True)
    bias = config.boolean("attention_bias", False)
    attention = grouped_query_attention(config, widths, bias=bias, output_bias=bias)
    each: tuple[GroupedQueryAttention, ...] = (attention,) * widths.layers
    if config.family == "cohere2":
        # A window of 4096 on all but every fourth layer: defaults of Cohere2Config.
        every, window = config.integer("sliding_window_pattern", 4), config.optional_integer("sliding_window", 4096)
        windows = layer_windows(config, widths.layers, window, lambda index: (index + 1) % every != 0)
        each = tuple(evolve(attention, window=window, rotary=window is not None) for window in windows)
    elif config.boolean("use_qk_norm", False):
        each = (evolve(attention, normalised=True, norm="own"),) * widths.layers
    return decoder(config, widths, each, FeedForward(config.integer("intermediate_size")), parallel=1)


cohere = ConfigImporter("cohere", "CohereForCausalLM", _read)
cohere2 = ConfigImporter("cohere2", "Cohere2ForCausalLM", _read)
