"""Attention sub-layers: projections, rotation, core, output projection."""

from nest.graph import Parameter, Shape, Tensor
from nest.models.building.compressed import add_compressed
from nest.models.building.keys import add_block_indexer, add_indexer, attend, mean_keys, score_space
from nest.models.building.layer import FP32, LayerBuilder
from nest.models.building.recurrent import MIXERS
from nest.spec.architecture import CompressedAttention, GroupedQueryAttention, LatentAttention, Mixer, Parallel


def attention_core(
    layer: LayerBuilder,
    operands: tuple[Tensor, Tensor, Tensor],
    *,
    unfused: bool,
    causal: bool = True,
    window: int | None = None,
    chunk: int | None = None,
    capped: bool = False,
    sinks: bool = False,
    chosen: tuple[Tensor, ...] = (),
) -> Tensor:
    """Add the attention core and return its result, `(batch, sequence, heads, value channels)`.

    FlashAttention-2 (arXiv 2307.08691) never stores the scores and skips masked keys. Its forward pass has one product
    over the query-key channels and one over the value channels. The backward pass computes the scores again, the
    gradients of queries and keys (three products of query-key width), of values and of the probabilities (two of value
    width): 2.5 times the forward FLOP if both widths agree. By the convention of utilisation figures only a window
    saves FLOP, not the mask.

    Args:
        operands: queries, `(batch, sequence, heads, head)`, keys, `(batch, sequence, heads or kv_heads, head)`, and
            values, `(batch, sequence, heads or kv_heads, head or value)`.
        unfused: separate operators that store the scores, in place of a flash-attention kernel.
        causal: later keys are masked.
        window: latest keys a query attends to; None: all.
        chunk: tokens that attend only to one another; None: all.
        capped: scores are capped, which costs nothing in a flash-attention kernel.
        sinks: each head has a learned score beside those of its keys, which costs only its weight.
        chosen: the keys a query attends to, if an indexer chooses them.
    """
    query, _, value = operands
    learned = (Parameter("sinks", (query.shape[2],)),) if sinks else ()
    context = layer.tensor("context", query.shape[2], value.shape[3])
    reach = min(layer.sequence, window or layer.sequence, chunk or layer.sequence)
    if unfused:
        _unfused(layer, operands, context, reach, learned, capped, chosen)
        return context
    met = mean_keys(layer.sequence, causal, window, chunk)
    head, channels = query.shape[-1][1], value.shape[-1][1]
    per_key, backward = 2.0 * (head + channels) / head, (3 * head + 2 * channels) / (head + channels)
    kernel, flops = (layer, (*operands, *chosen), context, reach), per_key * met / reach
    attend(
        *kernel, parameters=learned, flops_per_point=flops, model_flops_per_point=per_key, backward_flops_ratio=backward
    )
    return context


def _unfused(
    layer: LayerBuilder,
    operands: tuple[Tensor, Tensor, Tensor],
    context: Tensor,
    reach: int,
    learned: tuple[Parameter, ...],
    capped: bool,
    chosen: tuple[Tensor, ...],
) -> None:
    """Add scores, softmax and weighted sum as separate operators over all keys, of which a query meets `reach`.

    The products have two gradients each, twice the forward FLOP. All three are of kind `attention`, so that selective
    recomputation drops scores and probabilities (arXiv 2205.05198, section 5).
    """
    (query, key, value), keys = operands, ("keys", layer.sequence)
    rows = (*layer.tokens[:1], query.shape[2], *layer.tokens[1:])
    scores, probabilities, bounded = (
        Tensor(f"{layer.path}/{name}", (*rows, keys), layer.itemsize)
        for name in ("scores", "probabilities", "capped_scores")
    )
    flops = {"flops_per_point": 2.0, "model_flops_per_point": 2.0 * reach / layer.sequence}
    space, saves = score_space(layer, query.shape[2], layer.sequence, query.shape[3]), (query, key)
    summed = ("head",)
    layer.add("attention_scores", "attention", saves, (scores,), space=space, saves=saves, contracted=summed, **flops)
    if capped:
        layer.add("attention_cap", "attention", (scores,), (bounded,), saves=(bounded,))
        scores = bounded
    masked = (scores, *chosen)
    made: tuple[Tensor, ...] = (probabilities,)
    if layer.kernels == "eager" and layer.itemsize != FP32:
        # The softmax is computed in single precision, and keeps that (transformers v5.24.0, eager_attention_forward).
        made += (Tensor(f"{layer.path}/wide_probabilities", (*rows, keys), FP32, differentiable=False),)
    layer.add("attention_softmax", "attention", masked, made, parameters=learned, saves=made)
    space, saves, summed = (*rows, value.shape[3], keys), (probabilities, value), ("keys",)
    layer.add("attention_context", "attention", saves, (context,), space=space, saves=saves, contracted=summed, **flops)


