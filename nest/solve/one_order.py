"""One order of the layers: the plans of a branched graph that cut along it, as an instance.

Empty tensors from each layer to the next keep the order for free, so every plan of the narrower instance is a plan of
the whole one at the same price. It has as many cuts as layers.
"""

from collections.abc import Sequence

import numpy
from attrs import evolve

from nest.instance import Instance, LayerGraph
from nest.solve.inseparable import homes

MOST_CUTS = 800
"""Most cuts along an order; with more, neighbouring layers stay together, so that a first plan takes seconds."""

Order = tuple[tuple[int, ...], ...]  # Groups of layers that stay together, sources first.


def along(instance: Instance, order: Order) -> Instance:
    """Instance whose plans only cut along an order."""
    firsts, graph = [group[0] for group in order], instance.graph
    links = tuple(zip(firsts, ((each,) for each in firsts[1:]), strict=False))
    empty = numpy.zeros(len(links))
    return evolve(
        instance,
        graph=LayerGraph(graph.layers, (*graph.tensors, *links)),
        candidates=tuple(
            evolve(each, tensor_bytes=numpy.concatenate([each.tensor_bytes, empty])) for each in instance.candidates
        ),
        space=evolve(instance.space, together=(*instance.space.together, *(each for each in order if len(each) > 1))),
    )


def orders(instance: Instance, together: Sequence[Sequence[int]]) -> tuple[Order, ...]:
    """Orders of the layers for good plans: with the least data waiting to be read, and layer by layer.

    A given partition leaves one order. No cut may separate the groups of `together`.
    """
    if instance.space.partition is not None:
        return (order_of(instance, together, instance.space.partition),)
    groups = _groups(instance.graph, together)
    home = {layer: index for index, group in enumerate(groups) for layer in group}
    found = [_ordered(instance, groups, home, by_bytes=by_bytes) for by_bytes in (True, False)]
    return tuple(dict.fromkeys(_coarse(instance, [groups[each] for each in order]) for order in found))


def order_of(instance: Instance, together: Sequence[Sequence[int]], stages: Sequence[Sequence[int]]) -> Order:
    """An order along which stages with these layers are cut; `together` as in `orders`."""
    stage_of = {layer: index for index, layers in enumerate(stages) for layer in layers}
    place = {layer: index for index, layer in enumerate(instance.graph.topological_order())}
    groups = _groups(instance.graph, together)
    return tuple(sorted(groups, key=lambda group: (stage_of[group[0]], min(place[layer] for layer in group))))


def _groups(graph: LayerGraph, together: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Groups of layers behind the same cuts, in the order of their first layers."""
    groups: dict[int, list[int]] = {}
    for layer, home in enumerate(homes(graph, together)):
        groups.setdefault(home, []).append(layer)
    return [tuple(each) for each in groups.values()]


def _ordered(
    instance: Instance, groups: Sequence[tuple[int, ...]], home: dict[int, int], *, by_bytes: bool
) -> list[int]:
    """Order groups topologically; the next is always the one that leaves the least data waiting to be read.

    Without `by_bytes`, the one with the least work before it: all branches side by side.
    """
    used = instance.candidates[0]
    tensors = [
        (home[producer], {home[each] for each in consumers} - {home[producer]}, float(size))
        for (producer, consumers), size in zip(instance.graph.tensors, used.tensor_bytes, strict=True)
    ]
    tensors = [each for each in tensors if each[1]]
    made: list[list[int]] = [[] for _ in groups]
    read: list[list[int]] = [[] for _ in groups]
    makers: list[set[int]] = [set() for _ in groups]
    for index, (maker, readers, _) in enumerate(tensors):
        made[maker].append(index)
        for reader in readers:
            read[reader].append(index)
            makers[reader].add(maker)
    left = [len(readers) for _, readers, _ in tensors]
    waiting = [len(each) for each in makers]
    seconds = [float((used.forward + used.backward)[list(group)].sum()) for group in groups]
    since = [0.0] * len(groups)
    free = {index for index, count in enumerate(waiting) if not count}
    order: list[int] = []
    readers_of = [
        sorted({reader for tensor in made[index] for reader in tensors[tensor][1]}) for index in range(len(groups))
    ]

    def key(index: int) -> tuple[float, float, int]:
        if not by_bytes:
            return since[index], 0.0, index
        grown = sum(tensors[each][2] for each in made[index])
        grown -= sum(tensors[each][2] for each in read[index] if left[each] == 1)
        return grown, -since[index], index

    while free:
        chosen = min(free, key=key)
        free.discard(chosen)
        order.append(chosen)
        for tensor in read[chosen]:
            left[tensor] -= 1
        for reader in readers_of[chosen]:
            since[reader] = max(since[reader], since[chosen] + seconds[chosen])
            waiting[reader] -= 1
            if not waiting[reader]:
                free.add(reader)
    return order


def _coarse(instance: Instance, order: Sequence[tuple[int, ...]]) -> Order:
    """Merge the order into at most `MOST_CUTS` groups of about equal time."""
    if len(order) <= MOST_CUTS:
        return tuple(order)
    used = instance.candidates[0]
    work = numpy.array([float((used.forward + used.backward)[list(group)].sum()) for group in order])
    # Layers that take no time are counted a little, so that they too are spread.
    work = work + max(float(work.sum()), 1.0) / len(order) / 100
    places = numpy.minimum(((numpy.cumsum(work) - work / 2) / work.sum() * MOST_CUTS).astype(int), MOST_CUTS - 1)
    merged: dict[int, list[int]] = {}
    for place, group in zip(places.tolist(), order, strict=True):
        merged.setdefault(place, []).extend(group)
    return tuple(tuple(each) for each in merged.values())
