"""Exhaustive search over placements on a small network, where CP-SAT bounds link loads only weakly.

Partitions are tried best bound first, and priced on all placements at once with replicas in one order: first without
link loads, then with them for the placements left (PROBLEM.md section 1, "Arbitrary network").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, permutations
from math import inf, perm

import numpy
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from nest.instance import Instance, NetworkModel, Solution, StageDecision
from nest.reuse import remembered
from nest.tolerances import SUM_ERROR
from nest_cpsat.bounds import Choices, Relaxation
from nest_cpsat.cases import Case
from nest_cpsat.cuts import Floats, Integers
from nest_cpsat.reduction_model import Call, Seats, calls, own_seconds, ring_seconds

MOST_PLACEMENTS = 50_000  # Most placements that are all tried; eight devices with a stage each have 40,320.
MOST_REPLAYED = 2_000  # Most plans to replay when their closed form does not rule them out.
MOST_PATHS = 20_000  # Most combinations of partitions and choices that are all tried.


@frozen(eq=False)
class Found:
    """Best plan of a case with its step time in seconds; None: none is below the target."""

    solution: Solution | None
    seconds: float


def best_of_all(relaxation: Relaxation, case: Case, choices: Sequence[Choices], target: float) -> Found | None:
    """Find the best plan of a case within `target` seconds; None: too many to try.

    The case has a single candidate whose layers were measured whole, or of width 1.
    """
    width = relaxation.instance.candidates[case.candidates[0]].width
    seats, devices = case.replicas * case.stages * width, relaxation.instance.cluster.size
    if perm(devices, seats) > MOST_PLACEMENTS * 24:
        return None
    paths = _paths(relaxation, choices)
    if paths is None:
        return None
    placements = _placements(devices, case.replicas, case.stages, width, alike=case.replicas_alike(relaxation.instance))
    if placements is None:
        return None
    return _Trial(relaxation, case, choices, placements).best(paths, target)


def _paths(relaxation: Relaxation, choices: Sequence[Choices]) -> Integers | None:
    """All choices of consecutive stages. Shape `(paths, stages)`; None: too many."""
    first, last = relaxation.cuts.first, relaxation.cuts.last
    paths = numpy.arange(len(choices[0]))[:, None]
    for before, behind in pairwise(choices):
        ends, starts = last[before.stage[paths[:, -1]]], first[behind.stage]
        joined = ends[:, None] == starts[None, :]
        if joined.sum() > MOST_PATHS:
            return None
        path, following = numpy.nonzero(joined)
        paths = numpy.concatenate([paths[path], following[:, None]], axis=1)
    return paths


def _placements(devices: int, replicas: int, stages: int, width: int, *, alike: bool) -> Integers | None:
    """Devices of every rank. Shape `(placements, replicas, stages, width)`.

    Equal replicas are ordered by their first device.
    """
    seats = stages * width
    found: list[tuple[int, ...]] = []
    for used in combinations(range(devices), replicas * seats):
        for placed in _ordered(used, replicas, seats) if alike else permutations(used):
            found.append(placed)
            if len(found) > MOST_PLACEMENTS:
                return None
    return numpy.array(found, dtype=numpy.int64).reshape(-1, replicas, stages, width)


def _ordered(used: tuple[int, ...], replicas: int, seats: int) -> Iterator[tuple[int, ...]]:
    """Orders of devices in which replicas are sorted by first device."""
    if replicas == 0:
        yield ()
        return
    # Some replica begins with the least first device of all, and it is the first replica.
    for first in permutations(used, seats):
        rest = tuple(device for device in used if device not in first)
        for others in _ordered(rest, replicas - 1, seats):
            if not others or others[0] > first[0]:
                yield first + others


@define(eq=False, slots=False)
class _Trial:
    """One case with all placements; times in seconds of shape `(placements,)`."""

    relaxation: Relaxation
    case: Case
    choices: Sequence[Choices]
    placements: Integers
    _known: dict[tuple[str, tuple[int, ...], float], Floats] = field(factory=dict)
    _crossed: list[NDArray[numpy.uint8]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._crossed = [self._crossings(boundary) for boundary in range(self.case.stages - 1)]

    @property
    def _instance(self) -> Instance:
        return self.relaxation.instance

    @property
    def _network(self) -> NetworkModel:
        assert self._instance.network is not None
        return self._instance.network.model

    def best(self, paths: Integers, target: float) -> Found | None:
        """Best of all plans along `paths` within `target`; None: too many replays."""
        least, found, replayed = target, None, 0
        bounds = self._bounds(paths)
        for number in numpy.argsort(bounds, kind="stable").tolist():
            if bounds[number] > least:
                break
            path = paths[number].tolist()
            times, syncs = self._without_links(path)
            left = numpy.flatnonzero(self._steps(times, syncs) <= least)
            if not len(left):
                continue
            times = numpy.maximum(times[:, left], self._loads(path, left))
            seconds = self._steps(times, syncs[:, left])
            for place in numpy.argsort(seconds, kind="stable").tolist():
                if seconds[place] > least:
                    break
                plan, taken = self._solution(path, int(left[place])), float(seconds[place])
                if self.case.replayed:
                    assert self._instance.makespan is not None
                    taken, replayed = max(taken, self._instance.makespan(self._instance, plan)), replayed + 1
                    if replayed > MOST_REPLAYED:
                        return None
                if taken <= least:
                    least, found = taken, plan
                if not self.case.replayed:
                    break
        return Found(found, least if found is not None else inf)

    def _bounds(self, paths: Integers) -> Floats:
        """Lower bound (s) for each path, on the best level there is."""
        level, cuts = self._instance.cluster.levels[0], self.relaxation.cuts
        sizes = self.relaxation.book.costs(self.case, self.case.candidates[0]).bytes
        message = numpy.where(sizes > 0, level.latency + sizes / level.bandwidth, 0.0)
        times, syncs = [], []
        for index, choices in enumerate(self.choices):
            stage = choices.stage[paths[:, index]]
            times.append(choices.time[paths[:, index]] + message[cuts.first[stage]] + message[cuts.last[stage]])
            syncs.append(choices.sync[paths[:, index]])
        return self._steps(numpy.array(times), numpy.array(syncs)) * (1 - SUM_ERROR)

    def _steps(self, times: Floats, syncs: Floats) -> Floats:
        """`A * max t + B * sum t + max y`; arguments of shape `(stages, any)`."""
        slowest, total = self.case.weights.slowest, self.case.weights.forward
        steps: Floats = slowest * times.max(axis=0) + total * times.sum(axis=0) + syncs.max(axis=0)
        return steps

    def _without_links(self, path: Sequence[int]) -> tuple[Floats, Floats]:
        """Seconds of each stage per micro-batch and per batch. Shape `(stages, placements)`."""
        alone = [self._stage(index, choice) for index, choice in enumerate(path)]
        times, syncs = (numpy.array([each[part] for each in alone]) for part in range(2))
        for boundary in range(len(path) - 1):
            arriving, returning = self._messages(boundary, self._cut(boundary, path[boundary]))
            times[boundary] += returning
            times[boundary + 1] += arriving
        return times, syncs

    def _cut(self, boundary: int, choice: int) -> int:
        return int(self.relaxation.cuts.last[self.choices[boundary].stage[choice]])

    @remembered
    def _messages(self, boundary: int, cut: int) -> tuple[Floats, Floats]:
        """Seconds of the slowest activations, and of the slowest gradients, over a boundary."""
        size = float(self.relaxation.book.costs(self.case, self.case.candidates[0]).bytes[cut])
        here, there = self.placements[:, :, boundary], self.placements[:, :, boundary + 1]
        latency, bandwidth = self._network.latency, self._network.bandwidth
        ways = [latency[pair] + size / bandwidth[pair] for pair in ((here, there), (there, here))]
        arriving, returning = (each.max(axis=(1, 2)) if size else numpy.zeros(len(here)) for each in ways)
        return arriving, returning

    @remembered
    def _stage(self, index: int, choice: int) -> tuple[Floats, Floats]:
        """Seconds of a stage with a choice, per micro-batch without messages, and per batch."""
        work, update = (float(each[choice]) for each in self._own_of(index))
        raw, shown = numpy.zeros((2, 2, len(self.placements)))
        for call in self._calls_of(index):
            seconds = self._seconds(call, index, choice)
            raw[int(call.often)] += seconds * call.waited[choice]
            shown[int(call.often)] += seconds * call.waited[choice] * call.exposed
        if self._instance.space.hiding:
            shown = numpy.maximum(shown, raw - work)
        return work + shown[1], update + shown[0]

    @remembered
    def _own_of(self, index: int) -> tuple[Floats, Floats]:
        return own_seconds(self._instance, self.case, self.relaxation.book, self.choices[index])

    @remembered
    def _calls_of(self, index: int) -> list[Call]:
        return list(calls(self._instance, self.case, self.relaxation.book, self.choices[index]))

    def _seconds(self, call: Call, index: int, choice: int) -> Floats:
        """Seconds of all runs of a call on the slowest of a stage's device groups."""
        size, slowest = float(call.sizes[choice]), numpy.zeros(len(self.placements))
        for seats in call.groups if size and len(call.groups[0]) > 1 else ():
            sets, which = self._lying(index, seats)
            seconds = [float(self._prices(call, devices, size).min()) for devices in sets]
            slowest = numpy.maximum(slowest, numpy.array(seconds)[which])
        times: Floats = slowest * call.times[choice]
        return times

    @remembered
    def _lying(self, index: int, seats: Seats) -> tuple[list[tuple[int, ...]], Integers]:
        """Distinct device sets of a stage's ranks, and the index of each placement's set."""
        places = numpy.stack([self.placements[:, replica, index, rank] for replica, rank in seats], axis=1)
        every, which = numpy.unique(numpy.sort(places, axis=1), axis=0, return_inverse=True)
        return [tuple(each) for each in every.tolist()], which.reshape(-1)

    def _prices(self, call: Call, devices: tuple[int, ...], size: float) -> Floats:
        key = (call.kind, devices, size)
        if key not in self._known:
            assert self._instance.network is not None
            self._known[key] = ring_seconds(self._instance.network, call.kind, devices, size)
        return self._known[key]

    def _crossings(self, boundary: int) -> NDArray[numpy.uint8]:
        """Crossings of each link by a boundary's messages. Shape `(placements, links)`."""
        links, devices = len(self._network.link_bandwidth), self._instance.cluster.size
        crossed = numpy.zeros((devices, devices, links), dtype=numpy.uint8)
        for one, two in permutations(range(devices), 2):
            crossed[one, two, self._network.path(one, two)] = 1
            crossed[one, two, self._network.path(two, one)] += 1
        here, there = self.placements[:, :, boundary], self.placements[:, :, boundary + 1]
        total = numpy.zeros((len(here), links), dtype=numpy.uint8)
        for replica in range(here.shape[1]):
            for rank in range(here.shape[2]):
                total += crossed[here[:, replica, rank], there[:, replica, rank]]
        return total

    def _loads(self, path: Sequence[int], left: Integers) -> Floats:
        """Seconds of the fullest link of each stage. Shape `(stages, left)`."""
        bandwidth = self._network.link_bandwidth
        carried = numpy.zeros((len(left), len(bandwidth)))
        used = numpy.zeros((len(path), *carried.shape), dtype=bool)
        sizes = self.relaxation.book.costs(self.case, self.case.candidates[0]).bytes
        for boundary, crossed in enumerate(self._crossed):
            size, crossings = float(sizes[self._cut(boundary, path[boundary])]), crossed[left]
            carried += size * crossings
            used[boundary : boundary + 2] |= (crossings > 0) & (size > 0)
        for index, choice in enumerate(path):
            for call in self._calls_of(index):
                size = float(call.sizes[choice])
                for seats in call.groups if call.often and size and len(call.groups[0]) > 1 else ():
                    sets, which = self._lying(index, seats)
                    sent = numpy.array([self._sent_on(call, devices, size) for devices in sets]) * call.times[choice]
                    carried += sent[which[left]]
                    used[index] |= sent[which[left]] > 0
        seconds = carried / bandwidth
        return numpy.array([numpy.where(each, seconds, 0.0).max(axis=1) for each in used])

    def _sent_on(self, call: Call, devices: tuple[int, ...], size: float) -> Floats:
        """Bytes of one call on each link, on the fastest ring over some devices."""
        sent = numpy.zeros(len(self._network.link_bandwidth))
        ring = self._network.rings(devices)[int(self._prices(call, devices, size).argmin())]
        sent[ring.links] = ring.shares * size
        return sent

    def _solution(self, path: Sequence[int], place: int) -> Solution:
        candidate, cuts = self.case.candidates[0], self.relaxation.cuts
        modes, stages = self.relaxation.book.costs(self.case, candidate).modes, []
        width = self._instance.candidates[candidate].width
        for index, choice in enumerate(path):
            choices = self.choices[index]
            layers = tuple(numpy.flatnonzero(cuts.stage_layers[int(choices.stage[choice])]).tolist())
            stages.append(StageDecision(layers, candidate, *modes[int(choices.mode[choice])], index * width))
        placement = tuple(tuple(map(tuple, replica)) for replica in self.placements[place].tolist())
        return evolve(self.case.plan(stages), placement=placement)