def add_mixer(layer: LayerBuilder, mixer: Mixer, source: Tensor, unfused: bool) -> Tensor:
    """Add attention or what replaces it.

    Args:
        source: `(batch, sequence, hidden)`; the result has the same shape.
        unfused: store the scores in place of a flash-attention kernel.
    """
    if isinstance(mixer, Parallel):
        parts = [add_mixer(layer.inside(f"part{n}"), each, source, unfused) for n, each in enumerate(mixer.parts)]
        return layer.residual("mixed", *parts)
    if isinstance(mixer, CompressedAttention):
        return add_compressed(layer, mixer, source)
    if isinstance(mixer, LatentAttention):
        return _add_latent(layer, mixer, source, unfused)
    if isinstance(mixer, GroupedQueryAttention):
        return _add_grouped_query(layer, mixer, source, unfused)
    return MIXERS[type(mixer)](layer, mixer, source)


def _add_grouped_query(layer: LayerBuilder, attention: GroupedQueryAttention, source: Tensor, unfused: bool) -> Tensor:
    head = ("head", attention.head)
    query = layer.project("query", source, (("heads", attention.heads), head), bias=attention.bias)
    channels = head if attention.value is None else ("value", attention.value)
    if attention.keys_of is None:
        query, key, value = _keys_and_values(layer, attention, source, query, channels)
    else:
        if attention.normalised:
            query = layer.norm("query_norm", query, bias=False, weights=query.shape[-1:])
        key, value = (layer.made(f"layers.{attention.keys_of}/{each}") for each in ("rotated_key", "value_norm"))
        query = layer.make("rotary", "elementwise", (query,), *query.shape[2:], output="rotated_query")
    chosen: tuple[Tensor, ...] = ()
    if attention.indexer is not None:
        chosen = (add_block_indexer(layer, attention.indexer, source, unfused),)
    reach = attention.window if attention.indexer is None else attention.indexer.keys
    details = {name: getattr(attention, name) for name in ("causal", "chunk", "capped", "sinks")}
    operands = (query, key, value)
    context = attention_core(layer, operands, unfused=unfused, window=reach, chosen=chosen, **details)
    context = _gated(layer, attention, source, context)
    inner, bias = ("heads", channels[0]), attention.output_bias
    return layer.project("attention_output", context, source.shape[-1:], inner, bias=bias)


def _gated(
    layer: LayerBuilder, attention: GroupedQueryAttention | LatentAttention, source: Tensor, context: Tensor
) -> Tensor:
    """Add the gate on the result of attention, if it has one."""
    if not attention.gate:
        return context
    channels = () if attention.gate == 1 else (("head", attention.gate),)
    bias = attention.bias and isinstance(attention, GroupedQueryAttention) and attention.gate > 1
    gate = layer.project("attention_gate", source, (context.shape[2], *channels), bias=bias)
    both = (context, gate)
    return layer.make("attention_gated", "activation", both, *context.shape[2:], output="gated_context", saves=both)


