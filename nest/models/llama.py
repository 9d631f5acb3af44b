"""Llama 4's text model: `Llama4TextConfig` and modeling_llama4.py of Hugging Face transformers 5.23.0."""

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
    rotated_layers,
)
from nest.spec.architecture import Architecture


def _read_llama4(config: ConfigReader) -> Architecture:
    """Read Llama 4's text model, whose layers differ in rotation, attention within chunks and experts.

    Queries and keys are normalised in rotated layers. The scale of queries in others, one pass, is left out.
    """
    widths = decoder_widths(config)
    bias = config.boolean("attention_bias", False)
    # 8 key-value heads of 128 channels, chunks of 8192 tokens: defaults of Llama4TextConfig.
    attention = grouped_query_attention(config, widths, head=128, kv_heads=8, bias=bias, output_bias=bias)
    rotated = evolve(attention, normalised=config.boolean("use_qk_norm", True), norm="unlearned")
    chunk, rotates = config.optional_integer("attention_chunk_size", 8192), rotated_layers(config, widths.layers)
    chunked = layer_kinds(
        config, widths.layers, "chunked_attention", lambda index: rotates[index : index + 1] != (False,)
    )
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
