"""Downsets of the layer graph: the sets of layers that can be the tail of a pipeline (PROBLEM.md section 3)."""

from collections.abc import Sequence

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.errors import InputError
from nest.instance import Array, LayerGraph

LIMIT = 1024
"""Most downsets the program accepts: its tables hold a number for each pair of them (8 MB each at the limit)."""


@frozen(eq=False)
class Downsets:
    """The downsets a plan may cut at, smallest first; index 0 is empty, the last holds all layers.

    Attributes:
        members: booleans of shape `(downsets, layers)`.
        inside: booleans of shape `(downsets, downsets)`: `inside[D, E]` when `E` is a proper subset of `D`.
    """

    members: NDArray[numpy.bool_]
    inside: NDArray[numpy.bool_]

    @property
    def count(self) -> int:
        """Number of downsets."""
        return len(self.members)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return int(self.members.shape[1])

    def sums(self, values: Array) -> Array:
        """Sum of `values` (one per layer) over each downset."""
        return self.members @ values

    def between(self, larger: int, smaller: int) -> tuple[int, ...]:
        """Layers of the first downset that are not in the second, ascending."""
        return tuple(int(i) for i in numpy.flatnonzero(self.members[larger] & ~self.members[smaller]))

    def differences(self, values: Array) -> Array:
        """Sum of `values` over the stage between each pair: `[D, E]` is the sum over `D` without `E`."""
        sums = self.sums(values)
        return numpy.maximum(sums[:, None] - sums[None, :], 0.0)

    def largest(self, values: Array) -> Array:
        """Largest of `values` over the stage between each pair (0 where the stage is empty)."""
        result = numpy.zeros((self.count, self.count))
        for value in sorted(set(values.tolist())):
            if value > 0:
                above = self.members[:, values >= value].sum(axis=1)
                result[above[:, None] > above[None, :]] = value
        return result


def build(
    graph: LayerGraph,
    together: Sequence[Sequence[int]] = (),
    partition: Sequence[Sequence[int]] | None = None,
) -> Downsets:
    """The downsets of `graph` that keep every group of `together` whole.

    Args:
        graph: layers and tensors.
        together: groups of layers that must share a stage; no cut may part them.
        partition: the layers of each stage, when they are decided: only its cuts remain.

    Raises:
        InputError: the graph has more than `LIMIT` such downsets, or the partition is not a pipeline order.
    """
    groups = [sum(1 << layer for layer in set(group)) for group in together]
    if partition is not None:
        masks = [m for m in _partition_masks(graph, partition) if all(m & group in (0, group) for group in groups)]
    else:
        masks = _enumerate(_reachable(graph, groups))
    masks.sort(key=lambda mask: (mask.bit_count(), mask))
    members = numpy.array(
        [[bool(mask >> layer & 1) for layer in range(len(graph.layers))] for mask in masks], dtype=bool
    )
    sizes = members.sum(axis=1)
    counts = members.astype(numpy.float32)
    overlap = counts @ counts.T
    inside = (overlap == sizes[None, :]) & (sizes[:, None] > sizes[None, :])
    return Downsets(members, inside)


def _successor_masks(graph: LayerGraph) -> list[int]:
    masks = [0] * len(graph.layers)
    for producer, consumers in graph.tensors:
        for consumer in consumers:
            masks[producer] |= 1 << consumer
    return masks


def _reachable(graph: LayerGraph, groups: Sequence[int]) -> list[int]:
    """For each layer, itself and the layers that are in every downset it is in, as bitmasks.

    These are its successors, the members of its groups, and so on from each of those.
    """
    reach = [1 << layer | successors for layer, successors in enumerate(_successor_masks(graph))]
    successors = _successor_lists(graph)
    mates = [[group for group in groups if group >> layer & 1] for layer in range(len(reach))]
    order = graph.topological_order()[::-1]
    changed = True
    while changed:
        changed = False
        for layer in order:
            mask = reach[layer]
            for successor in successors[layer]:
                mask |= reach[successor]
            for group in mates[layer]:
                mask |= group
                for mate in range(len(reach)):
                    if group >> mate & 1:
                        mask |= reach[mate]
            if mask != reach[layer]:
                reach[layer], changed = mask, changed or bool(groups)
    return reach


def _successor_lists(graph: LayerGraph) -> list[set[int]]:
    lists: list[set[int]] = [set() for _ in graph.layers]
    for producer, consumers in graph.tensors:
        lists[producer].update(consumers)
    return lists


def _enumerate(reach: Sequence[int]) -> list[int]:
    """Every downset, grown by one layer (with all that must come with it) at a time, sinks first.

    Layers that are in the same downsets count as one, so that what is kept together costs nothing.
    """
    found = [0]
    for needed in sorted(set(reach), key=lambda mask: (mask.bit_count(), mask)):
        own = sum(1 << layer for layer, mask in enumerate(reach) if mask == needed)
        found += [mask | own for mask in found if (mask | own) & needed == needed]
        if len(found) > LIMIT:
            raise InputError(
                f"the layer graph has more than {LIMIT} ways to cut it, more than the search can hold; "
                "merge layers that run side by side, or keep some together with same_stage(...)."
            )
    return found


def _partition_masks(graph: LayerGraph, partition: Sequence[Sequence[int]]) -> list[int]:
    successors = _successor_masks(graph)
    masks = [0]
    for stage in reversed(partition):
        mask = masks[-1]
        for layer in stage:
            mask |= 1 << layer
        masks.append(mask)
        for layer in stage:
            if successors[layer] & ~mask:
                raise InputError(
                    f"fixed.stages puts layer {graph.layers[layer]!r} after a layer that needs its output; "
                    "list the stages in pipeline order."
                )
    if masks[-1] != (1 << len(graph.layers)) - 1 or sum(len(stage) for stage in partition) != len(graph.layers):
        raise InputError("fixed.stages must name every layer exactly once.")
    return masks
