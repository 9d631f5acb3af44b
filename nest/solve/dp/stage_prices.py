"""The plan of one chunk a stage that has the least price in a leaf: cuts, places, candidates and choices."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy
from attrs import define, field

from nest.solve.dp.by_price import Leaf, Option, Ways, not_worse, worse
from nest.solve.dp.choices import Boundary
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.mixed_recurrence import Member
from nest.solve.dp.nodes import CutSearch
from nest.solve.dp.pareto import Floor, Partition, PlacedStage
from nest.solve.dp.pool_recurrence import NONE, Counts, PoolMember
from nest.solve.dp.surroundings import Placements, placements
from nest.solve.search import Best, Incumbent, Price
from nest.tolerances import LIMIT_SLACK

if TYPE_CHECKING:
    from nest.solve.dp.plain import PlainSearch

Place = tuple[int, int, Any]
"""The member that a stage uses, its slot or offset there, and what else decides where those behind it may be."""

Choices = list[tuple[int, int, tuple[float, float, float]]]
"""Stages from a downset on: the smaller one, the choice, and its part of the sum, seconds per micro-batch and batch."""


class Places(Protocol):
    """Where the stages of a leaf may be."""

    def first(self) -> Iterable[Place]:
        """Those of the first stage, one of each kind."""

    def following(self, place: Place) -> Iterable[tuple[int, int, Place]]:
        """Those of the stage behind, of each kind one, with the rows of the boundary as either member has it."""


@define(eq=False)
class PoolPlaces:
    """Slots of stages of which each pool has so many; one pool is a plain cluster.

    Attributes:
        members: the pools.
        counts: stages of each.
    """

    members: Sequence[PoolMember]
    counts: Counts
    _placements: list[Placements] = field(init=False)

    @_placements.default
    def _of_each(self) -> list[Placements]:
        every = []
        for member, count in zip(self.members, self.counts, strict=True):
            steps = tuple(member.steps.tolist())
            every.append(placements(steps[: count - 1] if member.alike else steps, count))
        return every

    def first(self) -> Iterable[Place]:
        """Those of any pool."""
        nothing = (NONE,) * len(self.members)
        for member in range(len(self.members)):
            yield from (place for _, place in self._in(member, self.counts, nothing, beside=False))

    def following(self, place: Place) -> Iterable[tuple[int, int, Place]]:
        """Those of the same pool, by level, and those of pools that a link leads to."""
        member, _, (left, at) = place
        links = self.members[member].links
        for other, back in enumerate(each.links[member] for each in self.members):
            if left[other] and other == member:
                yield from ((level, level, behind) for level, behind in self._in(other, left, at, beside=True))
            elif left[other] and links[other] != NONE:
                yield from ((links[other], back, behind) for _, behind in self._in(other, left, at, beside=False))

    def _in(self, member: int, left: Counts, at: Counts, *, beside: bool) -> Iterable[tuple[int, Place]]:
        """Where a pool's next block may be, with the level that leads there.

        Args:
            member: the pool.
            left: stages that each still has.
            at: slot of the last block in each; `NONE`: it has none yet.
            beside: whether that one is of the stage in front.
        """
        placed, number = self._placements[member], left[member]
        slots = dict.fromkeys(slot for slot, _ in placed.numbers[-1])
        ways = [(0, slots)] if at[member] == NONE else placed.followers(at[member], number + 1)
        kinds: dict[Hashable, tuple[int, int]] = {}
        for level, some in ways:
            for slot in some:
                ahead = placed.surroundings[number - 1][placed.numbers[number - 1][slot, level]][1]
                kinds.setdefault((level if beside else NONE, ahead), (level, slot))
        for level, slot in kinds.values():
            yield level, (member, slot, (_with(left, member, number - 1), _with(at, member, slot)))


def _with(numbers: Counts, place: int, number: int) -> Counts:
    return (*numbers[:place], number, *numbers[place + 1 :])


@define(eq=False)
class _Stages:
    """The stages of a leaf.

    Attributes:
        search: whose leaf it is.
        configuration: what is decided.
        stages: how many.
        time_limit: most seconds that one may take per micro-batch.
        members: what they may use, with every choice.
        places: where they may be.
    """

    search: CutSearch
    configuration: Configuration
    stages: int
    time_limit: float
    members: Sequence[PoolMember] | Sequence[Member]
    places: Places
    _known: dict[tuple[int | None, ...], Choices] = field(factory=dict, init=False)

    def options(self, index: int, state: Any) -> Sequence[Option]:
        """Those of a stage in a state: its larger downset, the row of the boundary in front and its place."""
        if state is None:
            whole = self.members[0].tables.pairs.count - 1
            return [each for place in self.places.first() for each in self.options(index, (whole, None, place))]
        larger, front, place = state
        member, slot, _ = place
        last, found = index == self.stages - 1, []
        for behind, entering, following in [(None, None, None)] if last else self.places.following(place):
            for smaller, choice, figures in self._choices(member, index, larger, front, behind):
                after = () if last else (smaller, entering, following)
                found.append(Option(after, *figures, PlacedStage(larger, smaller, slot, choice, *figures, member)))
        return found

    def _choices(self, member: int, index: int, larger: int, front: int | None, behind: int | None) -> Choices:
        """What a stage from one downset on may be between boundaries of these rows, but for what is no better."""
        key = member, index, larger, front, behind
        if key not in self._known:
            self._known[key] = self._made(*key)
        return self._known[key]

    def _made(self, member: int, index: int, larger: int, front: int | None, behind: int | None) -> Choices:
        used, flying = self.members[member], self.search.in_flight(self.configuration, self.stages)
        tables, weights = used.tables, self.search.apart(self.configuration, self.stages)
        row = tables.pairs.of_downset(larger)
        places = numpy.arange(row.start, row.stop)
        left = self.stages - 1 - index
        quick = tables.compute[tables.pairs.smaller[places]] <= left * self.time_limit * (1 + LIMIT_SLACK)
        places = places[quick & ((tables.pairs.smaller[places] == 0) == (behind is None))]
        smaller = tables.pairs.smaller[places]
        classes = places if tables.pairs.classes is None else tables.pairs.classes[places]
        around = (
            [] if front is None else [Boundary(used.levels[front], float(used.times[front, larger]))],
            [] if behind is None else [Boundary(used.levels[behind], used.times[behind, smaller])],
        )
        every = [part.at((slice(None), classes)) for part in tables.parts]
        figures = numpy.concatenate([part.between(..., weights, *around) for part in every], axis=1)
        free = [part._replace(ports=None).between(..., weights, *around)[0] for part in every if tables.ports]
        fits = numpy.concatenate([part.fits(flying[left], tables.capacity) for part in every])
        time, cost, sync = figures
        alone = numpy.concatenate(free) if free else time
        pairs = worse(self.search, self.configuration, used.candidate, tables.choices)
        kept = not_worse(fits & (time <= self.time_limit) & numpy.isfinite(time), figures, alone, pairs)
        choices, columns = numpy.nonzero(kept)
        seconds = numpy.array([cost, time, sync])[:, choices, columns].T.tolist()
        return list(zip(smaller[columns].tolist(), choices.tolist(), map(tuple, seconds), strict=True))


def best_by_price(
    search: CutSearch,
    configuration: Configuration,
    stages: int,
    floor: Floor,
    known: Incumbent,
    limit: float,
    price: Price,
    offered: Callable[[Callable[[int], None]], tuple[Sequence[PoolMember] | Sequence[Member], Places]],
    plan: Callable[[float, Partition], Incumbent],
) -> Best:
    """The plan of least price that beats `limit`, as far as replays show.

    Args:
        search: whose leaf it is.
        configuration: what is decided.
        stages: how many.
        floor: bounds of the three terms.
        known: the plan of least closed form.
        limit: step time to beat, seconds.
        price: of plans.
        offered: what stages may use, with every choice, and where they may be; may note what it looks at.
        plan: of some stages, of that closed form.
    """
    leaf = Leaf.of(limit, search.meter, 2 * configuration.micro_batches * stages)
    if len(search.pairs(configuration)) * sum(len(own) for _, own in configuration.members) > leaf.options:
        return Best(None, known.value)
    objective = search.objective(configuration, stages)
    time_limit = objective.time_limit(limit, objective.total * floor.total_time + floor.largest_sync)
    of_leaf = _Stages(search, configuration, stages, time_limit, *offered(leaf.spend))
    ways = Ways(stages, None, (), of_leaf.options, objective, floor, leaf.spend)
    laid = leaf.laid(ways, known.value, lambda way: iter([plan(way.seconds, Partition(way.stages))]))
    return leaf.best_of(laid, price)


def plain_by_price(
    search: "PlainSearch",
    configuration: Configuration,
    stages: int,
    floor: Floor,
    known: Incumbent,
    limit: float,
    price: Price,
) -> Best:
    """As `best_by_price`, of plans of one candidate, whose cluster is a single pool."""
    tables, used = search.every_table, configuration.candidate

    def offered(_: object) -> tuple[list[PoolMember], PoolPlaces]:
        (times, _, steps, levels), width = search.boundaries(configuration), search.instance.candidates[used].width
        members = [PoolMember(used, width, tables(configuration), times, levels, (NONE,), steps)]
        return members, PoolPlaces(members, (stages,))

    def plan(value: float, partition: Partition) -> Incumbent:
        decided = search.decided(configuration, partition, tables(configuration))
        return search.incumbent(configuration, value, decided)

    return best_by_price(search, configuration, stages, floor, known, limit, price, offered, plan)
