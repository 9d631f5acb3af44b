"""The keys that decoder families of the Llama lineage share."""

from collections.abc import Callable

from attrs import frozen

from nest.models.building.config import MOST_LAYERS, ConfigReader
from nest.spec.architecture import (
    FeedForward,
    GroupedQueryAttention,
    MixtureOfExperts,
)

SLIDING = "sliding_attention"
"""How `layer_types` names a layer with windowed attention."""

FULL = "full_attention"
"""How `layer_types` names a layer without a window."""


@frozen
class DecoderWidths:
    """The common keys of a decoder's configuration.

    Attributes:
        layers: transformer blocks.
        hidden: model width.
        heads: attention heads.
        vocab: vocabulary size.
        tied: whether the head shares the word embedding's weights.
    """

    layers: int
    hidden: int
    heads: int
    vocab: int
    tied: bool


def decoder_widths(config: ConfigReader) -> DecoderWidths:
    """Read the keys every decoder has."""
    return DecoderWidths(
        layers=config.integer("num_hidden_layers", maximum=MOST_LAYERS),
        hidden=config.integer("hidden_size"),
        heads=config.integer("num_attention_heads"),
        vocab=config.integer("vocab_size"),
        tied=config.boolean("tie_word_embeddings", False),
    )


def grouped_query_attention(
    config: ConfigReader,
    widths: DecoderWidths,
    *,
    head: int | None = None,
    kv_heads: int | None = None,
    bias: bool = False,
    output_bias: bool = False,
    normalised: bool = False,
) -> GroupedQueryAttention:
    """Read grouped-query attention without its window.

    Args:
        config: the configuration.
        widths: its common keys.
        head: channels per head where `head_dim` is missing or null; None: `hidden_size` over the heads.
        kv_heads: where `num_key_value_heads` is missing or null; None: as many as heads.
        bias: whether the query, key and value projections have biases.
        output_bias: whether the output projection has one.
        normalised: whether queries and keys are normalised per head.
    """
    if head is None and not config.has("head_dim"):
        config.divides("num_attention_heads", widths.heads, "hidden_size", widths.hidden)
    kv = config.integer("num_key_value_heads", kv_heads or widths.heads)
    config.divides("num_key_value_heads", kv, "num_attention_heads", widths.heads)
    return GroupedQueryAttention(
        heads=widths.heads,
        kv_heads=kv,
        head=config.integer("head_dim", head or max(widths.hidden // widths.heads, 1)),
        bias=bias,
        output_bias=output_bias,
        normalised=normalised,
    )


def qwen_windows(config: ConfigReader, layers: int, slides: Callable[[int, int], bool]) -> tuple[int | None, ...]:
    """The window of each layer of a Qwen model: `use_sliding_window`, `sliding_window` and `layer_types`.

    Args:
        config: the configuration.
        layers: transformer blocks.
        slides: whether a layer has a window, from its index and `max_window_layers`, where `layer_types` is
            missing.
    """
    if not config.boolean("use_sliding_window", False):
        return (None,) * layers
    # 4096 and 28: defaults of Qwen2Config, Qwen3Config and Qwen2MoeConfig in Hugging Face transformers.
    window = config.optional_integer("sliding_window", 4096)
    types = config.words("layer_types")
    if types is None:
        first = config.integer("max_window_layers", 28, minimum=0)
        types = tuple(SLIDING if slides(index, first) else FULL for index in range(layers))
    if len(types) != layers or not set(types) <= {SLIDING, FULL}:
        config.problem(f"`layer_types` must name `{SLIDING}` or `{FULL}` for each of the {layers} layers")
    return tuple(window if kind == SLIDING else None for kind in types)


def qwen_feed_forwards(
    config: ConfigReader, layers: int, mixture: MixtureOfExperts
) -> tuple[FeedForward | MixtureOfExperts, ...]:
    """Which layers of a Qwen mixture of experts are dense: `decoder_sparse_step` and `mlp_only_layers`."""
    step = config.integer("decoder_sparse_step", 1)
    dense_layers = frozenset(config.integers("mlp_only_layers"))
    sparse = [index not in dense_layers and (index + 1) % step == 0 for index in range(layers)]
    # The dense width is only needed where there is a dense layer.
    dense = mixture if all(sparse) else FeedForward(config.integer("intermediate_size"))
    return tuple(mixture if is_sparse else dense for is_sparse in sparse)
