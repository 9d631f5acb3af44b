"""GLM-4 of 2025, whose sub-layers have norms on both sides, and GLM-4.5 (arXiv 2508.06471).

GLM-4.5 has grouped-query attention and DeepSeek-V3's routed and shared experts behind dense layers.
"""

from nest.models.building.config import (
    ConfigImporter,
    ConfigReader,
    decoder,
    decoder_widths,
    experts_behind_dense_layers,
    grouped_query_attention,
)
from nest.spec.architecture import Architecture, FeedForward


def _read_dense(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    # 128 channels per head, 2 key-value heads, biases of queries, keys and values: defaults of Glm4Config in Hugging
    # Face transformers.
    bias = config.boolean("attention_bias", True)
    attention = grouped_query_attention(config, widths, head=128, kv_heads=2, bias=bias)
    return decoder(config, widths, attention, FeedForward(config.integer("intermediate_size")), result_norms=True)


NINE_BILLION = {
    "model_type": "glm4",
    "vocab_size": 151552,
    "hidden_size": 4096,
    "intermediate_size": 13696,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
}
"""The default widths of `Glm4Config`, of 9 billion parameters."""

glm4 = ConfigImporter("glm4", "Glm4ForCausalLM", _read_dense, examples=(NINE_BILLION,))


def _read_moe(config: ConfigReader) -> Architecture:
    """Read a GLM-4.5 configuration; as DeepSeek-V3's, without the router's correction bias and further layers."""
    widths = decoder_widths(config)
    # 8 key-value heads: default of Glm4MoeConfig in Hugging Face transformers.
    attention = grouped_query_attention(
        config,
        widths,
        kv_heads=8,
        bias=config.boolean("attention_bias", False),
        normalised=config.boolean("use_qk_norm", False),
    )
    return decoder(config, widths, attention, experts_behind_dense_layers(config, widths))


glm4_moe = ConfigImporter("glm4_moe", "Glm4MoeForCausalLM", _read_moe)
