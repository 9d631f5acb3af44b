"""Searches among the candidates that may win: the work of the others takes longer than a plan that is known."""

from collections.abc import Iterable, Mapping, Sequence

import numpy
from attrs import evolve, frozen

from nest.instance import Array, Instance, Result, Solution
from nest.solve.search import Incumbent
from nest.tolerances import SUM_ERROR

SCOUTED, SCOUTS, SCOUT_SHARE, MOST_SCOUTS = 64, 16, 16, 64
"""Candidates from which on a plan is looked for among few of them first, so that what computes for longer than it takes
need not be listed (Llama 3 70B on 128 H100 takes 1.2 times as long without; 2026-11-23); how many they are at least,
which share of all, and how many at most."""


def work_bounds(instance: Instance) -> Array:
    """Seconds that no plan of each candidate beats, shape `(candidates,)`.

    The devices of a cluster work on `B / m` micro-batches, `g` of them at a time on each. No schedule lets the slowest
    stage work on less than all of its replica's micro-batches (`nest.instance.schedule.Schedule.weights`).
    """
    work = [each.width / each.samples * float((each.forward + each.backward).sum()) for each in instance.candidates]
    return numpy.array(work) * (instance.space.global_batch / instance.cluster.size * (1 - SUM_ERROR))


def scouts(bounds: Array) -> list[int]:
    """A few of the candidates, ascending: the better their bounds, the more of them."""
    count = len(bounds)
    wanted = min(max(count // SCOUT_SHARE, SCOUTS), MOST_SCOUTS, count)
    ranks = dict.fromkeys(place * place * count // (wanted * wanted) for place in range(wanted))
    order = bounds.argsort(kind="stable")
    return sorted(int(order[rank]) for rank in ranks)


@frozen(eq=False)
class Narrowed:
    """An instance with some of its candidates.

    Attributes:
        instance: with these alone.
        kept: which of all they are, ascending, so that ties are broken as among all.
        dropped: how many others there are.
    """

    instance: Instance
    kept: tuple[int, ...]
    dropped: int = 0

    @classmethod
    def to(cls, instance: Instance, kept: Sequence[int]) -> "Narrowed":
        """The instance with the candidates of these places."""
        if len(kept) == len(instance.candidates):
            return cls(instance, tuple(kept))
        some = evolve(instance, candidates=tuple(instance.candidates[each] for each in kept))
        return cls(some, tuple(kept), len(instance.candidates) - len(kept))

    @classmethod
    def faster(cls, instance: Instance, known: Incumbent, times: float) -> "Narrowed":
        """The candidates whose work takes no longer than so many times what a plan that is known takes."""
        bounds = work_bounds(instance)
        used = [stage.candidate for stage in known.solution.stages] or [int(bounds.argmin())]
        return cls.to(instance, sorted({*used, *numpy.flatnonzero(bounds <= known.value * times).tolist()}))

    def here(self, solutions: Iterable[Solution]) -> list[Solution]:
        """Those of the plans of all candidates that are plans of these, in their numbers."""
        place = {candidate: index for index, candidate in enumerate(self.kept)}
        mine = (each for each in solutions if all(stage.candidate in place for stage in each.stages))
        return [_renumbered(each, place) for each in mine]

    def plans_here(self, plans: Iterable[Incumbent]) -> list[Incumbent]:
        """As `here`, of plans with their step times."""
        return [evolve(plan, solution=each) for plan in plans for each in self.here([plan.solution])]

    def there(self, result: Result) -> Result:
        """A result in the numbers of all candidates."""
        best = None if result.solution is None else _renumbered(result.solution, self.kept)
        second = (
            None if result.runner_up is None else (_renumbered(result.runner_up[0], self.kept), result.runner_up[1])
        )
        statistics = dict(result.statistics)
        if "candidates" in statistics:
            statistics["candidates"] += self.dropped  # Their bounds were looked at.
        return evolve(result, solution=best, runner_up=second, statistics=statistics)


def _renumbered(solution: Solution, numbers: Mapping[int, int] | Sequence[int]) -> Solution:
    stages = tuple(evolve(stage, candidate=numbers[stage.candidate]) for stage in solution.stages)
    return evolve(solution, stages=stages)
