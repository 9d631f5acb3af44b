"""Downsets of the layer graph: the sets of layers that can be the tail of a pipeline (PROBLEM.md section 3)."""

from collections.abc import Sequence

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.errors import InputError
from nest.instance import Array, LayerGraph

LIMIT = 20_000
"""Most downsets that are enumerated."""

FEW_VALUES = 32
"""Distinct values up to which the largest of a stage is found value by value."""

PAIR_LIMIT = 5_000_000
"""Most pairs of nested downsets: tables hold some twenty numbers for each (0.8 GB at the limit)."""


@frozen(eq=False)
class Pairs:
    """Pairs of nested downsets, each a possible stage: the layers of the larger outside the smaller.

    Attributes:
        count: number of downsets.
        larger: index of the larger downset of each pair, ascending.
        smaller: index of the smaller one.
        heads: the downsets that are the larger of some pair, ascending.
        starts: where the pairs of each of `heads` begin.
    """

    count: int
    larger: NDArray[numpy.int32]
    smaller: NDArray[numpy.int32]
    heads: NDArray[numpy.int64]
    starts: NDArray[numpy.int64]

    @classmethod
    def of(cls, count: int, larger: NDArray[numpy.int32], smaller: NDArray[numpy.int32]) -> "Pairs":
        """The pairs in the order given, in which `larger` must ascend."""
        starts = numpy.flatnonzero(numpy.diff(larger, prepend=-1))
        return cls(count, larger, smaller, larger[starts].astype(numpy.int64), starts)

    def differences(self, sums: Array) -> Array:
        """What each stage holds, given what each downset holds: shape `(downsets,)` to `(pairs,)`."""
        return numpy.maximum(sums[self.larger] - sums[self.smaller], 0.0)

    def __len__(self) -> int:
        return len(self.larger)

    def only(self, kept: NDArray[numpy.bool_]) -> "Pairs":
        """The pairs for which `kept` is true."""
        return Pairs.of(self.count, self.larger[kept], self.smaller[kept])

    def least(self, values: Array) -> Array:
        """For each downset the least of `values` over the pairs it is the larger of; infinite where there is none."""
        found = numpy.full(self.count, numpy.inf)
        if len(self.starts):
            found[self.heads] = numpy.minimum.reduceat(values, self.starts)
        return found

    def rows(self, first: int, last: int) -> "Rows":
        """The pairs whose larger downset lies from `first` to `last`."""
        begin, end = (int(i) for i in numpy.searchsorted(self.heads, (first, last + 1)))
        if begin == end:
            return Rows(slice(0, 0), self.heads[:0], self.starts[:0])
        start = int(self.starts[begin])
        stop = int(self.starts[end]) if end < len(self.starts) else len(self.larger)
        return Rows(slice(start, stop), self.heads[begin:end], self.starts[begin:end] - start)

    def of_downset(self, index: int) -> slice:
        """Where the pairs lie that downset `index` is the larger of."""
        place = int(numpy.searchsorted(self.heads, index))
        if place == len(self.heads) or self.heads[place] != index:
            return slice(0, 0)
        end = int(self.starts[place + 1]) if place + 1 < len(self.starts) else len(self.larger)
        return slice(int(self.starts[place]), end)


@frozen(eq=False)
class Rows:
    """Some consecutive pairs, whole rows of one larger downset each.

    Attributes:
        pairs: where they lie.
        heads: the larger downset of each row.
        starts: where each row begins, counted from the first of these pairs.
    """

    pairs: slice
    heads: NDArray[numpy.int64]
    starts: NDArray[numpy.int64]

    def __len__(self) -> int:
        return int(self.pairs.stop - self.pairs.start)

    def lower(self, found: Array, values: Array) -> None:
        """Lower `found`, one number per downset, to the least of `values` (one per pair) in each row."""
        if len(self.starts):
            found[self.heads] = numpy.minimum(found[self.heads], numpy.minimum.reduceat(values, self.starts))


