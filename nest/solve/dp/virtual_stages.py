"""Even splits of the blocks into model chunks, and where their stages may lie (PROBLEM.md section 4, `interleaved`)."""

from collections.abc import Sequence
from itertools import pairwise

import numpy
from attrs import define, field, frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate, Instance
from nest.solve.dp.choices import UNKNOWN, Boundary, Choice, ChoiceTable, Ports
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.downsets import Downsets
from nest.solve.dp.pairs import Pairs
from nest.solve.dp.stages import stage_tables
from nest.solve.dp.sums import CandidateSums, cuts
from nest.solve.search import Meter


@frozen(eq=False)
class Split:
    """The layers of every chunk.

    Attributes:
        chunks: layers of each chunk, in pipeline order; chunk `j` of `0, 1, ...` is of stage `j mod stages`.
        stages: how many (`s`).
        layers: of the whole graph.
    """

    chunks: tuple[tuple[int, ...], ...]
    stages: int
    layers: int
    _rows: tuple[NDArray[numpy.int64], ...] = field(init=False, repr=False)

    @_rows.default
    def _layers_of_stages(self) -> tuple[NDArray[numpy.int64], ...]:
        return tuple(numpy.array(self.stage(index), dtype=numpy.int64) for index in range(self.stages))

    def stage(self, index: int) -> tuple[int, ...]:
        """The layers of a stage, 0 being the first, ascending."""
        return tuple(sorted(layer for chunk in self.chunks[index :: self.stages] for layer in chunk))

    def stage_sums(self, values: Array) -> Array:
        """What the layers of each stage add up to, shape `(stages,)`."""
        return numpy.array([values[rows].sum() for rows in self._rows])

    def stage_sets(self) -> Downsets:
        """The stages as if they followed each other: differences of these sets are stages, the first of them last."""
        return _one_after_the_other([self.stage(index) for index in range(self.stages)], self.layers)

    def crossing(self, instance: Instance, candidate: Candidate) -> Array:
        """Bytes that enter each chunk, by turn and stage, 0 for the first of all. Shape `(chunks, stages)`."""
        entering = cuts(instance, candidate, _one_after_the_other(self.chunks, self.layers))
        return entering[:0:-1].reshape(-1, self.stages)


def _one_after_the_other(runs: Sequence[tuple[int, ...]], layers: int) -> Downsets:
    """The last none, one, two, ... of the runs together, and the runs as their only stages."""
    members = numpy.zeros((len(runs) + 1, layers), dtype=bool)
    for place, run in enumerate(reversed(runs), start=1):
        members[place] = members[place - 1]
        members[place, list(run)] = True
    places = numpy.arange(len(members), dtype=numpy.int32)
    return Downsets(members, Pairs.of(len(members), places[1:], places[:-1]))


