"""Inseparable layers: those kept together, and all between them."""

from collections.abc import Collection, Iterable

from nest.instance import LayerGraph


def homes(graph: LayerGraph, together: Iterable[Collection[int]]) -> list[int]:
    """For each layer, the first layer behind the same cuts; no cut separates the groups of `together`."""
    needed = [set(readers) for readers in graph.successors()]
    for group in together:
        for layer in group:
            needed[layer].update(group)
    reach = [1 << layer for layer in range(len(needed))]
    order, changed = graph.topological_order()[::-1], True
    while changed:
        changed = False
        for layer in order:
            mask = reach[layer]
            for other in needed[layer]:
                mask |= reach[other]
            changed |= mask != reach[layer]
            reach[layer] = mask
    first: dict[int, int] = {}
    return [first.setdefault(mask, layer) for layer, mask in enumerate(reach)]
