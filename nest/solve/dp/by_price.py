"""Plans in the order of their closed forms, to replay those worth it (PROBLEM.md section 5).

A price is at least the closed form: once the closed form of the next plan reaches the least price so far, that is the
best.
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

MOST_PASSES = 2**20  # Most passes replayed for the plans of a leaf: 0.3 s.

LEAF_SHARE = 16
"""Part of the passes left of `MOST_IN_ALL` that one leaf may use, lest the first leaves take all: else Qwen3 235B on
256 H100 takes 48.6 s a step, with this 46.8 s (2026-11-29)."""

PASSES = 2_000  # Passes that take as long as the rest of a replay.
MOST_OPTIONS = 2**17  # Most options of stages examined in a leaf: a fraction of a second.
OPTION = 8  # Passes that take as long as examining an option.
MOST_IN_ALL = 2**24  # Most passes, or equivalents, of all leaves together: 5 s; then one plan of each leaf is replayed.


class Option(NamedTuple):
    """Option of a stage."""

    following: Hashable  # State left for later stages.
    cost: float  # Its part of the sum of stages, seconds.
    time: float  # Seconds per micro-batch.
    sync: float  # Seconds per batch.
    decided: Any  # The choice.


class Way(NamedTuple):
    """Options of every stage, and the closed form of their plan in seconds."""

    seconds: float
    stages: tuple[Any, ...]


class TooMany(Exception):  # noqa: N818 - the search goes on without
    """More options than are examined."""


@define(eq=False)
class Ways:
    """Paths through the stages of a leaf, by their closed form."""

    stages: int
    first: Hashable  # State before the first stage.
    last: Hashable  # State after the last one.
    options: Callable[[int, Hashable], Sequence[Option]]  # Of a stage, from 0, in some state.
    objective: Objective  # Weights of the schedule.
    floor: Floor  # Bounds of the three terms.
    spend: Callable[[int], None]  # Called with the number of options examined; may raise `TooMany`.
    _known: dict[tuple[int, Hashable], tuple[float, Sequence[Option]]] = field(factory=dict, init=False)

    def within(self, limit: Callable[[], float]) -> Iterator[Way]:
        """Yield paths below a limit, which may fall meanwhile; the least first.

        Raises:
            TooMany: more options than are examined.
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
        """Least sum of the stages from one on; infinite if none lead to the end."""
        if stage == self.stages:
            return 0.0 if state == self.last else inf
        return self._known[stage, state][0]

    def _look(self) -> None:
        """Record the options of every reachable state, then the least rest of each."""
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
    """Drop choices of stages that another one dominates pass by pass.

    Ports lengthen all passes of a stage, so a choice of shorter passes may have longer ones if they wait.

    Args:
        kept: shape `(choices, stages)`.
        figures: seconds per micro-batch, part of the sum and seconds per batch, shape `(3, choices, stages)`.
        alone: seconds per micro-batch if no port waits, shape `(choices, stages)`.
        pairs: from `worse`.
        roomy: mask of choices that may replace another, by choice and stage; None: wherever kept.
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
    """A path through the stages of a leaf: its closed form, and its plans not yet replayed."""

    seconds: float
    plans: Iterator[Incumbent]
    done: bool = False


@define(eq=False)
class Leaf:
    """State of a leaf while its plans are replayed."""

    limit: float  # Step time to beat, seconds.
    meter: Meter
    replays: int  # Number left.
    passes: int  # Of one replay.
    options: int = MOST_OPTIONS  # Number that may still be examined.
    best: Incumbent | None = None  # Best plan below the limit.
    left: float = inf  # Lower bound (s) on plans not examined.

    def least(self) -> float:
        """Closed form (s) below which a plan is worth a replay."""
        return self.limit if self.best is None else min(self.limit, self.best.value * (1 - TIE))

    @classmethod
    def of(cls, limit: float, meter: Meter, passes: int) -> "Leaf":
        """Start a leaf with plans of so many passes, within the search's remaining effort."""
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
        """Count examined options.

        Raises:
            TooMany: none are left.
        """
        self.meter.count(options)
        self.meter.replayed += OPTION * options
        self.options -= options
        if self.options < 0:
            raise TooMany

    def laid(self, ways: Ways, reached: float, plans: Callable[[Way], Iterator[Incumbent]]) -> Iterator[Laid]:
        """Yield paths of at least `reached` seconds by closed form, and record what is not examined."""
        try:
            for way in ways.within(self.least):
                reached = way.seconds
                yield Laid(reached, plans(way))
        except TooMany:
            self.left = min(self.left, reached)

    def replay(self, way: Laid, price: Price, most: int) -> None:
        """Replay up to so many of a path's plans, until one takes no longer than its closed form."""
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
        """Best plan of some paths by replay, the least closed form first.

        One plan of each path is replayed before any others.
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
    """Pairs of choices by index: no pass takes longer with the second."""
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
