"""Placement of a replica's blocks and their distances (PROBLEM.md sections 1 and 3), as arrays and in a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Cluster, Instance
from nest_cpsat.cases import Case, replica_devices
from nest_cpsat.cuts import Integers

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar, LinearExpr

    Term = LinearExpr | int
    """Integer expression of decisions."""

    Literals = Mapping[int, Term]
    """Indicator of each number."""

MOST_PLACES = 400  # Most places of blocks of several widths with all pairs listed: 400 make 80,000 rows per boundary.


def block_starts(instance: Instance, case: Case, offsets: Integers, widths: Integers) -> Integers:
    """First device of each block in each replica. Shape `(blocks, replicas)` (PROBLEM.md section 3)."""
    replica = numpy.arange(case.replicas, dtype=numpy.int64)[None, :]
    if case.rank_order == "pp-inner":
        return replica * replica_devices(instance, case) + offsets[:, None]
    return offsets[:, None] * case.replicas + replica * widths[:, None]


@frozen(eq=False)
class Slots:
    """Places of blocks of one width in a replica."""

    count: int
    # By level and slot, the number of the group that holds the block. Two blocks are at most a level apart if their
    # groups of that level are equal in every replica. Shape `(levels, count)`.
    groups: Integers

    def closest(self, levels: int) -> NDArray[numpy.bool_]:
        """Mask of levels that some two slots are apart. Shape `(levels,)`."""
        mask = numpy.zeros(levels, dtype=bool)
        below = numpy.zeros(self.count, dtype=numpy.int64) + numpy.arange(self.count)
        for level, group in enumerate(self.groups):
            # Two slots in one group of this level and in different ones of the level below.
            mask[level] = len(numpy.unique(group)) < len(numpy.unique(below))
            below = group
        return mask


def slots(instance: Instance, case: Case, width: int) -> Slots:
    """Slots of blocks of one width.

    A block of an admissible width never straddles a group wide enough for it: two blocks share such a group, or a group
    boundary separates them; so groups are ranges of slots. A group narrower than a block holds no two blocks.
    """
    count = replica_devices(instance, case) // width
    offsets = numpy.arange(count, dtype=numpy.int64) * width
    starts = block_starts(instance, case, offsets, numpy.full(count, width))
    groups = []
    for capacity in instance.cluster.capacities:
        if capacity < width:
            groups.append(numpy.arange(count, dtype=numpy.int64))
            continue
        homes = starts // capacity
        parted = (homes[1:] != homes[:-1]).any(axis=1)
        groups.append(numpy.concatenate([[0], numpy.cumsum(parted)]))
    return Slots(count, numpy.array(groups, dtype=numpy.int64))


def boundary_levels(instance: Instance, case: Case) -> list[list[int]]:
    """Possible levels of each boundary of a case; none for the ends.

    Stage `i` leaves room for the stages on either side, which restricts its slots. Two slots are as far apart as the
    outermost pair of neighbours between them. Direct messages connect any two stages, and may use any level.
    """
    widths, every = {instance.candidates[each].width for each in case.candidates}, range(len(instance.cluster.levels))
    if len(widths) > 1 or instance.space.direct:
        return [[], *([*every] for _ in range(case.stages - 1)), []]
    own = slots(instance, case, widths.pop())
    parted = numpy.array([group[1:] != group[:-1] for group in own.groups]).reshape(len(every), -1)
    neighbours, spare = parted.sum(axis=0), own.count - case.stages
    inner = [numpy.unique(neighbours[i : i + spare + 1]).tolist() for i in range(case.stages - 1)]
    return [[], *inner, []]


@frozen(eq=False)
class Places:
    """Places of blocks of several widths."""

    widths: Integers
    offsets: Integers
    levels: Integers  # Worst level over the replicas of each pair of places. Shape `(places, places)`.

    def apart(self) -> NDArray[numpy.bool_]:
        """Mask of pairs of places without overlap, the first before the second."""
        return self.offsets[:, None] + self.widths[:, None] <= self.offsets[None, :]


def places(instance: Instance, case: Case, widths: tuple[int, ...]) -> Places:
    """Places of blocks of these widths."""
    room = replica_devices(instance, case)
    rows = [(width, offset) for width in widths for offset in range(0, room - width + 1, width)]
    wide, offsets = (numpy.array(column, dtype=numpy.int64) for column in zip(*rows, strict=True))
    starts = block_starts(instance, case, offsets, wide)
    ends = starts + wide[:, None] - 1
    worst = numpy.zeros((len(rows), len(rows)), dtype=numpy.int64)
    for capacity in instance.cluster.capacities[:-1]:
        low = numpy.minimum(starts[:, None, :], starts[None, :, :]) // capacity
        high = numpy.maximum(ends[:, None, :], ends[None, :, :]) // capacity
        worst += (low != high).any(axis=2)
    return Places(wide, offsets, worst)


def point_to_point(cluster: Cluster, size: Any, level: int) -> Any:
    """Seconds to send `size` bytes over a link of `level`, elementwise (PROBLEM.md section 1)."""
    link = cluster.levels[level]
    return numpy.where(numpy.asarray(size) > 0, link.latency + numpy.asarray(size) / link.bandwidth, 0.0)


class TooManyChoicesError(Exception):
    """Model too large to build."""


class TooManyPlacesError(Exception):
    """Blocks of several widths with too many places to list."""


def place(
    model: CpModel,
    instance: Instance,
    case: Case,
    taken: Sequence[Iterable[tuple[int, IntVar]]],
    *,
    ordered: bool,
    chosen: Term = 1,
) -> SlotPlacement | ListedPlacement:
    """Add the placement of the blocks of a case: one is as wide as the case says, and all together have its devices.

    Args:
        taken: candidates of each stage with their variables.
        ordered: blocks keep pipeline order (monotone placement).
        chosen: 1 if the plan is of the case.

    Raises:
        TooManyPlacesError: blocks of several widths have too many places.
    """
    used = {each: instance.candidates[each].width for each in case.candidates}
    widths = sorted(set(used.values()))
    rows = [
        {width: sum(literal for each, literal in choices if used[each] == width) for width in widths}
        for choices in map(list, taken)
    ]
    model.add(sum(row.get(case.widest, 0) for row in rows) >= chosen)
    if len(widths) == 1:
        return SlotPlacement(model, slots(instance, case, widths[0]), widths[0], case.stages, ordered=ordered)
    if case.block_devices is not None:
        total = sum(width * literal for row in rows for width, literal in row.items())
        model.add(total == case.block_devices * chosen)
    room = replica_devices(instance, case)
    if sum(room // width for width in widths) > MOST_PLACES:
        raise TooManyPlacesError(f"blocks of several widths have more than {MOST_PLACES} places")
    return ListedPlacement(model, places(instance, case, tuple(widths)), rows, ordered=ordered)


class SlotPlacement:
    """Blocks of one width: one slot each; slots in one group of a level are at most that level apart.

    Attributes:
        apart: by pair of stages, the first below the second, indicators of their possible levels.
    """

    def __init__(
        self,
        model: CpModel,
        slots: Slots,
        width: int,
        stages: int,
        *,
        ordered: bool,
        pairs: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Place the blocks; `pairs` are stages that exchange messages besides neighbours."""
        self._width = width
        self._model = model
        last = slots.count - 1
        if ordered:
            self._slots = [model.new_int_var(i, last - (stages - 1 - i), f"slot {i}") for i in range(stages)]
            for one, two in pairwise(self._slots):
                model.add(one < two)
        else:
            self._slots = [model.new_int_var(0, last, f"slot {i}") for i in range(stages)]
            model.add_all_different(self._slots)
        self._pairs = list(dict.fromkeys((*pairwise(range(stages)), *pairs)))
        near = [self._within(level, group, ordered=ordered) for level, group in enumerate(slots.groups)]
        self.apart: dict[tuple[int, int], Literals] = {
            pair: exactly([within[boundary] for within in near]) for boundary, pair in enumerate(self._pairs)
        }

    @property
    def levels(self) -> list[Literals]:
        """Indicators of the possible levels of each boundary between neighbours."""
        return [self.apart[pair] for pair in self._pairs[: len(self._slots) - 1]]

    def _within(self, level: int, group: Integers, *, ordered: bool) -> list[Term]:
        """Indicators, by boundary, that its blocks share a group of the level."""
        if int(group[-1]) == 0:
            return [1 for _ in self._pairs]
        if int(group[-1]) == len(group) - 1:
            return [0 for _ in self._pairs]
        homes = [self._home(slot, group, f"group {level} of {i}") for i, slot in enumerate(self._slots)]
        terms: list[Term] = []
        for boundary, (one, two) in enumerate(self._pairs):
            here, there = homes[one], homes[two]
            together = self._model.new_bool_var(f"within {level} at {boundary}")
            self._model.add(here == there).only_enforce_if(together)
            apart = here < there if ordered else here != there
            self._model.add(apart).only_enforce_if(~together)
            terms.append(together)
        # Blocks fill groups up: so many of them need so many groups, and each further group is entered once.
        largest = int(numpy.bincount(group).max())
        self._model.add(sum(terms[: len(homes) - 1]) <= len(homes) - -(-len(homes) // largest))
        return terms

    def _home(self, slot: IntVar, group: Integers, name: str) -> IntVar:
        home = self._model.new_int_var(0, int(group[-1]), name)
        size = int((group == 0).sum())
        if (group == numpy.arange(len(group)) // size).all():
            self._model.add(home * size <= slot)
            self._model.add(slot <= home * size + size - 1)
        else:
            self._model.add_element(slot, [int(each) for each in group], home)
        return home

    def offsets(self, value: Callable[[IntVar], int]) -> list[int]:
        """First device of each block relative to its replica; `value` evaluates a variable."""
        return [int(value(slot)) * self._width for slot in self._slots]


class ListedPlacement:
    """Blocks of several widths: every pair of places is listed with its level.

    Attributes:
        levels: for each boundary, indicators of its possible levels.
    """

    def __init__(self, model: CpModel, places: Places, widths: Sequence[Literals], *, ordered: bool) -> None:
        from ortools.sat.python.cp_model import Domain

        self._places = places
        count = len(places.widths)
        self._at = [[model.new_bool_var(f"block {i} at {place}") for place in range(count)] for i in range(len(widths))]
        numbers = []
        for i, (row, wide) in enumerate(zip(self._at, widths, strict=True)):
            model.add_exactly_one(row)
            for width, literal in wide.items():
                # At least: where a case is not the one chosen, its blocks have no width and lie wherever they can.
                model.add(sum(row[place] for place in numpy.nonzero(places.widths == width)[0].tolist()) >= literal)
            number = model.new_int_var(0, count - 1, f"place {i}")
            model.add(number == sum(place * literal for place, literal in enumerate(row)))
            numbers.append(number)
        apart = places.apart() if ordered else places.apart() | places.apart().T
        ones, twos = (each.tolist() for each in numpy.nonzero(apart))
        rows = [(one, two, int(places.levels[one, two])) for one, two in zip(ones, twos, strict=True)]
        possible = sorted({level for _, _, level in rows})
        self.levels: list[Literals] = []
        for boundary, (here, there) in enumerate(pairwise(numbers)):
            level = model.new_int_var_from_domain(Domain.from_values(possible), f"level {boundary}")
            model.add_allowed_assignments([here, there, level], rows)
            literals = {each: model.new_bool_var(f"level {boundary} is {each}") for each in possible}
            model.add_exactly_one(literals.values())
            model.add(level == sum(each * literal for each, literal in literals.items()))
            self.levels.append(literals)
        if not ordered:
            for one in range(len(numbers)):
                for two in range(one + 2, len(numbers)):
                    model.add_allowed_assignments([numbers[one], numbers[two]], [(a, b) for a, b, _ in rows])

    def offsets(self, value: Callable[[IntVar], int]) -> list[int]:
        """First device of each block relative to its replica; `value` evaluates a variable."""
        offsets_chosen = []
        for row in self._at:
            place = next(place for place, literal in enumerate(row) if value(literal))
            offsets_chosen.append(int(self._places.offsets[place]))
        return offsets_chosen


def exactly(within: Sequence[Term]) -> Literals:
    """Turn "at most this level", for each level, into "exactly this level"; drops impossible levels."""
    terms: dict[int, Term] = {}
    below: Term = 0
    for level, each in enumerate(within):
        if each is not below:
            terms[level] = each - below
        below = each
    return {level: each for level, each in terms.items() if not (isinstance(each, int) and each == 0)}
