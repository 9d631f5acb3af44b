"""Downsets of the layer graph: sets of layers that can be the tail of a pipeline (PROBLEM.md section 3)."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

from nest.errors import InputError
from nest.instance import Array, Instance, LayerGraph, Result
from nest.solve.dp.pairs import Pairs, layer_classes, numbered, units_of_layers

MOST_ORDERED = 2**24  # Most layers of all stages together for which their order is compared.
LARGEST_CODE = 2**62  # Codes of stages are 64-bit; a model with too many classes of layers is left unclassified.
LIMIT = 20_000  # Most downsets that are enumerated.
PAIR_LIMIT = 5_000_000  # Most pairs of nested downsets: tables hold some twenty numbers for each (0.8 GB at the limit).


COARSE = 65  # Cuts of the coarse lattice for a first plan.


class Chain(NamedTuple):
    """Nested downsets from the empty one on, each with at least one more layer."""

    order: NDArray[numpy.int64]  # Layers in the order in which steps add them, shape `(layers,)`.
    starts: NDArray[numpy.int64]  # First index in `order` of each step, shape `(downsets - 1,)`.

    @classmethod
    def of(cls, members: NDArray[numpy.bool_]) -> "Chain | None":
        """Chain of downsets with these layers, shape `(downsets, layers)`; None: not a chain."""
        if len(members) < 2 or members[0].any() or (members[:-1] & ~members[1:]).any():
            return None
        step, order = numpy.nonzero(members[1:] & ~members[:-1])
        starts = numpy.searchsorted(step, numpy.arange(len(members) - 1))
        return cls(order, starts) if (numpy.diff(starts, append=len(order)) > 0).all() else None


@frozen(eq=False, repr=False)
class Downsets:
    """Downsets that a plan may cut at, smallest first; the first is empty, the last holds all layers."""

    members: NDArray[numpy.bool_]  # Booleans of shape `(downsets, layers)`.
    pairs: Pairs  # All stages.
    empty_stages: int = 0  # Stages that may hold no layer.
    chain: Chain | None = field(init=False, repr=False)  # The downsets as a chain; None: they branch.
    _crossing: list[Array] = field(init=False, repr=False, factory=list)
    # First blocks of stages (`nest.solve.dp.parts`), by the blocks.
    splits: dict[Hashable, Any] = field(init=False, repr=False, factory=dict)

    @chain.default
    def _chain(self) -> Chain | None:
        return Chain.of(self.members)

    @property
    def count(self) -> int:
        """Number of downsets."""
        return len(self.members)

    @property
    def most_stages(self) -> int:
        """Upper bound on the stages of a plan."""
        return self.count - 1 + self.empty_stages

    def sums(self, values: Array) -> Array:
        """Sums of `values`, shape `(layers,)` or `(layers, columns)`, over each downset."""
        if self.chain is None:
            # A product of float64 arrays is some twenty times as fast as one with booleans.
            products: Array = self.members.astype(numpy.float64) @ values
            return products
        sums = numpy.zeros((self.count, *values.shape[1:]))
        numpy.cumsum(numpy.add.reduceat(values[self.chain.order], self.chain.starts), axis=0, out=sums[1:])
        return sums

    def crossing(self, tensors: tuple[tuple[int, tuple[int, ...]], ...]) -> Array:
        """1 for each tensor made outside a downset and read inside, else 0: shape `(downsets, tensors)`.

        `tensors` are `(producer, consumers)` as layer indices; the same at every call, as the answer is cached.
        """
        if not self._crossing:
            read = self.members[:, [min(consumers, default=producer) for producer, consumers in tensors]]
            for place in (place for place, (_, consumers) in enumerate(tensors) if len(consumers) > 1):
                read[:, place] = self.members[:, list(tensors[place][1])].any(axis=1)
            read &= ~self.members[:, [producer for producer, _ in tensors]]
            self._crossing.append(read.astype(numpy.float64))
        return self._crossing[0]

    def with_empty_stages(self, most: int) -> "Downsets":
        """Same downsets with up to `most` more stages without layers."""
        every = numpy.arange(self.count, dtype=numpy.int32)
        larger = numpy.concatenate([self.pairs.larger, every])
        smaller = numpy.concatenate([self.pairs.smaller, every])
        order = numpy.lexsort((smaller, larger))
        return Downsets(self.members, Pairs.of(self.count, larger[order], smaller[order]), most)

    def between(self, larger: int, smaller: int) -> tuple[int, ...]:
        """Layers of the first downset outside the second, ascending."""
        return tuple(int(i) for i in numpy.flatnonzero(self.members[larger] & ~self.members[smaller]))


def cuts(
    graph: LayerGraph, together: Sequence[Sequence[int]] = (), partition: Sequence[Sequence[int]] | None = None
) -> list[int]:
    """Downsets of a graph as bitmasks of layers, smallest first.

    Args:
        together: groups of layers that no cut may separate.
        partition: layers of each stage, if decided: only its cuts remain.

    Raises:
        TooManyCuts: more than `LIMIT`.
        InputError: the partition is not a pipeline order.
    """
    if len(graph.layers) > LIMIT or (not together and partition is None and _too_many_pairs(len(graph.layers))):
        raise TooManyCuts(f"{len(graph.layers)} layers, and more than {PAIR_LIMIT} stages between its cuts")
    if partition is None:
        masks = _enumerate(_reachable(graph, together))
    else:
        masks = [mask for mask in _partition_masks(graph, partition) if _whole(mask, together)]
    return sorted(masks, key=lambda mask: (mask.bit_count(), mask))


def _mask(layers: Iterable[int]) -> int:
    return sum(1 << layer for layer in set(layers))


def _whole(mask: int, together: Sequence[Sequence[int]]) -> bool:
    return all(mask & group in (0, group) for group in map(_mask, together))


def inseparable_layers(instance: Instance) -> list[tuple[int, ...]]:
    """Groups of layers that no cut may separate, as indices."""
    position = {name: index for index, name in enumerate(instance.graph.layers)}
    constraints = [each.same_stage for each in instance.space.constraints if each.same_stage]
    return [*(tuple(position[name] for name in names) for names in constraints), *instance.space.together]


def allowed_cuts(instance: Instance, together: Sequence[Sequence[int]]) -> list[int]:
    """Downsets that plans may cut at, as in `cuts`; only between blocks if stages must be even."""
    space, successors = instance.space, instance.graph.successors()
    if not space.even or space.partition is not None:
        return cuts(instance.graph, together, space.partition)
    result, mask = [0], 0
    for block in reversed(space.blocks):
        mask |= _mask(block)
        closed = all(mask >> reader & 1 for layer in block for reader in successors[layer])
        if closed and _whole(mask, together):
            result.append(mask)
    return result


def membership(masks: Sequence[int], layers: int) -> NDArray[numpy.bool_]:
    """Layers of each downset given as a bitmask, shape `(downsets, layers)`."""
    packed = numpy.array([list(mask.to_bytes((layers + 7) // 8, "little")) for mask in masks], dtype=numpy.uint8)
    return numpy.unpackbits(packed, axis=1, count=layers, bitorder="little").astype(bool)


class StageRange(NamedTuple):
    """Limits on the compute of a stage."""

    sums: Array  # Seconds of each downset, shape `(downsets,)`.
    shortest: float  # Least seconds of a stage.
    longest: float  # Most seconds of a stage.


def lattice(members: NDArray[numpy.bool_], ranges: Sequence[StageRange] | None = None) -> Downsets:
    """Lattice of downsets, smallest first, with all stages within one of the ranges.

    `members` has shape `(downsets, layers)`; `ranges` has one range per candidate, None: any time.

    Raises:
        TooManyCuts: more than `PAIR_LIMIT` stages.
    """
    sizes = members.sum(axis=1).astype(numpy.float32)
    counts = members.astype(numpy.float32)
    larger: list[NDArray[numpy.int32]] = []
    smaller: list[NDArray[numpy.int32]] = []
    pair_count, block = 0, max(1, 2**21 // len(members))
    for start in range(0, len(members), block):
        rows, columns = slice(start, start + block), slice(0, start + block)
        # A set holds another where it has as many of the other's layers as that has; float32 counts them exactly.
        inside = (counts[rows] @ counts[columns].T == sizes[columns]) & (sizes[rows, None] > sizes[columns])
        if ranges is not None:
            inside &= _within(ranges, rows, columns)
        above, below = numpy.nonzero(inside)
        pair_count += len(above)
        if pair_count > PAIR_LIMIT:
            raise TooManyCuts(f"{len(members)} ways to cut it, and more than {PAIR_LIMIT} stages between them")
        larger.append((above + start).astype(numpy.int32))
        smaller.append(below.astype(numpy.int32))
    return Downsets(members, Pairs.of(len(members), numpy.concatenate(larger), numpy.concatenate(smaller)))


def _within(ranges: Sequence[StageRange], rows: slice, columns: slice) -> NDArray[numpy.bool_]:
    """Mask of stages from the downsets of `rows` to those of `columns` within one of the ranges."""
    inside: NDArray[numpy.bool_] = numpy.zeros((1, 1), dtype=bool)
    for each in ranges:
        seconds = each.sums[rows, None] - each.sums[columns]
        inside = inside | ((seconds >= each.shortest) & (seconds <= each.longest))
    return inside


def coarsening(members: NDArray[numpy.bool_], instance: Instance) -> Downsets:
    """Lattice of some cuts along one order of the layers, with about equal compute between them, for a first plan."""
    # Downsets, each in the next, from the empty one to the whole, with none left out between them.
    chain = [0]
    for index in range(1, len(members)):
        if not (members[chain[-1]] & ~members[index]).any():
            chain.append(index)
    first = instance.candidates[0]
    progress = members[chain] @ (first.forward + first.backward)
    wanted = numpy.searchsorted(progress, numpy.linspace(0.0, progress[-1], COARSE)).clip(0, len(chain) - 1)
    return lattice(members[[chain[place] for place in sorted({0, len(chain) - 1, *wanted.tolist()})]])


class TooManyCuts(InputError):  # noqa: N818 - says what is wrong better than an ending
    """Layer graph with more cuts than the search can hold."""

    answer: Result | None = None  # A plan that uses only some cuts, with a bound for all; None: there is none.

    def __init__(self, size: str) -> None:
        super().__init__(
            f"the layer graph is too large to search ({size}); merge layers, set search.granularity: block, or keep "
            "layers together with same_stage(...)."
        )


def _reachable(graph: LayerGraph, together: Sequence[Sequence[int]]) -> list[int]:
    """For each layer, itself and the layers in every downset it is in, as bitmasks.

    These are its successors, the members of its groups, and so on from each of those.
    """
    needed = [set(each) for each in graph.successors()]
    for group in together:
        for layer in group:
            needed[layer] |= set(group)
    reach = [1 << layer for layer in range(len(needed))]
    changed = True
    while changed:
        changed = False
        for layer in reversed(graph.topological_order()):
            mask = reach[layer]
            for other in needed[layer]:
                mask |= reach[other]
            changed |= mask != reach[layer]
            reach[layer] = mask
    return reach


def _enumerate(reach: Sequence[int]) -> list[int]:
    """Enumerate downsets by adding one layer (with all it requires) at a time, sinks first.

    Layers in the same downsets count as one, so groups kept together cost nothing.
    """
    grown: dict[int, int] = {}
    for layer, needed in enumerate(reach):
        grown[needed] = grown.get(needed, 0) | 1 << layer
    if _too_many_pairs(len(grown)):
        raise TooManyCuts(f"{len(grown)} places to cut it, and more than {PAIR_LIMIT} stages between them")
    masks = [0]
    for needed, own in sorted(grown.items(), key=lambda each: (each[0].bit_count(), each[0])):
        masks += [mask | own for mask in masks if (mask | own) & needed == needed]
        if len(masks) > LIMIT:
            raise TooManyCuts(f"more than {LIMIT} ways to cut it")
    return masks


def _too_many_pairs(steps: int) -> bool:
    """True if adding layers in so many steps, even in one order, passes too many nested pairs."""
    return steps * (steps + 1) // 2 > PAIR_LIMIT


def _partition_masks(graph: LayerGraph, partition: Sequence[Sequence[int]]) -> list[int]:
    successors = graph.successors()
    masks = [0]
    for stage in reversed(partition):
        mask = masks[-1] | _mask(stage)
        masks.append(mask)
        for layer in stage:
            if _mask(successors[layer]) & ~mask:
                raise InputError(
                    f"fixed.stages puts layer {graph.layers[layer]!r} after a layer that needs its output; "
                    "list the stages in pipeline order."
                )
    if masks[-1] != (1 << len(graph.layers)) - 1 or sum(len(stage) for stage in partition) != len(graph.layers):
        raise InputError("fixed.stages must name every layer exactly once.")
    return masks


def even_pairs(pairs: Pairs, blocks: Sequence[Sequence[int]], downsets: Downsets, stages: int) -> Pairs:
    """Stages of the one plan whose `stages` stages hold equal numbers of blocks."""
    behind = downsets.members[:, [block[0] for block in blocks]].sum(axis=1)
    size, smaller = len(blocks) // stages, behind[pairs.smaller]
    return pairs.only((behind[pairs.larger] - smaller == size) & (smaller % size == 0))


def classified_pairs(instance: Instance, downsets: Downsets) -> Pairs:
    """All stages, classified by equal costs in all candidates.

    Layers are equal if no candidate distinguishes them. Two stages cost the same if they hold as many layers of each
    class and the same classes of tensors enter: a thousand equal blocks leave one stage per number of blocks instead of
    half a million.
    """
    classes = layer_classes(instance)
    if max(classes, default=0) * 2 >= len(classes):
        return downsets.pairs
    entering = _entering(instance, downsets)
    if instance.space.partial:
        return _in_order(instance, downsets, classes, entering)
    # A number in mixed radix: what enters, then how many layers of each class a downset holds. As no count overflows
    # its digit, the difference of two numbers identifies a stage's counts.
    codes, scale = numpy.zeros(downsets.count, dtype=numpy.int64), max(entering) + 1
    for each in range(max(classes) + 1):
        layers = [layer for layer, one in enumerate(classes) if one == each]
        codes += scale * downsets.members[:, layers].sum(axis=1)
        scale *= len(layers) + 1
        if scale > LARGEST_CODE:
            return downsets.pairs
    pairs = downsets.pairs
    return pairs.classified(codes[pairs.larger] - codes[pairs.smaller] + numpy.array(entering)[pairs.larger])


def _in_order(instance: Instance, downsets: Downsets, classes: Sequence[int], entering: Sequence[int]) -> Pairs:
    """Same, but stages with different orders of layers or blocks are distinguished."""
    pairs, units = downsets.pairs, instance.space.units
    if len(pairs) * len(classes) > MOST_ORDERED:
        return pairs
    unit_of = units_of_layers(instance)
    order = list(instance.graph.topological_order())
    held = (downsets.members[pairs.larger] & ~downsets.members[pairs.smaller])[:, order]
    kinds, numbers = numpy.array(classes)[order], unit_of[order]
    codes = []
    for mask, larger in zip(held, pairs.larger.tolist(), strict=True):
        own = numbers[mask]
        first = own[own >= 0].min(initial=len(units))
        codes.append((kinds[mask].tobytes(), numpy.maximum(own - first, -1).tobytes(), entering[larger]))
    return pairs.classified(numpy.array(numbered(codes), dtype=numpy.int64))


def _entering(instance: Instance, downsets: Downsets) -> list[int]:
    """A number for each downset, equal if as many tensors of each class enter."""
    sent = {each.tensor_bytes.tobytes(): each.tensor_bytes.tolist() for each in instance.candidates}
    classes = numbered(list(zip(*sent.values(), strict=True)))
    of_class = numpy.equal.outer(classes, numpy.arange(max(classes, default=-1) + 1)).astype(numpy.float64)
    return numbered([row.tobytes() for row in downsets.crossing(instance.graph.tensors) @ of_class])
