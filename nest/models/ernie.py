"""ERNIE 4.5 (Baidu's technical report of 2025) with routed and shared experts.

`Ernie4_5_MoeConfig` and modeling_ernie4_5_moe.py of Hugging Face transformers 5.23.0.
"""

from nest.models.building.config import (
    ConfigImporter,
    ConfigReader,
    decoder,
    decoder_widths,
    dense_and_sparse,
    grouped_query_attention,
    mixture_of_experts,
)
from nest.spec.architecture import Architecture


def _read_moe(config: ConfigReader) -> Architecture:
    """Read a mixture of experts; the router's correction bias and layers for further tokens are left out."""
    widths = decoder_widths(config, tied=True)
    if config.boolean("use_bias", False):
        config.problem("`use_bias` is true, but mixtures of experts are only built without biases")
    # 4 key-value heads, 2 shared experts, experts from the second layer on: defaults of Ernie4_5_MoeConfig.
    attention = grouped_query_attention(config, widths, kv_heads=4)
    shared = config.integer("moe_num_shared_experts", 2, minimum=0) * config.integer("moe_intermediate_size")
    mixture = mixture_of_experts(config, experts="moe_num_experts", top_k="moe_k", shared_width=shared)
    first, every = config.integer("moe_layer_start_index", 1, minimum=0), config.integer("moe_layer_interval", 1)
    last = config.integer("moe_layer_end_index", -1, minimum=-1)
    last = widths.layers if last == -1 else last
    sparse = [first <= index <= last and (index + 1) % every == 0 for index in range(widths.layers)]
    return decoder(config, widths, attention, dense_and_sparse(config, sparse, mixture))


moe = ConfigImporter("ernie4_5_moe", "Ernie4_5_MoeForCausalLM", _read_moe)
