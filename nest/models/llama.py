"""Llama 2 and 3 (arXiv 2307.09288, arXiv 2407.21783), the pre-norm decoder most families vary, and Llama 4's text part.

Llama 4: `Llama4TextConfig` and modeling_llama4.py of Hugging Face transformers 5.23.0.
"""

from attrs import evolve

from nest.models.building.config import (
    ConfigImporter,
    ConfigReader,
    decoder,
    decoder_widths,
    dense_and_sparse,
    grouped_query_attention,
    layer_kinds,
    mixture_of_experts,
)
from nest.spec.architecture import Architecture, FeedForward


def _read(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    bias = config.boolean("attention_bias", False)
    attention = grouped_query_attention(config, widths, bias=bias, output_bias=bias)
    network = FeedForward(config.integer("intermediate_size"), bias=config.boolean("mlp_bias", False))
    return decoder(config, widths, attention, network)


importer = ConfigImporter("llama", "LlamaForCausalLM", _read)


def _read_llama4(config: ConfigReader) -> Architecture:
    """Read Llama 4's text model, whose layers differ in rotation, attention within chunks and experts.

    Queries and keys are normalised in rotated layers. The scale of queries in others, one pass, is left out.
    """
    widths = decoder_widths(config)
    bias = config.boolean("attention_bias", False)
    # 8 key-value heads of 128 channels, chunks of 8192 tokens: defaults of Llama4TextConfig.
    attention = grouped_query_attention(config, widths, head=128, kv_heads=8, bias=bias, output_bias=bias)
    rotated = evolve(attention, normalised=config.boolean("use_qk_norm", True), norm="unlearned")
    every, chunk = config.integer("no_rope_layer_interval", 4), config.optional_integer("attention_chunk_size", 8192)
    rotates = config.integers("no_rope_layers") or tuple(int((i + 1) % every != 0) for i in range(widths.layers))
    if len(rotates) != widths.layers:
        config.problem(f"`no_rope_layers` must have a 0 or a 1 for each of the {widths.layers} layers")
    chunked = layer_kinds(config, widths.layers, "chunked_attention", lambda index: rotates[index : index + 1] != (0,))
    attentions = tuple(
        evolve(rotated if rotate else evolve(attention, rotary=False), chunk=chunk if cut else None)
        for rotate, cut in zip(rotates, chunked, strict=False)
    )
    step, width = config.integer("interleave_moe_layer_step", 1), "intermediate_size"
    sparse = config.integers("moe_layers") if config.has("moe_layers") else range(step - 1, widths.layers, step)
    mixture = mixture_of_experts(config, experts="num_local_experts", width=width, shared_width=config.integer(width))
    has_experts = [index in sparse for index in range(widths.layers)]
    networks = dense_and_sparse(config, has_experts, mixture, "intermediate_size_mlp")
    return decoder(config, widths, attentions, networks)


llama4 = ConfigImporter("llama4_text", "Llama4ForCausalLM", _read_llama4)
