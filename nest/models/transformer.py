"""Importer of transformers described by widths in the problem itself (FORMATS.md, `model: {transformer: ...}`)."""

from typing import Any

from attrs import astuple

from nest.errors import InputErrors
from nest.graph import OperatorGraph
from nest.spec import Training, TransformerSpec
from nest.spec.architecture import (
    Architecture,
    FeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureOfExperts,
    TransformerBlock,
)


def load(source: Any, training: Training) -> OperatorGraph:
    """Build the operator graph of one sample.

    Raises:
        InputErrors: widths contradict each other.
        InputError: the training does not suit the model.
    """
    from nest.models.building.graph import build_graph

    return build_graph(architecture(source), training)


def architecture(source: Any) -> Architecture:
    """Describe the model.

    Raises:
        InputErrors: widths contradict each other.
    """
    spec: TransformerSpec = source
    problems = _contradictions(spec)
    if problems:
        raise InputErrors(f"transformer: {problem}." for problem in problems)
    attention = _attention(spec)
    dense = FeedForward(spec.ffn, spec.gated_mlp)
    sparse = _mixture(spec) if spec.experts else dense
    blocks = [
        TransformerBlock(attention, dense if index < spec.dense_layers else sparse) for index in range(spec.layers)
    ]
    blocks += blocks[-1:] * spec.mtp_layers
    return Architecture(
        "transformer", spec.hidden, spec.vocab, tuple(blocks), tied=spec.tied_embeddings, predicting=spec.mtp_layers
    )


def _contradictions(spec: TransformerSpec) -> list[str]:
    """List the contradictions in `spec`, each naming its keys."""
    from nest.models.building.left_out import MOST_LAYERS

    kv_heads = spec.kv_heads or spec.heads
    checks = {
        f"`layers` ({spec.layers}) must be at most {MOST_LAYERS}": spec.layers > MOST_LAYERS,
        f"`mtp_layers` ({spec.mtp_layers}) must be at most `layers` ({spec.layers})": spec.mtp_layers > spec.layers,
        f"`heads` ({spec.heads}) must divide `hidden` ({spec.hidden}), or `head_dim` be given": (
            spec.mla is None and spec.head_dim is None and spec.hidden % spec.heads > 0
        ),
        f"`kv_heads` ({kv_heads}) must divide `heads` ({spec.heads})": spec.heads % kv_heads > 0,
        f"`top_k` ({spec.top_k}) must be at most `experts` ({spec.experts})": 0 < spec.experts < spec.top_k,
        f"`dense_layers` ({spec.dense_layers}) must be at most `layers` ({spec.layers})": (
            spec.dense_layers > spec.layers
        ),
        "`moe_ffn` and `shared_expert_ffn` need `experts`": (
            not spec.experts and bool(spec.moe_ffn or spec.shared_expert_ffn)
        ),
        f"`visited_groups` ({spec.visited_groups}) must be at most `expert_groups` ({spec.expert_groups}), which must "
        f"divide `experts` ({spec.experts})": (
            spec.visited_groups > spec.expert_groups or spec.experts % spec.expert_groups > 0
        ),
        "`sliding_window` and `mla` exclude each other": (spec.mla is not None and spec.sliding_window is not None),
    }
    return [problem for problem, contradicted in checks.items() if contradicted]


def _attention(spec: TransformerSpec) -> GroupedQueryAttention | LatentAttention:
    if spec.mla is not None:
        return LatentAttention(spec.heads, *astuple(spec.mla))  # In the same order.
    head = spec.head_dim or spec.hidden // spec.heads
    return GroupedQueryAttention(spec.heads, spec.kv_heads or spec.heads, head, window=spec.sliding_window)


def _mixture(spec: TransformerSpec) -> MixtureOfExperts:
    widths = spec.experts, spec.top_k, spec.moe_ffn or spec.ffn, spec.gated_mlp, spec.shared_expert_ffn
    return MixtureOfExperts(*widths, groups=spec.expert_groups, visited_groups=spec.visited_groups)
