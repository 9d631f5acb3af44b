"""Attention sub-layers: projections, rotation, core, output projection."""

from nest.graph import Shape, Tensor
from nest.models.building.attention_core import attention_core
from nest.models.building.layer import LayerBuilder
from nest.spec.architecture import GroupedQueryAttention, LatentAttention


def add_attention(
    layer: LayerBuilder,
    attention: GroupedQueryAttention | LatentAttention,
    source: Tensor,
    unfused: bool,
) -> Tensor:
    """Add an attention sub-layer.

    Args:
        layer: the layer being built.
        attention: its description.
        source: `(batch, sequence, hidden)`; the result has the same shape.
        unfused: store the scores in place of a flash-attention kernel.
    """
    if isinstance(attention, LatentAttention):
        return _add_latent(layer, attention, source, unfused)
    return _add_grouped_query(layer, attention, source, unfused)


def _add_grouped_query(layer: LayerBuilder, attention: GroupedQueryAttention, source: Tensor, unfused: bool) -> Tensor:
    head = ("head", attention.head)
    query = layer.project("query", source, (("heads", attention.heads), head), bias=attention.bias)
    key = layer.tensor("key", ("kv_heads", attention.kv_heads), head)
    value = layer.tensor("value", ("kv_heads", attention.kv_heads), head)
    layer.matmul(
        "key_value",
        source,
        (("branch", 2), ("kv_heads", attention.kv_heads), head),
        ("hidden",),
        (key, value),
        bias=attention.bias,
    )
    if attention.normalised:
        query = layer.norm("query_norm", query, bias=False)
        key = layer.norm("key_norm", key, bias=False)
    if attention.rotary:
        query, key = _rotate(layer, (query, key), query.shape[2:], key.shape[2:])
    context = attention_core(
        layer, query, key, value, unfused=unfused, causal=attention.causal, window=attention.window
    )
    return layer.project(
        "attention_output",
        context,
        source.shape[-1:],
        ("heads", "head"),
        bias=attention.output_bias,
    )


def _add_latent(layer: LayerBuilder, attention: LatentAttention, source: Tensor, unfused: bool) -> Tensor:
    """Multi-head latent attention, uncompressed for training (arXiv 2405.04434, equations 37 to 47)."""
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
    latent = layer.norm("key_value_latent_norm", latent, bias=False)
    plain_key = layer.tensor("plain_key", heads, ("head", attention.plain))
    value = layer.tensor("value", heads, ("value", attention.value))
    expanded = (heads, ("head", attention.plain + attention.value))
    layer.matmul("key_value", latent, expanded, ("latent",), (plain_key, value))

    query, key = _rotate(layer, (query, plain_key, shared_key), query.shape[2:], query.shape[2:])
    context = attention_core(layer, query, key, value, unfused=unfused)
    return layer.project("attention_output", context, source.shape[-1:], ("heads", "value"), bias=attention.bias)


def _rotate(
    layer: LayerBuilder, sources: tuple[Tensor, ...], query_axes: Shape, key_axes: Shape
) -> tuple[Tensor, Tensor]:
    """Rotary position embedding (arXiv 2104.09864): linear in its inputs, so the backward pass needs none."""
    query = layer.tensor("rotated_query", *query_axes)
    key = layer.tensor("rotated_key", *key_axes)
    layer.add("rotary", "elementwise", sources, (query, key))
    return query, key