@frozen(eq=False)
class Downsets:
    """The downsets a plan may cut at, smallest first; index 0 is empty, the last holds all layers.

    Attributes:
        members: booleans of shape `(downsets, layers)`.
        pairs: every stage there can be.
        empty_stages: stages that may hold no layer.
    """

    members: NDArray[numpy.bool_]
    pairs: Pairs
    empty_stages: int = 0
    _weights: Array = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        # A product of float64 arrays is some twenty times as fast as one with booleans.
        object.__setattr__(self, "_weights", self.members.astype(numpy.float64))

    @property
    def count(self) -> int:
        """Number of downsets."""
        return len(self.members)

    @property
    def most_stages(self) -> int:
        """Stages that a plan can have at most."""
        return self.count - 1 + self.empty_stages

    def sums(self, values: Array) -> Array:
        """Sum of `values` (one per layer) over each downset."""
        sums: Array = self._weights @ values
        return sums

    def with_empty_stages(self, most: int) -> "Downsets":
        """The same downsets, where up to `most` stages more may hold no layer."""
        every = numpy.arange(self.count, dtype=numpy.int32)
        larger = numpy.concatenate([self.pairs.larger, every])
        smaller = numpy.concatenate([self.pairs.smaller, every])
        order = numpy.lexsort((smaller, larger))
        return Downsets(self.members, Pairs.of(self.count, larger[order], smaller[order]), most)

    def _is_chain(self) -> bool:
        """Whether each downset lies in the next."""
        return not (self.members[:-1] & ~self.members[1:]).any()

    def _largest_along(self, values: Array, pairs: Pairs) -> Array:
        """Largest of `values` over the layers of each stage when downsets form a chain: maxima over runs of steps.

        Row `k` of the table holds the largest over 2**k steps; two of its entries cover any run of 2**k to 2**(k+1).
        """
        added = numpy.where(self.members[1:] & ~self.members[:-1], values, 0.0).max(axis=1)
        rows = [added]
        while 2 ** len(rows) <= len(added):
            half = 2 ** (len(rows) - 1)
            rows.append(numpy.maximum(rows[-1][:-half], rows[-1][half:]))
        result = numpy.zeros(len(pairs))
        length = pairs.larger - pairs.smaller
        for power, row in enumerate(rows):
            chosen = numpy.flatnonzero((length >= 2**power) & (length < 2 ** (power + 1)))
            first, last = pairs.smaller[chosen], pairs.larger[chosen] - 2**power
            result[chosen] = numpy.maximum(row[first], row[last])
        return result

    def between(self, larger: int, smaller: int) -> tuple[int, ...]:
        """Layers of the first downset that are not in the second, ascending."""
        return tuple(int(i) for i in numpy.flatnonzero(self.members[larger] & ~self.members[smaller]))

    def stage_largest(self, values: Array, pairs: Pairs) -> Array:
        """Largest of `values` over the layers of each stage, shape `(pairs,)`."""
        distinct = sorted(set(values.tolist()))
        if len(distinct) > FEW_VALUES and self._is_chain():
            return self._largest_along(values, pairs)
        result = numpy.zeros(len(pairs))
        for value in distinct:
            if value > 0:
                above = self.members[:, values >= value].sum(axis=1)
                result[above[pairs.larger] > above[pairs.smaller]] = value
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
        TooManyCuts: the graph has more than `LIMIT` such downsets or `PAIR_LIMIT` nested pairs of them.
        InputError: the partition is not a pipeline order.
    """
    return lattice(membership(cuts(graph, together, partition), len(graph.layers)))


def cuts(
    graph: LayerGraph,
    together: Sequence[Sequence[int]] = (),
    partition: Sequence[Sequence[int]] | None = None,
) -> list[int]:
    """The downsets of `build` as bitmasks of layers, smallest first.

    Raises:
        TooManyCuts: there are more than `LIMIT`.
        InputError: the partition is not a pipeline order.
    """
    groups = [sum(1 << layer for layer in set(group)) for group in together]
    if partition is not None:
        masks = [m for m in _partition_masks(graph, partition) if all(m & group in (0, group) for group in groups)]
    else:
        masks = _enumerate(_reachable(graph, groups))
    return sorted(masks, key=lambda mask: (mask.bit_count(), mask))


def membership(masks: Sequence[int], layers: int) -> NDArray[numpy.bool_]:
    """The layers of each downset given as a bitmask, shape `(downsets, layers)`."""
    packed = numpy.array([list(mask.to_bytes((layers + 7) // 8, "little")) for mask in masks], dtype=numpy.uint8)
    return numpy.unpackbits(packed, axis=1, count=layers, bitorder="little").astype(bool)


@frozen(eq=False)
class StageRange:
    """How long a stage may compute.

    Attributes:
        sums: seconds each downset computes, shape `(downsets,)`.
        shortest: least seconds of a stage.
        longest: most seconds of a stage.
    """

    sums: Array
    shortest: float
    longest: float


def lattice(members: NDArray[numpy.bool_], ranges: Sequence[StageRange] | None = None) -> Downsets:
    """The downsets given, smallest first, with every stage between two of them that is within one of the ranges.

    Args:
        members: the layers of each downset, shape `(downsets, layers)`.
        ranges: how long stages may compute, one range per candidate; None: any time.

    Raises:
        TooManyCuts: there are more than `PAIR_LIMIT` such stages.
    """
    sizes = members.sum(axis=1).astype(numpy.float32)
    counts = members.astype(numpy.float32)
    larger: list[NDArray[numpy.int32]] = []
    smaller: list[NDArray[numpy.int32]] = []
    found, block = 0, max(1, 2**21 // len(members))
    for start in range(0, len(members), block):
        rows, columns = slice(start, start + block), slice(0, start + block)
        inside = (counts[rows] @ counts[columns].T == sizes[columns]) & (sizes[rows, None] > sizes[columns])
        if ranges is not None:
            inside &= _within(ranges, rows, columns)
        above, below = numpy.nonzero(inside)
        found += len(above)
        if found > PAIR_LIMIT:
            raise TooManyCuts(f"{len(members)} ways to cut it, and more than {PAIR_LIMIT} stages between them")
        larger.append((above + start).astype(numpy.int32))
        smaller.append(below.astype(numpy.int32))
    return Downsets(members, Pairs.of(len(members), numpy.concatenate(larger), numpy.concatenate(smaller)))


def _within(ranges: Sequence[StageRange], rows: slice, columns: slice) -> NDArray[numpy.bool_]:
    """Which stages, from the downsets of `rows` to those of `columns`, are within one of the ranges."""
    found: NDArray[numpy.bool_] = numpy.zeros((1, 1), dtype=bool)
    for each in ranges:
        seconds = each.sums[rows, None] - each.sums[columns]
        found = found | ((seconds >= each.shortest) & (seconds <= each.longest))
    return found


class TooManyCuts(InputError):  # noqa: N818 - says what is wrong better than an ending
    """The layer graph can be cut in more ways than the search can hold."""

    def __init__(self, size: str) -> None:
        super().__init__(
            f"the layer graph has {size}, more than the search can hold; set search.granularity to block, "
            "merge layers that run side by side, or keep some together with same_stage(...)."
        )


def _reachable(graph: LayerGraph, groups: Sequence[int]) -> list[int]:
    """For each layer, itself and the layers that are in every downset it is in, as bitmasks.

    These are its successors, the members of its groups, and so on from each of those.
    """
    reach = [1 << layer for layer in range(len(graph.layers))]
    successors = graph.successors()
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


def _enumerate(reach: Sequence[int]) -> list[int]:
    """Every downset, grown by one layer (with all that must come with it) at a time, sinks first.

    Layers that are in the same downsets count as one, so that what is kept together costs nothing.
    """
    steps = len(set(reach))
    if steps * (steps + 1) // 2 > PAIR_LIMIT:  # One way to add the steps alone passes through so many nested pairs.
        raise TooManyCuts(f"{steps} places to cut it, and more than {PAIR_LIMIT} stages between them")
    found = [0]
    for needed in sorted(set(reach), key=lambda mask: (mask.bit_count(), mask)):
        own = sum(1 << layer for layer, mask in enumerate(reach) if mask == needed)
        found += [mask | own for mask in found if (mask | own) & needed == needed]
        if len(found) > LIMIT:
            raise TooManyCuts(f"more than {LIMIT} ways to cut it")
    return found


def _partition_masks(graph: LayerGraph, partition: Sequence[Sequence[int]]) -> list[int]:
    successors = [sum(1 << layer for layer in each) for each in graph.successors()]
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
