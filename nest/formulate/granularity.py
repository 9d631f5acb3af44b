"""Where plans may cut: `search.granularity`."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from nest.instance import LayerGraph


def branched_regions(graph: LayerGraph) -> tuple[tuple[int, ...], ...]:
    """Layers that lie between two neighbouring layers comparable with all others, where there are several.

    A layer is comparable with another when one reads, directly or through others, what the other makes. Kept whole,
    the regions and the layers between them form a chain.

    Returns: the layers of each region as indices, ascending. Time is near linear in layers and edges.
    """
    order = graph.topological_order()
    comparable = _comparable_with_all(graph, order)
    regions: list[list[int]] = [[]]
    for layer in order:
        if comparable[layer]:
            regions.append([])
        else:
            regions[-1].append(layer)
    return tuple(tuple(sorted(region)) for region in regions if region)


def _comparable_with_all(graph: LayerGraph, order: Sequence[int]) -> list[bool]:
    """For each layer, whether all layers in front of it in `order` lead to it and it leads to all behind.

    All layers of a beginning of `order` lead to its last one when that is the only one whose readers all lie behind
    the beginning: every other has a reader in it, which is nearer to the end. The same holds of endings, mirrored.
    """
    count = len(order)
    position = {layer: index for index, layer in enumerate(order)}
    first_reader, last_read = [count] * count, [-1] * count
    for producer, consumers in graph.tensors:
        made = position[producer]
        for consumer in consumers:
            read = position[consumer]
            first_reader[made] = min(first_reader[made], read)
            last_read[read] = max(last_read[read], made)
    ends = _covering(((made, first_reader[made]) for made in range(count)), count)
    starts = _covering(((last_read[read] + 1, read + 1) for read in range(count)), count)
    return [ends[position[layer]] == starts[position[layer]] == 1 for layer in range(count)]


def _covering(ranges: Iterable[tuple[int, int]], count: int) -> list[int]:
    """For each position below `count`, how many of the half-open ranges hold it."""
    change = [0] * (count + 1)
    for start, end in ranges:
        change[start] += 1
        change[end] -= 1
    return list(accumulate(change[:count]))
