"""Keys of a query: their number, and indexers that choose them."""

from typing import Any

from nest.graph import Shape, Tensor
from nest.models.building.layer import FP32, INDEX, LayerBuilder
from nest.spec.architecture import Indexer

INT32 = INDEX / 2  # Bytes of the position of a kept key.


def mean_keys(sequence: int, causal: bool, window: int | None, chunk: int | None = None) -> float:
    """Average the keys a query attends to over the positions of a sequence.

    A causal query at position `i` (from 1) attends to `min(i, window)` keys. With `w = min(window, sequence)` the
    average is `w - w*(w - 1)/(2*sequence)`, so `(sequence + 1)/2` without a window. Others have `h = (window - 1)/2`
    keys on either side: the average is `window - h*(h + 1)/sequence`, or all if the window reaches beyond both ends.

    Args:
        causal: later keys are masked.
        window: latest keys a query attends to, or nearest ones, itself between as many; None: all.
        chunk: tokens that attend only to one another, the last chunk perhaps fewer; None: all.
    """
    if not causal:
        half = min(sequence if window is None else window // 2, sequence - 1)
        return 2 * half + 1 - half * (half + 1) / sequence
    if chunk is not None and chunk < sequence:
        whole, rest = divmod(sequence, chunk)
        in_whole = whole * chunk * mean_keys(chunk, causal, window)
        return (in_whole + (rest * mean_keys(rest, causal, window) if rest else 0.0)) / sequence
    reach = sequence if window is None else min(window, sequence)
    return reach - reach * (reach - 1) / (2 * sequence)


def score_space(layer: LayerBuilder, heads: tuple[str, int], keys: int, channels: tuple[str, int]) -> Shape:
    """Return the iteration space of scores: `(batch, heads, sequence, keys, channels)`."""
    return (("batch", 1), heads, ("sequence", layer.sequence), ("keys", keys), channels)


def attend(layer: LayerBuilder, operands: tuple[Tensor, ...], context: Tensor, keys: int, **details: Any) -> None:
    """Add one kernel over at most `keys` of each query, which keeps operands, result and log-sum-exp of the scores."""
    query, statistics = operands[0], layer.tensor("log_sum_exp", context.shape[2], itemsize=FP32)
    made, saves = (context, statistics), (*operands, context, statistics)
    space = score_space(layer, query.shape[2], keys, query.shape[3])
    layer.add("attention", "attention", operands, made, space=space, saves=saves, contracted=("keys",), **details)


def add_indexer(layer: LayerBuilder, indexer: Indexer, source: Tensor, latent: Tensor, unfused: bool) -> Tensor:
    """Add the indexer that chooses keys (arXiv 2512.02556, equation 1), whole on every rank as in Megatron Core.

    All heads score every query against every earlier key; ReLU and weights combine them into one score; the best keys
    are kept as int32. The backward pass of the indexer's own loss reads only the chosen keys (section 2.1.1).
    """
    if indexer.choice_of is not None:
        return layer.made(f"layers.{indexer.choice_of}/chosen_keys")
    heads, channels = ("index_heads", indexer.heads), ("head", indexer.head)
    query = layer.project("index_query", latent, (heads, channels), ("latent",))
    key = layer.norm("index_key_norm", layer.project("index_key", source, (channels,)), bias=True)
    weights = layer.project("index_weights", source, (heads,))
    rotated = layer.tensor("rotated_index_query", heads, channels), layer.tensor("rotated_index_key", channels)
    layer.add("index_rotary", "elementwise", (query, key, weights), rotated, saves=(query, weights))
    return _choose(layer, indexer, rotated, unfused)


def add_block_indexer(layer: LayerBuilder, indexer: Indexer, source: Tensor, unfused: bool) -> Tensor:
    """Add the indexer of MiniMax-M3 (transformers 5.24.0), which chooses blocks of keys without weighing its heads."""
    heads, channels = ("index_heads", indexer.heads), ("head", indexer.head)
    query = layer.project("index_query", source, (heads, channels))
    query = layer.norm("index_query_norm", query, bias=False, weights=(channels,))
    key = layer.norm("index_key_norm", layer.project("index_key", source, (channels,)), bias=False)
    rotated = layer.tensor("rotated_index_query", heads, channels), layer.tensor("rotated_index_key", channels)
    layer.add("index_rotary", "elementwise", (query, key), rotated)
    return _choose(layer, indexer, rotated, unfused)


def _choose(layer: LayerBuilder, indexer: Indexer, rotated: tuple[Tensor, Tensor], unfused: bool) -> Tensor:
    """Add the scores of all earlier keys, and the choice of the best."""
    met = float(layer.sequence) if unfused else mean_keys(layer.sequence, True, None)
    again = 3.0 * mean_keys(layer.sequence, True, min(indexer.keys, layer.sequence)) / met
    flops = 2.0 * met / layer.sequence
    return choose(layer, indexer, rotated, layer.sequence, flops, again, model_flops_per_point=2.0)


def choose(
    layer: LayerBuilder,
    indexer: Indexer,
    operands: tuple[Tensor, ...],
    keys: int,
    flops: float,
    again: float,
    **more: Any,
) -> Tensor:
    """Add the scores of queries, `operands[0]`, for `keys`, at `flops` each, and the choice of the best."""
    chosen = layer.tensor("chosen_keys", ("keys", min(indexer.keys, keys)), itemsize=INT32)
    space, saves = score_space(layer, operands[0].shape[2], keys, ("head", indexer.head)), (*operands, chosen)
    more |= {"contracted": ("index_heads", "head"), "flops_per_point": flops, "backward_flops_ratio": again}
    layer.add("index", "attention", operands, (chosen,), space=space, saves=saves, **more)
    return chosen
