"""Operator graph of an architecture: embedding, blocks with their feed-forward networks, head."""

from typing import Any

from attrs import evolve

from nest.errors import InputError
from nest.graph import OperatorGraph, Parameter, Routing, Shape, Tensor
from nest.models.building.attention import add_mixer
from nest.models.building.compressed import connect
from nest.models.building.layer import FP32, LayerBuilder, activation_itemsize
from nest.spec import Training
from nest.spec.architecture import Architecture, FeedForward, HybridBlock, MixtureOfExperts, TransformerBlock

EXPERT_WIDTH = "expert_ffn"  # The axis of a routed expert's inner width; experts are split apart from all else.

CLAMPED, ADDED = 2, 6
"""Passes of the activation and of the last bias of gpt-oss's experts over their tensors: in Megatron Core both are
several kernels (megatron/core at 97aca2f8, April 2026; docs/explanation/cost-model.md)."""


def add_embedding(layer: LayerBuilder, architecture: Architecture) -> Tensor:
    """Look tokens up, add the learned rows per position and segment, normalise if the family does.

    A look-up in a table split along `vocab` yields zeros for the tokens of other ranks: partial sums.
    """
    tokens = layer.indices("token_ids")
    hidden = ("hidden", architecture.hidden)
    learned_rows = bool(architecture.positions or architecture.types)
    vocab, output = ("vocab", architecture.vocab), "words" if learned_rows or architecture.masked_head else "hidden"
    table: Any = {"space": (*layer.tokens, hidden, vocab), "parameters": (Parameter("weight", (vocab, hidden)),)}
    table |= {"saves": (tokens,), "contracted": ("vocab",)}
    embedded = layer.make("words", "embedding", (tokens,), hidden, output=output, **table)
    if learned_rows:
        embedded = _add_learned_rows(layer, architecture, embedded)
    if architecture.masked_head:
        embedded = layer.norm("norm", embedded, output="hidden")
    if architecture.layer_inputs:
        _add_layer_inputs(layer, architecture, tokens, embedded)
    if architecture.streams:
        return layer.make("streams", "elementwise", (embedded,), ("streams", architecture.streams), hidden)
    return embedded


def _add_layer_inputs(layer: LayerBuilder, architecture: Architecture, tokens: Tensor, embedded: Tensor) -> None:
    """Add what each block reads: rows of its own table, and a normalised part of one product (Gemma 3n, Gemma 4)."""
    width, blocks = ("layer_input", architecture.layer_inputs), ("layers", len(architecture.blocks))
    rows = ("layer_vocab", architecture.layer_vocab)
    table, read = Parameter("weight", (rows, blocks, width)), (tokens,)
    looked = layer.make("layer_words", "embedding", read, blocks, width, parameters=(table,), saves=read)
    projected = layer.project("layer_projection", embedded, (blocks, width))
    normed = layer.norm("layer_norm", projected, bias=False)
    inputs = tuple(layer.tensor(f"layer_input_{index}", width) for index in range(blocks[1]))
    layer.add("layer_inputs", "elementwise", (looked, normed), inputs, space=looked.shape)


def _read_layer_input(layer: LayerBuilder, stream: Tensor, index: int, width: int) -> Tensor:
    """Add the gate of the block's own input, its projection and norm."""
    gate = layer.project("layer_gate", stream, (("layer_input", width),))
    both = (gate, layer.made(f"embedding/layer_input_{index}"))
    gated = layer.make("layer_gated", "activation", both, gate.shape[-1], saves=both)
    change = layer.project("layer_change", gated, stream.shape[-1:], ("layer_input",))
    return layer.residual("layer_residual", stream, layer.norm("layer_change_norm", change), output="hidden")


