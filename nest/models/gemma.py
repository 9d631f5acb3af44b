"""Gemma 2 (arXiv 2408.00118) and Gemma 3's text models (arXiv 2503.19786): norms before and after sub-layers.

Windows alternate with layers without. The factor of the embeddings, one pass over them, is left out.
"""

from collections.abc import Callable

from attrs import evolve

from nest.models.building.config import (
    ConfigImporter,
    ConfigReader,
    decoder,
    decoder_widths,
    grouped_query_attention,
    layer_windows,
)
from nest.spec.architecture import Architecture, FeedForward


def _decoder(config: ConfigReader, *, normalised: bool, capped: bool, slides: Callable[[int], bool]) -> Architecture:
    """Read the common keys of Gemma 2 and 3.

    Args:
        normalised: queries and keys are normalised per head.
        capped: scores and logits are capped unless the configuration says.
        slides: whether the layer of an index has a window, for configurations without `layer_types`.
    """
    widths = decoder_widths(config, tied=True)
    bias = config.boolean("attention_bias", False)
    # 256 channels per head, 4 key-value heads, windows of 4096: defaults of Gemma2Config and Gemma3TextConfig in
    # Hugging Face transformers.
    attention = grouped_query_attention(
        config, widths, head=256, kv_heads=4, bias=bias, output_bias=bias, normalised=normalised
    )
    attention = evolve(attention, capped=config.has("attn_logit_softcapping", capped))
    windows = layer_windows(config, widths.layers, config.optional_integer("sliding_window", 4096), slides)
    return decoder(
        config,
        widths,
        attention,
        FeedForward(config.integer("intermediate_size")),
        windows=windows,
        result_norms=True,
        capped=config.has("final_logit_softcapping", capped),
    )


def _read_gemma2(config: ConfigReader) -> Architecture:
    return _decoder(config, normalised=False, capped=True, slides=lambda index: index % 2 == 0)


def _read_gemma3(config: ConfigReader) -> Architecture:
    if config.boolean("use_bidirectional_attention", False):
        config.problem("`use_bidirectional_attention` is true, but only causal attention is built")
    pattern = config.integer("sliding_window_pattern", 6)
    return _decoder(config, normalised=True, capped=False, slides=lambda index: (index + 1) % pattern != 0)


gemma2 = ConfigImporter("gemma2", "Gemma2ForCausalLM", _read_gemma2)
gemma3 = ConfigImporter("gemma3_text", "Gemma3ForCausalLM", _read_gemma3)
