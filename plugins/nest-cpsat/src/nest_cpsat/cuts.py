"""Cuts of a layer graph, and the stages between two cuts (PROBLEM.md sections 3 and 4).

A cut is the set of layers behind it, closed under successors. Cut 0 has all layers behind it, the last none.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from nest.instance import Candidate, Instance, LayerGraph

Booleans = NDArray[numpy.bool_]
Floats = NDArray[numpy.float64]
Integers = NDArray[numpy.int64]


def inseparable_layers(instance: Instance) -> list[frozenset[int]]:
    """Groups of layers that no cut may separate, by `same_stage` or `Space.together`."""
    index = {name: layer for layer, name in enumerate(instance.graph.layers)}
    named = [each.same_stage for each in instance.space.constraints if each.same_stage]
    return [frozenset(index[name] for name in group) for group in named] + [
        frozenset(group) for group in instance.space.together
    ]


@frozen(eq=False, slots=False)
class Cuts:
    """All cuts of a layer graph, and all stages: pairs of cuts with one behind the other."""

    behind: Booleans  # Mask of the layers behind each cut. Shape `(cuts, layers)`.
    first: Integers  # Cut before each stage. Shape `(stages,)`.
    last: Integers  # Cut after each stage. Shape `(stages,)`.

    @property
    def count(self) -> int:
        """Number of cuts."""
        return len(self.behind)

    @property
    def longest(self) -> int:
        """Upper bound on the stages of a plan."""
        return min(self.count - 1, int(self.behind.shape[1]))

    @cached_property
    def stage_layers(self) -> Booleans:
        """Mask of the layers of each stage. Shape `(stages, layers)`."""
        return self.behind[self.first] & ~self.behind[self.last]

    @cached_property
    def _runs(self) -> Integers | None:
        """Last cut that each layer is behind, so that stages are runs of layers. Shape `(layers,)`.

        None: the cuts are not nested in order.
        """
        nested = bool((self.behind[1:] <= self.behind[:-1]).all() and (self.first < self.last).all())
        return self.behind.sum(axis=0) - 1 if nested and self.behind[0].all() else None

    def sums(self, values: Floats) -> Floats:
        """Sum of the values of each stage's layers. Shape `(stages,)`."""
        # Summed anew for each stage: a difference of two sums would lose digits where a stage is short.
        if self._runs is not None:
            return self._joined(numpy.add, values, self._runs)
        endless = numpy.isinf(values)
        sums: Floats = self.stage_layers.astype(numpy.float64) @ numpy.where(endless, 0.0, values)
        sums[self.stage_layers[:, endless].any(axis=1)] = numpy.inf
        return sums

    def largest(self, values: Floats) -> Floats:
        """Largest value of each stage's layers. Shape `(stages,)`."""
        if self._runs is not None:
            return self._joined(numpy.maximum, values, self._runs)
        largest = numpy.zeros(len(self.first))
        for layer in numpy.argsort(values, kind="stable"):
            largest[self.stage_layers[:, layer]] = values[layer]
        return largest

    def _joined(self, join: numpy.ufunc, values: Floats, runs: Integers) -> Floats:
        of_runs = numpy.zeros(self.count)
        join.at(of_runs, runs, values)
        from_each = join.accumulate(numpy.triu(numpy.broadcast_to(of_runs, (self.count, self.count))), axis=1)
        stages: Floats = from_each[self.first, self.last - 1]
        return stages

    def bytes(self, graph: LayerGraph, candidate: Candidate) -> Floats:
        """`cut(D)` of PROBLEM.md section 4 for each cut; a tensor with several readers counts once. Shape `(cuts,)`."""
        total = numpy.zeros(self.count)
        for (producer, consumers), size in zip(graph.tensors, candidate.tensor_bytes, strict=True):
            if consumers:
                read = self.behind[:, list(consumers)].any(axis=1)
                total += numpy.where(read & ~self.behind[:, producer], size, 0.0)
        return total


def list_cuts(instance: Instance, limit: int) -> Cuts | None:
    """List the cuts of an instance; None: more than `limit`."""
    graph = instance.graph
    given = instance.space.partition
    if given is None and instance.space.even:
        given = instance.space.blocks
    masks = _behind(given, graph) if given is not None else _closed(graph, limit)
    if masks is None:
        return None
    groups = [sum(1 << layer for layer in group) for group in inseparable_layers(instance)]
    whole = (1 << len(graph.layers)) - 1
    allowed = [mask for mask in masks if all(mask & group in (0, group) for group in groups)]
    allowed.sort(key=lambda mask: (-mask.bit_count(), mask))
    assert allowed[0] == whole
    behind = numpy.array([[mask >> layer & 1 for layer in range(len(graph.layers))] for mask in allowed], dtype=bool)
    inside = behind.astype(numpy.int32)
    contains = (inside @ inside.T) == inside.sum(axis=1)[None, :]
    numpy.fill_diagonal(contains, val=False)
    first, last = numpy.nonzero(contains)
    return Cuts(behind, first.astype(numpy.int64), last.astype(numpy.int64))


