"""Best-first branch and bound: nodes in order of their lower bounds, each branched or solved until none can win.

One loop for plain, mixed and interleaved plans (`nest.solve.dp`), which say what their nodes are.
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

RUNNER_UP_STATES = 2_000_000
"""States looked at most for a runner-up once the optimum is proved: a fraction of a second."""

PROMISING = 2
"""Leaves of a node of which quick plans are made: the best plan is mostly of the first, a runner-up of the second."""

PRUNED_BY_BOUND = {False: "bound from compute", True: "bound from partitions"}
"""What prunes a node that is never worked on, by whether it is a leaf."""

PlanKind = tuple[tuple[int, ...], int, int]
"""What tells plans apart for people: candidates, replicas, number of stages."""

TieBreak = tuple[int, ...]
"""Key that orders equally fast plans: devices, stages, then the documented order of configurations."""

FIRST: TieBreak = ()
"""Ahead of every key that a search gives."""

LAST: TieBreak = (sys.maxsize,)
"""Behind every key that a search gives."""


NONE = Solution(0, "", "", ())
"""In the place of a plan that is known: what no plan has to beat but the time."""


class OutOfTime(Exception):  # noqa: N818 - not an error: the search goes back to the best plan it has
    """Raised inside a search whose time is up."""


def _nothing() -> None:
    """Nobody watches."""


@define(eq=False, repr=False)
class Meter:
    """Work done so far.

    Attributes:
        states: costs of a stage between two cuts computed inside recurrences and bounds.
        replayed: passes that replays took, and what takes as long in what leads to them.
        watch: called after each step of a few milliseconds; may raise `OutOfTime`.
    """

    states: int = 0
    replayed: int = 0
    watch: Callable[[], None] = _nothing

    def count(self, states: int) -> None:
        """Note `states` more, and let the watcher look."""
        self.states += states
        self.watch()


class Incumbent(NamedTuple):
    """A plan the search priced.

    Attributes:
        value: step time, seconds.
        tie_break: where it stands among equals.
        solution: its decisions.
    """

    value: float
    tie_break: TieBreak
    solution: Solution

    @property
    def kind(self) -> PlanKind:
        """Its candidates, replicas and number of stages."""
        stages = self.solution.stages
        return tuple(sorted({stage.candidate for stage in stages})), self.solution.replicas, len(stages)


Price = Callable[[Incumbent], Incumbent]
"""A plan with its price in place of its closed form (PROBLEM.md section 4, "Price and replay")."""


class Best(NamedTuple):
    """What is known of some plans.

    Attributes:
        plan: the best met; None: there is none to beat what is known.
        left: none of those that were not replayed is faster, seconds; infinite: there are none that matter.
    """

    plan: Incumbent | None
    left: float


def price_of(instance: Instance) -> Price | None:
    """What replays add to the closed form of an instance's plans; None: nothing."""
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
        """How many combinations of a configuration and a number of stages it holds."""

    @property
    def leaf(self) -> bool:
        """Whether it is solved next; else it is branched first."""

    @property
    def quickly(self) -> bool:
        """Whether some plan of it is found quickly: of all leaves, and of nodes that are nearly leaves."""

    def only(self, kind: PlanKind) -> bool:
        """Whether all its plans are of that kind."""

    def first(self) -> Incumbent | None:
        """Of no leaf, some plan, where branching without one would take longer."""

    def branch(self, limit: float, pruned: Counter[str]) -> "list[Bounded]":
        """Smaller nodes with better bounds that may beat `limit`; counts in `pruned` why others cannot."""

    def quick(self) -> Incumbent | None:
        """Some plan, where one is found `quickly`."""

    def solve(self, limit: float, pruned: Counter[str]) -> Incumbent | None:
        """Of a leaf, the plan of least closed form when that beats `limit`; counts in `pruned` what decided it."""

    def by_price(self, known: Incumbent, limit: float, price: Price) -> Best:
        """Of a leaf, a plan whose price beats `limit`, `known` being that of least closed form, which does not."""


class Bounded(NamedTuple):
    """A node, the step time none of its plans beats (seconds), and the key its best could have among equals."""

    bound: float
    tie_break: TieBreak
    node: Node


