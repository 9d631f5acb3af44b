"""Pipeline schedules drawn at random: what they say is no formula that any program could know.

The oracle reads them as it does its own table (`tests.oracle.schedules.Said`), the planner as objects of a plug-in.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from types import ModuleType
from unittest.mock import patch


@dataclass(frozen=True)
class Drawn:
    """A schedule that follows from a few words and a seed.

    Attributes:
        name: of the schedule.
        seed: of all its numbers.
        chunks: of each stage; None: any number from 2.
        placed: `round`, `v`, or `own`, a table.
        copies: of parameters on a device.
        parts: `pair`, `steady` (parts weigh more the more stages there are) or `wild`.
        counts: what its in-flight counts are: `number`, `row` or `rows`.
        condition: `all`, or what stages and micro-batches must be: `even`, `turns` or `many`.
    """

    name: str
    seed: str
    chunks: int | None
    placed: str
    copies: int
    parts: str
    counts: str
    condition: str

    def random(self, *place) -> Random:
        return Random(f"{self.seed} {place}")

    def weights(self, micro_batches: int, stages: int, chunks: int) -> tuple[float, ...]:
        """`(A, B)`, or `(A, Bf, Bb, Bw)`, of which the last may be negative."""
        random = self.random() if self.parts == "steady" else self.random("weights", micro_batches, stages, chunks)
        less, forward, inputs = random.choice([0, 0, 0.5, 1]), random.uniform(0, 1.5), random.uniform(0, 3)
        if self.parts == "pair":
            each = random.choice([0.0, 0.5, 1.0, forward])
            return micro_batches - min(less, each), each  # A batch takes no less than its slowest stage.
        share = (stages - 1) / stages / chunks if self.parts == "steady" else random.choice([0.0, 0.5, 1.0])
        gradients = random.choice([-1.0, -0.7, 0.5]) * min(forward, inputs)
        less = min(less, share * forward, share * inputs, share * (inputs + gradients) / 2)
        return micro_batches - less, share * forward, share * inputs, share * gradients

    @lru_cache(maxsize=2**14)  # noqa: B019 - schedules are few, and asked the same for every plan.
    def held(self, stage: int, stages: int, micro_batches: int, chunks: int):
        """A number for every chunk, one for each, or several such rows."""
        random = self.random("held", stage, stages, micro_batches, chunks)
        if self.counts == "number":
            usual = [micro_batches, stages - stage + 1, stages, stages + (stages - stage) / chunks]
            return max(1, min(random.choice(usual), micro_batches))
        rows = [
            tuple(min(random.choice([0, 1, 1, 2, stages, 2 * stages]), micro_batches) for _ in range(chunks))
            for _ in range(random.choice([1, 2, 3]))
        ]
        # At its fullest a stage holds something.
        rows = [row if any(row) else (1, *row[1:]) for row in rows]
        return rows[0] if self.counts == "row" else tuple(rows)

    def places(self, stages: int, chunks: int) -> tuple[int, ...]:
        """Stages, from 1, of the chunks in pipeline order: any order in which each stage has as many."""
        homes = [stage for stage in range(1, stages + 1) for _ in range(chunks)]
        self.random("places", stages, chunks).shuffle(homes)
        return tuple(homes)

    def admits(self, stages: int, micro_batches: int, chunks: int) -> bool:
        return {
            "all": True,
            "even": stages % 2 == 0 and micro_batches % 2 == 0,
            "turns": micro_batches % stages == 0,
            "many": micro_batches >= stages * chunks / 2,
        }[self.condition]

    @property
    def placement(self):
        """A name, or a function of stages and chunks."""
        return self.places if self.placed == "own" else self.placed


class PlugIn:
    """What a drawn schedule says, as the planner asks for it."""

    def __init__(self, drawn: Drawn, chunks: int) -> None:
        self.drawn, self.name, self.chunks, self.copies = drawn, drawn.name, chunks, drawn.copies
        if drawn.placed == "own":
            self.placement = lambda stages: drawn.places(stages, chunks)
        else:
            self.placement = drawn.placement
        if drawn.chunks is None:
            self.with_chunks = lambda number: PlugIn(drawn, number)

    def weights(self, micro_batches, stages):
        return self.drawn.weights(micro_batches, stages, self.chunks)

    def in_flight(self, stage, stages, micro_batches):
        return self.drawn.held(stage, stages, micro_batches, self.chunks)

    def admits(self, stages, micro_batches, chunks):
        return self.drawn.admits(stages, micro_batches, chunks)


def random_schedule(random: Random, name: str) -> Drawn:
    """One or several chunks, one copy or two, weights for all of a stage or for its parts, anywhere."""
    chunks = random.choice([1, 1, 2, 2, 2, 3, None, None])
    placement = "round" if chunks == 1 else random.choice(["round", "v", "v", "v", "own"])
    return Drawn(
        name,
        str(random.randrange(10**9)),
        chunks,
        placement,
        random.choice([1, 1, 2]),
        random.choice(["pair", "steady", "steady", "wild"]),
        random.choice(["number", "row", "rows"]),
        random.choice(["all", "all", "all", "even", "turns", "many"]),
    )


def registered(problem: dict):
    """What is registered for a problem: what is installed, and its own `schedules` (a `Drawn` by each name)."""
    from nest.hooks import hook
    from nest.hooks.registry import registry

    made = ModuleType("drawn_schedules")

    @hook
    def nest_schedules():
        return [PlugIn(each, each.chunks or 2) for each in problem["schedules"].values()]

    made.nest_schedules = nest_schedules
    return registry([made])


@contextmanager
def counts_of_no_order() -> Iterator[None]:
    """Drawn schedules hold what no order could: the guard that refuses them is for all others."""
    from nest.plan.certificate import too_few_in_flight

    def of_others(schedule, *place):
        return () if hasattr(schedule, "drawn") else too_few_in_flight(schedule, *place)

    with patch("nest.plan.certificate.too_few_in_flight", of_others):
        yield


def read(record: dict) -> dict:
    """A problem whose schedules are written as what they are drawn from, as complaints do."""
    return {**record, "schedules": {name: Drawn(**each) for name, each in record["schedules"].items()}}
