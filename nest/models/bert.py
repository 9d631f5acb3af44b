"""BERT with its masked-language-model head, without pooler (arXiv 1810.04805)."""

from nest.models.building.config import ConfigImporter, ConfigReader
from nest.models.building.left_out import MOST_LAYERS
from nest.spec.architecture import Architecture, FeedForward, GroupedQueryAttention, TransformerBlock


def _read(config: ConfigReader) -> Architecture:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    config.divides("num_attention_heads", heads, "hidden_size", hidden)
    if config.word("position_embedding_type", "absolute") != "absolute":
        config.problem("`position_embedding_type` must be absolute; relative positions are not built")
    attention = GroupedQueryAttention(
        heads, heads, max(hidden // heads, 1), bias=True, output_bias=True, rotary=False, causal=False
    )
    network = FeedForward(config.integer("intermediate_size"), gated=False, bias=True)
    layers = config.integer("num_hidden_layers", maximum=MOST_LAYERS)
    return Architecture(
        "bert",
        hidden,
        config.integer("vocab_size"),
        (TransformerBlock(attention, network),) * layers,
        tied=config.boolean("tie_word_embeddings", True),
        norm_bias=True,
        positions=config.integer("max_position_embeddings"),
        # 2 segments: default of BertConfig in Hugging Face transformers.
        types=config.integer("type_vocab_size", 2),
        post_norm=True,
        masked_head=True,
    )


importer = ConfigImporter("bert", "BertForMaskedLM", _read)
