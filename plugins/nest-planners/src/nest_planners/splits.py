"""Dynamic programs over contiguous stages: of one shape, and of submeshes of several."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy
from attrs import frozen

from nest.instance import Array
from nest_planners.tables import InFlight, StageTable

MOST_THRESHOLDS = 64
"""Largest stage times tried at most where the sum counts, too: of more, the least and evenly spaced others are."""


@frozen
class Split:
    """Cuts of a chain.

    Attributes:
        cuts: units in front of each stage but the first.
        slowest: seconds of the slowest stage.
        total: seconds of all stages together.
        options: the option of each stage; none: there is one for all.
    """

    cuts: tuple[int, ...]
    slowest: float
    total: float
    options: tuple[int, ...] = ()

    def latency(self, micro_batches: float) -> float:
        """Seconds until so many micro-batches are through: all stages, then the slowest for each further one."""
        return self.total + (micro_batches - 1) * self.slowest


def even_slowest(table: StageTable, most_stages: int, in_flight: InFlight) -> Iterator[Split]:
    """For each number of stages, fewest first, the split with the least slowest stage in which every stage fits.

    `best[i]` is the least slowest stage of `r` stages over the units from `i` on: the last stages come first, as the
    number of stages behind one says how many micro-batches it holds.
    """
    units = len(table.time) - 1
    best = numpy.full(units + 1, numpy.inf)
    best[units] = 0.0
    taken: list[Array] = []
    for stages in range(1, min(most_stages, units) + 1):
        cost = numpy.where(table.fits(in_flight(stages)), table.time, numpy.inf)
        reached = numpy.maximum(cost, best[None, :])
        following = reached.argmin(axis=1)
        best = reached[numpy.arange(units + 1), following]
        taken.append(following)
        if numpy.isfinite(best[0]):
            ends = [0]
            for choice in reversed(taken):
                ends.append(int(choice[ends[-1]]))
            times = [float(table.time[first, last]) for first, last in pairwise(ends)]
            yield Split(tuple(ends[1:-1]), max(times), sum(times))


@frozen(eq=False)
class Option:
    """A way to run a stage.

    Attributes:
        devices: it takes.
        time: seconds per micro-batch of every run, as `StageTable.time`.
        most: stages there may be from a stage of this run to the end, so that it fits; of the same shape.
    """

    devices: int
    time: Array
    most: Array

    @classmethod
    def of(cls, table: StageTable, devices: int, in_flight: InFlight, stages: int) -> "Option":
        """An option of the table's stages, of at most so many in a pipeline."""
        fitting = [table.fits(in_flight(count)) for count in range(1, stages + 1)]
        return cls(devices, table.time, numpy.cumprod(fitting, axis=0).sum(axis=0))


def over_submeshes(
    options: Sequence[Option], devices: int, all_devices: bool, micro_batches: int | None
) -> Split | None:
    """The best split whose stages may differ in their options, on `devices` devices together.

    Args:
        options: what stages may be.
        devices: there are.
        all_devices: whether every device must be used (Alpa's submeshes cover the cluster).
        micro_batches: the latency of so many is least (arXiv 2201.12023, equation 2); None: the slowest stage is.

    Returns: None where no split fits.
    """
    times = [option.time[(option.most > 0) & (option.time < numpy.inf)] for option in options]
    costs = numpy.unique(numpy.concatenate(times))
    if not len(costs):
        return None
    slowest = _search(options, devices, all_devices, None, float(costs[-1]))
    if slowest is None or micro_batches is None:
        return slowest
    best, least_total = slowest, 0.0
    limits = costs[costs >= slowest.slowest]
    step = -(-len(limits) // MOST_THRESHOLDS)
    for limit in limits[::step]:
        if least_total + (micro_batches - 1) * limit >= best.latency(micro_batches):
            break
        found = _search(options, devices, all_devices, "sum", float(limit))
        if found is not None and found.latency(micro_batches) < best.latency(micro_batches):
            best = found
    return best


def _search(
    options: Sequence[Option], devices: int, all_devices: bool, objective: str | None, limit: float
) -> Split | None:
    """The split of least sum, or else of least slowest stage, none of whose stages takes longer than `limit`."""
    units = len(options[0].time) - 1
    most = min(units, devices)
    best = numpy.full((units + 1, most + 1, devices + 1), numpy.inf)
    best[units, 0, : 1 if all_devices else devices + 1] = 0.0
    join = numpy.add if objective == "sum" else numpy.maximum
    choice = numpy.full((units + 1, most + 1, devices + 1, 2), -1, dtype=numpy.int64)
    for start in range(units - 1, -1, -1):
        for end in range(start + 1, units + 1):
            for place, option in enumerate(options):
                cost, width = option.time[start, end], option.devices
                stages = min(int(option.most[start, end]), most)
                if cost > limit or width > devices or not stages:
                    continue
                reached = join(best[end, :stages, : devices + 1 - width], cost)
                target = best[start, 1 : stages + 1, width:]
                better = reached < target
                if better.any():
                    target[better] = reached[better]
                    choice[start, 1 : stages + 1, width:][better] = (end, place)
    left = devices
    stages = int(best[0, :, left].argmin())
    if not numpy.isfinite(best[0, stages, left]):
        return None
    ends, places = [0], []
    for count in range(stages, 0, -1):
        end, place = (int(each) for each in choice[ends[-1], count, left])
        left -= options[place].devices
        ends.append(end)
        places.append(place)
    times = [float(options[place].time[a, b]) for place, (a, b) in zip(places, pairwise(ends), strict=True)]
    return Split(tuple(ends[1:-1]), max(times), sum(times), tuple(places))