def _add_learned_rows(layer: LayerBuilder, architecture: Architecture, embedded: Tensor) -> Tensor:
    """Add the rows learned for each position and for each segment; both look-ups run with the sum."""
    hidden = ("hidden", architecture.hidden)
    rows = {"positions": architecture.positions, "types": architecture.types}
    learned = tuple(Parameter(name, ((name, count), hidden)) for name, count in rows.items() if count)
    saves = (layer.indices("segment_ids"),) if architecture.types else ()
    inputs, output = (embedded, *saves), "sum" if architecture.post_norm else "hidden"
    return layer.make("positions", "embedding", inputs, hidden, output=output, parameters=learned, saves=saves)


def add_head(layer: LayerBuilder, architecture: Architecture, source: Tensor, loss: str = "unfused") -> None:
    """Add final norm (or the head of a masked language model), vocabulary projection and cross-entropy.

    `unfused` copies the logits to fp32, and the softmax for the backward pass replaces the copy: with the inputs of
    norm and projection `4*s*b*h*(1 + v/h)` bytes (arXiv 2205.05198, section 4.3). `fused` is one kernel on the logits
    themselves (flash-attn's and Transformer Engine's cross-entropy). `chunked` takes the logits of so many tokens at
    once that they need as much memory as the input (liger-kernel 0.8, ops/fused_linear_cross_entropy.py). `eager`
    stores logits, their logarithmic softmax and the gradients of both: 14 bytes a logit with 16-bit ones
    (torch.nn.functional.cross_entropy of `logits.float()`). Blocks that predict further tokens share the weights and
    have logits and a loss each.
    """
    source = connect(layer, "streams", source, None) if architecture.streams else source
    if architecture.masked_head:
        read = source if architecture.post_norm else layer.norm("final_norm", source)
        source = _add_masked_transform(layer, read, architecture.norm_bias)
    normed = layer.norm("norm", source)
    vocab = ("vocab", architecture.vocab)
    share = min(1.0, architecture.hidden / architecture.vocab) if loss == "chunked" else 1.0
    logits = layer.tensor("logits", vocab, itemsize=layer.itemsize * share)
    bias, tied = architecture.masked_head, architecture.tied
    layer.matmul("logits", normed, (vocab,), ("hidden",), (logits,), bias=bias, tied=tied)
    if architecture.capped:
        # The backward pass of a hyperbolic tangent needs its result.
        saves = (layer.tensor("capped_logits", vocab),)
        logits = layer.make("capped_logits", "activation", (logits,), vocab, saves=saves)
    _add_loss(layer, logits, loss, share)
    for further in range(1, architecture.predicting + 1):
        logits = layer.tensor(f"logits_{further}", vocab, itemsize=layer.itemsize * share)
        layer.matmul(f"logits_{further}", normed, (vocab,), ("hidden",), (logits,), parameters=())
        _add_loss(layer, logits, loss, share, f"_{further}")


def _add_loss(layer: LayerBuilder, logits: Tensor, how: str, share: float, further: str = "") -> None:
    """Add the cross-entropy of logits of which a `share` exists at once; `further` ends names for further tokens."""
    vocab = logits.shape[-1]
    fused = how in ("fused", "chunked")
    if layer.itemsize != FP32 and not fused:
        wide = layer.tensor(f"wide_logits{further}", vocab, itemsize=FP32)
        # Eager, the model's result outlives the loss, whose caller holds it until the backward pass is done.
        layer.add(f"widen{further}", "elementwise", (logits,), (wide,), saves=(logits,) if how == "eager" else ())
        logits = wide
    labels = layer.indices("labels")
    made: tuple[Tensor, ...] = (layer.tensor(f"loss{further}", itemsize=FP32),)
    saved = logits
    if how == "eager":
        saved = layer.tensor(f"log_probabilities{further}", vocab, itemsize=FP32)
        made = (*made, saved)
    passes = round(loss_passes(layer.itemsize) / share) if fused else 1
    details: Any = {"space": logits.shape, "saves": (saved, labels), "contracted": ("vocab",), "passes": passes}
    layer.add(f"loss{further}", "loss", (logits, labels), made, **details)


