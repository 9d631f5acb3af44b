"""The keys that decoder families share: those of the Llama lineage, and those of DeepSeek."""

from collections.abc import Callable

from attrs import frozen

from nest.models.building.config import MOST_LAYERS, ConfigReader
from nest.spec.architecture import (
    Architecture,
    FeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureOfExperts,
    TransformerBlock,
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


def read_latent_decoder(config: ConfigReader) -> Architecture:
    """Read a DeepSeek configuration.

    The router's correction bias of DeepSeek-V3 is moved by hand, not learned: no parameter. Layers for the
    prediction of further tokens (`num_nextn_predict_layers`) are not part of the model class and left out.
    """
    widths = decoder_widths(config)
    attention = _attention(config, widths)
    dense_layers = config.integer("first_k_dense_replace", 0, minimum=0)
    every = config.integer("moe_layer_freq", 1)
    sparse = [index >= dense_layers and index % every == 0 for index in range(widths.layers)]
    # Each width is only needed where a layer has it.
    mixture = _mixture(config) if any(sparse) else None
    dense = None if all(sparse) else FeedForward(config.integer("intermediate_size"))
    networks = [mixture if is_sparse else dense for is_sparse in sparse]
    blocks = tuple(TransformerBlock(attention, network) for network in networks if network is not None)
    return Architecture(config.family, widths.hidden, widths.vocab, blocks, tied=widths.tied)


def _attention(config: ConfigReader, widths: DecoderWidths) -> LatentAttention:
    if "q_lora_rank" not in config.config:
        config.problem("`q_lora_rank` is missing; null means that queries are not compressed")
    return LatentAttention(
        heads=widths.heads,
        query_rank=config.optional_integer("q_lora_rank"),
        key_value_rank=config.integer("kv_lora_rank"),
        plain=config.integer("qk_nope_head_dim"),
        rotary=config.integer("qk_rope_head_dim"),
        value=config.integer("v_head_dim"),
        bias=config.boolean("attention_bias", False),
    )


def _mixture(config: ConfigReader) -> MixtureOfExperts:
    width, groups = config.integer("moe_intermediate_size"), config.integer("n_group", 1)
    mixture = MixtureOfExperts(
        experts=config.integer("n_routed_experts"),
        top_k=config.integer("num_experts_per_tok"),
        width=width,
        shared_width=width * config.integer("n_shared_experts", 0, minimum=0),
        groups=groups,
        visited_groups=config.integer("topk_group", 1) if groups > 1 else 1,
    )
    config.at_most("topk_group", mixture.visited_groups, "n_group", groups)
    config.at_most("num_experts_per_tok", mixture.top_k, "n_routed_experts", mixture.experts)
    return mixture
