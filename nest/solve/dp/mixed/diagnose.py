"""Why there is no mixed plan."""

import numpy

from nest.instance import Array
from nest.solve.dp.configurations import Exclusions
from nest.solve.dp.diagnose import LeastMemory, lesser, refused, told, too_few_stages
from nest.solve.dp.mixed.configurations import MixedConfiguration
from nest.solve.dp.mixed.packing import packable
from nest.solve.dp.mixed.search import MixedSearch


def diagnose_mixed(search: MixedSearch, exclusions: Exclusions, dealt: LeastMemory | None = None) -> str:
    """One or two sentences on the tightest constraint of an infeasible instance.

    `dealt` is the least memory that a plan of several chunks needs.
    """
    found, most = search.configurations, search.downsets.most_stages
    tried = [configuration for configuration in found if configuration.stage_counts[0] <= most]
    if tried or dealt is not None:
        return told(search.instance, lesser(_least_memory(search, tried), dealt))
    if found:
        return too_few_stages(most, min(configuration.stage_counts[0] for configuration in found))
    return refused(search.instance, exclusions)


def _least_memory(search: MixedSearch, found: list[MixedConfiguration]) -> LeastMemory | None:
    """The least memory any mixed plan needs of its fullest device; None when no plan can be formed at all."""
    best: LeastMemory | None = None
    for configuration in found:
        counts = [count for count in configuration.stage_counts if count <= search.downsets.most_stages]
        longest = search.in_flight(configuration, counts[-1])
        alike = all(search.in_flight(configuration, count) == longest[:count] for count in counts)
        for group in [counts] if alike else [[count] for count in counts]:
            best = _lesser(best, _Memory(search, configuration, group))
    return best


def _lesser(best: LeastMemory | None, memory: "_Memory") -> LeastMemory | None:
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


class _Memory:
    """What the stages of a configuration need, for numbers of stages with the same micro-batches in flight."""

    def __init__(self, search: MixedSearch, configuration: MixedConfiguration, counts: list[int]) -> None:
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
            self.search.downsets.count,
            lambda member, stage: self.of(member, stage) <= capacity,
            lambda member, stage: self.members[member].tables.window(0, 0, numpy.inf),
            self.search.meter,
        )
        return next((count for count in self.counts if possible[count - 1]), None)
