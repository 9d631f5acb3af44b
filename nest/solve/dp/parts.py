"""Stages that recompute their first blocks in one mode and keep the others in a lighter one (PROBLEM.md section 3).

The cost of such a stage depends on the order of its layers. Along a chain it is two differences of sums, up to the end
of the first blocks and from there on; if downsets branch, the layers of each stage are examined.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Instance, Partial, RecomputeMode, partial
from nest.reuse import once
from nest.solve.dp.choices import Choice
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.pairs import Pairs, Stages, units_of_layers
from nest.solve.dp.sums import (
    AlongRuns,
    ByValue,
    CandidateSums,
    ModeSums,
    OverStages,
    Sums,
    cuts,
    grid_parts,
    largest,
    sums_of,
)

Mask = NDArray[numpy.bool_]


def candidate_sums(instance: Instance, candidate: Candidate, downsets: Downsets) -> CandidateSums:
    """Sums of `candidate` over `downsets`."""
    chosen = candidate.recompute
    rows = [candidate.forward + candidate.backward]
    rows += [row for mode in chosen for row in (mode.extra, mode.first, mode.more)]
    for group in candidate.state:
        rows += [group.weights, group.gradients, group.optimizer, group.update]
        rows += [] if group.pieces is None else [group.pieces]
    loads = [busy for busy in (candidate.busy, *(mode.busy for mode in chosen)) if busy is not None]
    rows += [row for busy in loads for row in busy]
    summed = iter(sums_of(rows, downsets))
    compute = next(summed)
    of_modes = [(next(summed), next(summed), next(summed)) for _ in chosen]
    state = []
    for group in candidate.state:
        weights, gradients, optimizer, update = (next(summed) for _ in range(4))
        pieces = None if group.pieces is None else next(summed)
        state.append((group, weights, gradients, optimizer, update, pieces))

    def ports(busy: Array | None) -> tuple[Sums, ...]:
        return () if busy is None else tuple(next(summed) for _ in busy)

    busy = ports(candidate.busy)
    modes = {
        mode.name: ModeSums(*sums, largest(downsets, mode.peak), mode.stash_inputs, ports(mode.busy))
        for mode, sums in zip(chosen, of_modes, strict=True)
    }
    cut = cuts(instance, candidate, downsets)
    every = with_parts(instance, candidate, modes, downsets) if instance.space.partial else modes
    return CandidateSums(candidate, cut, compute, every, tuple(state), busy)


def with_parts(instance: Instance, candidate: Candidate, whole: dict[str, ModeSums], downsets: Downsets) -> "PartModes":
    """Pure modes of a candidate, with partial ones made on demand."""
    return PartModes(candidate, whole, downsets, split_of(instance, downsets))


def split_of(instance: Instance, downsets: Downsets) -> "Split":
    """Split of stages into first blocks and others."""
    units = instance.space.units
    if units not in downsets.splits:
        unit_of = units_of_layers(instance)
        along = _along_chain(downsets, unit_of)
        downsets.splits[units] = BranchSplit(unit_of, downsets.members, len(units)) if along is None else along
    split: Split = downsets.splits[units]
    return split


@define(eq=False, repr=False)
class PartModes(Mapping[str, ModeSums]):
    """Recompute modes by name: pure ones, and partial ones made on first use."""

    candidate: Candidate
    whole: dict[str, ModeSums]
    downsets: Downsets
    split: "Split"
    _parts: dict[str, ModeSums] = field(factory=dict, init=False)
    _pairs: dict[tuple[str, str], "_Pair"] = field(factory=dict, init=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole)

    def __len__(self) -> int:
        return len(self.whole)

    def __getitem__(self, name: str) -> ModeSums:
        part = partial(name)
        if part is None:
            return self.whole[name]
        return once(self._parts, name, lambda: self._pair(part).mode(part.layers))

    def along(self, part: Partial) -> "tuple[ChainSplit, list[tuple[Array, Array]]] | None":
        """Ends of first blocks, and sums of layers in the two modes; None: downsets branch.

        Sums are of seconds, and of bytes of one micro-batch in flight and of each further one.
        """
        if not isinstance(self.split, ChainSplit):
            return None
        pairs = ((each.first, each.rest) for each in self._pair(part).sums[:3] if isinstance(each, _ChainSums))
        sums = [(one.whole, two.whole) for one, two in pairs if isinstance(one, Sums) and isinstance(two, Sums)]
        return self.split, sums

    def _pair(self, part: Partial) -> "_Pair":
        pair = part.mode, part.rest
        if pair not in self._pairs:
            modes = self.candidate.mode(part.mode), self.candidate.mode(part.rest), self.candidate.mode(part.name)
            self._pairs[pair] = _Pair.of(*modes, self.split, self.downsets)
        return self._pairs[pair]


def distinct_choices(modes: Mapping[str, ModeSums], choices: Sequence[Choice], stages: Stages) -> list[Choice]:
    """Drop choices with more first blocks than any stage holds, except the least of them."""
    if not isinstance(modes, PartModes) or not len(stages):
        return list(choices)
    most, left = int(modes.split.blocks(stages).max()), dict[object, Choice]()
    for choice in choices:
        part = partial(choice.recompute)
        if part is None or part.layers < most:
            left[choice] = choice
        else:
            all_of_it = (part._replace(layers=0), choice.zero)
            known = left.get(all_of_it)
            before = None if known is None else partial(known.recompute)
            if before is None or part.layers < before.layers:
                left[all_of_it] = choice
    kept = set(left.values())
    return [choice for choice in choices if choice in kept]


class Split(ABC):
    """Ends of the first blocks of stages; `inside` marks layers in a block, shape `(layers,)`."""

    inside: Mask

    @abstractmethod
    def blocks(self, stages: Stages) -> NDArray[numpy.int64]:
        """Upper bound on the blocks that each stage holds a part of. Shape `(stages,)`."""

    @abstractmethod
    def sums(self, first: Sequence[Array], rest: Sequence[Array]) -> "list[SplitSums]":
        """Sums over stages of rows, `first` for the first blocks and `rest` for others; shape `(layers,)` each."""

    @abstractmethod
    def largest(self, first: Array, rest: Array) -> "SplitSums":
        """Same for the largest value of a stage."""


@frozen(eq=False, repr=False)
class SplitSums(ABC):
    """Values of stages by number of first blocks."""

    @abstractmethod
    def over(self, stages: Stages, count: int) -> Array:
        """Values of stages with so many first blocks, shape `(stages,)`."""


@frozen(eq=False, repr=False)
class ChainSplit(Split):
    """Split of a chain whose layers come block by block."""

    inside: Mask
    fine: Downsets  # Same chain with one layer per step.
    place: NDArray[numpy.int32]  # Index in `fine` of each downset. Shape `(downsets,)`.
    touched: NDArray[numpy.int64]  # Blocks that each of `fine` holds a part of. Shape `(layers + 1,)`.
    _known: dict[int, NDArray[numpy.int32]] = field(factory=dict, init=False)

    def ends(self, stages: Stages, count: int) -> tuple[Stages, Stages]:
        """First blocks of each stage, and its other layers, as stages of `fine`."""
        begin, end = self.place.take(stages.larger), self.place.take(stages.smaller)
        middle = numpy.maximum(self.behind(count).take(begin), end)
        return Stages(begin, middle), Stages(middle, end)

    def blocks(self, stages: Stages) -> NDArray[numpy.int64]:
        """See `Split.blocks`."""
        touched = self.touched[self.place]
        return touched.take(stages.larger) - touched.take(stages.smaller) + 1

    def behind(self, count: int) -> NDArray[numpy.int32]:
        """Index in `fine` of what each leaves behind so many blocks. Shape `(layers + 1,)`."""
        if count not in self._known:
            found = self.touched.searchsorted(self.touched - count, side="right") - 1
            self._known[count] = numpy.maximum(found, 0).astype(numpy.int32)
        return self._known[count]

    def sums(self, first: Sequence[Array], rest: Sequence[Array]) -> list[SplitSums]:
        """See `Split.sums`."""
        both = zip(sums_of(first, self.fine), sums_of(rest, self.fine), strict=True)
        return [_ChainSums(self, *each) for each in both]

    def largest(self, first: Array, rest: Array) -> SplitSums:
        """See `Split.largest`."""
        return _ChainSums(self, largest(self.fine, first), largest(self.fine, rest), joined=numpy.maximum)


@frozen(eq=False, repr=False)
class _ChainSums(SplitSums):
    split: ChainSplit
    first: Sums | ByValue | AlongRuns
    rest: Sums | ByValue | AlongRuns
    joined: numpy.ufunc = numpy.add

    def over(self, stages: Stages, count: int) -> Array:
        ahead, behind = self.split.ends(stages, count)
        total: Array = self.joined(self.first.over(ahead), self.rest.over(behind))
        return total


def _along_chain(downsets: Downsets, unit_of: NDArray[numpy.int64]) -> ChainSplit | None:
    """Split of a chain; None: downsets branch, or blocks come in another order."""
    if downsets.chain is None:
        return None
    step = numpy.searchsorted(downsets.chain.starts, numpy.arange(len(unit_of)), side="right")
    # Of the layers of one step those of later blocks are behind.
    order = downsets.chain.order[numpy.lexsort((-unit_of[downsets.chain.order], step))]
    units = unit_of[order]
    if (numpy.diff(units[units >= 0]) > 0).any():
        return None
    members = numpy.zeros((len(order) + 1, len(order)), dtype=bool)
    for count in range(1, len(order) + 1):
        members[count:, order[count - 1]] = True
    known = numpy.where(units < 0, numpy.iinfo(numpy.int64).max, units)
    fresh = (units >= 0) & (units < numpy.minimum.accumulate(numpy.append(known.max(), known[:-1])))
    touched = numpy.append(0, numpy.cumsum(fresh))
    none = numpy.empty(0, dtype=numpy.int32)
    fine = Downsets(members, Pairs.of(len(members), none, none))
    place = downsets.members.sum(axis=1).astype(numpy.int32)
    return ChainSplit(unit_of >= 0, fine, place, touched)


@frozen(eq=False, repr=False)
class BranchSplit(Split):
    """Split of any downsets."""

    unit_of: NDArray[numpy.int64]  # Block of each layer; -1: none. Shape `(layers,)`.
    members: Mask  # Layers of each downset. Shape `(downsets, layers)`.
    units: int  # Number of blocks.

    @property
    def inside(self) -> Mask:  # type: ignore[override]
        """See `Split.inside`."""
        mask: Mask = self.unit_of >= 0
        return mask

    def blocks(self, stages: Stages) -> NDArray[numpy.int64]:
        """See `Split.blocks`."""
        return numpy.full(len(stages), self.units)

    def masks(self, stages: Stages, count: int) -> tuple[Mask, Mask]:
        """Masks of the layers in first blocks of each stage, and of its others. Shape `(stages, layers)`."""
        held = self.members[stages.larger] & ~self.members[stages.smaller]
        touched = numpy.zeros((len(stages), self.units + 1), dtype=bool)
        for layer, unit in enumerate(self.unit_of.tolist()):
            touched[:, unit] |= held[:, layer]
        early = (touched[:, :-1].cumsum(axis=1) <= count)[:, self.unit_of]
        first: Mask = held & early & self.inside
        return first, held & ~first

    def sums(self, first: Sequence[Array], rest: Sequence[Array]) -> list[SplitSums]:
        """See `Split.sums`."""
        return [_BranchSums(self, *each, _exact, numpy.add) for each in zip(first, rest, strict=True)]

    def largest(self, first: Array, rest: Array) -> SplitSums:
        """See `Split.largest`."""
        return _BranchSums(self, first, rest, _largest, numpy.maximum)


@frozen(eq=False, repr=False)
class _BranchSums(SplitSums):
    split: BranchSplit
    first: Array
    rest: Array
    of_layers: Callable[[Mask, Array], Array]
    joined: numpy.ufunc

    def over(self, stages: Stages, count: int) -> Array:
        total: Array = self.joined(*map(self.of_layers, self.split.masks(stages, count), (self.first, self.rest)))
        return total


def _largest(mask: Mask, row: Array) -> Array:
    """Largest of `row` over the layers of `mask`, 0 without any."""
    largest_of: Array = numpy.where(mask, row, 0.0).max(axis=1)
    return largest_of


def _exact(mask: Mask, row: Array) -> Array:
    """Sums of `row` over the layers of `mask`, each rounded once per part (`nest.solve.dp.sums`)."""
    finite, chosen = numpy.isfinite(row), mask.astype(numpy.float64)
    total: Array = sum(
        (chosen @ part[0] for _, part in reversed(grid_parts(numpy.where(finite, row, 0.0)[None]))),
        numpy.zeros(len(mask)),
    )
    total[mask[:, ~finite].any(axis=1)] = numpy.inf
    return total


@frozen(eq=False, repr=False)
class _Pair:
    """Two modes of a candidate: for first blocks, and for others."""

    # Extra seconds, bytes of the first micro-batch and of each further one, busy ports and stashes.
    sums: list[SplitSums]
    peak: SplitSums  # Transient bytes.
    least: list[Array]  # Lower bounds of the first three by downset, shape `(downsets,)` each.
    stashes: tuple[bool, bool]  # Whether each mode stashes a stage's inputs.
    ports: int  # Levels of ports.

    @classmethod
    def of(
        cls, mode: RecomputeMode, rest: RecomputeMode, least: RecomputeMode, split: Split, downsets: Downsets
    ) -> "_Pair":
        """Sum over downsets; `least` has the lower cost of either mode by layer."""
        rows = [[each.extra, each.first, each.more] for each in (mode, rest)]
        levels = max((len(each.busy) for each in (mode, rest) if each.busy is not None), default=0)
        for own, each in zip(rows, (mode, rest), strict=True):
            own += list(numpy.zeros((levels, len(mode.extra))) if each.busy is None else each.busy)
            own.append(numpy.full(len(mode.extra), float(each.stash_inputs)))
        # Layers in no block are as the others are.
        first = [numpy.where(split.inside, one, other) for one, other in zip(*rows, strict=True)]
        peak = split.largest(numpy.where(split.inside, mode.peak, rest.peak), rest.peak)
        whole = [each.whole for each in sums_of([least.extra, least.first, least.more], downsets)]
        return cls(split.sums(first, rows[1]), peak, whole, (mode.stash_inputs, rest.stash_inputs), levels)

    def mode(self, count: int) -> ModeSums:
        """Stages with the first `count` blocks in the one mode."""
        *summed, stash = (_Counted(each, count, NOTHING) for each in self.sums)
        extra, first, more = (_Counted(*each) for each in zip(self.sums, [count] * 3, self.least, strict=False))
        stashes = stash if any(self.stashes) else False
        return ModeSums(extra, first, more, _Counted(self.peak, count, NOTHING), stashes, tuple(summed[3:]))


NOTHING = numpy.empty(0)  # Stands for sums by downset that are not needed.


@frozen(eq=False, repr=False)
class _Counted(OverStages):
    """Sums over stages with so many first blocks."""

    sums: SplitSums
    count: int
    whole: Array

    def over(self, stages: Stages) -> Array:
        return self.sums.over(stages, self.count)