@define(eq=False)
class Splits:
    """The even splits of an instance, each made once."""

    instance: Instance
    _known: dict[tuple[int, int], Split | None] = field(factory=dict)

    def counts(self, chunks: int, micro_batches: int, most: int) -> tuple[int, ...]:
        """Numbers of stages up to `most` that have an even split of so many chunks and divide the micro-batches."""
        blocks = max(map(len, self._counted()))
        counts = range(2, min(most, blocks // chunks) + 1)
        return tuple(count for count in counts if micro_batches % count == 0 and self.of(count, chunks) is not None)

    def of(self, stages: int, chunks: int) -> Split | None:
        """The split into `stages` stages of `chunks` chunks; None where there is none or it is not allowed."""
        key = (stages, chunks)
        if key not in self._known:
            self._known[key] = self._made(stages, chunks)
        return self._known[key]

    def _counted(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The blocks, without and with embedding and head among them."""
        return self.instance.space.blocks, self.instance.space.blocks_and_ends

    def _made(self, stages: int, chunks: int) -> Split | None:
        parts, layers = stages * chunks, len(self.instance.graph.layers)
        blocks = next((each for each in self._counted() if each and len(each) % parts == 0), None)
        if blocks is None:
            return None
        size = len(blocks) // parts
        runs = (blocks[first : first + size] for first in range(0, len(blocks), size))
        split = Split(tuple(tuple(layer for block in run for layer in block) for run in runs), stages, layers)
        return split if self._allowed(split) else None

    def _allowed(self, split: Split) -> bool:
        """Whether chunks follow each other, keep together what must be, and are those of a partition that is given."""
        space = self.instance.space
        chunk = {layer: index for index, layers in enumerate(split.chunks) for layer in layers}
        tensors = self.instance.graph.tensors
        named = {name: layer for layer, name in enumerate(self.instance.graph.layers)}
        shared = [[named[name] for name in each.same_stage] for each in space.constraints if each.same_stage]
        return (
            all(chunk[producer] <= chunk[reader] for producer, readers in tensors for reader in readers)
            and all(len({chunk[layer] for layer in group}) == 1 for group in space.together)
            and all(len({chunk[layer] % split.stages for layer in group}) == 1 for group in shared)
            and (
                space.partition is None
                or [sorted(stage) for stage in space.partition]
                == [list(split.stage(index)) for index in range(split.stages)]
            )
        )


def stage_times(base: Array, front: Array | float, behind: Array | float) -> Array:
    """Seconds of stages with their boundaries, always added up in this order."""
    return (base + front) + behind


@frozen(eq=False)
class Places:
    """Where stages may lie.

    Attributes:
        crossing: seconds that all chunks of a stage take to receive over the boundary in front of it, and the stage
            there to receive back, for each level that occurs. Shape `(levels, stages)`; in front of the first stage is
            the last one.
        steps: level, as index into `crossing`, between neighbouring slots.
        levels: the levels that occur.
        meter: counts the work.
    """

    crossing: Array
    steps: NDArray[numpy.int64]
    levels: tuple[int, ...]
    meter: Meter

    @property
    def stages(self) -> int:
        """Number of stages."""
        return int(self.crossing.shape[1])

    def around(self, slots: Sequence[int]) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
        """Levels in front of the stages in these slots and behind them, as indices. Shape `(stages,)` each."""
        levels = numpy.array([self.steps[first:second].max() for first, second in pairwise(slots)])
        front = numpy.concatenate([[levels.max()], levels])
        return front, numpy.roll(front, -1)

    def least(self, times: Array, time_limit: float) -> tuple[int, ...] | None:
        """Slots of the stages with the least sum of seconds; None when none keeps the limit.

        Args:
            times: seconds of the stages by the levels in front and behind, shape `(levels, levels, stages)`.
            time_limit: most seconds any stage may take.
        """
        answers = (_WayBack(self, times, time_limit, back).least() for back in range(len(self.crossing)))
        best = min((each for each in answers if each is not None), key=lambda each: each[0], default=None)
        return None if best is None else best[1]

    def ends(self, level: int) -> NDArray[numpy.int64]:
        """For each slot the last one within reach over levels up to `level`."""
        places = numpy.arange(len(self.steps) + 1)
        stops = numpy.append(numpy.flatnonzero(self.steps > level), len(self.steps))
        stops_reached: NDArray[numpy.int64] = stops[numpy.searchsorted(stops, places)]
        return stops_reached


class _WayBack:
    """The recurrence where the last stage sends back over level `back`.

    An entry is the least sum of the times of a stage and all behind it, by the level in front of it, whether some
    boundary behind it has level `back`, and its slot.
    """

    def __init__(self, places: Places, times: Array, time_limit: float, back: int) -> None:
        self.places, self.back = places, back
        self.times = numpy.where(times <= time_limit, times, numpy.inf)[: back + 1, : back + 1]
        self.stages, self.slots = places.stages, len(places.steps) + 1
        self.ends = [numpy.arange(self.slots), *(places.ends(level) for level in range(back + 1))]

    def least(self) -> tuple[float, tuple[int, ...]] | None:
        """The sum, and the slot of each stage."""
        # The last stage: behind it is the way back, and no other boundary.
        future = numpy.full((self.back + 1, 2, self.slots), numpy.inf)
        future[self.back, 0] = 0.0
        entries = [self._entries(self.stages - 1, future)]
        futures = [future]
        for stage in range(self.stages - 2, -1, -1):
            future = self._future(entries[-1])
            futures.append(future)
            entries.append(self._entries(stage, future))
            self.places.meter.count(entries[-1].size)
        first = entries[-1][self.back, 1]
        slot = int(first.argmin())
        if not numpy.isfinite(first[slot]):
            return None
        return float(first[slot]), self._recover(entries[::-1], futures[::-1], slot)

    def _entries(self, stage: int, future: Array) -> Array:
        """Entries of a stage from what follows it, by the level behind it, the note and its slot."""
        time = self.times[:, :, stage]
        entries: Array = (time[:, :, None, None] + future[None]).min(axis=1)
        return entries

    def _future(self, entries: Array) -> Array:
        """Least cost of what follows a stage, by the level of the boundary behind it, the note and its slot."""
        future = numpy.full_like(entries, numpy.inf)
        for level in range(self.back + 1):
            # A boundary of the level leads from behind its group of the level below to the end of that of the level.
            start = self.ends[level] + 1
            later = _least_to_the_end(entries[level], self.ends[level + 1])
            reached = start <= self.ends[level + 1]
            later_times = numpy.where(reached, later[:, numpy.minimum(start, self.slots - 1)], numpy.inf)
            if level == self.back:
                future[level, 1] = later_times.min(axis=0)
            else:
                future[level] = later_times
        return future

    def _recover(self, entries: list[Array], futures: list[Array], slot: int) -> tuple[int, ...]:
        """The slots behind an entry of the first stage; among equals the lowest level, then the first slot."""
        level, noted = self.back, 1
        slots = []
        for stage in range(self.stages):
            slots.append(slot)
            behind = int((self.times[level, :, stage] + futures[stage][:, noted, slot]).argmin())
            if stage + 1 < self.stages:
                start, end = int(self.ends[behind][slot]) + 1, int(self.ends[behind + 1][slot])
                following = entries[stage + 1][behind, :, start : end + 1]
                if behind == self.back:
                    # The note is made here, whether or not it is made again further behind.
                    noted = int(following.min(axis=1).argmin())
                slot = start + int(following[noted].argmin())
            level = behind
        return tuple(slots)


def _least_to_the_end(values: Array, ends: NDArray[numpy.int64]) -> Array:
    """For each slot the least of `values` from it to the last of its group, which `ends` gives. Shape as `values`."""
    # After each round an entry is the least of twice as many slots; where fewer are left, of those.
    least = values.copy()
    places = numpy.arange(len(ends))
    step, longest = 1, int((ends - places).max())
    while step <= longest:
        inside = places[:-step] + step <= ends[:-step]
        least[:, :-step] = numpy.where(inside, numpy.minimum(least[:, :-step], least[:, step:]), least[:, :-step])
        step *= 2
    return least


Best = tuple[Array, Array, NDArray[numpy.int64]]
"""Seconds per micro-batch (infinite where nothing is within limits), seconds once per batch, and the choice."""


@frozen(eq=False)
class InterleavedStages:
    """The stages in pipeline order; arrays of shape `(choices, stages)`.

    Attributes:
        choices: what a stage may choose, preferred first.
        time: seconds per micro-batch without the boundaries, infinite where memory does not suffice.
        sync: seconds once per batch, infinite where memory does not suffice.
        memory: bytes, the reserve included.
        ports: what more holds stages up (PROBLEM.md section 4, Ports), beside `time` and `sync`; None: nothing does.
    """

    choices: tuple[Choice, ...]
    time: Array
    sync: Array
    memory: Array
    ports: Ports | None = None

    @property
    def possible(self) -> bool:
        """Whether every stage has a choice that fits."""
        return bool(numpy.isfinite(self.time).any(axis=0).all())

    def best(self, front: Boundary, behind: Boundary, sync_limit: float) -> Best:
        """Of each stage the fastest choice within `sync_limit` seconds, of equals the one that synchronises fastest.

        `front` and `behind` are the boundaries that all stages have.
        """
        if self.ports is None:
            time, sync, choice = _best(self.time, self.sync, sync_limit)
            return stage_times(time, front.seconds, behind.seconds), sync, choice
        time = stage_times(self.time, front.seconds, behind.seconds)
        return _best(*self.ports.raised(time, self.sync, ..., front, behind), sync_limit)

    def anywhere(self, places: Places, sync_limit: float) -> Best:
        """`best` with every boundary at its cheapest, whatever its level."""
        least = places.crossing.min(axis=0)
        return self.best(Boundary(UNKNOWN, least), Boundary(UNKNOWN, numpy.roll(least, -1)), sync_limit)

    def everywhere(self, places: Places, sync_limit: float) -> Best:
        """`best` for each level in front and behind, as `Places` counts them. Shape `(levels, levels, stages)`."""
        crossing, behind = places.crossing, numpy.roll(places.crossing, -1, axis=1)
        shape = (len(crossing), len(crossing), places.stages)
        if self.ports is None:
            time, sync, choice = _best(self.time, self.sync, sync_limit)
            times = stage_times(time, crossing[:, None], behind[None])
            return times, numpy.broadcast_to(sync, shape), numpy.broadcast_to(choice, shape)
        front, back = (list(map(Boundary, places.levels, seconds)) for seconds in (crossing, behind))
        every = zip(*(self.best(one, other, sync_limit) for one in front for other in back), strict=True)
        time, sync, choice = (numpy.array(each).reshape(shape) for each in every)
        return time, sync, choice


def _best(time: Array, sync: Array, sync_limit: float) -> Best:
    """The best choices of shape `(stages,)` among times and gradient reduction of shape `(choices, stages)`."""
    time = numpy.where(sync <= sync_limit, time, numpy.inf)
    ties = numpy.where(time == time.min(axis=0), sync, numpy.inf)
    choice = ties.argmin(axis=0)
    stages = numpy.arange(time.shape[1])
    return time[choice, stages], sync[choice, stages], choice


def interleaved_stages(
    instance: Instance, configuration: Configuration, split: Split, sums: CandidateSums, in_flight: Sequence[float]
) -> InterleavedStages:
    """The stages of `configuration` with these layers; `in_flight` counts micro-batches of each, from the last."""
    tables = stage_tables(instance, configuration, sums, split.stage_sets().pairs, configuration.choices)
    # The sets count from the last stage.
    every = ChoiceTable.stacked(tables.tables, slice(None, None, -1))
    first, more = every.first, every.more
    memory = first + (numpy.array(in_flight[::-1]) - 1) * more
    fits = memory <= tables.capacity
    time, sync = (numpy.where(fits, seconds, numpy.inf) for seconds in (every.time, every.sync))
    return InterleavedStages(tables.choices, time, sync, memory, every.ports)
