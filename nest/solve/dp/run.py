"""One search under way: families of plans in order of their lower bounds, each split or solved until none can win."""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from attrs import define, field, frozen

from nest.instance import SearchProgress
from nest.solve.dp.found import Found, Kind, Rank
from nest.solve.dp.meter import Meter, OutOfTime
from nest.solve.effort import Deadline
from nest.tolerances import TIE

Progress = Callable[[SearchProgress], None]

RUNNER_UP_STATES = 2_000_000
"""States looked at most for a runner-up once the optimum is proved: a fraction of a second."""

SETTLED_BY_BOUND = {False: "bound from compute", True: "bound from partitions"}
"""What settles a family that is never worked on, by whether it was ready to be solved."""


class Family(Protocol):
    """Plans that are bounded together."""

    @property
    def members(self) -> int:
        """How many combinations of a configuration and a number of stages it holds."""
        ...

    @property
    def solvable(self) -> bool:
        """Whether it is solved next; else it is split first."""
        ...

    def only(self, kind: Kind) -> bool:
        """Whether all its plans are of that kind."""
        ...


F = TypeVar("F", bound=Family)


@frozen
class Bounded(Generic[F]):
    """A family, the batch time none of its plans beats (seconds), and the place its best could have among equals."""

    bound: float
    rank: Rank
    family: F


class Searcher(Protocol[F]):
    """What a run asks of the space it searches."""

    meter: Meter

    def families(self) -> Iterable[Bounded[F]]:
        """The whole space, by the cheapest bounds."""
        ...

    def split(self, family: F, limit: float, dropped: Counter[str]) -> list[Bounded[F]]:
        """Smaller families with better bounds that may beat `limit`; counts in `dropped` why others cannot."""
        ...

    def quick(self, family: F) -> Found | None:
        """Some plan of a family that can be solved, found quickly."""
        ...

    def solve(self, family: F, limit: float, dropped: Counter[str]) -> Found | None:
        """The best plan of a family that can be solved, when it beats `limit`; counts in `dropped` what settled it."""
        ...