def loss_passes(itemsize: float) -> int:
    """Return the passes of a fused loss over its logits: as many bytes as writing and reading an fp32 copy.

    With one pass, runs of small models would be 2 % faster than measured (docs/explanation/memory.md, "Software
    stacks").
    """
    return 1 if itemsize == FP32 else round((itemsize + FP32 + FP32) / itemsize)


def _add_masked_transform(layer: LayerBuilder, source: Tensor, bias: bool) -> Tensor:
    """Add the square projection and activation before BERT's vocabulary projection (arXiv 1810.04805)."""
    saves = (layer.project("transform", source, (("transform", source.shape[-1][1]),), bias=bias),)
    return layer.make("transform_activated", "activation", saves, source.shape[-1], saves=saves)


def build_graph(architecture: Architecture, training: Training) -> OperatorGraph:
    """Build the operator graph of one sample: layers `embedding`, `layers.0`, ..., `head`.

    Raises:
        InputError: the training has no sequence length, or one above the learned positions.
    """
    sequence = training.sequence_length
    if sequence is None:
        raise InputError("training.sequence_length is missing; give the tokens per sample.")
    usable = architecture.positions - architecture.unused_positions
    if architecture.positions and sequence > usable:
        raise InputError(
            f"training.sequence_length is {sequence}, but the model learns only {usable} positions; shorten the "
            "sequence or give the model more positions."
        )
    itemsize, further = activation_itemsize(training), (training.expert_capacity, training.kernels)
    first = LayerBuilder("embedding", sequence, itemsize, architecture.norm_bias, *further)
    hidden = add_embedding(first, architecture)
    built: tuple[TransformerBlock | HybridBlock, ...] = architecture.blocks or architecture.hybrid
    blocks = tuple(f"layers.{index}" for index in range(len(built)))
    for name, block in zip(blocks, built, strict=True):
        stores = training.stores_scores
        if architecture.post_norm and isinstance(block, TransformerBlock):
            hidden = _add_post_norm_block(first.another(name), block, hidden, stores)
        else:
            hidden = _add_pre_norm_block(first.another(name), block, hidden, stores, architecture)
    add_head(first.another("head"), architecture, hidden, training.loss or "unfused")
    return OperatorGraph(tuple(first.operators), ("embedding", *blocks, "head"), blocks, architecture.family)


def _add_pre_norm_block(
    layer: LayerBuilder,
    block: TransformerBlock | HybridBlock,
    source: Tensor,
    unfused: bool,
    architecture: Architecture,
) -> Tensor:
    """Add sub-layers that read a normalised copy and add to the stream, with `result_norms` a normalised result.

    OLMo 2 has only result norms. Sub-layers side by side both read the stream before the block; each result is summed
    over ranks separately, as in Hugging Face transformers.
    """

    def normed(name: str, stream: Tensor) -> Tensor:
        embedded = architecture.masked_head and stream.name == "embedding/hidden"  # It is normalised.
        return layer.norm(name, stream) if architecture.input_norms and not embedded else stream

    stream, network, mixer = source, block.feed_forward, block.attention
    if architecture.streams and mixer is not None and network is not None:

        def mixed(read: Tensor) -> Tensor:
            return add_mixer(layer, mixer, normed("attention_norm", read), unfused)

        stream = connect(layer, "attention", stream, mixed)
        return connect(layer, "mlp", stream, lambda read: _add_feed_forward(layer, network, normed("mlp_norm", read)))
    if mixer is not None:
        read = normed("attention_norm", source)
        change = add_mixer(layer, mixer, read, unfused)
        if architecture.parallel and network is not None:
            read = normed("mlp_norm", source) if architecture.parallel > 1 else read
            further = _add_feed_forward(layer, network, read)
            return layer.residual("mlp_residual", source, change, further, output="hidden")
        if architecture.result_norms:
            change = layer.norm("attention_result_norm", change)
        stream = layer.residual("attention_residual", source, change, output="hidden" if network is None else None)
    if network is None:
        return stream
    if isinstance(network, MixtureOfExperts) and network.normed:
        change = _add_normed_mixture(layer, network, normed("mlp_norm", stream), stream)
    else:
        change = _add_feed_forward(layer, network, normed("mlp_norm", stream))
    if architecture.result_norms:
        change = layer.norm("mlp_result_norm", change)
    last = None if architecture.layer_inputs else "hidden"
    stream = layer.residual("mlp_residual", stream, change, output=last)
    if not architecture.layer_inputs:
        return stream
    return _read_layer_input(layer, stream, int(layer.name.rpartition(".")[2]), architecture.layer_inputs)


