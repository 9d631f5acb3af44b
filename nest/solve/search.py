"""Best-first branch and bound: nodes in order of lower bounds, branched or solved until none can win.

One loop for plain, mixed and interleaved plans, whose nodes `nest.solve.dp` defines.
"""

import heapq
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import NamedTuple, Protocol

from attrs import define, field

from nest.instance import Instance, SearchProgress, Solution
from nest.solve.effort import Deadline
from nest.tolerances import TIE

Progress = Callable[[SearchProgress], None]

RUNNER_UP_STATES = 2_000_000  # Most states for a runner-up once the optimum is proved: a fraction of a second.
PROMISING = 2  # Leaves of a node that get quick plans: the best plan is mostly in the first, a runner-up in the second.

PRUNED_BY_BOUND = {False: "bound from compute", True: "bound from partitions"}
"""Reason for pruning a node that is never expanded, by whether it is a leaf."""

PlanKind = tuple[tuple[int, ...], int, int]
"""Differences between plans that matter to people: candidates, replicas, number of stages."""

TieBreak = tuple[int, ...]
"""Key that orders equally fast plans: devices, stages, then the documented order of configurations."""

FIRST: TieBreak = ()  # Before every key of a search.
LAST: TieBreak = (sys.maxsize,)  # After every key of a search.


NONE = Solution(0, "", "", ())  # Stands for a known plan if only a time is to be beaten.


class OutOfTime(Exception):  # noqa: N818 - not an error: the search goes back to the best plan it has
    """Raised inside a search whose time is up."""


def _nothing() -> None:
    """Default watcher: does nothing."""


@define(eq=False, repr=False)
class Meter:
    """Work done so far."""

    states: int = 0  # Stage costs between two cuts computed inside recurrences and bounds.
    replayed: int = 0  # Passes of replays, and equivalent work before them.
    watch: Callable[[], None] = _nothing  # Called every few milliseconds; may raise `OutOfTime`.

    def count(self, states: int) -> None:
        """Count states, and call the watcher."""
        self.states += states
        self.watch()


class Incumbent(NamedTuple):
    """A plan that the search priced."""

    value: float  # Step time, seconds.
    tie_break: TieBreak  # Rank among equally fast plans.
    solution: Solution

    @property
    def kind(self) -> PlanKind:
        """Its candidates, replicas and number of stages."""
        stages = self.solution.stages
        return tuple(sorted({stage.candidate for stage in stages})), self.solution.replicas, len(stages)


Price = Callable[[Incumbent], Incumbent]
"""Replaces a plan's closed form by its price (PROBLEM.md section 4, "Price and replay")."""


class Best(NamedTuple):
    """Knowledge about some plans."""

    plan: Incumbent | None  # Best one met; None: none beats the known plan.
    left: float  # Lower bound (s) on those not replayed; infinite: none matter.


def price_of(instance: Instance) -> Price | None:
    """Function that adds replays to closed forms of an instance's plans; None: replays add nothing."""
    makespan = instance.makespan
    if makespan is None or not any(map(instance.space.replays, instance.space.schedules)):
        return None

    def price(plan: Incumbent) -> Incumbent:
        return plan._replace(value=max(plan.value, makespan(instance, plan.solution)))

    return price


class Node(Protocol):
    """Plans that are bounded together."""

    @property
    def combinations(self) -> int:
        """Number of combinations of a configuration and a number of stages."""

    @property
    def leaf(self) -> bool:
        """True if it is solved next; else it is branched first."""

    @property
    def quickly(self) -> bool:
        """True if some plan is found quickly: for all leaves, and for nodes that are nearly leaves."""

    def only(self, kind: PlanKind) -> bool:
        """True if all its plans are of that kind."""

    def first(self) -> Incumbent | None:
        """Some plan of an inner node, if branching without one would take longer."""

    def branch(self, limit: float, pruned: Counter[str]) -> "list[Bounded]":
        """Smaller nodes with better bounds that may beat `limit`; counts reasons for others in `pruned`."""

    def quick(self) -> Incumbent | None:
        """Some plan, if found `quickly`."""

    def solve(self, limit: float, pruned: Counter[str]) -> Incumbent | None:
        """Plan of a leaf with the least closed form, if below `limit`; counts what decided it in `pruned`."""

    def by_price(self, known: Incumbent, limit: float, price: Price) -> Best:
        """Plan of a leaf with a price below `limit`; `known` has the least closed form and a higher price."""


