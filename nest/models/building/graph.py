"""From an architecture to its operator graph: embedding, blocks, head."""

from nest.errors import InputError
from nest.graph import Operator, OperatorGraph, Parameter, Tensor
from nest.models.building.attention import add_attention
from nest.models.building.feed_forward import add_feed_forward
from nest.models.building.layer import FP32, LayerBuilder, activation_itemsize
from nest.spec import Training
from nest.spec.architecture import Architecture, TransformerBlock


def add_embedding(layer: LayerBuilder, architecture: Architecture) -> Tensor:
    """Look tokens up, add what is learned per position and segment, normalise where the family does.

    A look-up in a table split along `vocab` yields zeros for the tokens of other ranks: partial sums.
    """
    tokens = layer.indices("token_ids")
    hidden = ("hidden", architecture.hidden)
    learned_rows = bool(architecture.positions or architecture.types)
    embedded = layer.tensor("words" if learned_rows else "hidden", hidden)
    layer.add(
        "words",
        "embedding",
        (tokens,),
        (embedded,),
        space=(*layer.tokens, hidden, ("vocab", architecture.vocab)),
        parameters=(Parameter("weight", (("vocab", architecture.vocab), hidden)),),
        saves=(tokens,),
        contracted=("vocab",),
    )
    if learned_rows:
        embedded = _add_learned_rows(layer, architecture, embedded)
    if architecture.post_norm:
        embedded = layer.norm("norm", embedded, output="hidden")
    return embedded


def _add_learned_rows(layer: LayerBuilder, architecture: Architecture, embedded: Tensor) -> Tensor:
    """Add the rows learned for each position and for each segment; both look-ups run with the sum."""
    hidden = ("hidden", architecture.hidden)
    inputs: tuple[Tensor, ...] = (embedded,)
    parameters: tuple[Parameter, ...] = ()
    saves: tuple[Tensor, ...] = ()
    if architecture.positions:
        parameters += (Parameter("positions", (("positions", architecture.positions), hidden)),)
    if architecture.types:
        segments = layer.indices("segment_ids")
        inputs, saves = (*inputs, segments), (segments,)
        parameters += (Parameter("types", (("types", architecture.types), hidden)),)
    total = layer.tensor("sum" if architecture.post_norm else "hidden", hidden)
    layer.add("positions", "embedding", inputs, (total,), parameters=parameters, saves=saves)
    return total


def add_head(layer: LayerBuilder, architecture: Architecture, source: Tensor, fused: bool = False) -> None:
    """Final norm (or the head of a masked language model), vocabulary projection and cross-entropy.

    The loss is computed from fp32 logits, whose place its softmax takes for the backward pass: with the
    inputs of norm and projection, `4*s*b*h*(1 + v/h)` bytes (arXiv 2205.05198, section 4.3). `fused`, one kernel
    computes it from the logits as they are (flash-attn's and Transformer Engine's cross-entropy).
    """
    normed = _add_masked_transform(layer, source) if architecture.masked_head else source
    normed = layer.norm("norm", normed)
    vocab = ("vocab", architecture.vocab)
    logits = layer.tensor("logits", vocab)
    layer.matmul(
        "logits",
        normed,
        (vocab,),
        ("hidden",),
        (logits,),
        bias=architecture.masked_head,
        tied=architecture.tied,
    )
    if layer.itemsize != FP32 and not fused:
        wide = layer.tensor("wide_logits", vocab, itemsize=FP32)
        layer.add("widen", "elementwise", (logits,), (wide,))
        logits = wide
    labels = layer.indices("labels")
    loss = layer.tensor("loss", itemsize=FP32)
    layer.add(
        "loss",
        "loss",
        (logits, labels),
        (loss,),
        space=logits.shape,
        saves=(logits, labels),
        contracted=("vocab",),
        passes=loss_passes(layer.itemsize) if fused else 1,
    )


def loss_passes(itemsize: float) -> int:
    """Times that a fused loss goes over logits of so many bytes each: until it has moved what a copy of them would.

    The copy is written from the logits and read in their place. A kernel that went over them once would make runs of
    small models 2 % faster than measured (docs/explanation/cost-model.md, "What a software stack keeps").
    """
    return 1 if itemsize == FP32 else round((itemsize + FP32 + FP32) / itemsize)


def _add_masked_transform(layer: LayerBuilder, source: Tensor) -> Tensor:
    """The square projection and activation in front of BERT's vocabulary projection (arXiv 1810.04805)."""
    columns = (("transform", source.shape[-1][1]),)
    projected = layer.project("transform", source, columns, bias=True)
    activated = layer.tensor("transform_activated", source.shape[-1])
    layer.add("transform_activated", "activation", (projected,), (activated,), saves=(projected,))
    return activated


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