def _closed(graph: LayerGraph, limit: int) -> set[int] | None:
    """Sets of layers closed under successors, as bit masks; None: more than `limit`.

    Removing the first layer in topological order, or any other without a predecessor in the set, leaves a closed set;
    every closed set is reached this way from the full set.
    """
    before = [0] * len(graph.layers)
    for producer, consumers in graph.tensors:
        for consumer in consumers:
            before[consumer] |= 1 << producer
    masks = {(1 << len(graph.layers)) - 1}
    fresh = list(masks)
    while fresh:
        mask = fresh.pop()
        for layer, producers in enumerate(before):
            smaller = mask & ~(1 << layer)
            if mask >> layer & 1 and not producers & mask and smaller not in masks:
                masks.add(smaller)
                fresh.append(smaller)
        if len(masks) > limit:
            return None
    return masks


def _behind(runs: Sequence[Sequence[int]], graph: LayerGraph) -> set[int]:
    """Cuts between given runs of layers, if there are no others."""
    behind, mask, successors = {0}, 0, graph.successors()
    for run in reversed(runs):
        mask |= sum(1 << layer for layer in run)
        if all(mask >> reader & 1 for layer in run for reader in successors[layer]):
            behind.add(mask)
    return behind


def even_stages(instance: Instance, stages: int) -> Integers:
    """Stage of each layer with equal numbers of blocks (`Space.even`); `stages` divides the blocks."""
    part, blocks = numpy.full(len(instance.graph.layers), -1, dtype=numpy.int64), instance.space.blocks
    for number, block in enumerate(blocks):
        part[list(block)] = number * stages // len(blocks)
    return part


@frozen(eq=False)
class Units:
    """Units of which chunks are runs: transformer blocks, with embedding and head."""

    layers: tuple[tuple[int, ...], ...]  # Of each unit, in pipeline order.
    # For each boundary between chunks, the possible first units of the later chunk.
    starts: tuple[tuple[int, ...], ...]

    def blocks(self, instance: Instance) -> list[int]:
        """Transformer blocks of each unit: 0 for separate embedding and head."""
        ends = len(self.layers) == len(instance.space.blocks_and_ends)
        return [int(not ends or 0 < unit < len(self.layers) - 1) for unit in range(len(self.layers))]

    def home(self, count: int) -> Integers:
        """Unit of each of `count` layers; -1: none."""
        home = numpy.full(count, -1, dtype=numpy.int64)
        for unit, layers in enumerate(self.layers):
            home[list(layers)] = unit
        return home


def chunk_units(instance: Instance, chunks: int) -> Units | None:
    """Units of the chunks of all stages, with their possible borders; None: no such chunks exist.

    Each chunk has at least one unit. `Space.even` allows only the even split; embedding and head are then separate
    units only if blocks without them do not divide evenly.
    """
    space = instance.space
    counted = (space.blocks, space.blocks_and_ends) if space.even else (space.blocks_and_ends or space.blocks,)
    for units in counted:
        count = len(units)
        if count < chunks or (space.even and count % chunks):
            continue
        borders = _borders(instance, units)
        windows = [range(number, count - chunks + number + 1) for number in range(1, chunks)]
        if space.even:
            windows = [range(first, first + 1) for first in range(count // chunks, count, count // chunks)]
        starts = tuple(tuple(unit for unit in window if unit in borders) for window in windows)
        found = Units(tuple(map(tuple, units)), starts)
        if space.partition is None:
            found = evolve(found, starts=_alike(found.blocks(instance), starts))
        return found if all(found.starts) else None
    return None


def _alike(blocks: Sequence[int], starts: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Borders with which chunks differ by at most one block; the first and last may be smaller."""
    ahead, kept = numpy.concatenate([[0], numpy.cumsum(blocks)]), [set[int]() for _ in starts]
    count, between = sum(blocks), max(len(starts) - 1, 1)
    for largest in range(max(-(-count // (len(starts) + 1)), 1), count // between + 2):
        left = [{unit for unit in starts[0] if ahead[unit] <= largest}]
        for following in starts[1:]:
            left.append({unit for unit in following if _next_to(ahead, left[-1], unit, largest)})
        left[-1] = {unit for unit in left[-1] if ahead[-1] - ahead[unit] <= largest}
        for place in reversed(range(len(left) - 1)):
            left[place] = {unit for unit in left[place] if _next_to(-ahead, left[place + 1], unit, largest)}
        for all_of, own in zip(kept, left, strict=True):
            all_of |= own
    return tuple(tuple(sorted(each)) for each in kept)


def _next_to(ahead: Integers, others: set[int], unit: int, largest: int) -> bool:
    """True if a chunk of `largest` blocks, or one fewer, fits between this unit and one of the others."""
    return any(other != unit and largest - 1 <= ahead[unit] - ahead[other] <= largest for other in others)


def _borders(instance: Instance, units: Sequence[Sequence[int]]) -> set[int]:
    """Units before which a cut separates no layers kept together, and no tensor runs backwards."""
    home = Units(tuple(map(tuple, units)), ()).home(len(instance.graph.layers))
    parted = {
        border
        for producer, consumers in instance.graph.tensors
        for consumer in consumers
        for border in range(home[consumer] + 1, home[producer] + 1)
    }
    for group in instance.space.together:
        own = home[list(group)]
        parted.update(range(int(own.min()) + 1, int(own.max()) + 1))
    return set(range(1, len(units))) - parted