class Bounded(NamedTuple):
    """A node, its lower bound (s), and the best tie-break key of its plans."""

    bound: float
    tie_break: TieBreak
    node: Node


class Searcher(Protocol):
    """Plans to search."""

    meter: Meter

    @property
    def left(self) -> float:
        """Lower bound (s) on plans left unsearched; infinite if there are none."""

    @property
    def refused(self) -> Counter[str]:
        """Combinations of a configuration and a number of stages in no node, by what decided them."""

    def nodes(self, limit: float) -> Iterable[Bounded]:
        """All plans with the cheapest bounds, except those `refused`, which may depend on the step time to beat."""


@define(eq=False, repr=False)
class BestFirst:
    """A search in progress: queue by bound, best plan so far, and best plan of each other kind."""

    searchers: Sequence[Searcher]  # Of the plans; they share a meter.
    started: float  # By the monotonic clock.
    deadline: Deadline = field(factory=Deadline)
    share: float | None = 1.0  # Share of the time that the first bounds of all nodes may take; None: no limit.
    progress: Progress | None = None
    best: Incumbent | None = None  # Best plan so far.
    excluded: PlanKind | None = None  # Kind of plan that is not searched.
    whole: bool = True  # These are all plans of the problem, so bounds hold for every plan.
    most_states: float = inf  # Work after which the best plan so far is taken.
    # Finds the exact time of a plan if searchers only bound it; None if that fails.
    placed: Callable[[Incumbent], Incumbent | None] | None = None
    price: Price | None = None  # Of plans by replay; None: times of the searchers.
    others: dict[PlanKind, Incumbent] = field(factory=dict)  # Best plan met of each kind.
    reach: float = inf  # Step time (s) up to which plans are searched; a slower one is taken if none is met.
    # Decided combinations of a configuration and a number of stages, by what decided them.
    pruned: Counter[str] = field(factory=Counter)
    total: int = 0  # All such combinations.
    _queue: list[tuple[float, TieBreak, int, Node]] = field(factory=list)
    _ticket: int = 0
    _bound: float = 0.0
    _least_left: float = inf
    _least_tried: float = inf
    # Least step time met, seconds. The best plan is the first by tie-break of those that tie with it, so it may be
    # slower by `TIE`, but no more, however many tie with each other.
    limit: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.limit = self.reach if self.best is None else min(self.best.value, self.reach)

    @property
    def meter(self) -> Meter:
        """Work counter."""
        return self.searchers[0].meter

    def find_best(self) -> float:
        """Search until no node can win; return the lower bound, infinite when all is done.

        Raises:
            OutOfTime: the time for the first bounds is gone, without a plan.
        """
        meter = self.meter
        try:
            meter.watch = self.prepare
            for searcher in self.searchers:
                self._push(searcher.nodes(self.limit * (1 + TIE)))
                self.pruned += searcher.refused
            self.total = sum(node.combinations for *_, node in self._queue) + self.pruned.total()
            meter.watch = self._watch
            # The least bound of the queue holds for all plans left: once it is above the best, that one is optimal.
            while self._queue and self._queue[0][0] <= self.limit * (1 + TIE):
                self._bound, tie_break, _, node = self._queue[0]
                if self.best is not None and self._bound >= self.limit * (1 - TIE) and tie_break > self.best.tie_break:
                    # Its best could only tie, and would stand behind.
                    self._prune(heapq.heappop(self._queue)[3])
                else:
                    self._watch()
                    self._work(self.limit * (1 + TIE))
        except OutOfTime:
            if self._waits and not self.total:
                raise
            return min(self._bound, self._least_left, *(searcher.left for searcher in self.searchers))
        finally:
            meter.watch = _nothing
        for *_, node in self._queue:
            self._prune(node)
        return min(self._least_left, *(searcher.left for searcher in self.searchers))

    def find_second(self, most_states: float, limit: float = inf) -> None:
        """Find the best plan of another kind, within so many states of the meter and seconds of a step."""
        assert self.best is not None
        kind, again = self.best.kind, (self.started, self.deadline)
        # Plans of one chunk a stage come first: bounds of several are cheap to beat, and dear to make.
        every = self.searchers
        for some in [every[:1], every] if len(every) > 1 else [every]:
            known = self.runner_up()
            second = BestFirst(some, *again, best=known, excluded=kind, most_states=most_states, price=self.price)
            second.limit = min(second.limit, limit)
            second.find_best()
            if second.best is not None:
                self.others[second.best.kind] = second.best

    def runner_up(self) -> Incumbent | None:
        """Best plan met that differs from the best in candidates, replicas or number of stages."""
        assert self.best is not None
        others = [plan for kind, plan in self.others.items() if kind != self.best.kind]
        return min(others, key=lambda plan: (plan.value, plan.tie_break), default=None)

    def _work(self, limit: float) -> None:
        """Branch or solve the first node of the queue; it stays there if time runs out meanwhile."""
        bound, _, _, node = self._queue[0]
        if node.leaf:
            plan = node.solve(limit, self.pruned)
            true = self._true(plan)
            if plan is not None and self.placed is not None:
                # No plan of the leaf is below its bound, but another than this may be the best in truth.
                self._least_left = min(self._least_left, plan.value)
            elif plan is not None and true is not None and true.value > plan.value * (1 + TIE):
                assert self.price is not None
                # At once, lest it be lost when time runs out.
                self._accept(true)
                better, left = node.by_price(plan, min(limit, true.value), self.price)
                self._least_left = min(self._least_left, left)
                true = better
            heapq.heappop(self._queue)
            self._accept(true)
            return
        if limit == inf:
            self._accept(self._true(node.first()))
            limit = self.limit * (1 + TIE)
        parts = node.branch(limit, self.pruned)
        heapq.heappop(self._queue)
        self._push(Bounded(max(bound, part.bound), part.tie_break, part.node) for part in parts)
        leaves = [
            each for each in parts if each.node.quickly and (self.excluded is None or not each.node.only(self.excluded))
        ]
        promising = heapq.nsmallest(PROMISING, leaves, key=lambda each: each.bound)
        if promising and promising[0].bound < self._least_tried:
            # Quick plans of promising leaves, so that slow stages can be left out of tables early.
            self._least_tried = promising[0].bound
            for each in promising:
                self._accept(self._true(each.node.quick()))

    def _true(self, plan: Incumbent | None) -> Incumbent | None:
        if plan is None:
            return None
        if self.placed is not None:
            return self.placed(plan)
        return plan if self.price is None else self.price(plan)

    def _push(self, nodes: Iterable[Bounded]) -> None:
        for each in nodes:
            if self.excluded is not None and each.node.only(self.excluded):
                continue
            self._ticket += 1
            heapq.heappush(self._queue, (each.bound, each.tie_break, self._ticket, each.node))

    def _prune(self, node: Node) -> None:
        self.pruned[PRUNED_BY_BOUND[node.leaf]] += node.combinations

    def _accept(self, plan: Incumbent | None) -> None:
        """Keep `plan` if it is better, or ties and comes first; remember the loser."""
        if plan is None:
            return
        best = self.best
        self.limit = min(self.limit, plan.value)
        most = self.limit * (1 + TIE)
        loser: Incumbent | None = plan
        ahead = best is not None and plan.value <= most and plan.tie_break < best.tie_break
        if best is None or ahead or best.value > max(most, plan.value):
            loser, self.best = best, plan
        if loser is not None:
            known = self.others.get(loser.kind)
            if known is None or loser.value < known.value:
                self.others[loser.kind] = loser

    @property
    def _waits(self) -> bool:
        return self.best is None and self.excluded is None

    def prepare(self) -> None:
        """Stop the listing of nodes when its time is up."""
        deadline = self.deadline
        if not self._waits:
            late = deadline.passed
        else:
            late = deadline.over if self.share is None else deadline.beyond(self.share)
        if late:
            raise OutOfTime

    def _watch(self) -> None:
        """Report progress, and stop when time is up with a plan, or when the work is done."""
        seconds = time.monotonic() - self.started
        if self.progress is not None:
            explored = self.pruned.total() / self.total if self.total else 0.0
            bound = self._bound if self.whole else 0.0
            self.progress(SearchProgress(self.best.value if self.best else None, bound, explored, seconds))
        late = self.deadline.over if self._waits else self.deadline.passed
        if late or (self.meter.states > self.most_states and not self._waits):
            raise OutOfTime