def _add_normed_mixture(layer: LayerBuilder, mixture: MixtureOfExperts, read: Tensor, stream: Tensor) -> Tensor:
    """Add a dense network beside routed experts, each with norms of its own (Gemma 4, transformers 5.24.0)."""
    dense = _add_network(layer, "shared_expert", read, FeedForward(mixture.shared_width, mixture.gated))
    dense = layer.norm("shared_expert_norm", dense)
    scaled = layer.norm("router_norm", stream)
    routed = _add_mixture(layer, evolve(mixture, shared_width=0), layer.norm("expert_norm", stream), scaled)
    return layer.residual("mlp_sum", dense, layer.norm("expert_result_norm", routed))


def _add_post_norm_block(layer: LayerBuilder, block: TransformerBlock, source: Tensor, unfused: bool) -> Tensor:
    """Add sub-layers that read the stream itself; the sum is normalised (BERT, arXiv 1810.04805)."""
    change = add_mixer(layer, block.attention, source, unfused)
    stream = layer.norm("attention_norm", layer.residual("attention_residual", source, change))
    change = _add_feed_forward(layer, block.feed_forward, stream)
    return layer.norm("mlp_norm", layer.residual("mlp_residual", stream, change), output="hidden")


def _add_feed_forward(layer: LayerBuilder, network: FeedForward | MixtureOfExperts, source: Tensor) -> Tensor:
    if isinstance(network, MixtureOfExperts):
        return _add_mixture(layer, network, source)
    return _add_network(layer, "mlp", source, network)


def _add_network(layer: LayerBuilder, prefix: str, source: Tensor, network: FeedForward) -> Tensor:
    up = layer.project(f"{prefix}_up", source, _inner("ffn", network.width, network.gated), bias=network.bias)
    learned = (Parameter("learned", (("branch", network.learned),)),) if network.learned else ()
    activated = _activate(layer, f"{prefix}_activated", up, parameters=learned)
    return layer.project(f"{prefix}_down", activated, source.shape[-1:], ("ffn",), bias=network.bias)


