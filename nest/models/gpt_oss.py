"""gpt-oss (arXiv 2508.10925): a window on every other layer, learned sinks, experts and routers with biases."""

from attrs import evolve

from nest.models.building.config import (
    ConfigImporter,
    ConfigReader,
    decoder,
    decoder_widths,
    grouped_query_attention,
    layer_windows,
    mixture_of_experts,
)
from nest.spec.architecture import Architecture


def _read(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    bias = config.boolean("attention_bias", True)
    # 64 channels per head, 8 key-value heads, a window of 128 on every other layer from the first: defaults of
    # GptOssConfig in Hugging Face transformers.
    attention = grouped_query_attention(config, widths, head=64, kv_heads=8, bias=bias, output_bias=bias)
    attention = evolve(attention, sinks=True)
    mixture = mixture_of_experts(config, experts="num_local_experts", width="intermediate_size", bias=True)
    windows = layer_windows(config, widths.layers, config.integer("sliding_window", 128), lambda i: i % 2 == 0)
    return decoder(config, widths, attention, mixture, windows=windows)


importer = ConfigImporter("gpt_oss", "GptOssForCausalLM", _read)