@define
class Run(Generic[F]):
    """A search: the queue by bound, the best plan so far, and the best of each other kind.

    Attributes:
        searcher: the space.
        started: when, by the monotonic clock.
        deadline: when the best plan so far is taken.
        share: of that time, what the first bounds of all families may take; None: as long as there is patience.
        progress: told now and then how far the search is.
        best: the best plan so far.
        excluded: a kind of plan that is not looked for.
        whole: whether the space is all of the problem's, so that its bounds hold for every plan.
        most_states: work of the searcher's meter after which the best plan so far is taken.
        others: the best plan met of each kind.
        dropped: combinations of a configuration and a number of stages settled, by what settled them.
        total: all such combinations.
        limit: batch time to beat, seconds: the least met. Of plans that tie with it the best is the first in rank, so
            that it may take longer by `TIE`, but not by more, however many tie with each other.
    """

    searcher: Searcher[F]
    started: float
    deadline: Deadline = field(factory=Deadline)
    share: float | None = 1.0
    progress: Progress | None = None
    best: Found | None = None
    excluded: Kind | None = None
    whole: bool = True
    most_states: float = float("inf")
    others: dict[Kind, Found] = field(factory=dict)
    dropped: Counter[str] = field(factory=Counter)
    total: int = 0
    _queue: list[tuple[float, Rank, int, F]] = field(factory=list)
    _ticket: int = 0
    _bound: float = 0.0
    _least_tried: float = float("inf")
    limit: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.limit = self.best.value if self.best is not None else float("inf")

    def find_best(self) -> float:
        """Work the queue off until nothing in it can win; the lower bound reached, infinite when all is done.

        Raises:
            OutOfTime: the share of the time for the first bounds is gone, and there is no plan.
        """
        meter = self.searcher.meter
        try:
            meter.watch = self.prepare
            self._push(self.searcher.families())
            self.total = sum(family.members for *_, family in self._queue)
            meter.watch = self._watch
            while self._queue and self._queue[0][0] <= self.limit * (1 + TIE):
                self._bound, rank, _, family = self._queue[0]
                if self.best is not None and self._bound >= self.limit * (1 - TIE) and rank > self.best.rank:
                    self._settle(heapq.heappop(self._queue)[3])
                else:
                    self._watch()
                    self._work(self.limit * (1 + TIE))
        except OutOfTime:
            if self._waits and not self.total:
                raise
            return self._bound
        finally:
            meter.watch = lambda: None
        for *_, family in self._queue:
            self._settle(family)
        return float("inf")

    def find_second(self) -> None:
        """Search a little for the best plan of another kind."""
        assert self.best is not None
        meter = self.searcher.meter
        most = meter.states + RUNNER_UP_STATES
        second = Run(
            self.searcher,
            self.started,
            self.deadline,
            best=self.runner_up(),
            excluded=self.best.kind,
            most_states=most,
        )
        second.find_best()
        if second.best is not None:
            self.others[second.best.kind] = second.best

    def runner_up(self) -> Found | None:
        """The best plan met that differs from the best in candidates, replicas or number of stages."""
        assert self.best is not None
        others = [plan for kind, plan in self.others.items() if kind != self.best.kind]
        return min(others, key=lambda plan: (plan.value, plan.rank), default=None)

    def _work(self, limit: float) -> None:
        """Split or solve the first family of the queue; it stays there when time runs out meanwhile."""
        family = self._queue[0][3]
        if family.solvable:
            plan = self.searcher.solve(family, limit, self.dropped)
            heapq.heappop(self._queue)
            if plan is not None:
                self._accept(plan)
            return
        bound = self._queue[0][0]
        parts = self.searcher.split(family, limit, self.dropped)
        heapq.heappop(self._queue)
        self._push(Bounded(max(bound, part.bound), part.rank, part.family) for part in parts)
        for part in parts:
            wanted = self.excluded is None or not part.family.only(self.excluded)
            if wanted and part.family.solvable and part.bound < self._least_tried:
                # A quick plan of a promising family, so that slow stages can be left out of tables early.
                self._least_tried = part.bound
                plan = self.searcher.quick(part.family)
                if plan is not None:
                    self._accept(plan)

    def _push(self, found: Iterable[Bounded[F]]) -> None:
        for each in found:
            if self.excluded is not None and each.family.only(self.excluded):
                continue
            self._ticket += 1
            heapq.heappush(self._queue, (each.bound, each.rank, self._ticket, each.family))

    def _settle(self, family: F) -> None:
        self.dropped[SETTLED_BY_BOUND[family.solvable]] += family.members

    def _accept(self, plan: Found) -> None:
        """Take `plan` if it is better, or as good and ahead in rank; remember the loser."""
        best = self.best
        self.limit = min(self.limit, plan.value)
        most = self.limit * (1 + TIE)
        loser: Found | None = plan
        if best is None or best.value > most or (plan.value <= most and plan.rank < best.rank):
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
        """Stop the listing of families when its time is up."""
        deadline = self.deadline
        if not self._waits:
            late = deadline.passed
        else:
            late = deadline.over if self.share is None else deadline.beyond(self.share)
        if late:
            raise OutOfTime

    def _watch(self) -> None:
        """Tell how far the search is, and stop it when its time is up and it has a plan, or its work is done."""
        seconds = time.monotonic() - self.started
        if self.progress is not None:
            explored = self.dropped.total() / self.total if self.total else 0.0
            bound = self._bound if self.whole else 0.0
            self.progress(SearchProgress(self.best.value if self.best else None, bound, explored, seconds))
        late = self.deadline.over if self._waits else self.deadline.passed
        if late or self.searcher.meter.states > self.most_states:
            raise OutOfTime