def _add_mixture(
    layer: LayerBuilder, mixture: MixtureOfExperts, source: Tensor, scored: Tensor | None = None
) -> Tensor:
    """Add routed experts, all on this rank: every token visits `top_k` of them.

    Scores and routing weights are fp32, as in Hugging Face transformers' code of DeepSeek-V3. The weights scale the
    activations inside the experts, as in Megatron Core's `TEGroupedMLP`, so the backward pass need not keep the
    experts' results and their sum is linear. Tensors of experts are padded to the capacity (arXiv 2101.03961, section
    2.2): that many more bytes per token.
    """
    hidden, top_k = source.shape[-1], ("top_k", mixture.top_k)
    logits = layer.tensor("router_logits", ("experts", mixture.experts), itemsize=FP32)
    columns = (("experts", mixture.experts),)
    layer.matmul("router", scored or source, columns, ("hidden",), (logits,), kind="router", bias=mixture.bias)
    weights = layer.tensor("routing_weights", top_k, itemsize=FP32)
    # The probabilities the backward pass needs overwrite the logits.
    scales = (Parameter("scales", (("experts", mixture.experts),)),) if mixture.normed else ()
    layer.add("routing", "softmax", (logits,), (weights,), space=logits.shape, parameters=scales, saves=(logits,))
    read = source
    if mixture.latent is not None:
        read = layer.project("latent", source, (("latent", mixture.latent),))
    width = read.shape[-1]
    dispatched = layer.tensor("dispatched", top_k, width, itemsize=layer.itemsize * layer.capacity)
    routing = Routing(mixture.top_k, mixture.groups, mixture.visited_groups)
    layer.add("dispatch", "elementwise", (read, weights), (dispatched,), routing=routing)
    inner, count, bias = _inner(EXPERT_WIDTH, mixture.width, mixture.gated), mixture.experts, mixture.bias
    up = layer.project("expert_up", dispatched, inner, (width[0],), experts=count, bias=bias)
    apart = bias and layer.kernels != "fused"
    activated = _activate(layer, "expert_activated", up, (weights,), CLAMPED if apart else 1)
    down = layer.project("expert_down", activated, (width,), (EXPERT_WIDTH,), experts=count, bias=bias and not apart)
    if apart:  # Beside the experts' products: with the biases, its parameters.
        biases = (Parameter("bias", (("experts", count), width), "expert"),)
        details: Any = {"saves": (weights,), "parameters": biases, "passes": ADDED}
        down = layer.make("expert_biased", "elementwise", (down, weights), top_k, width, **details)
    shared = (_add_shared_expert(layer, mixture, source),) if mixture.shared_width else ()
    parts = (down, *shared) if width == hidden else (down,)
    combined = layer.tensor("mlp_output" if width == hidden else "latent_output", width)
    layer.add("combine", "elementwise", parts, (combined,), space=down.shape, contracted=("top_k",))
    if width == hidden:
        return combined
    expanded = layer.project("expanded", combined, (hidden,), ("latent",))
    return layer.residual("mlp_output", expanded, *shared) if shared else expanded


def _add_shared_expert(layer: LayerBuilder, mixture: MixtureOfExperts, source: Tensor) -> Tensor:
    """Add the expert every token visits; a sigmoid of one more projection scales Qwen's."""
    result = _add_network(layer, "shared_expert", source, FeedForward(mixture.shared_width, mixture.gated))
    if not mixture.shared_gate:
        return result
    both, output = (result, layer.project("shared_expert_gate", source, ())), "shared_expert_scaled"
    return layer.make("shared_expert_scale", "elementwise", both, *result.shape[2:], output=output, saves=both)


def _inner(axis: str, width: int, gated: bool) -> Shape:
    """Return the columns of the first projection: both branches of a gated network in one product."""
    return (("branch", 2), (axis, width)) if gated else ((axis, width),)


def _activate(
    layer: LayerBuilder, name: str, up: Tensor, scales: tuple[Tensor, ...] = (), passes: int = 1, **details: Any
) -> Tensor:
    """Add the activation, of two branches with the gating product; the backward pass needs its inputs."""
    shape = tuple(axis for axis in up.shape if axis[0] != "branch")
    saved: tuple[Tensor, ...] = (up, *scales)
    made: tuple[Tensor, ...] = (Tensor(f"{layer.path}/{name}", shape, up.itemsize),)
    # Run apart from the activation, the gating product saves what it reads (transformers v5.17.0, LlamaMLP). A
    # pass before it makes both branches anew.
    gated = layer.kernels == "eager" and shape != up.shape
    for kind, axes in (("gate", shape),) * gated + (("changed", up.shape),) * (passes > 1):
        kept = Tensor(f"{layer.path}/{name}_{kind}", axes, up.itemsize, differentiable=False)
        saved, made = (*saved, kept), (*made, kept)
    layer.add(name, "activation", (up, *scales), made, saves=saved, passes=passes, **details)
    return made[0]
