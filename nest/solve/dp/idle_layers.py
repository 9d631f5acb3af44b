"""Idle layers: layers without compute and with loose ties, which would multiply the cuts of the graph.

A layer is *idle* if it takes no time in any candidate. An idle layer without readers can join the stage of its last
producer, and one that reads nothing (or only tensors of 0 bytes) the stage of its first consumer: the changed plan has
no slower stage, no larger cut and no fuller device, except for the bytes and gradient reduction of the layer itself,
and for a stage left without layers. So the graph in which idle layers stay with their neighbours has

* plans of the whole graph: its optimum is an upper bound on the whole graph's;
* with free idle layers and stages without layers, no plan of the whole graph below its optimum: a lower bound.

If both agree, the optimum is found without the cuts between idle layers and their neighbours.
"""

from collections.abc import Iterable, Sequence

import numpy
from attrs import evolve

from nest.instance import Array, Candidate, Instance


def attachments(instance: Instance, together: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Pairs of an idle layer and the layer whose stage it can share, as indices.

    Layers of `together`, which share a stage already, are not moved.
    """
    space = instance.space
    counted = any(each.uniform == "recompute" or "recompute_layers" in each.names() for each in space.constraints)
    if space.partial and (counted or space.recompute == ()):
        return []  # A layer that moves would count among the first of another stage.
    graph = _Graph(instance, {layer for group in together for layer in group})
    pairs: list[tuple[int, int]] = []
    changed = True
    while changed:
        changed = False
        for layer in sorted(graph.idle):
            home = graph.home(layer)
            if home is not None:
                graph.move(layer, home)
                pairs.append((layer, home))
                changed = True
    return pairs


class _Graph:
    """Layer graph in which idle layers merge into others one by one."""

    def __init__(self, instance: Instance, staying: set[int]) -> None:
        count = len(instance.graph.layers)
        busy = sum((_seconds(candidate) for candidate in instance.candidates), numpy.zeros(count))
        self.idle = {layer for layer in range(count) if busy[layer] == 0 and layer not in staying}
        self.after: list[set[int]] = [set() for _ in range(count)]
        self.before: list[set[int]] = [set() for _ in range(count)]
        self.fed: set[int] = set()
        for index, (producer, consumers) in enumerate(instance.graph.tensors):
            self.after[producer].update(consumers)
            for consumer in consumers:
                self.before[consumer].add(producer)
            if any(candidate.tensor_bytes[index] > 0 for candidate in instance.candidates):
                self.fed.update(consumers)

    def home(self, layer: int) -> int | None:
        """Layer whose stage an idle one can share; None: none."""
        if not self.after[layer]:
            return _outermost(self.before[layer], self.before)
        if layer not in self.fed:
            return _outermost(self.after[layer], self.after)
        return None

    def move(self, layer: int, home: int) -> None:
        """Merge `layer` into `home`, with its inputs and readers."""
        self.idle.discard(layer)
        if layer in self.fed:
            self.fed.add(home)
        for before in self.before[layer]:
            self.after[before].discard(layer)
            if before != home:
                self.after[before].add(home)
                self.before[home].add(before)
        for after in self.after[layer]:
            self.before[after].discard(layer)
            if after != home:
                self.before[after].add(home)
                self.after[home].add(after)


def _outermost(layers: set[int], neighbours: Sequence[set[int]]) -> int | None:
    """Layer of `layers` from which `neighbours` lead to all others; None: none."""
    for layer in sorted(layers):
        reached, waiting = {layer}, [layer]
        while waiting:
            for neighbour in neighbours[waiting.pop()] - reached:
                reached.add(neighbour)
                waiting.append(neighbour)
        if layers <= reached:
            return layer
    return None


def _seconds(candidate: Candidate) -> Array:
    """Seconds of each layer over everything it may run, and for which it occupies ports."""
    seconds = sum((mode.extra for mode in candidate.recompute), candidate.forward + candidate.backward)
    loads = (candidate.busy, *(mode.busy for mode in candidate.recompute))
    return sum((busy.sum(axis=0) for busy in loads if busy is not None), seconds)


def without_costs(instance: Instance, layers: Iterable[int]) -> Instance:
    """Instance in which `layers` have no parameters and activations.

    Candidates with parameters in these layers lose their ports there: smaller collectives may take another path and
    occupy some port longer.
    """
    factors = numpy.ones(len(instance.graph.layers))
    factors[list(layers)] = 0.0
    return evolve(instance, candidates=tuple(_scaled(candidate, factors) for candidate in instance.candidates))


def _scaled(candidate: Candidate, factors: Array) -> Candidate:
    sent = any(each[factors == 0].any() for group in candidate.state for each in (group.weights, group.gradients))
    state = tuple(
        evolve(
            group,
            weights=group.weights * factors,
            gradients=group.gradients * factors,
            optimizer=group.optimizer * factors,
            update=group.update * factors,
        )
        for group in candidate.state
    )
    modes = tuple(
        evolve(
            mode,
            first=numpy.where(factors > 0, mode.first, 0.0),
            more=mode.more * factors,
            peak=mode.peak * factors,
            busy=None if sent else mode.busy,
        )
        for mode in candidate.recompute
    )
    return evolve(candidate, state=state, recompute=modes, busy=None if sent else candidate.busy)
