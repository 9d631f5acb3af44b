"""Hanayo as a schedule of nest: chunks lie along waves over the stages (Liu et al., SC 2023, arXiv 2308.15762)."""

from functools import lru_cache
from heapq import heappop, heappush

from attrs import evolve, field, frozen, validators

from nest.hooks import hook
from nest.hooks.protocols import Pass, Schedule, moments_of_order


@frozen
class Hanayo:
    """Each stage does what is ready, backward before forward and later chunks before earlier ones."""

    chunks: int = field(default=4, validator=validators.ge(2))
    name = "hanayo"
    placement = "v"

    def with_chunks(self, chunks: int) -> "Hanayo":
        """The same with so many chunks a stage: two a wave, down the stages and up again."""
        return evolve(self, chunks=chunks)

    def admits(self, stages: int, micro_batches: int, chunks: int) -> bool:
        """At most two micro-batches a stage: more would pile up in front of the first chunk."""
        return micro_batches <= 2 * stages

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        """`A = M`, and as `B` what equal stages wait in its order."""
        whole, _ = waves(self.chunks, stages, micro_batches)
        return float(micro_batches), (whole / (3 * self.chunks) - micro_batches) / stages

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> tuple[tuple[float, ...], ...]:
        """As its order has them."""
        return moments_of_order(self.order(stage, stages, micro_batches), self.chunks)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """See the class."""
        return waves(self.chunks, stages, micro_batches)[1][stage - 1]


@lru_cache(maxsize=2**10)
def waves(chunks: int, stages: int, micro_batches: int) -> tuple[int, tuple[tuple[Pass, ...], ...]]:
    """Time of equal stages, a chunk taking 1 forward and 2 backward, and the passes of each stage."""
    route = [stage for turn in range(chunks) for stage in range(stages)[:: -1 if turn % 2 else 1]]
    steps = [("forward", place) for place in range(len(route))]
    steps += [("backward", place) for place in reversed(range(len(route)))]
    ready = [[(0, index) for index in range(micro_batches)] if not stage else [] for stage in range(stages)]
    rows: list[list[Pass]] = [[] for _ in range(stages)]
    running: list[tuple[int, int, int, int]] = []
    clock, idle = 0, set(range(stages))
    while running or any(ready):
        for stage in [stage for stage in sorted(idle) if ready[stage]]:
            number, index = heappop(ready[stage])  # The most advanced step, then the first micro-batch.
            kind, place = steps[-number]
            rows[stage].append(Pass(kind, index, place // stages))
            heappush(running, (clock + (1 if kind == "forward" else 2), stage, -number, index))
            idle.remove(stage)
        clock, stage, done, index = heappop(running)
        idle.add(stage)
        if done + 1 < len(steps):
            heappush(ready[route[steps[done + 1][1]]], (-done - 1, index))
    return clock, tuple(map(tuple, rows))


@hook
def nest_schedules() -> list[Schedule]:
    """Schedules of this distribution."""
    return [Hanayo()]
