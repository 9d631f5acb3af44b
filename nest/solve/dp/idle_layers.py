"""Idle layers: what computes nothing and hangs loosely in the graph, and would multiply its cuts.

A layer is *idle* when it takes no time in any candidate. An idle layer whose outputs nobody reads can follow the last
of its producers, and one that reads nothing (tensors of 0 bytes at most) can wait for the first of its consumers: any
plan changed so has no slower stage, no larger cut and no fuller device, but for the bytes and the gradient reduction of
the layer itself, and for a stage that is left without layers. So the graph in which idle layers stay with their
neighbours has

* plans that are plans of the whole graph: its optimum bounds that of the whole graph from above;
* with nothing charged for the idle layers themselves, and stages without layers allowed, no plan of the whole graph
  below its optimum: a bound from below.

Where both agree, the optimum is found without the cuts between idle layers and their neighbours.
"""

from collections.abc import Iterable, Sequence

import numpy
from attrs import evolve

from nest.instance import Array, Candidate, Instance


def attachments(instance: Instance, together: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Pairs of an idle layer and the layer whose stage it can share, both as indices.

    Args:
        instance: the problem.
        together: groups of layers that share a stage already; their members are not moved.
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
    """The layer graph, in which idle layers disappear into others one by one."""

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
        """The layer whose stage an idle one can share; None when there is none."""
        if not self.after[layer]:
            return _outermost(self.before[layer], self.before)
        if layer not in self.fed:
            return _outermost(self.after[layer], self.after)
        return None

    def move(self, layer: int, home: int) -> None:
        """Let `layer` disappear into `home`: what it read and what read it is its home's."""
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
    """The one of `layers` from which all others are reached by going on to `neighbours`; None when there is none."""
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
    """Seconds of each layer over all that it may run, and for which it occupies ports."""
    seconds = sum((mode.extra for mode in candidate.recompute), candidate.forward + candidate.backward)
    loads = (candidate.busy, *(mode.busy for mode in candidate.recompute))
    return sum((busy.sum(axis=0) for busy in loads if busy is not None), seconds)


def without_costs(instance: Instance, layers: Iterable[int]) -> Instance:
    """The instance in which `layers` hold nothing: no parameters, no activations.

    Candidates with parameters in these layers have no ports there: less to send may go another way, on which some port
    is occupied for longer.
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