def _keys_and_values(
    layer: LayerBuilder, attention: GroupedQueryAttention, source: Tensor, query: Tensor, channels: tuple[str, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Add keys and values, and the norms and rotation of all three."""
    kv_heads, head = ("kv_heads", attention.kv_heads), query.shape[-1]
    if attention.key_values:
        key = value = layer.project("key", source, (kv_heads, head), bias=attention.bias)
    elif channels == head:
        key, value = layer.tensor("key", kv_heads, head), layer.tensor("value", kv_heads, head)
        columns = (("branch", 2), kv_heads, head)
        layer.matmul("key_value", source, columns, ("hidden",), (key, value), bias=attention.bias)
    else:
        key = layer.project("key", source, (kv_heads, head), bias=attention.bias)
        value = layer.project("value", source, (kv_heads, channels), bias=attention.bias)
    if attention.value_norm:
        value = layer.norm("value_norm", value, bias=False, weights=())
    if attention.normalised and attention.norm != "rotated":
        query, key = _normalise(layer, attention, query, key)
    if attention.rotary:
        query, key = _rotate(layer, (query, key), query.shape[2:], key.shape[2:])
    if attention.normalised and attention.norm == "rotated":
        query, key = _normalise(layer, attention, query, key)
    return query, key, value


def _normalise(
    layer: LayerBuilder, attention: GroupedQueryAttention, query: Tensor, key: Tensor
) -> tuple[Tensor, Tensor]:
    """Normalise queries and keys, without the one number per token that ranks with shared heads exchange."""
    of_axes = {"unlearned": 0, "own": 2}.get(attention.norm, 1)
    query_shape, key_shape = (each.shape[len(each.shape) - of_axes :] for each in (query, key))
    return (
        layer.norm("query_norm", query, bias=False, weights=query_shape),
        layer.norm("key_norm", key, bias=False, weights=key_shape),
    )


def _add_latent(layer: LayerBuilder, attention: LatentAttention, source: Tensor, unfused: bool) -> Tensor:
    """Add multi-head latent attention, uncompressed for training (arXiv 2405.04434, equations 37 to 47)."""
    heads = ("heads", attention.heads)
    query_source, contracted = source, "hidden"
    if attention.query_rank is not None:
        rank = (("latent", attention.query_rank),)
        query_latent = layer.project("query_latent", source, rank, bias=attention.bias)
        query_source, contracted = layer.norm("query_latent_norm", query_latent, bias=False), "latent"
    channels = (heads, ("head", attention.plain + attention.rotary))
    query = layer.project("query", query_source, channels, (contracted,))

    latent = layer.tensor("key_value_latent", ("latent", attention.key_value_rank))
    shared_key = layer.tensor("shared_key", ("head", attention.rotary))
    width = (("latent", attention.key_value_rank + attention.rotary),)
    layer.matmul("key_value_latent", source, width, ("hidden",), (latent, shared_key), bias=attention.bias)
    latent, inner = layer.norm("key_value_latent_norm", latent, bias=False), ("heads", "value")
    chosen: tuple[Tensor, ...] = ()
    if attention.indexer is not None:
        chosen = (add_indexer(layer, attention.indexer, source, query_source, unfused),)
        if attention.indexer.keys < layer.sequence and not unfused:
            context = _sparse_context(layer, attention, query, latent, shared_key, *chosen)
            return layer.project("attention_output", context, source.shape[-1:], inner, bias=attention.bias)
    plain_key = layer.tensor("plain_key", heads, ("head", attention.plain))
    value = layer.tensor("value", heads, ("value", attention.value))
    expanded = (heads, ("head", attention.plain + attention.value))
    layer.matmul("key_value", latent, expanded, ("latent",), (plain_key, value))

    query, key = _rotate(layer, (query, plain_key, shared_key), query.shape[2:], query.shape[2:])
    reach = attention.indexer.keys if attention.indexer is not None else None
    context = attention_core(layer, (query, key, value), unfused=unfused, window=reach, chosen=chosen)
    context = _gated(layer, attention, source, context)
    return layer.project("attention_output", context, source.shape[-1:], inner, bias=attention.bias)


def _sparse_context(
    layer: LayerBuilder, attention: LatentAttention, query: Tensor, latent: Tensor, shared_key: Tensor, chosen: Tensor
) -> Tensor:
    """Add compressed attention to the chosen keys, which all heads share (arXiv 2512.02556, section 2.1).

    The two halves of the projection that otherwise expands keys and values take queries to the keys' latent space and
    the result back from it: Megatron Core's absorbed layout (`dsa.py` of Megatron-LM d98e8a64). The backward pass
    computes the scores once more for the indexer's loss.
    """
    heads, rank = ("heads", attention.heads), attention.key_value_rank
    absorbed = layer.tensor("absorbed_query", heads, ("latent", rank))
    layer.per_head("absorbed_query", query, absorbed, ("head", attention.plain))
    channels = ("head", rank + attention.rotary)
    query = layer.make("rotary", "elementwise", (absorbed, query), heads, channels, output="rotated_query")
    key = layer.make("key_rotary", "elementwise", (latent, shared_key), channels, output="rotated_key")
    reach = min(attention.indexer.keys if attention.indexer else layer.sequence, layer.sequence)
    context, width = layer.tensor("latent_context", heads, ("latent", rank)), channels[1]
    flops = 2.0 * (width + rank) / width * mean_keys(layer.sequence, True, reach) / reach
    # What the model asks for is attention to expanded keys and values.
    asked, backward = attention.plain + attention.rotary + attention.value, (4 * width + 2 * rank) / (width + rank)
    kernel, model_flops = (layer, (query, key, chosen), context, reach), 2.0 * asked / width
    attend(*kernel, flops_per_point=flops, model_flops_per_point=model_flops, backward_flops_ratio=backward)
    result = layer.tensor("context", heads, ("value", attention.value))
    return layer.per_head("context", context, result, ("latent", rank))


def _rotate(
    layer: LayerBuilder, sources: tuple[Tensor, ...], query_axes: Shape, key_axes: Shape
) -> tuple[Tensor, Tensor]:
    """Add the rotary position embedding (arXiv 2104.09864): linear, so the backward pass needs no inputs."""
    query = layer.tensor("rotated_query", *query_axes)
    key = layer.tensor("rotated_key", *key_axes)
    layer.add("rotary", "elementwise", sources, (query, key))
    return query, key
