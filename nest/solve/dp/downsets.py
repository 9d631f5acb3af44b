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
    masks = _partition_masks(graph, partition) if partition is not None else _enumerate(graph)
    groups = [sum(1 << layer for layer in group) for group in together]
    masks = [mask for mask in masks if all(mask & group in (0, group) for group in groups)]
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


def _enumerate(graph: LayerGraph) -> list[int]:
    """Every set of layers closed under successors, grown by one layer at a time, sinks first."""
    successors = _successor_masks(graph)
    found = [0]
    for layer in reversed(graph.topological_order()):
        needed = successors[layer]
        found += [mask | 1 << layer for mask in found if mask & needed == needed]
        if len(found) > LIMIT:
            raise InputError(
                f"the layer graph has more than {LIMIT} ways to cut it, more than the search can hold; "
                "merge layers that run side by side, or split the model into fewer branches."
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
