"""Section 5 of PROBLEM.md on a network that is no hierarchy: try every plan with every placement, keep the best.

A plan is a setting, a partition, a mode (recompute, ZeRO) per stage, and a device for each rank of each block: any
devices, in any order. Four things are not spelled out, and `test_network_plans.py` compares with a version that does:

* replicas are alike: to let two of them change places leaves every set of messages, every set of devices that reduce
  gradients and every load as it is. Only placements whose replicas come in the order of their first devices are tried,
  but where ZeRO shards over some of the replicas alone (`zero_degree`);
* a boundary enters the price through the set of pairs that send to each other, a stage through the sets of devices
  that reduce gradients: of placements with equal sets one is tried;
* of two modes with equal ZeRO stages that fit, the slower is left out. It sends the same and takes longer; where
  compute hides what is sent once per batch (`hiding`), or plans are replayed whose devices count from their own first
  pass, none is left out;
* partitions and modes are taken by a bound, the least first, until the bound is no less than the best plan: each
  message over the two devices that are fastest for it, each collective over the fastest sets of devices, links that
  nobody shares. Of a placement links are looked at where it would be best without, and it is replayed where its
  closed form would be best.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from math import inf
from operator import le

import numpy

from tests.oracle import brute_force
from tests.oracle.brute_force import FITS, Answer, Split, alone, split_of
from tests.oracle.chunks import splits
from tests.oracle.costs import (
    can_run,
    compute_time,
    cuts_around,
    filling,
    finding_weight_gradients,
    hides,
    memory,
    over,
    zero_times,
)
from tests.oracle.makespan import chunk_of, computed_by, in_order, makespan, replayed, shares
from tests.oracle.network_places import Places, placements
from tests.oracle.network_price import Boundary, Machine, boundaries_of, inside, price, sent
from tests.oracle.partitions import partitions
from tests.oracle.parts import Recompute, on_stage
from tests.oracle.settings import RANK_ORDERS, Rules, Setting, given, settings


@dataclass(frozen=True, eq=False)
class Option:
    """A stage in one mode: its numbers for each collection of sets that may reduce its gradients.

    Attributes:
        mode: recompute mode and ZeRO stage.
        memory: bytes.
        compute: seconds of compute alone.
        time: seconds per micro-batch without messages, for each of `Places.blocks`.
        forward: what of `time` are forward passes and the weights they gather.
        gradients: what of it finds gradients of weights.
        computed: what each chunk computes, as `computed_by`.
        gathered: what each chunk gathers, for each of `Places.blocks`.
        scattered: what each chunk scatters, for each of the `blocks`.
        sync: seconds once per batch.
        sent: bytes per micro-batch, for each of the `blocks` and each link.
    """

    mode: tuple[Recompute, int]
    memory: float
    compute: float
    time: numpy.ndarray
    forward: numpy.ndarray
    gradients: float
    computed: list[tuple[float, float, float, float]]
    gathered: numpy.ndarray
    scattered: numpy.ndarray
    sync: numpy.ndarray
    sent: numpy.ndarray


class Search:
    """The exhaustive search of one problem."""

    def __init__(self, problem: dict, fits: float = FITS) -> None:
        self.problem = problem
        self.machine = Machine(problem)
        self.rules = Rules(problem)
        self.capacity = problem["cluster"]["memory"] * fits
        network = self.machine.topology
        self.latency, self.bandwidth = numpy.array(network.latency), numpy.array(network.bandwidth)
        self.share = numpy.array([link.capacity for link in network.links])
        self.crosses = numpy.zeros((network.size, network.size, len(network.links)))
        for one, two in product(range(network.size), repeat=2):
            self.crosses[one, two, network.path[one][two]] = 1.0
        self.best: tuple[float, dict | None] = (inf, None)
        self.reachable = inf
        self.tables: dict = {}

    def run(self) -> Answer:
        every = partitions(len(self.problem["profile"]["layers"]), self.problem["profile"]["edges"])
        allowed = [partition for partition in every if self.rules.allow_partition(partition)]
        plain = [alone(partition) for partition in allowed]
        found = [
            (self.bound(setting, options, around), setting, split, chosen, options, around)
            for setting in own_settings(self.problem, self.machine)
            for split in (plain if setting.chunks == 1 else self.chunked(setting))
            if setting.pipeline.admits(len(split.stages), setting.micro_batches)
            for chosen in setting.choices(len(split.stages))
            if any(True for _ in setting.placements([candidate["width"] for candidate in chosen]))
            for around in [boundaries_of(self.problem, chosen, split.sets, split.route)]
            for options in self.stages(setting, split, chosen)
        ]
        for bound, *stages in sorted(found, key=lambda each: each[0]):
            if bound < self.best[0]:
                self.try_modes(*stages)
        time, plan = self.best
        if plan is None:
            return Answer(None, None, None if self.reachable == inf else self.reachable)
        return Answer(time, plan, None)

    def chunked(self, setting: Setting) -> list[Split]:
        """Every split into stages of several chunks that the rules allow."""
        every = splits(self.problem, setting.pipeline, setting.micro_batches)
        return [split_of(*each) for each in every if self.rules.allow_partition(each[0])]

    def priced(self, plan: dict) -> dict:
        """Every number of a plan of the problem."""
        return price(self.problem, plan, self.machine)

    def places(self, setting: Setting, chosen) -> Places:
        """The placements of stages with these candidates."""
        shapes = [
            (candidate["width"], tuple(tuple(group["ranks"]) for group in candidate["state"].values()) or ((0,),))
            for candidate in chosen
        ]
        route = setting.pipeline.route(len(chosen))
        between = dict.fromkeys((min(pair), max(pair)) for pair in pairwise(route) if pair[0] != pair[1])
        return placements(self.machine.size, setting.replicas, tuple(shapes), setting.zero_degree, tuple(between))

    def stages(self, setting: Setting, split: Split, chosen) -> Iterator[list[list[Option]]]:
        """The options of each stage from which it chooses freely."""
        count, devices, partition = len(split.stages), setting.devices(chosen), split.stages
        modes = [self.rules.modes(setting, candidate, count, devices) for candidate in chosen]
        if not all(modes):
            return
        joint = self.rules.joint_modes([mode for own in modes for mode in own]) if self.rules.uniform else [None]
        for kept in joint:
            options = [
                [
                    self.option(setting, chosen, split, stage, mode)
                    for mode in modes[stage]
                    if (kept is None or mode in kept)
                    and can_run(chosen[stage], partition[stage], self.recompute(split, stage, mode))
                ]
                for stage in range(count)
            ]
            if all(options):
                self.reachable = min(self.reachable, max(min(o.memory for o in stage) for stage in options))
                fitting = [self.worthwhile(setting, *each) for each in zip(chosen, options, strict=True)]
                if all(fitting):
                    yield fitting

    def recompute(self, split: Split, stage: int, mode):
        """What the layers of a stage run in."""
        return on_stage(self.problem, [split.runs[chunk] for chunk in split.own(stage)], mode[0])

    def option(self, setting: Setting, chosen, split: Split, stage: int, mode) -> Option:
        """A stage in a mode, whether it fits or not."""
        candidate, layers, (recompute, zero) = chosen[stage], split.stages[stage], mode
        moments = setting.pipeline.moments(stage + 1, len(chosen), setting.micro_batches)
        runs = [split.runs[chunk] for chunk in split.own(stage)]
        recompute = on_stage(self.problem, runs, recompute)
        entering = [cuts_around(self.problem, candidate, split.sets, chunk + 1)[0] for chunk in split.own(stage)]
        need = memory(self.problem, candidate, setting, runs, recompute, zero, moments, entering)
        compute = compute_time(candidate, layers, recompute)
        blocks = self.places(setting, chosen).blocks[stage]
        names = tuple(each["name"] for each in chosen)
        key = (names, stage, setting.replicas, setting.zero_degree, split.route, tuple(runs), mode)
        if key not in self.tables:
            shared = [
                zero_times(self.problem, sent(self.machine, setting, candidate, each, layers), compute, zero)
                for each in blocks
            ]
            carried = numpy.zeros((len(blocks), len(self.share)))
            for row, each in zip(carried, blocks, strict=True):
                for link, size in inside(self.machine, setting, candidate, each, layers, zero).items():
                    row[link] += size
            self.tables[key] = (
                numpy.array([each.often for each in shared]) + compute,
                numpy.array([each.gathered for each in shared]) + over(layers, candidate["forward"]),
                over(layers, finding_weight_gradients(candidate)),
                [computed_by(candidate, run, recompute) for run in runs],
                numpy.array([shares(candidate, runs, "weights", each.gathers) for each in shared]).T,
                numpy.array([shares(candidate, runs, "gradients", each.scatters) for each in shared]).T,
                numpy.array([each.once for each in shared]),
                carried,
            )
        return Option(mode, need, compute, *self.tables[key])

    def worthwhile(self, setting: Setting, candidate: dict, options: list[Option]) -> list[Option]:
        """Those that fit, without the slower ones that send the same."""
        fitting = [option for option in options if option.memory <= self.capacity]
        if hides(self.problem) or (replayed(self.problem, setting.pipeline) and setting.pipeline.staggered):
            return fitting
        alone = all(setting.replicas * len(group["ranks"]) == 1 for group in candidate["state"].values())
        found: list[Option] = []
        for option in sorted(fitting, key=lambda option: option.compute):
            alike = [other for other in found if alone or other.mode[1] == option.mode[1]]
            # In each chunk, as it is replayed; of one chunk the first is the quickest.
            if not any(all(map(le, map(sum, other.computed), map(sum, option.computed))) for other in alike):
                found.append(option)
        return found

    def messages(self, size: float) -> numpy.ndarray:
        """Seconds of a message from each device to each other; nothing takes no time."""
        return self.latency + size / self.bandwidth if size else numpy.zeros_like(self.latency)

    def quickest(self, size: float) -> float:
        """Seconds of a message between the two devices that are fastest for it."""
        return float(self.messages(size)[~numpy.eye(self.machine.size, dtype=bool)].min())

    def bound(self, setting: Setting, options: list[list[Option]], around: list[Boundary]) -> float:
        """No plan with one of these options on each stage takes less."""
        slowest, first, second, _ = weights = setting.pipeline.weights(setting.micro_batches, len(options))
        times = [min(float(option.time.min()) for option in stage) for stage in options]
        alone = [[filling(weights, o.time, o.forward, o.gradients, 0.0).min() for o in stage] for stage in options]
        added = sum(float(min(each)) for each in alone)
        for each in around:
            arriving, returning = self.quickest(each.activations), self.quickest(each.gradients)
            times[each.there] += arriving
            times[each.here] += returning
            added += first * arriving + second * returning
        sync = max(min(float(option.sync.min()) for option in stage) for stage in options)
        return slowest * max(times) + added + sync

    def try_modes(self, setting: Setting, split: Split, chosen, options: list[list[Option]], around) -> None:
        """Every choice of modes, the least bound first."""
        choices = [list(choice) for choice in product(*options)]
        bounds = [self.bound(setting, [[option] for option in choice], around) for choice in choices]
        for index in numpy.argsort(bounds, kind="stable"):
            if bounds[index] < self.best[0]:
                self.try_places(setting, split, chosen, choices[index], around)

    def try_places(self, setting: Setting, split: Split, chosen, options: list[Option], around: list[Boundary]) -> None:
        """Every placement of stages in these modes."""
        places = self.places(setting, chosen)
        times, forwards = (
            [getattr(option, name)[own] for option, own in zip(options, places.group, strict=True)]
            for name in ("time", "forward")
        )
        fronts, behinds = {}, {}
        for each in around:
            senders, receivers = places.pairs(each.here, each.there)
            forward, backward = self.messages(each.activations), self.messages(each.gradients)
            behinds[each.run - 1] = backward[receivers, senders].max(axis=(1, 2))
            times[each.here] = times[each.here] + behinds[each.run - 1]
            arriving = fronts[each.run] = forward[senders, receivers].max(axis=(1, 2))
            times[each.there] = times[each.there] + arriving
            forwards[each.there] = forwards[each.there] + arriving
        gradients = [option.gradients for option in options]
        sync = numpy.max([option.sync[own] for option, own in zip(options, places.group, strict=True)], axis=0)
        weights = setting.pipeline.weights(setting.micro_batches, len(chosen))
        added = [filling(weights, *each, 0.0) for each in zip(times, forwards, gradients, strict=True)]
        unshared = weights[0] * numpy.max(times, axis=0) + numpy.sum(added, axis=0) + sync
        (near,) = numpy.nonzero(unshared < self.best[0])
        if not len(near):
            return
        held = self.waits(places, near, options, around)
        waiting = [numpy.maximum(wait - time[near], 0.0) for time, wait in zip(times, held, strict=True)]
        added = [
            filling(weights, time[near], forward[near], own, wait)
            for time, forward, own, wait in zip(times, forwards, gradients, waiting, strict=True)
        ]
        waited = [time[near] + wait for time, wait in zip(times, waiting, strict=True)]
        total = weights[0] * numpy.max(waited, axis=0) + numpy.sum(added, axis=0) + sync[near]
        if replayed(self.problem, setting.pipeline):
            (kept,) = numpy.nonzero(total < self.best[0])
            grown = [ratio(wait[kept], time[near[kept]]) for wait, time in zip(waited, times, strict=True)]
            whole = self.replay(setting, split, options, places, near[kept], fronts, behinds, grown)
            total[kept] = numpy.maximum(total[kept], whole + sync[near[kept]])
        least = int(numpy.argmin(total))
        if total[least] < self.best[0]:
            devices = [places.replica(near[least], index) for index in range(setting.replicas)]
            modes = [option.mode for option in options]
            self.best = (float(total[least]), describe(setting, split, chosen, devices, modes))

    def replay(
        self, setting: Setting, split: Split, options: list[Option], places: Places, rows, fronts, behinds, grown
    ):
        """The makespans of some placements, given what arrives at each run of layers and how much its passes grow."""
        stages = []
        for stage, option in enumerate(options):
            own = places.group[stage][rows]
            stages.append(
                [
                    chunk_of(
                        fronts[run][rows] if run in fronts else 0.0,
                        behinds[run][rows] if run in behinds else 0.0,
                        option.gathered[number][own],
                        option.scattered[number][own],
                        option.computed[number],
                        grown=grown[stage],
                    )
                    for number, run in enumerate(split.own(stage))
                ]
            )
        chunks = in_order(setting.pipeline, stages)
        return makespan(setting.pipeline, len(stages), setting.micro_batches, chunks, numpy.maximum)

    def waits(self, places: Places, rows, options: list[Option], around: list[Boundary]) -> list[numpy.ndarray]:
        """For each stage, the seconds per micro-batch of the fullest link it uses, in these placements."""
        own = [option.sent[group[rows]] for option, group in zip(options, places.group, strict=True)]
        used, carried = [each > 0 for each in own], sum(own)
        for each in around:
            senders, receivers = places.pairs(each.here, each.there, rows)
            forward = each.activations * self.crosses[senders, receivers].sum(axis=(1, 2))
            backward = each.gradients * self.crosses[receivers, senders].sum(axis=(1, 2))
            carried = carried + forward + backward
            for stage in (each.here, each.there):
                used[stage] = used[stage] | (forward + backward > 0)
        return [numpy.where(each, carried / self.share, 0.0).max(axis=1) for each in used]


def ratio(whole: numpy.ndarray, part: numpy.ndarray) -> numpy.ndarray:
    """How many times as much the whole is; once where there is no part."""
    return numpy.divide(whole, part, out=numpy.ones_like(whole), where=part > 0)


def own_settings(problem: dict, machine: Machine) -> Iterator[Setting]:
    """Every setting. Where blocks lie anywhere, the order of ranks says nothing: one stands for both."""
    order = given(problem.get("search"), "rank_order", RANK_ORDERS)[0]
    for setting in settings(problem, machine):
        if setting.rank_order == order:
            yield setting


def describe(setting: Setting, split: Split, chosen, devices: list, modes) -> dict:
    """A plan as `network_price.price` takes it."""
    plan = brute_force.describe(setting, split, chosen, [None] * len(chosen), modes)
    stages = [{key: value for key, value in stage.items() if key != "offset"} for stage in plan["stages"]]
    return {**plan, "stages": stages, "devices": devices}


def solve(problem: dict, fits: float = FITS) -> Answer:
    """The best of all placed plans of a profile problem in SI numbers; memory may be so many times the capacity."""
    return Search(problem, fits).run()
