"""GPT-NeoX (arXiv 2204.06745), also Pythia, and Falcon (arXiv 2311.16867): LayerNorm, and sub-layers side by side.

`GPTNeoXConfig`, `FalconConfig`, modeling_gpt_neox.py and modeling_falcon.py of Hugging Face transformers 5.23.0.
"""

from nest.models.building.config import ConfigImporter, ConfigReader, decoder, decoder_widths
from nest.spec.architecture import Architecture, FeedForward, GroupedQueryAttention


def _read_neox(config: ConfigReader) -> Architecture:
    widths = decoder_widths(config)
    config.divides("num_attention_heads", widths.heads, "hidden_size", widths.hidden)
    bias = config.boolean("attention_bias", True)
    head = max(widths.hidden // widths.heads, 1)
    attention = GroupedQueryAttention(widths.heads, widths.heads, head, bias=bias, output_bias=bias)
    network = FeedForward(config.integer("intermediate_size"), gated=False, bias=True)
    parallel = 2 if config.boolean("use_parallel_residual", True) else 0
    return decoder(config, widths, attention, network, norm_bias=True, parallel=parallel)


gpt_neox = ConfigImporter("gpt_neox", "GPTNeoXForCausalLM", _read_neox)


def _read_falcon(config: ConfigReader) -> Architecture:
    """Read a Falcon of either architecture: 7B with one key-value head, 40B and 180B with groups."""
    widths = decoder_widths(config, tied=True)
    config.divides("num_attention_heads", widths.heads, "hidden_size", widths.hidden)
    if config.boolean("alibi", False):
        config.problem("`alibi` is true, but only rotary positions are built")
    grouped, bias = config.boolean("new_decoder_architecture", False), config.boolean("bias", False)
    shared = config.boolean("multi_query", True) and not grouped
    kv_heads = 1 if shared else config.integer("num_kv_heads", widths.heads)
    config.divides("num_kv_heads", kv_heads, "num_attention_heads", widths.heads)
    head = max(widths.hidden // widths.heads, 1)
    attention = GroupedQueryAttention(widths.heads, kv_heads, head, bias=bias, output_bias=bias)
    network = FeedForward(config.integer("ffn_hidden_size", 4 * widths.hidden), gated=False, bias=bias)
    parallel = int(grouped or config.boolean("parallel_attn", True))
    if grouped:
        parallel = config.integer("num_ln_in_parallel_attn", 2, maximum=2)
    return decoder(config, widths, attention, network, norm_bias=True, parallel=parallel)


falcon = ConfigImporter("falcon", "FalconForCausalLM", _read_falcon)
