"""Plans in the order of their closed forms, so that those worth a replay are replayed (PROBLEM.md section 5).

The price of a plan is no less than its closed form: once the closed form of the next plan reaches the least price so
far, that one is the best.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import permutations, product
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from attrs import define, field
from numpy.typing import NDArray

from nest.instance import Array, Partial, partial
from nest.solve.dp.choices import Choice
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.pareto import Floor, Objective
from nest.solve.search import Best, Incumbent, Meter, Price
from nest.tolerances import TIE

if TYPE_CHECKING:
    from nest.solve.dp.nodes import InstanceSearch

MOST_PASSES = 2**20
"""Passes that the plans of a leaf are replayed for at most: 0.3 s."""

LEAF_SHARE = 16
"""A leaf is replayed for at most this part of the passes that are left of `MOST_IN_ALL`, lest the first leaves take all
of them: else Qwen3 235B on 256 H100 takes 48.6 s a step, with this 46.8 s (2026-11-29)."""

PASSES = 2_000
"""Passes that take as long as all else that a replay needs."""

MOST_OPTIONS = 2**17
"""Options of stages that are looked at in a leaf: a fraction of a second."""

OPTION = 8
"""Passes that take as long as an option of a stage that is looked at."""

MOST_IN_ALL = 2**24
"""Passes, and what takes as long, of all leaves together: 5 s; behind that one plan of each leaf is replayed."""


class Option(NamedTuple):
    """What a stage may be.

    Attributes:
        following: the state in which it leaves those behind it.
        cost: its part of the sum of stages, seconds.
        time: seconds per micro-batch.
        sync: seconds per batch.
        decided: what that is.
    """

    following: Hashable
    cost: float
    time: float
    sync: float
    decided: Any


class Way(NamedTuple):
    """Some options of every stage, and the closed form of a plan of them, seconds."""

    seconds: float
    stages: tuple[Any, ...]


class TooMany(Exception):  # noqa: N818 - the search goes on without
    """There are more options than are looked at."""


@define(eq=False)
class Ways:
    """The ways through the stages of a leaf, by their closed form.

    Attributes:
        stages: how many there are.
        first: the state in front of the first stage.
        last: that behind the last one.
        options: of a stage, from 0, in some state.
        objective: weights of the schedule.
        floor: bounds of the three terms.
        spend: called with how many options are looked at; may raise `TooMany`.
    """

    stages: int
    first: Hashable
    last: Hashable
    options: Callable[[int, Hashable], Sequence[Option]]
    objective: Objective
    floor: Floor
    spend: Callable[[int], None]
    _known: dict[tuple[int, Hashable], tuple[float, Sequence[Option]]] = field(factory=dict, init=False)

    def within(self, limit: Callable[[], float]) -> Iterator[Way]:
        """Those below a limit, which may sink meanwhile; the least first.

        Raises:
            TooMany: there are more options than are looked at.
        """
        self._look()
        rest = self._rest(0, self.first)
        queue = [(self._bound(0.0, 0.0, 0.0, rest), 0, 0, self.first, 0.0, 0.0, 0.0, ())]
        pushed = 0
        while queue and queue[0][0] < limit():
            bound, _, stage, state, cost, time, sync, taken = heapq.heappop(queue)
            if stage == self.stages:
                yield Way(bound, taken)
                continue
            for each in self._known[stage, state][1]:
                rest = self._rest(stage + 1, each.following)
                terms = cost + each.cost, max(time, each.time), max(sync, each.sync)
                seconds = self._bound(*terms, rest)
                if seconds < limit():
                    pushed += 1
                    heapq.heappush(queue, (seconds, pushed, stage + 1, each.following, *terms, (*taken, each.decided)))
            self.spend(len(self._known[stage, state][1]))

    def _bound(self, cost: float, time: float, sync: float, rest: float) -> float:
        if rest == inf:
            return inf
        terms = max(time, self.floor.largest_time), cost + rest, max(sync, self.floor.largest_sync)
        return self.objective.of(Floor(*terms))

    def _rest(self, stage: int, state: Hashable) -> float:
        """The least sum of the stages from one on; infinite where none lead to the end."""
        if stage == self.stages:
            return 0.0 if state == self.last else inf
        return self._known[stage, state][0]

    def _look(self) -> None:
        """Note the options of every state that is reached, from the first stage on, then of each the least rest."""
        states, every = dict.fromkeys([self.first]), list[dict[Hashable, Sequence[Option]]]()
        for stage in range(self.stages):
            options = {state: self.options(stage, state) for state in states}
            self.spend(sum(map(len, options.values())))
            states = dict.fromkeys(each.following for some in options.values() for each in some)
            every.append(options)
        for stage in reversed(range(self.stages)):
            for state, some in every[stage].items():
                rests = [each.cost + self._rest(stage + 1, each.following) for each in some]
                possible = [each for each, rest in zip(some, rests, strict=True) if rest < inf]
                self._known[stage, state] = min(rests, default=inf), possible


def not_worse(
    kept: NDArray[numpy.bool_], figures: Array, alone: Array, pairs: Iterable[tuple[int, int]], roomy: Any = None
) -> NDArray[numpy.bool_]:
    """The choices that are kept of stages, but for those that another one is no worse than, pass by pass.

    Ports make all passes of a stage longer, so that a choice of shorter passes may have longer ones where they wait.

    Args:
        kept: shape `(choices, stages)`.
        figures: seconds per micro-batch, part of the sum and seconds per batch, shape `(3, choices, stages)`.
        alone: seconds per micro-batch if no port waits, shape `(choices, stages)`.
        pairs: as of `worse`.
        roomy: where a choice may stand for another one, by choice and stage; None: wherever it is kept.
    """
    with numpy.errstate(divide="ignore", invalid="ignore"):
        every = numpy.array([*figures, numpy.where(figures[0] > alone, figures[0] / alone, 1.0)])
    able = numpy.ones_like(kept) if roomy is None else roomy
    for one, other in pairs:
        both = kept[one] & kept[other]
        if not both.any():
            continue
        longer = (every[:, one] >= every[:, other]).all(axis=0)
        if not longer.any():
            continue
        alike = (every[:, one] == every[:, other]).all(axis=0)
        # Where both take as long in all, so do their passes: the first of the two is kept.
        kept[one] &= ~(both & longer & ~alike & able[other])
        kept[max(one, other)] &= ~(both & alike & able[min(one, other)])
    return kept


@define(eq=False)
class Laid:
    """A way through the stages of a leaf: its closed form, and its plans that were not replayed yet."""

    seconds: float
    plans: Iterator[Incumbent]
    done: bool = False


@define(eq=False)
class Leaf:
    """What is known of a leaf while its plans are replayed.

    Attributes:
        limit: step time to beat, seconds.
        meter: of the search.
        replays: how many are left.
        passes: of one of them.
        options: how many may still be looked at.
        best: the best plan that beats it.
        left: no plan that was not looked at is faster, seconds.
    """

    limit: float
    meter: Meter
    replays: int
    passes: int
    options: int = MOST_OPTIONS
    best: Incumbent | None = None
    left: float = inf

    def least(self) -> float:
        """What the closed form of a plan must be below to be worth a replay, seconds."""
        return self.limit if self.best is None else min(self.limit, self.best.value * (1 - TIE))

    @classmethod
    def of(cls, limit: float, meter: Meter, passes: int) -> "Leaf":
        """That of plans of so many passes, as far as the search has effort left."""
        left = max(MOST_IN_ALL - meter.replayed, 0)
        meter.replayed += PASSES
        return cls(
            limit,
            meter,
            max(min(MOST_PASSES, left // LEAF_SHARE) // (passes + PASSES), 1),
            passes,
            min(MOST_OPTIONS, left),
        )

    def spend(self, options: int) -> None:
        """Look at so many options of stages.

        Raises:
            TooMany: there are none left.
        """
        self.meter.count(options)
        self.meter.replayed += OPTION * options
        self.options -= options
        if self.options < 0:
            raise TooMany

    def laid(self, ways: Ways, reached: float, plans: Callable[[Way], Iterator[Incumbent]]) -> Iterator[Laid]:
        """Some ways, none below `reached` seconds, by their closed form; what is not looked at is noted."""
        try:
            for way in ways.within(self.least):
                reached = way.seconds
                yield Laid(reached, plans(way))
        except TooMany:
            self.left = min(self.left, reached)

    def replay(self, way: Laid, price: Price, most: int) -> None:
        """Replay up to so many of the plans that a way has left, until one takes no longer than its closed form."""
        while most and not way.done and way.seconds < self.least() and self.replays:
            try:
                decided = next(way.plans, None)
            except TooMany:
                self.left, decided = min(self.left, way.seconds), None
            if decided is None:
                way.done = True
                break
            self.replays, most = self.replays - 1, most - 1
            self.meter.replayed += self.passes + PASSES
            self.meter.count(0)
            plan = price(decided)
            if plan.value < self.least():
                self.best = plan

    def best_of(self, ways: Iterable[Laid], price: Price) -> Best:
        """The best plan of some ways, the least closed form first, as far as replays show.

        First one plan of each way is replayed, then the others.
        """
        begun = []
        for way in ways:
            if way.seconds >= self.least():
                break
            if not self.replays:
                self.left = min(self.left, way.seconds)
                break
            self.replay(way, price, 1)
            begun.append(way)
        for way in begun:
            self.replay(way, price, self.replays)
            if not way.done:
                self.left = min(self.left, way.seconds)
        return Best(self.best, self.left if self.left < self.least() else inf)


def worse(
    search: "InstanceSearch", configuration: Configuration, candidate: int, choices: Sequence[Choice]
) -> list[tuple[int, int]]:
    """Choices, each with another one with which no pass takes longer, by their indices."""
    space = search.instance.space
    hides = space.hides(configuration.schedule.name)
    zeros = [max(space.effective_zero(each.zero), 1) for each in choices]
    modes = {each.name: each.extra for each in search.instance.candidates[candidate].recompute}
    parts = [partial(each.recompute) or Partial(each.recompute, 0, each.recompute) for each in choices]

    def made() -> list[tuple[int, int]]:
        longer = {(a, b): bool((modes[a] >= modes[b]).all()) for a, b in product(modes, repeat=2)}
        equal = {(a, b): longer[a, b] and longer[b, a] for a, b in longer}
        pairs = []
        for one, other in permutations(range(len(choices)), 2):
            if zeros[one] < zeros[other]:
                continue
            # What hides under compute, messages or what ZeRO sends, shows more where less is recomputed.
            told = equal if hides or (space.hiding and zeros[other] > 1) else longer
            (mode, count, rest), (mode_other, count_other, rest_other) = parts[one], parts[other]
            # Blocks that only one of the two has among its first are in the first mode of that one.
            between = (mode, rest_other) if count > count_other else (rest, mode_other)
            if told[mode, mode_other] and told[rest, rest_other] and (count == count_other or told[between]):
                pairs.append((one, other))
        return pairs

    return search.once(("worse", candidate, hides, tuple(choices)), made)
