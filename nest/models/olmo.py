"""OLMo 2 (arXiv 2501.00656) and OLMo 3 (arXiv 2512.13961): norms behind sub-layers, and of whole queries and keys.

`Olmo2Config`, `Olmo3Config` and modeling_olmo2.py of Hugging Face transformers 5.23.0. OLMo 3 has windows on three of
four layers.
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
from nest.spec.architecture import Architecture, FeedForward


def _read(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    bias = config.boolean("attention_bias", False)
    attention = grouped_query_attention(config, widths, bias=bias, output_bias=bias, normalised=True)
    windows: tuple[int | None, ...] = ()
    if config.family == "olmo3":
        # A window of 4096 on all but every fourth layer: defaults of Olmo3Config.
        window = config.optional_integer("sliding_window", 4096)
        windows = layer_windows(config, widths.layers, window, lambda index: (index + 1) % 4 != 0)
    return decoder(
        config,
        widths,
        evolve(attention, norm="own"),
        FeedForward(config.integer("intermediate_size")),
        windows=windows,
        input_norms=False,
        result_norms=True,
    )


olmo2 = ConfigImporter("olmo2", "Olmo2ForCausalLM", _read)
olmo3 = ConfigImporter("olmo3", "Olmo3ForCausalLM", _read)
