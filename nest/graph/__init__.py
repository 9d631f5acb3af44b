"""Operator graphs and sharded graphs: what strategies rewrite.

Belongs here: operators, tensors, sharded graphs. Does not: what they cost.

Axes have standard names, by which strategies recognise what they may split:

| axis | |
|---|---|
| `batch` | samples of the micro-batch; importers build graphs for 1 |
| `other_samples` | samples that each of `batch` is compared with, as many (contrastive losses) |
| `sequence` | tokens of a sample (query positions), or blocks of so many tokens (DeepSeek-V4) |
| `keys` | key positions one query attends to |
| `hidden` | model width |
| `heads`, `kv_heads` | attention heads, key-value heads |
| `index_heads` | heads that choose keys (sparse attention), whole on every rank |
| `head` | channels per head (also `value` where value channels differ, as in latent attention) |
| `ffn` | width of a feed-forward network, dense or shared |
| `expert_ffn` | width of one routed expert |
| `branch` | the branches of a gated feed-forward network (2 or 1); also 2 for the key-value pair |
| `latent` | rank of a latent (low-rank) projection |
| `vocab`, `whole_vocab` | vocabulary, and of logits that every tensor-parallel rank gathers |
| `experts` | routed experts (parameters, router scores) |
| `top_k` | experts a token visits (tokens on their way through experts) |
| `positions`, `types` | rows of learned position and segment embeddings |
| `transform` | inner width of a square projection (the prediction head of a masked language model) |
| `rank` | width between the two products of a low-rank adapter |
"""

from nest.graph.operator import (
    COLLECTIVES,
    KINDS,
    OTHER_SAMPLES,
    WHOLE_VOCAB,
    Collective,
    Communication,
    Operator,
    Parameter,
    Routing,
    Shape,
    Tensor,
    axis_size,
    divide,
    divide_axes,
    elements,
    has_axis,
    scale,
)
from nest.graph.operator_graph import LayerTensor, OperatorGraph
from nest.graph.sharded_graph import COPIES, Axis, Block, Fold

__all__ = [
    "COLLECTIVES", "COPIES", "KINDS", "OTHER_SAMPLES", "WHOLE_VOCAB", "Axis", "Block", "Collective", "Communication",
    "Fold", "LayerTensor", "Operator", "OperatorGraph", "Parameter", "Routing", "Shape", "Tensor", "axis_size",
    "divide", "divide_axes", "elements", "has_axis", "scale",
]  # fmt: skip
