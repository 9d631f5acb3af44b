"""What mixed plans need at least, when none fits."""

from collections.abc import Callable, Sequence

import numpy
from numpy.typing import NDArray

from nest.instance import Array
from nest.solve.dp.configurations import Configuration, LeastMemory, State, Tally
from nest.solve.dp.mixed import MixedSearch
from nest.solve.dp.mixed_recurrence import Member
from nest.solve.search import Meter


def least_mixed_memory(search: MixedSearch, tried: list[Configuration]) -> LeastMemory | None:
    """The least memory any mixed plan needs of its fullest device; None when no plan can be formed at all."""
    best: LeastMemory | None = None
    for configuration in tried:
        counts = [count for count in configuration.stage_counts if count <= search.downsets.most_stages]
        longest = search.in_flight(configuration, counts[-1])
        alike = all(search.in_flight(configuration, count) == longest[:count] for count in counts)
        for group in [counts] if alike else [[count] for count in counts]:
            best = _lesser_mixed(best, _MixedMemory(search, configuration, group))
    return best


def _lesser_mixed(best: LeastMemory | None, memory: "_MixedMemory") -> LeastMemory | None:
    """The better of what is known and the least memory of some numbers of stages, found among all that stages need."""
    levels = memory.levels()
    if best is not None:
        levels = levels[levels < best.bytes]
    if not len(levels) or memory.fits(float(levels[-1])) is None:
        return best
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if memory.fits(float(levels[middle])) is not None else (middle + 1, high)
    count = memory.fits(float(levels[low]))
    assert count is not None
    return LeastMemory(float(levels[low]), count, memory.configuration.replicas)


class _MixedMemory:
    """What the stages of a configuration need, for numbers of stages with the same micro-batches in flight."""

    def __init__(self, search: MixedSearch, configuration: Configuration, counts: list[int]) -> None:
        self.search = search
        self.configuration = configuration
        self.counts = counts
        self.in_flight = search.in_flight(configuration, counts[-1])
        self.members = search.all_members(configuration)
        self.known: dict[tuple[int, float], Array] = {}

    def of(self, member: int, stage: int) -> Array:
        """Bytes of a member's stages as stage `stage` from the end."""
        key = (member, self.in_flight[stage - 1])
        if key not in self.known:
            tables = self.members[member].tables
            self.known[key] = tables.pairs.spread(tables.least_memory(self.in_flight[stage - 1]))
        return self.known[key]

    def levels(self) -> Array:
        """All that some stage needs, ascending."""
        stages = range(1, len(self.in_flight) + 1)
        return numpy.unique(numpy.concatenate([self.of(i, j) for i in range(len(self.members)) for j in stages]))

    def fits(self, capacity: float) -> int | None:
        """The least of the numbers of stages for which some plan needs no more than `capacity`."""
        possible = packable(
            self.members,
            len(self.in_flight),
            self.configuration.size,
            self.configuration.tally,
            lambda member, stage: self.of(member, stage) <= capacity,
            numpy.inf,
            self.search.meter,
        )
        return next((count for count in self.counts if possible[count - 1]), None)


Allowed = Callable[[int, int], NDArray[numpy.bool_]]
"""Of a member and a stage number from the end, which of the member's stages may be used."""


def packable(
    members: Sequence[Member],
    stages: int,
    size: int,
    tally: Tally,
    allowed: Allowed,
    time_limit: float,
    meter: Meter,
) -> NDArray[numpy.bool_]:
    """For 1 to `stages` stages, whether the whole model fits into a replica of `size` devices.

    Args:
        members: what stages may use.
        stages: most stages.
        size: devices of a replica.
        tally: what the stages must add up to.
        allowed: which stages may be used.
        time_limit: most seconds that these take per micro-batch.
        meter: counts the work.
    """
    # Blocks lie one behind the other: what starts as late as it can leaves most room in front, so one start is enough.
    start = numpy.full(members[0].tables.pairs.count, numpy.inf)
    start[0] = -float(size)
    starts: dict[State, Array] = {tally.start: start}  # The negative of the latest start; infinite: none.
    fits = numpy.zeros(stages, dtype=bool)
    for stage in range(1, stages + 1):
        following: dict[State, Array] = {}
        for index, member in enumerate(members):
            rows = member.tables.window(stage - 1, stages - stage, time_limit)
            if not len(rows):
                continue
            usable = allowed(index, stage)[rows.pairs]
            smaller = member.tables.pairs.smaller[rows.pairs]
            for state, behind in starts.items():
                after = tally.step(state, member.width)
                if after is None:
                    continue
                # The latest multiple of the width that leaves the block in front of those behind it.
                latest = numpy.ceil((behind[smaller] + member.width) / member.width) * member.width
                latest[~usable | (latest > 0)] = numpy.inf
                rows.lower(following.setdefault(after, numpy.full_like(start, numpy.inf)), latest)
                meter.count(len(rows))
        starts = following
        fits[stage - 1] = any(tally.accepts(state) and numpy.isfinite(each[-1]) for state, each in starts.items())
    return fits
