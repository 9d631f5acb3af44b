"""From an architecture to its operator graph."""

from nest.errors import InputError
from nest.graph import Operator, OperatorGraph, Tensor
from nest.models.building.attention import add_attention
from nest.models.building.ends import add_embedding, add_head
from nest.models.building.feed_forward import add_feed_forward
from nest.models.building.layer import LayerBuilder, activation_itemsize
from nest.spec import Training
from nest.spec.architecture import Architecture, TransformerBlock


def build_graph(architecture: Architecture, training: Training) -> OperatorGraph:
    """The operator graph of one sample: layers `embedding`, `layers.0`, ..., `head`.

    Raises:
        InputError: the training has no sequence length, or one that is longer than the learned positions.
    """
    sequence = training.sequence_length
    if sequence is None:
        raise InputError("training.sequence_length is missing; a model needs it, in tokens per sample.")
    if architecture.positions and sequence > architecture.positions:
        raise InputError(
            f"training.sequence_length is {sequence}, but the model learns only {architecture.positions} "
            "positions; shorten the sequence or give the model more positions."
        )
    operators: list[Operator] = []

    def layer(name: str) -> LayerBuilder:
        itemsize = activation_itemsize(training)
        return LayerBuilder(
            name, sequence, itemsize, architecture.norm_bias, training.expert_capacity, operators=operators
        )

    hidden = add_embedding(layer("embedding"), architecture)
    blocks = tuple(f"layers.{index}" for index in range(len(architecture.blocks)))
    for name, block in zip(blocks, architecture.blocks, strict=True):
        add = _add_post_norm_block if architecture.post_norm else _add_pre_norm_block
        hidden = add(layer(name), block, hidden, training.stores_scores)
    add_head(layer("head"), architecture, hidden, fused=training.loss == "fused")
    return OperatorGraph(tuple(operators), ("embedding", *blocks, "head"), blocks, architecture.family)


def _add_pre_norm_block(layer: LayerBuilder, block: TransformerBlock, source: Tensor, unfused: bool) -> Tensor:
    """Each sub-layer reads a normalised copy and adds to the stream."""
    normed = layer.norm("attention_norm", source)
    change = add_attention(layer, block.attention, normed, unfused)
    stream = layer.residual("attention_residual", source, change)
    normed = layer.norm("mlp_norm", stream)
    change = add_feed_forward(layer, block.feed_forward, normed)
    return layer.residual("mlp_residual", stream, change, output="hidden")


def _add_post_norm_block(layer: LayerBuilder, block: TransformerBlock, source: Tensor, unfused: bool) -> Tensor:
    """Each sub-layer reads the stream itself; the sum is normalised (BERT, arXiv 1810.04805)."""
    change = add_attention(layer, block.attention, source, unfused)
    stream = layer.norm("attention_norm", layer.residual("attention_residual", source, change))
    change = add_feed_forward(layer, block.feed_forward, stream)
    return layer.norm("mlp_norm", layer.residual("mlp_residual", stream, change), output="hidden")
