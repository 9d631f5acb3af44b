"""What a model is made of, as flags of Megatron-LM (megatron/training/arguments.py, core_v0.16.1)."""

from collections.abc import Iterator

from attrs import evolve

from nest.errors import InputError
from nest.exporters.megatron.patterns import write_pattern
from nest.exporters.megatron.rendering import Flags
from nest.spec import Architecture
from nest.spec.architecture import FeedForward, GroupedQueryAttention, LatentAttention, MixtureOfExperts


def model_flags(model: Architecture, sequence_length: int) -> Flags:
    """The flags that build `model` for sequences of `sequence_length` tokens.

    Raises:
        InputError: Megatron-LM has no flags for it; the text says what is missing.
    """
    for obstacle in model_obstacles(model, sequence_length):
        raise InputError(f"the model cannot be trained with Megatron-LM, because {obstacle}.")
    dense, sparse = feed_forwards(model)
    return {
        "--num-layers": len(model.blocks),
        "--hidden-size": model.hidden,
        "--ffn-hidden-size": (dense or sparse)[0].width,
        "--num-attention-heads": model.blocks[0].attention.heads,
        **_attention_flags(model),
        "--normalization": "LayerNorm" if model.norm_bias else "RMSNorm",
        "--position-embedding-type": _positions(model),
        "--max-position-embeddings": model.positions or sequence_length,
        "--seq-length": sequence_length,
        "--vocab-size": model.vocab,
        "--untie-embeddings-and-output-weights": not model.tied,
        "--swiglu": (dense or sparse)[0].gated,
        "--disable-bias-linear": _biases(model)[1] == {False},
        "--add-qkv-bias": _biases(model) == ({True}, {False}),
        **_expert_flags(model),
    }


def model_obstacles(model: Architecture, sequence_length: int) -> Iterator[str]:
    """Why Megatron-LM's `pretrain_gpt.py` cannot build `model`: clauses that follow "because"."""
    attentions = [block.attention for block in model.blocks]
    causal = all(isinstance(each, LatentAttention) or each.causal for each in attentions)
    if model.types or model.post_norm or model.masked_head or not causal:
        yield "its pretrain_gpt.py trains decoders that normalise first, and this is an encoder such as BERT"
    if 0 < model.positions < sequence_length:
        yield f"sequences of {sequence_length} tokens are longer than the {model.positions} learned positions"
    if len({_without_window(each) for each in attentions}) > 1 or len({*windows(model)} - {None}) > 1:
        yield "its blocks differ in their attention, and Megatron-LM has flags for one kind"
    dense, sparse = feed_forwards(model)
    gated = {network.gated for network in dense} | {network.gated for network in sparse}
    if len({*dense}) > 1 or len({*sparse}) > 1 or len(gated) > 1:
        yield "its blocks differ in their feed-forward networks, and Megatron-LM has flags for one kind"
    biased = _biases(model)
    if biased not in (({True}, {True}), ({False}, {False}), ({True}, {False})):
        yield (
            "some of its projections have biases and some have not; --disable-bias-linear and --add-qkv-bias leave "
            "all, none, or those of queries, keys and values"
        )
    if sparse and biased[1] == {True}:
        yield "its experts have no biases and other projections have, which --disable-bias-linear does not tell apart"
    if model.positions and any(_rotates(each) for each in attentions):
        yield "it has rotary and learned positions, and --position-embedding-type is one of them"


def windows(model: Architecture) -> tuple[int | None, ...]:
    """Keys a query of each block attends to; None: all."""
    return tuple(
        block.attention.window if isinstance(block.attention, GroupedQueryAttention) else None for block in model.blocks
    )


def feed_forwards(model: Architecture) -> tuple[tuple[FeedForward, ...], tuple[MixtureOfExperts, ...]]:
    """The dense feed-forward networks, and the mixtures of experts."""
    networks = [block.feed_forward for block in model.blocks]
    dense = tuple(network for network in networks if isinstance(network, FeedForward))
    return dense, tuple(network for network in networks if isinstance(network, MixtureOfExperts))


def _without_window(attention: GroupedQueryAttention | LatentAttention) -> GroupedQueryAttention | LatentAttention:
    return evolve(attention, window=None) if isinstance(attention, GroupedQueryAttention) else attention


def _rotates(attention: GroupedQueryAttention | LatentAttention) -> bool:
    return isinstance(attention, LatentAttention) or attention.rotary


def _positions(model: Architecture) -> str:
    if model.positions:
        return "learned_absolute"
    return "rope" if _rotates(model.blocks[0].attention) else "none"


def _biases(model: Architecture) -> tuple[set[bool], set[bool]]:
    """Whether the query, key and value projections have biases, and whether the others have; experts have none."""
    queries, others = set(), set()
    for block in model.blocks:
        attention, network = block.attention, block.feed_forward
        queries.add(attention.bias)
        others.add(attention.output_bias if isinstance(attention, GroupedQueryAttention) else attention.bias)
        if isinstance(network, FeedForward):
            others.add(network.bias)
    return queries, others


def _attention_flags(model: Architecture) -> Flags:
    attention = model.blocks[0].attention
    if isinstance(attention, LatentAttention):
        # With --qk-layernorm Megatron Core normalises latent queries, keys and values, as DeepSeek-V2 does
        # (megatron/core/models/gpt/gpt_layer_specs.py).
        return {
            "--multi-latent-attention": True,
            "--qk-layernorm": True,
            "--q-lora-rank": attention.query_rank,
            "--kv-lora-rank": attention.key_value_rank,
            "--qk-head-dim": attention.plain,
            "--qk-pos-emb-head-dim": attention.rotary,
            "--v-head-dim": attention.value,
            "--kv-channels": attention.value,
        }
    grouped = attention.kv_heads != attention.heads
    return {
        "--kv-channels": attention.head,
        "--group-query-attention": grouped,
        "--num-query-groups": attention.kv_heads if grouped else None,
        "--qk-layernorm": attention.normalised,
        **_window_flags(windows(model)),
    }


def _window_flags(widths: tuple[int | None, ...]) -> Flags:
    """A window of `w` keys ends with the query's own: `w - 1` to the left, none to the right.

    Sources: `window_size` and `window_attn_skip_freq` of Megatron Core's TransformerConfig; 1 stands for a window.
    """
    found = [width for width in widths if width is not None]
    if not found:
        return {}
    pattern = [int(width is not None) for width in widths]
    return {
        "--window-size": f"{found[0] - 1},0",
        "--window-attn-skip-freq": None if all(pattern) else write_pattern(pattern),
    }


def _expert_flags(model: Architecture) -> Flags:
    dense, sparse = feed_forwards(model)
    if not sparse:
        return {}
    mixture = sparse[0]
    pattern = [int(isinstance(block.feed_forward, MixtureOfExperts)) for block in model.blocks]
    return {
        "--num-experts": mixture.experts,
        "--moe-router-topk": mixture.top_k,
        "--moe-ffn-hidden-size": mixture.width,
        "--moe-shared-expert-intermediate-size": mixture.shared_width or None,
        "--moe-shared-expert-gate": mixture.shared_gate,
        "--moe-layer-freq": write_pattern(pattern) if dense else None,
        "--moe-grouped-gemm": True,
    }
