"""Section 5 of PROBLEM.md: the modes of the stages of a plan of which all else is chosen, without trying every choice.

* Where the closed form is the price, every stage takes, for each cap on `max y` and on `max t`, the mode that adds
  least to the sum and keeps both, because `A` is not negative. The caps run over every `y` and `t` there is; where the
  sum is that of the `t` themselves, the fastest mode is the one that adds least, and only `y` needs caps.
* Where plans are replayed, choices are left out that are no better than a plan found: by their closed form, and by a
  replay with the shortest passes that any mode has on the stages whose mode is not chosen yet. No batch ends later for
  shorter passes. Where devices count from their own first pass it may: there the closed form alone says so.
"""

from dataclasses import dataclass
from itertools import chain
from math import inf
from operator import le

from tests.oracle.makespan import Chunk, in_order, makespan, replayed
from tests.oracle.parts import Recompute
from tests.oracle.schedules import Pipeline
from tests.oracle.settings import hides_messages


@dataclass(frozen=True)
class Timed:
    """A mode of a stage between boundaries of certain levels: `t`, what it adds to the sum, `y`, its passes."""

    mode: tuple[Recompute, int]
    time: float
    filling: float
    sync: float
    chunks: tuple[Chunk, ...] = ()

    @property
    def seconds(self) -> list[float]:
        """All that may make a plan slower."""
        passes = [[*chunk.seconds.values(), *chunk.hidden.values()] for chunk in self.chunks]
        return [self.time, self.filling, self.sync, *chain.from_iterable(passes)]


@dataclass(frozen=True)
class Pricing:
    """How plans of one schedule with so many stages are priced.

    Attributes:
        pipeline: the schedule.
        micro_batches: `M`.
        weights: of the closed form.
        aligned: whether what stages add to the sum is their `t`, times one number.
        replayed: whether the closed form is not all.
    """

    pipeline: Pipeline
    micro_batches: int
    weights: tuple[float, float, float, float]
    aligned: bool
    replayed: bool

    def choices(self, stages: list[list[Timed]], limit: float):
        """Step times below the limit with the modes that make them, the best among them."""
        if not self.replayed:
            yield from best_modes(self.weights[0], self.aligned, [front(stage) for stage in stages])
            return
        stages = [stage if self.pipeline.staggered else front(stage) for stage in stages]
        shortest = [least_of(stage) for stage in stages]

        def walk(chosen: list[Timed]):
            nonlocal limit
            total = self.price([*chosen, *shortest[len(chosen) :]], len(chosen) == len(stages), limit)
            if total >= limit:
                return
            if len(chosen) == len(stages):
                limit = total
                yield total, [option.mode for option in chosen]
                return
            for option in stages[len(chosen)]:
                yield from walk([*chosen, option])

        yield from walk([])

    def price(self, stages: list[Timed], chosen: bool, limit: float) -> float:
        """The step time of these stages, or a bound on it: where not all are `chosen`, or it reaches the limit."""
        closed = step_time(self.weights[0], stages)
        if closed >= limit or (self.pipeline.staggered and not chosen):
            return closed
        chunks = in_order(self.pipeline, [stage.chunks for stage in stages])
        whole = makespan(self.pipeline, len(stages), self.micro_batches, chunks)
        return max(closed, whole + max(stage.sync for stage in stages))


def pricing_of(problem: dict, pipeline: Pipeline, micro_batches: int, weights) -> Pricing:
    """How the plans of a problem with this schedule are priced."""
    aligned = len(set(weights[1:])) == 1 and not hides_messages(problem, pipeline.name)
    return Pricing(pipeline, micro_batches, weights, aligned, replayed(problem, pipeline))


def least_of(options: list[Timed]) -> Timed:
    """What is in everything as quick as the quickest."""
    chunks = tuple(
        Chunk(*({key: min(each[key] for each in every) for key in every[0]} for every in (seconds, hidden)))
        for seconds, hidden in (
            ([chunk.seconds for chunk in each], [chunk.hidden for chunk in each])
            for each in zip(*(option.chunks for option in options), strict=True)
        )
    )
    least = (min(getattr(option, name) for option in options) for name in ("time", "filling", "sync"))
    return Timed(options[0].mode, *least, chunks)


def best_modes(slowest: float, aligned: bool, stages: list[list[Timed]]):
    """Step times with the modes that make them, the best among them."""
    for sync in sorted({option.sync for stage in stages for option in stage}):
        below = [[option for option in stage if option.sync <= sync] for stage in stages]
        if not all(below):
            continue
        for limit in [inf] if aligned else sorted({option.time for stage in below for option in stage}):
            kept = [[option for option in stage if option.time <= limit] for stage in below]
            if all(kept):
                chosen = [min(stage, key=lambda option: (option.filling, option.time)) for stage in kept]
                if aligned:
                    chosen = [min(stage, key=lambda option: option.time) for stage in kept]
                yield step_time(slowest, chosen), [option.mode for option in chosen]


def step_time(slowest: float, stages: list[Timed]) -> float:
    times, filling, syncs = zip(*((each.time, each.filling, each.sync) for each in stages), strict=True)
    return slowest * max(times) + sum(filling) + max(syncs)


def front(options: list[Timed]) -> list[Timed]:
    """Those that no other beats in everything."""
    kept: list[Timed] = []
    for option in sorted(options, key=lambda option: option.seconds):
        if not any(all(map(le, other.seconds, option.seconds)) for other in kept):
            kept.append(option)
    return kept
