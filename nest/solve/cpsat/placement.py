"""Where the blocks of a replica can lie, and how far apart (PROBLEM.md sections 1 and 3), as arrays and in a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Cluster, Instance
from nest.solve.cpsat.cases import Case, replica_devices
from nest.solve.cpsat.cuts import Integers

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar, LinearExpr

    Term = LinearExpr | int
    """A whole number that follows from what is decided."""

    Literals = Mapping[int, Term]
    """By number, whether that is it."""

MOST_PLACES = 400
"""Places of blocks of several widths up to which every two are listed: 400 make 80,000 rows for each boundary."""


def block_starts(instance: Instance, case: Case, offsets: Integers, widths: Integers) -> Integers:
    """First device of each block in each replica, shape `(blocks, replicas)` (PROBLEM.md section 3)."""
    replica = numpy.arange(case.replicas, dtype=numpy.int64)[None, :]
    if case.rank_order == "pp-inner":
        return replica * replica_devices(instance, case) + offsets[:, None]
    return offsets[:, None] * case.replicas + replica * widths[:, None]


@frozen(eq=False)
class Slots:
    """Places of blocks that are all of one width.

    Attributes:
        count: places in a replica.
        groups: by level and slot, the number of the group that a block there lies in. Two blocks are at most a level
            apart when their groups of that level are the same in every replica. Shape `(levels, count)`.
    """

    count: int
    groups: Integers

    def closest(self, levels: int) -> NDArray[numpy.bool_]:
        """Which levels some two slots are apart, shape `(levels,)`."""
        mask = numpy.zeros(levels, dtype=bool)
        below = numpy.zeros(self.count, dtype=numpy.int64) + numpy.arange(self.count)
        for level, group in enumerate(self.groups):
            # Two slots in one group of this level and in different ones of the level below.
            mask[level] = len(numpy.unique(group)) < len(numpy.unique(below))
            below = group
        return mask


def slots(instance: Instance, case: Case, width: int) -> Slots:
    """The slots of blocks of one width.

    A block of an admissible width never straddles a group that is wide enough for it, so of two blocks either both
    lie in one such group or the boundary of one is between them; groups are therefore ranges of slots. In a group
    narrower than a block no two blocks lie.
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
    """For each boundary of a case, the ends included, the levels it can have; those of the ends are none.

    Stage `i` leaves room for those in front of it and behind it, so that only some slots are left to it. Two slots are
    apart as the outermost of the neighbours between them. What is sent directly comes over the level of two stages that
    need not be neighbours: any.
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
    """Places of blocks of several widths.

    Attributes:
        widths: of each place.
        offsets: of each place.
        levels: the level of each two places together, the worst over the replicas. Shape `(places, places)`.
    """

    widths: Integers
    offsets: Integers
    levels: Integers

    def apart(self) -> NDArray[numpy.bool_]:
        """Which two places do not overlap, the first lying in front of the second."""
        return self.offsets[:, None] + self.widths[:, None] <= self.offsets[None, :]


def places(instance: Instance, case: Case, widths: tuple[int, ...]) -> Places:
    """Every place of a block of one of these widths."""
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
    """A model would be too large to build."""


class TooManyPlacesError(Exception):
    """Blocks of several widths have more places than are listed."""


def place(
    model: CpModel,
    instance: Instance,
    case: Case,
    taken: Sequence[Iterable[tuple[int, IntVar]]],
    *,
    ordered: bool,
    chosen: Term = 1,
) -> SlotPlacement | ListedPlacement:
    """Add the places of the blocks of a case: one is as wide as the case says, and all together have its devices.

    Args:
        model: is added to.
        instance: the problem.
        case: the case.
        taken: for each stage, what it may choose: the candidate, and whether it is chosen.
        ordered: whether blocks lie in pipeline order (monotone placement).
        chosen: whether the plan is one of the case.

    Raises:
        TooManyPlacesError: blocks of several widths have more places than are listed.
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
    """Blocks of one width: each takes a slot; slots in one group of a level are at most that level apart.

    Attributes:
        apart: by two stages, the first below the second, whether they are apart by each level that they can be.
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
        """Place so many blocks, in pipeline order where `ordered`; `pairs` of stages that send beside neighbours."""
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
        """For each boundary between neighbours, whether it has each level that it can have."""
        return [self.apart[pair] for pair in self._pairs[: len(self._slots) - 1]]

    def _within(self, level: int, group: Integers, *, ordered: bool) -> list[Term]:
        """For each boundary, whether its blocks lie in one group of the level."""
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
        """The group a slot lies in."""
        home = self._model.new_int_var(0, int(group[-1]), name)
        size = int((group == 0).sum())
        if (group == numpy.arange(len(group)) // size).all():
            self._model.add(home * size <= slot)
            self._model.add(slot <= home * size + size - 1)
        else:
            self._model.add_element(slot, [int(each) for each in group], home)
        return home

    def offsets(self, value: Callable[[IntVar], int]) -> list[int]:
        """First device of each block relative to its replica; `value` gives the value of a variable."""
        return [int(value(slot)) * self._width for slot in self._slots]


class ListedPlacement:
    """Blocks of several widths: every two places are listed with their level.

    Attributes:
        levels: for each boundary, whether it has each level that it can have.
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
        """First device of each block relative to its replica; `value` gives the value of a variable."""
        offsets_chosen = []
        for row in self._at:
            place = next(place for place, literal in enumerate(row) if value(literal))
            offsets_chosen.append(int(self._places.offsets[place]))
        return offsets_chosen


def exactly(within: Sequence[Term]) -> Literals:
    """From "at most this level", for each level, to "exactly this level"; levels that cannot be are left out."""
    terms: dict[int, Term] = {}
    below: Term = 0
    for level, each in enumerate(within):
        if each is not below:
            terms[level] = each - below
        below = each
    return {level: each for level, each in terms.items() if not (isinstance(each, int) and each == 0)}
