"""Hunyuan 7B and similar, and Hunyuan-A13B: queries and keys normalised per head after the rotation.

`HunYuanDenseV1Config`, `HunYuanMoEV1Config`, modeling_hunyuan_v1_dense.py and modeling_hunyuan_v1_moe.py of Hugging
Face transformers 5.23.0.
"""

from attrs import evolve

from nest.models.building.config import (
    ConfigImporter,
    ConfigReader,
    Network,
    decoder,
    decoder_widths,
    grouped_query_attention,
    mixture_of_experts,
)
from nest.spec.architecture import Architecture, FeedForward, MixtureOfExperts


def _read(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    config.builds(use_qk_norm=True, use_cla=False)
    bias = config.boolean("attention_bias", False)
    attention = grouped_query_attention(config, widths, bias=bias, output_bias=bias, normalised=True)
    network: Network = FeedForward(config.integer("intermediate_size"))
    if config.family == "hunyuan_v1_moe":
        network = _mixture(config)
    return decoder(config, widths, evolve(attention, norm="rotated"), network)


def _mixture(config: ConfigReader) -> MixtureOfExperts:
    """Read the experts of every layer and the one all tokens visit, each as wide as `intermediate_size`."""
    width = config.integer("intermediate_size")
    config.builds(moe_intermediate_size=width, num_shared_expert=1)
    alike = ConfigReader({**config.config, "moe_topk": config.uniform("moe_topk")}, config.family, config.problems)
    return mixture_of_experts(alike, top_k="moe_topk", width="intermediate_size", shared_width=width)


dense = ConfigImporter("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", _read)
moe = ConfigImporter("hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", _read)
