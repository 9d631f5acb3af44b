"""Section 5 of PROBLEM.md on a network that is no hierarchy: try every plan with every placement, keep the best.

A plan is a setting, a partition, a mode (recompute, ZeRO) per stage, and a device for each rank of each block: any
devices, in any order. Four things are not spelled out, and `test_network_plans.py` compares with a version that does:

* replicas are alike: to let two of them change places leaves every set of messages, every set of devices that reduce
  gradients and every load as it is. Only placements whose replicas come in the order of their first devices are tried;
* a boundary enters the price through the set of pairs that send to each other, a stage through the sets of devices
  that reduce gradients: of placements with equal sets one is tried;
* of two modes with equal ZeRO stages that fit, the slower is left out. It sends the same and takes longer; where
  compute hides what is sent once per batch (`hiding`), none is left out;
* partitions and modes are taken by a bound, the least first, until the bound is no less than the best plan: each
  message over the two devices that are fastest for it, each collective over the fastest sets of devices, links that
  nobody shares. Of a placement links are looked at where it would be best without.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from math import inf

import numpy

from tests.oracle.brute_force import FITS, Answer, batch_time
from tests.oracle.costs import can_run, compute_time, cuts_around, hides, in_flight, memory, weights, zero_times
from tests.oracle.network_price import Machine, inside, price, sent, translates
from tests.oracle.partitions import downsets, partitions
from tests.oracle.settings import RANK_ORDERS, Rules, Setting, given, micro_batches, schedules_of


@dataclass(frozen=True, eq=False)
class Places:
    """The placements of some stages, of those with equal sets one each.

    Attributes:
        devices: placements by replicas by stages by ranks.
        group: for each placement and stage, which of the `blocks` stand for the sets that reduce its gradients.
        blocks: the blocks of one stage, replica by replica, one for each collection of sets.
    """

    devices: numpy.ndarray
    group: numpy.ndarray
    blocks: list[list[list[int]]]


@lru_cache(maxsize=64)
def placements(size: int, replicas: int, stages: int, width: int, ranks: tuple[tuple[int, ...], ...]) -> Places:
    """Every placement whose replicas are in the order of their first devices."""
    used = replicas * stages * width
    every = numpy.array(list(permutations(range(size), used)), dtype=numpy.int64)
    every = every.reshape(-1, replicas, stages, width)
    leading = every[:, :, 0, 0]
    every = every[(leading[:, 1:] > leading[:, :-1]).all(axis=1)]
    sets = [each for group in ranks for each in sharing_sets(every, list(group))]
    columns = numpy.stack(sets, axis=-1).reshape(len(every) * stages, -1)
    _, first, group = numpy.unique(columns, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(len(every), stages)
    pairs = numpy.uint64(1) << (size * every[:, :, :-1] + every[:, :, 1:]).astype(numpy.uint64)
    crossing = numpy.bitwise_or.reduce(numpy.bitwise_or.reduce(pairs, axis=3), axis=1)
    _, kept = numpy.unique(numpy.concatenate([crossing, group.astype(numpy.uint64)], axis=1), axis=0, return_index=True)
    kept.sort()
    blocks = [every[index // stages, :, index % stages].tolist() for index in first]
    return Places(every[kept], group[kept], blocks)


def sharing_sets(every: numpy.ndarray, ranks: list[int]) -> list[numpy.ndarray]:
    """For each placement and stage the sets that reduce gradients, as bits of a number, ascending."""
    bits = numpy.int64(1) << every
    sets = [bits[..., each].sum(axis=(1, 3)) for each in translates(ranks, every.shape[3])]
    if every.shape[1] * len(ranks) == 1:
        return [numpy.zeros_like(sets[0])]  # One device reduces nothing, whichever it is.
    return list(numpy.moveaxis(numpy.sort(numpy.stack(sets, axis=-1), axis=-1), -1, 0))


@dataclass(frozen=True, eq=False)
class Option:
    """A stage in one mode: its numbers for each collection of sets that may reduce its gradients.

    Attributes:
        mode: recompute mode and ZeRO stage.
        memory: bytes.
        compute: seconds of compute alone.
        time: seconds per micro-batch without messages, for each of `Places.blocks`.
        sync: seconds once per batch.
        sent: bytes per micro-batch, for each of the `blocks` and each link.
    """

    mode: tuple[str, int]
    memory: float
    compute: float
    time: numpy.ndarray
    sync: numpy.ndarray
    sent: numpy.ndarray


class Search:
    """The exhaustive search of one problem."""

    def __init__(self, problem: dict, fits: float = FITS) -> None:
        self.problem = problem
        self.machine = Machine(problem["cluster"])
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
        found = [
            (self.bound(setting, options, cuts), setting, partition, options, cuts)
            for setting in settings(self.problem, self.machine)
            for partition in allowed
            if len(partition) * setting.width * setting.replicas <= self.machine.size
            for options, cuts in self.stages(setting, partition)
        ]
        for bound, *stages in sorted(found, key=lambda each: each[0]):
            if bound < self.best[0]:
                self.try_modes(*stages)
        time, plan = self.best
        if plan is None:
            return Answer(None, None, None if self.reachable == inf else self.reachable)
        return Answer(time, plan, None)

    def priced(self, plan: dict) -> dict:
        """Every number of a plan of the problem."""
        return price(self.problem, plan, self.machine)

    def places(self, setting: Setting, stages: int) -> Places:
        (candidate,) = setting.candidates
        ranks = tuple(tuple(group["ranks"]) for group in candidate["state"].values()) or ((0,),)
        return placements(self.machine.size, setting.replicas, stages, setting.width, ranks)

    def stages(self, setting: Setting, partition) -> Iterator[tuple[list[list[Option]], list[float]]]:
        """The options of each stage from which it chooses freely, with the bytes in front of every stage."""
        (candidate,) = setting.candidates
        count = len(partition)
        sets = downsets(partition)
        cuts = [cuts_around(self.problem, candidate, sets, stage)[0] for stage in range(1, count + 1)]
        modes = self.rules.modes(setting, candidate, count, setting.devices([candidate] * count))
        for kept in self.rules.joint_modes(modes) if self.rules.uniform else [modes]:
            options = []
            for stage, layers in enumerate(partition):
                flying = in_flight(setting.schedule, setting.micro_batches, count, stage + 1)
                usable = [mode for mode in kept if can_run(candidate, layers, mode[0])]
                options.append([self.option(setting, count, layers, mode, flying, cuts[stage]) for mode in usable])
            if all(options):
                self.reachable = min(self.reachable, max(min(o.memory for o in stage) for stage in options))
                fitting = [self.worthwhile(setting, stage) for stage in options]
                if all(fitting):
                    yield fitting, cuts

    def option(self, setting: Setting, count: int, layers, mode, flying: float, cut: float) -> Option:
        (candidate,) = setting.candidates
        recompute, zero = mode
        need = memory(self.problem, candidate, setting, layers, recompute, zero, flying, cut)
        compute = compute_time(candidate, layers, recompute)
        key = (candidate["name"], setting.replicas, count, layers, mode)
        if key not in self.tables:
            blocks = self.places(setting, count).blocks
            shared = [
                zero_times(self.problem, sent(self.machine, candidate, each, layers), compute, zero) for each in blocks
            ]
            carried = numpy.zeros((len(blocks), len(self.share)))
            for row, each in zip(carried, blocks, strict=True):
                for link, size in inside(self.machine, candidate, each, layers, zero).items():
                    row[link] += size
            self.tables[key] = (
                numpy.array([each.often for each in shared]) + compute,
                numpy.array([each.once for each in shared]),
                carried,
            )
        return Option(mode, need, compute, *self.tables[key])

    def worthwhile(self, setting: Setting, options: list[Option]) -> list[Option]:
        """Those that fit, without the slower ones that send the same."""
        fitting = [option for option in options if option.memory <= self.capacity]
        if hides(self.problem):
            return fitting
        (candidate,) = setting.candidates
        alone = all(setting.shards(group["ranks"]) == 1 for group in candidate["state"].values())
        found: dict[int, Option] = {}
        for option in sorted(fitting, key=lambda option: option.compute):
            found.setdefault(0 if alone else option.mode[1], option)
        return list(found.values())

    def messages(self, size: float) -> numpy.ndarray:
        """Seconds of a message from each device to each other; nothing takes no time."""
        return self.latency + size / self.bandwidth if size else numpy.zeros_like(self.latency)

    def quickest(self, size: float) -> float:
        """Seconds of a message between the two devices that are fastest for it."""
        return float(self.messages(size)[~numpy.eye(self.machine.size, dtype=bool)].min())

    def bound(self, setting: Setting, options: list[list[Option]], cuts: list[float]) -> float:
        """No plan with one of these options on each stage takes less."""
        around = [0.0, *map(self.quickest, cuts[1:]), 0.0]
        times = [
            min(float(option.time.min()) for option in stage) + around[i] + around[i + 1]
            for i, stage in enumerate(options)
        ]
        sync = max(min(float(option.sync.min()) for option in stage) for stage in options)
        return batch_time(weights(setting.schedule, setting.micro_batches, len(options)), times, sync)

    def try_modes(self, setting: Setting, partition, options: list[list[Option]], cuts: list[float]) -> None:
        """Every choice of modes, the least bound first."""
        choices = [list(choice) for choice in product(*options)]
        bounds = [self.bound(setting, [[option] for option in choice], cuts) for choice in choices]
        for index in numpy.argsort(bounds, kind="stable"):
            if bounds[index] < self.best[0]:
                self.try_places(setting, partition, choices[index], cuts)

    def try_places(self, setting: Setting, partition, chosen: list[Option], cuts: list[float]) -> None:
        """Every placement of stages in these modes."""
        count = len(chosen)
        places = self.places(setting, count)
        times = [option.time[places.group[:, i]] for i, option in enumerate(chosen)]
        for boundary in range(1, count):
            senders, receivers = places.devices[:, :, boundary - 1], places.devices[:, :, boundary]
            seconds = self.messages(cuts[boundary])
            times[boundary - 1] = times[boundary - 1] + seconds[receivers, senders].max(axis=(1, 2))
            times[boundary] = times[boundary] + seconds[senders, receivers].max(axis=(1, 2))
        sync = numpy.max([option.sync[places.group[:, i]] for i, option in enumerate(chosen)], axis=0)
        a, b = weights(setting.schedule, setting.micro_batches, count)
        unshared = a * numpy.max(times, axis=0) + b * numpy.sum(times, axis=0) + sync
        (near,) = numpy.nonzero(unshared < self.best[0])
        if not len(near):
            return
        held = self.waits(places, near, chosen, cuts)
        times = [numpy.maximum(time[near], wait) for time, wait in zip(times, held, strict=True)]
        total = a * numpy.max(times, axis=0) + b * numpy.sum(times, axis=0) + sync[near]
        least = int(numpy.argmin(total))
        if total[least] < self.best[0]:
            modes = [option.mode for option in chosen]
            self.best = (float(total[least]), describe(setting, partition, places.devices[near[least]].tolist(), modes))

    def waits(self, places: Places, rows, chosen: list[Option], cuts: list[float]) -> list[numpy.ndarray]:
        """For each stage, the seconds per micro-batch of the fullest link it uses, in these placements."""
        own = [option.sent[places.group[rows, i]] for i, option in enumerate(chosen)]
        around = [numpy.zeros_like(own[0])]
        for boundary in range(1, len(chosen)):
            senders, receivers = places.devices[rows, :, boundary - 1], places.devices[rows, :, boundary]
            both = self.crosses[senders, receivers] + self.crosses[receivers, senders]
            around.append(cuts[boundary] * both.sum(axis=(1, 2)))
        around.append(numpy.zeros_like(own[0]))
        seconds = (sum(own) + sum(around)) / self.share
        used = [each + around[i] + around[i + 1] > 0 for i, each in enumerate(own)]
        return [numpy.where(each, seconds, 0.0).max(axis=1) for each in used]


def settings(problem: dict, machine: Machine) -> Iterator[Setting]:
    """Every candidate, number of replicas and schedule. Where blocks lie anywhere, the order of ranks says nothing."""
    order = given(problem.get("search"), "rank_order", RANK_ORDERS)[0]
    for schedule, candidate in product(schedules_of(problem), problem["profile"]["candidates"]):
        width = candidate["width"]
        for replicas in range(1, machine.size // width + 1) if machine.admits(width) else ():
            count = micro_batches(problem, candidate["samples"], replicas)
            if count is not None:
                own = width * (machine.size // (replicas * width))
                yield Setting((candidate,), width, replicas, order, schedule, count, own)


def describe(setting: Setting, partition, devices: list, modes) -> dict:
    """A plan as `network_price.price` takes it."""
    (candidate,) = setting.candidates
    return {
        "replicas": setting.replicas,
        "rank_order": setting.rank_order,
        "schedule": setting.schedule,
        "stages": [
            {"layers": list(layers), "candidate": candidate["name"], "recompute": recompute, "zero": zero}
            for layers, (recompute, zero) in zip(partition, modes, strict=True)
        ],
        "devices": devices,
    }


def solve(problem: dict, fits: float = FITS) -> Answer:
    """The best of all placed plans of a profile problem in SI numbers; memory may be so many times the capacity."""
    return Search(problem, fits).run()