class Searcher(Protocol):
    """Plans that are searched."""

    meter: Meter

    @property
    def left(self) -> float:
        """No plan that was left unsearched is faster, seconds; infinite where none was."""

    @property
    def refused(self) -> Counter[str]:
        """Combinations of a configuration and a number of stages that are in no node, by what decided them."""

    def nodes(self, limit: float) -> Iterable[Bounded]:
        """All plans, by the cheapest bounds, but for those `refused`; which, may depend on the step time to beat."""


@define(eq=False, repr=False)
class BestFirst:
    """A search under way: the queue by bound, the best plan so far, and the best of each other kind.

    Attributes:
        searchers: the plans; they share a meter.
        started: when, by the monotonic clock.
        deadline: when the best plan so far is taken.
        share: of that time, what the first bounds of all nodes may take; None: as long as there is patience.
        progress: called now and then with how far the search is.
        best: the best plan so far.
        excluded: a kind of plan that is not looked for.
        whole: whether these are all plans of the problem, so that bounds hold for every plan.
        most_states: work of the meter after which the best plan so far is taken, once there is one.
        placed: where times of searchers are bounds only, what a plan takes in truth; None: it cannot be had.
        price: what plans take by their replay; None: as the searchers have it.
        others: the best plan met of each kind.
        reach: step time, seconds, up to which plans are looked for; a slower one is taken where none is met.
        pruned: combinations of a configuration and a number of stages decided, by what decided them.
        total: all such combinations.
        limit: step time to beat, seconds: the least met. Of plans that tie with it the best is the first by
            tie-break, so that it may take longer by `TIE`, but not by more, however many tie with each other.
    """

    searchers: Sequence[Searcher]
    started: float
    deadline: Deadline = field(factory=Deadline)
    share: float | None = 1.0
    progress: Progress | None = None
    best: Incumbent | None = None
    excluded: PlanKind | None = None
    whole: bool = True
    most_states: float = inf
    placed: Callable[[Incumbent], Incumbent | None] | None = None
    price: Price | None = None
    others: dict[PlanKind, Incumbent] = field(factory=dict)
    reach: float = inf
    pruned: Counter[str] = field(factory=Counter)
    total: int = 0
    _queue: list[tuple[float, TieBreak, int, Node]] = field(factory=list)
    _ticket: int = 0
    _bound: float = 0.0
    _least_left: float = inf
    _least_tried: float = inf
    limit: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.limit = self.reach if self.best is None else min(self.best.value, self.reach)

    @property
    def meter(self) -> Meter:
        """Counts the work."""
        return self.searchers[0].meter

    def find_best(self) -> float:
        """Work the queue off until nothing in it can win; the lower bound reached, infinite when all is done.

        Raises:
            OutOfTime: the share of the time for the first bounds is gone, and there is no plan.
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
        """Search for the best plan of another kind, up to so many states of the meter and so many seconds of a step."""
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
        """The best plan met that differs from the best in candidates, replicas or number of stages."""
        assert self.best is not None
        others = [plan for kind, plan in self.others.items() if kind != self.best.kind]
        return min(others, key=lambda plan: (plan.value, plan.tie_break), default=None)

    def _work(self, limit: float) -> None:
        """Branch or solve the first node of the queue; it stays there when time runs out meanwhile."""
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
        """A plan with the step time it has in truth."""
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
        """Take `plan` if it is better, or as good and ahead by tie-break; remember the loser."""
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
        """Whether it goes on for a while when its time is up, for want of a plan."""
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
        """Say how far the search is, and stop it when its time is up and it has a plan, or its work is done."""
        seconds = time.monotonic() - self.started
        if self.progress is not None:
            explored = self.pruned.total() / self.total if self.total else 0.0
            bound = self._bound if self.whole else 0.0
            self.progress(SearchProgress(self.best.value if self.best else None, bound, explored, seconds))
        late = self.deadline.over if self._waits else self.deadline.passed
        if late or (self.meter.states > self.most_states and not self._waits):
            raise OutOfTime
