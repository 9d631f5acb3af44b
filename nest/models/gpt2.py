"""GPT-2 and GPT-3's shape (arXiv 2005.14165): learned positions, LayerNorm, biases, tied head."""

from nest.models.building.config import ConfigImporter, ConfigReader
from nest.models.building.left_out import MOST_LAYERS
from nest.spec.architecture import Architecture, FeedForward, GroupedQueryAttention, TransformerBlock


def _read(config: ConfigReader) -> Architecture:
    hidden, heads = config.integer("n_embd"), config.integer("n_head")
    config.divides("n_head", heads, "n_embd", hidden)
    attention = GroupedQueryAttention(heads, heads, max(hidden // heads, 1), bias=True, output_bias=True, rotary=False)
    network = FeedForward(config.integer("n_inner", 4 * hidden), gated=False, bias=True)
    layers = config.integer("n_layer", maximum=MOST_LAYERS)
    return Architecture(
        "gpt2",
        hidden,
        config.integer("vocab_size"),
        (TransformerBlock(attention, network),) * layers,
        tied=config.boolean("tie_word_embeddings", True),
        norm_bias=True,
        positions=config.integer("n_positions"),
    )


importer = ConfigImporter("gpt2", "GPT2LMHeadModel", _read)
