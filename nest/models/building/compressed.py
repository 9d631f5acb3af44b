"""Compressed attention and hyper-connections of DeepSeek-V4, as in Hugging Face transformers 5.24.0."""

from collections.abc import Callable

from nest.graph import Parameter, Tensor
from nest.models.building.keys import attend, choose, mean_keys
from nest.models.building.layer import FP32, LayerBuilder
from nest.spec.architecture import CompressedAttention


def mean_blocks(sequence: int, rate: int, kept: int | None) -> float:
    """Average the blocks of `rate` tokens that end before a query, of which it keeps at most `kept`."""
    blocks = sequence // rate
    most = blocks if kept is None else min(blocks, kept)
    # After each block, `rate` queries see one more; what is left over sees all.
    seen = rate * (most * (most - 1) // 2 + (blocks - most) * most) + (sequence - blocks * rate + 1) * most
    return seen / sequence


def add_compressed(layer: LayerBuilder, attention: CompressedAttention, source: Tensor) -> Tensor:
    """Add attention of many heads to one key, which is its value: to the last tokens and to compressed blocks.

    An indexer keeps the best blocks of each query. The kernel is of flash-attention's kind: it keeps operands, result
    and log-sum-exp, and its backward pass computes the scores again.
    """
    heads, head = ("heads", attention.heads), ("head", attention.head)
    latent = layer.project("query_latent", source, (("latent", attention.query_rank),))
    latent = layer.norm("query_latent_norm", latent, bias=False)
    query = layer.project("query", latent, (heads, head), ("latent",))
    query = layer.norm("query_norm", query, bias=False, weights=())
    key = layer.norm("key_norm", layer.project("key", source, (head,)), bias=False)
    query = layer.make("rotary", "elementwise", (query,), heads, head, output="rotated_query")
    key = layer.make("key_rotary", "elementwise", (key,), head, output="rotated_key")
    operands: tuple[Tensor, ...] = (query, key)
    met = mean_keys(layer.sequence, True, attention.window)
    if attention.rate and layer.sequence >= attention.rate:
        kept = attention.indexer.keys if attention.indexer is not None else None
        operands += (_compress(layer, "block", source, attention.rate, attention.head, kept is not None),)
        if attention.indexer is not None:
            operands += (_choose_blocks(layer, attention, source, latent),)
        met += mean_blocks(layer.sequence, attention.rate, kept)
    context, sinks, flops = layer.tensor("context", heads, head), Parameter("sinks", (heads,)), 4.0 * met / round(met)
    attend(layer, operands, context, round(met), parameters=(sinks,), flops_per_point=flops, backward_flops_ratio=2.5)
    turned = layer.make("turn_back", "elementwise", (context,), heads, head, output="turned_context")
    groups, rank = ("heads", attention.groups), ("latent", attention.output_rank)
    inner = ("group_channels", attention.heads // attention.groups * attention.head)
    grouped = layer.per_head("grouped", turned, layer.tensor("grouped", groups, rank), inner)
    return layer.project("attention_output", grouped, source.shape[-1:], ("heads", "latent"))


def _compress(layer: LayerBuilder, name: str, source: Tensor, rate: int, head: int, overlapping: bool) -> Tensor:
    """Add the keys of blocks: sums of their tokens' keys, and of the block's before, weighed by a softmax."""
    series = (("series", 2),) if overlapping else ()
    keys, gates = (layer.project(f"{name}_{each}", source, (*series, ("head", head))) for each in ("keys", "gates"))
    shape = (("batch", 1), ("sequence", layer.sequence // rate), ("head", head))
    blocks = Tensor(f"{layer.path}/{name}_compressed", shape, layer.itemsize)
    learned = Parameter("positions", (("rate", rate), *series, ("head", head)))
    layer.add(f"{name}_compress", "softmax", (keys, gates), (blocks,), parameters=(learned,), saves=(keys, gates))
    return layer.norm(f"{name}_norm", blocks, bias=False)


def _choose_blocks(layer: LayerBuilder, attention: CompressedAttention, source: Tensor, latent: Tensor) -> Tensor:
    """Add the indexer: heads score the compressed keys of their own size, and weights combine the scores."""
    indexer = attention.indexer
    assert indexer is not None
    heads, channels = ("index_heads", indexer.heads), ("head", indexer.head)
    keys = _compress(layer, "index", source, attention.rate, indexer.head, True)
    query = layer.project("index_query", latent, (heads, channels), ("latent",))
    weights = layer.project("index_weights", source, (heads,))
    blocks = layer.sequence // attention.rate
    flops = 2.0 * mean_blocks(layer.sequence, attention.rate, None) / blocks
    return choose(layer, indexer, (query, keys, weights), blocks, flops, 3.0)


def connect(layer: LayerBuilder, name: str, streams: Tensor, inner: Callable[[Tensor], Tensor] | None) -> Tensor:
    """Add hyper-connections around a sub-layer (arXiv 2512.24880): weights collapse, mix and expand the streams.

    Args:
        streams: `(batch, sequence, streams, hidden)`.
        inner: the sub-layer; None: the streams end in one, for the head.
    """
    count, hidden = streams.shape[-2][1], streams.shape[-1]
    numbers = ("connections", count * (count + 2) if inner else count)
    weights = layer.tensor(f"{name}_weights", numbers, itemsize=FP32)
    learned = (
        Parameter("weight", (numbers, *streams.shape[-2:])),
        Parameter("base", (numbers,)),
        Parameter("scales", (("scales", 3 if inner else 1),)),
    )
    layer.matmul(f"{name}_weights", streams, (numbers,), ("streams", "hidden"), (weights,), parameters=learned)
    both, shape, output = (streams, weights), streams.shape, f"{name}_read"
    read = layer.make(f"{name}_collapse", "elementwise", both, hidden, output=output, space=shape, saves=both)
    if inner is None:
        return read
    operands, output = (*both, inner(read)), "hidden" if name == "mlp" else f"{name}_streams"
    return layer.make(f"{name}_mix", "elementwise", operands, *shape[-2:], output=output, saves=operands)
