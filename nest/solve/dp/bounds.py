"""Lower bounds on the times of stages in any partition, and on their number."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

import numpy
from attrs import define, field

from nest.instance import Array, Partial, partial
from nest.reuse import once
from nest.solve.dp.alike import MOST_LIMITS, first_blocks
from nest.solve.dp.choices import UNKNOWN, Choice
from nest.solve.dp.configurations import Configuration, bounding_mode
from nest.solve.dp.downsets import Chain
from nest.solve.dp.fastest import fastest, least_parts
from nest.solve.dp.pairs import Pairs, Rows
from nest.solve.dp.stages import StageTables
from nest.solve.dp.sums import CandidateSums
from nest.solve.search import Meter
from nest.tolerances import LIMIT_SLACK


class StageTimes(Protocol):
    """Least times of stages, with the cheapest boundaries."""

    @property
    def pairs(self) -> Pairs:
        """Stages."""

    @property
    def parted(self) -> bool:
        """True if a schedule weights the parts of their times separately."""

    def window(self, after: int, before: int, time_limit: float) -> Rows:
        """See `StageTables.window`."""

    def of(self, in_flight: float) -> tuple[Array, ...]:
        """Least seconds per micro-batch, summands, and seconds per batch. Shape `(pairs,)` each.

        The summands are the seconds; with separate weights, the forward passes, input gradients, weight gradients, and
        the second less the third.
        """


@define(eq=False, repr=False)
class LeastTimes:
    """Least times of every stage of a candidate, with the cheapest boundaries: `StageTimes`."""

    tables: StageTables
    boundary: Array  # Least seconds that a cut adds to either side, shape `(downsets,)`.
    remembers: bool  # Keep all answers; else only the last.
    _known: dict[float, tuple[Array, ...]] = field(factory=dict, init=False)

    @property
    def pairs(self) -> Pairs:
        """See `StageTimes`."""
        return self.tables.pairs

    @property
    def parted(self) -> bool:
        """See `StageTimes`."""
        return self.tables.parted

    def window(self, after: int, before: int, time_limit: float) -> Rows:
        """See `StageTimes`."""
        return self.tables.window(after, before, time_limit)

    def of(self, in_flight: float) -> tuple[Array, ...]:
        """See `StageTimes`."""
        fits = self.tables.same_fits(in_flight)
        if fits not in self._known:
            if not self.remembers:
                self._known.clear()
            self._known[fits] = self._by_parts(in_flight) if self.tables.parted else self._whole(in_flight)
        return self._known[fits]

    def _whole(self, in_flight: float) -> tuple[Array, ...]:
        pairs, boundary = self.tables.pairs, self.boundary
        time, sync = (pairs.spread(each) for each in self.tables.least(in_flight))
        time = time + (boundary.take(pairs.smaller) + boundary.take(pairs.larger))
        if self.tables.ports:
            by_level = fastest(self.tables, in_flight, numpy.inf, boundary[None], (UNKNOWN,))
            by_level.settle(time, slice(0, len(pairs)), 0, 0, numpy.inf)
        return time, time, sync

    def _by_parts(self, in_flight: float) -> tuple[Array, ...]:
        pairs = self.tables.pairs
        time, apart, *parts, sync = (pairs.spread(each) for each in least_parts(self.tables, in_flight))
        behind, front = self.boundary[pairs.smaller], self.boundary[pairs.larger]
        around = behind + front
        added = (least + seconds for least, seconds in zip(parts, (front, behind, 0.0, behind), strict=True))
        return numpy.maximum(time, apart + around), *added, sync


def partition_bounds(stages: StageTimes, in_flight: Sequence[float], time_limit: float, meter: Meter) -> Array:
    """Bounds over all partitions into 1 to `len(in_flight)` stages. Shape `(terms, stages)`.

    The first and last terms are the least largest value of a stage, those between the least sums.

    Args:
        in_flight: micro-batches in flight of stage `j` from the end, at index `j - 1`.
        time_limit: most seconds of a stage per micro-batch.
    """
    terms = 6 if stages.parted else 3
    # What is largest in a partition, and what adds up over it.
    joined = [numpy.maximum, *[numpy.add] * (terms - 2), numpy.maximum]
    before = numpy.full((terms, stages.pairs.count), numpy.inf)
    before[:, 0] = 0.0
    bounds = numpy.full((terms, len(in_flight)), numpy.inf)
    band = stages.pairs.band
    # Each term has a recurrence of its own: what is least of one need not be of another, so together they only bound.
    for index, flying in enumerate(in_flight):
        after = numpy.full_like(before, numpy.inf)
        rows = stages.window(index, len(in_flight) - index - 1, time_limit)
        if not len(rows):
            pass
        elif band is None:
            smaller = stages.pairs.smaller[rows.pairs]
            for join, least, values, rest in zip(joined, after, stages.of(flying), before, strict=True):
                rows.lower(least, join(values[rows.pairs], rest.take(smaller)))
            meter.count(len(rows))
        else:
            first, last = int(rows.heads[0]), int(rows.heads[-1])
            for join, least, values, rest in zip(joined, after, stages.of(flying), before, strict=True):
                below = band.below(band.padded(rest), first, last)
                least[first : last + 1] = join(band.columns(band.filled(values), first, last), below).min(axis=0)
            meter.count(len(rows))
        bounds[:, index] = after[:, -1]
        before = after
    return bounds


def least_state(sums: CandidateSums, configuration: Configuration) -> Array:
    """Bytes of state of each downset, sharded as far as a choice allows. Shape `(downsets,)`."""
    state = (
        (len(group.ranks), weights.whole, gradients.whole, optimizer.whole)
        for group, weights, gradients, optimizer, *_ in sums.state
    )
    return configuration.least_state(state, len(sums.cut))


def held_alike(configuration: Configuration) -> tuple[Hashable, ...]:
    """Key of the least state of stages."""
    zero = (configuration.most_zero, configuration.zero_degree)
    return configuration.candidate, configuration.replicas, configuration.copies, *zero


class LeanMode(NamedTuple):
    """A recompute mode with the least memory; sums over the downsets of a chain, of shape `(downsets,)`."""

    seconds: Array  # Forward, backward and recomputation, per micro-batch.
    # Bytes of state, sharded as far as possible, and of one micro-batch in flight; infinite behind a layer that cannot
    # run in this mode.
    first: Array
    more: Array  # Bytes of each further one.
    peak: Array  # Transient bytes of the layers up to the next downset, shape `(downsets - 1,)`.
    mixed: tuple[LeanMode, ...] = ()  # Pure modes of a mixture of layers; empty: this is a pure mode.

    def tells(self, in_flight: float, time_limit: float, room: float) -> bool:
        """True if differences of the sums are precise enough for the limits."""
        held = self.first[-1] + (in_flight - 1) * self.more[-1]
        return bool(self.seconds[-1] <= MOST_LIMITS * time_limit and held <= MOST_LIMITS * room)

    def reach(self, start: int, in_flight: float, time_limit: float, room: float) -> int:
        """Last possible end of a stage that begins behind `start`."""
        end = int(self.seconds.searchsorted(self.seconds[start] + time_limit, side="right")) - 1
        if end <= start:
            return start
        further = in_flight - 1
        held = self.first[start : end + 1] + further * self.more[start : end + 1]
        needed = held[1:] + numpy.maximum.accumulate(self.peak[start:end])
        end = start + int(needed.searchsorted(held[0] + room, side="right"))
        return self._mixed_reach(start, end, further, time_limit, room) if self.mixed else end

    def _mixed_reach(self, start: int, end: int, further: float, time_limit: float, room: float) -> int:
        """Same for a mixture, at the price of memory (s per byte) at which both modes cost the same (Everett 1963)."""
        (light, saved), (heavy, spared) = ((m.seconds, m.first + further * m.more) for m in self.mixed)
        less = saved[-1] - spared[-1] if saved[-1] < math.inf else 0.0
        price = (heavy[-1] - light[-1]) / less if 0 < less <= saved[-1] <= MOST_LIMITS * room else 0.0
        if not 0 < price < math.inf:
            return end
        rows = numpy.array([light + price * saved, heavy + price * spared])[:, start : end + 1]
        spent, most = numpy.diff(rows).min(axis=0).cumsum(), (time_limit + price * room) * (1 + LIMIT_SLACK)
        return start + int(spent.searchsorted(most, side="right"))


def fewest_stages(modes: Sequence[LeanMode], in_flight: Sequence[float], time_limit: float, room: float) -> int:
    """Least number of stages; `len(in_flight) + 1` if that many do not suffice.

    A stage can hold any part of its layers: if each stage, from the last, takes as much as it can, no other cuts reach
    further. Returns 1 if numbers span too many decades.

    Args:
        in_flight: micro-batches in flight of stage `j` from the end, at index `j - 1`.
        time_limit: most seconds of a stage per micro-batch.
        room: most bytes of a stage.
    """
    most = max(in_flight)
    if not all(mode.tells(most, time_limit, room) for mode in modes):
        return 1
    whole, start = len(modes[0].seconds) - 1, 0
    time_limit, room = time_limit * (1 + LIMIT_SLACK), room * (1 + LIMIT_SLACK)
    for index, flying in enumerate(in_flight):
        end = max(mode.reach(start, flying, time_limit, room) for mode in modes)
        if end == whole:
            return index + 1
        # No stage further in front can hold what this one cannot, nor take longer than it may.
        stuck, left = end == start and flying <= min(in_flight[index:]), (len(in_flight) - index - 1) * time_limit
        if stuck or all(mode.seconds[-1] - mode.seconds[end] > left * (1 + LIMIT_SLACK) for mode in modes):
            break
        start = end
    return len(in_flight) + 1


@define(eq=False, repr=False)
class Packing:
    """Lean modes of the candidates of a search, made on first use."""

    chain: Chain  # Layers in the order in which the downsets of a chain gain them, the model's last first.
    _modes: dict[Hashable, LeanMode] = field(factory=dict, init=False, repr=False)
    _fewest: dict[Hashable, int] = field(factory=dict, init=False, repr=False)
    _alike: dict[Hashable, dict[str, int]] = field(factory=dict, init=False, repr=False)

    def fewest(
        self,
        sums: CandidateSums,
        configuration: Configuration,
        in_flight: tuple[float, ...],
        time_limit: float,
        room: float,
    ) -> int:
        """`fewest_stages` of a configuration, cached by what it depends on."""
        key = (*held_alike(configuration), configuration.modes, in_flight, time_limit, room)
        modes = self.modes(sums, configuration)
        return once(self._fewest, key, lambda: fewest_stages(modes, in_flight, time_limit, room))

    def fewest_alike(
        self,
        sums: CandidateSums,
        configuration: Configuration,
        in_flight: tuple[float, ...],
        time_limit: float,
        room: float,
    ) -> dict[str, int]:
        """`fewest_stages` for each recompute mode, if all stages use the same."""
        names = dict.fromkeys(choice.recompute for choice in configuration.choices)
        key = (*held_alike(configuration), tuple(names), in_flight, time_limit, room)

        def made() -> dict[str, int]:
            found, parts = dict[str, int](), dict[tuple[str, str], list[Partial]]()
            for name in names:
                if (part := partial(name)) is not None:
                    parts.setdefault((part.mode, part.rest), []).append(part)
                else:
                    modes = self.modes(sums, configuration, (name,))
                    found[name] = fewest_stages(modes, in_flight, time_limit, room)
            state = least_state(sums, configuration)
            for numbers in map(sorted, parts.values()):
                (lean,) = self.modes(sums, configuration, (bounding_mode(numbers[0].name),))
                beside = sums.compute.whole, state, lean.peak
                blocks = first_blocks(sums, numbers)
                fewest = [1] * len(numbers)
                if blocks is not None:
                    fewest = blocks.fewest(beside, in_flight, time_limit, room).tolist()
                found |= zip((each.name for each in numbers), fewest, strict=True)
            return found

        return once(self._alike, key, made)

    def modes(
        self, sums: CandidateSums, configuration: Configuration, names: tuple[str, ...] = ()
    ) -> tuple[LeanMode, ...]:
        """Modes of these names; without names, those that a stage may choose."""
        names, of = names or configuration.modes, held_alike(configuration)
        if any((*of, name) not in self._modes for name in names):
            state = least_state(sums, configuration)
            self._modes |= {(*of, name): self._mode(sums, name, state) for name in names}
        return tuple(self._modes[*of, name] for name in names)

    def _mode(self, sums: CandidateSums, name: str, state: Array) -> LeanMode:
        mode = sums.modes[name]
        peak = numpy.maximum.reduceat(sums.candidate.mode(name).peak[self.chain.order], self.chain.starts)
        mixed = tuple(self._mode(sums, each, state) for each in Choice(name, 0).modes[::-1] if each != name)
        return LeanMode(sums.compute.whole + mode.extra.whole, state + mode.first.whole, mode.more.whole, peak, mixed)
