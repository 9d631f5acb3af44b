"""Keys of a query: their number, and indexers that choose them."""

from nest.graph import Tensor
from nest.models.building.layer import INDEX, LayerBuilder
from nest.spec.architecture import Indexer

INT32 = INDEX / 2  # Bytes of the position of a kept key.


def mean_keys(sequence: int, causal: bool, window: int | None, chunk: int | None = None) -> float:
    """Average the keys a query attends to over the positions of a sequence.

    A causal query at position `i` (from 1) attends to `min(i, window)` keys. With `w = min(window, sequence)` the
    average is `w - w*(w - 1)/(2*sequence)`, so `(sequence + 1)/2` without a window.

    Args:
        causal: later keys are masked.
        window: latest keys a query attends to (causal attention only); None: all.
        chunk: tokens that attend only to one another, the last chunk perhaps fewer; None: all.
    """
    if not causal:
        return float(sequence)
    if chunk is not None and chunk < sequence:
        whole, rest = divmod(sequence, chunk)
        in_whole = whole * chunk * mean_keys(chunk, causal, window)
        return (in_whole + (rest * mean_keys(rest, causal, window) if rest else 0.0)) / sequence
    reach = sequence if window is None else min(window, sequence)
    return reach - reach * (reach - 1) / (2 * sequence)


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
    reach = min(indexer.keys, layer.sequence)
    chosen = layer.tensor("chosen_keys", ("keys", reach), itemsize=INT32)
    met = float(layer.sequence) if unfused else mean_keys(layer.sequence, True, None)
    layer.add(
        "index",
        "attention",
        rotated,
        (chosen,),
        space=(
            ("batch", 1),
            ("index_heads", indexer.heads),
            ("sequence", layer.sequence),
            ("keys", layer.sequence),
            ("head", indexer.head),
        ),
        saves=(*rotated, chosen),
        contracted=("index_heads", "head"),
        flops_per_point=2.0 * met / layer.sequence,
        model_flops_per_point=2.0,
        backward_flops_ratio=3.0 * mean_keys(layer.sequence, True, reach) / met,
    )
    return chosen
