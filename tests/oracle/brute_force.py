"""Section 5 of PROBLEM.md: try every plan, keep the best.

A plan is a setting, a partition, and per stage a candidate, a place and a mode (recompute, ZeRO). All but modes are
enumerated. Only three things are not spelled out, and `test_brute_force.py` compares with a version that spells out
all of them:

* a placement enters the cost through the levels of its boundaries only: equal level sequences are tried once;
* for each cap on `max y`, every stage takes its fastest mode whose `y` keeps the cap, because `A` and `B` are
  not negative. The cap runs over every `y` there is, for each level sequence where ports make `y` depend on it;
* stages whose compute alone, or in these modes without transfers, takes longer than a plan already found are left
  out, as neither what is sent nor where blocks lie takes time away.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

from tests.oracle.chunks import even_splits
from tests.oracle.costs import (
    Sent,
    Shared,
    can_run,
    compute_time,
    cuts_around,
    in_flight,
    memory,
    sent,
    transfer_times,
    weights,
    with_ports,
    zero_times,
)
from tests.oracle.network import Network
from tests.oracle.partitions import downsets, partitions
from tests.oracle.settings import Rules, Setting, settings

FITS = 1 + 1e-12
"""Memory may exceed the capacity by rounding, no more."""
TIE = 1 + 1e-12
"""Step times within this factor count as equal (PROBLEM.md section 5)."""
WORSE = 1 + 1e-9
"""What takes longer than the best plan by more than this factor is left out: far above rounding and ties."""


@dataclass(frozen=True)
class Answer:
    """The best plan; or none, with the smallest worst-stage memory of the plans allowed but for memory."""

    batch_time: float | None
    plan: dict | None
    reachable_memory: float | None


@dataclass(frozen=True)
class Option:
    """A mode of a stage with its time (transfers aside), its time once per batch and its memory.

    What ports add to the times depends on the levels around a stage; `Search.by_levels` adds it.
    """

    mode: tuple[str, int]
    time: float
    sync: float
    memory: float


class Search:
    """The exhaustive search of one problem."""

    def __init__(self, problem: dict, fits: float = FITS) -> None:
        self.problem = problem
        self.network = Network(problem["cluster"])
        self.rules = Rules(problem)
        self.capacity = problem["cluster"]["memory"] * fits
        self.layers = problem["profile"]["layers"]
        self.best: dict[tuple[int, int], tuple[float, dict]] = {}
        self.limit = inf
        self.reachable = inf
        self.known_quickest = {}

    def run(self) -> Answer:
        every = partitions(len(self.layers), self.problem["profile"]["edges"])
        allowed = [(p, downsets(p)) for p in every if self.rules.allow_partition(p) and self.rules.allow_run(p)]
        # Few micro-batches first: they often are the best, and the limit they set spares most of the others.
        for setting in sorted(settings(self.problem, self.network), key=lambda setting: setting.micro_batches):
            self.forget()
            possible = allowed if setting.chunks == 1 else self.dealt(setting)
            for partition, sets in possible:
                for chosen in setting.choices(len(partition)):
                    self.try_stages(setting, partition, sets, chosen)
        return self.answer()

    def dealt(self, setting: Setting):
        """The stages of several chunks, with the downsets between the chunks."""
        return [
            (stages, downsets(chunks))
            for stages, chunks in even_splits(self.problem, setting.chunks, setting.micro_batches)
            if self.rules.allow_partition(stages)
        ]

    def forget(self) -> None:
        """Forget what was remembered of another setting."""
        self.known_options = {}
        self.known_times = {}
        self.known_waits = {}
        self.known_sent = {}
        self.known_modes = {}
        self.known_levels = {}
        self.known_cuts = {}
        self.known_transfers = {}

    def levels(self, setting: Setting, widths) -> dict:
        """Each sequence of levels around blocks of these widths that there can be, with a placement that has it."""
        if widths not in self.known_levels:
            found, apart = {}, {}
            for offsets in setting.placements(widths):
                found.setdefault(setting.levels_around(self.network, widths, offsets, apart), offsets)
            self.known_levels[widths] = found
        return self.known_levels[widths]

    def modes(self, setting: Setting, candidate: dict, stages: int, devices: int) -> list[tuple[str, int]]:
        """The modes a stage may use."""
        key = (candidate["name"], stages, devices)
        if key not in self.known_modes:
            self.known_modes[key] = self.rules.modes(setting, candidate, stages, devices)
        return self.known_modes[key]

    def option(self, setting: Setting, candidate: dict, layers, flying: float, cut: float, mode) -> Option:
        """What a stage is like in one mode, without regard to memory."""
        key = (candidate["name"], layers, flying, cut, mode)
        if key not in self.known_options:
            size = memory(self.problem, candidate, setting, layers, *mode, flying, cut)
            time, shared = self.times(setting, candidate, layers, mode)
            self.known_options[key] = Option(mode, time, shared.once, size)
        return self.known_options[key]

    def times(self, setting: Setting, candidate: dict, layers, mode) -> tuple[float, Shared]:
        """The time of a stage in one mode, transfers and ports aside, and what its parameter groups add."""
        key = (candidate["name"], layers, mode)
        if key not in self.known_times:
            recompute, zero = mode
            groups, compute = self.sent(setting, candidate, layers), compute_time(candidate, layers, recompute)
            shared = zero_times(self.problem, groups, compute, zero)
            self.known_times[key] = (compute + shared.often, shared)
        return self.known_times[key]

    def by_levels(self, setting: Setting, partition, chosen, cuts, levels: dict, options: list[list[Option]]):
        """Level sequences with what the stages' options are like there: once all of them, unless there are ports."""
        if all(candidate.get("busy") is None for candidate in chosen):
            yield levels, options
            return
        for around, offsets in levels.items():
            stages = zip(chosen, partition, cuts, pairwise(around), options, strict=True)
            yield (
                {around: offsets},
                [[self.held_up(setting, *stage, option) for option in each] for *stage, each in stages],
            )

    def held_up(self, setting: Setting, candidate: dict, layers, cuts, around, option: Option) -> Option:
        """The option with what ports add between boundaries of these levels."""
        key = (candidate["name"], layers, cuts, around, option.mode)
        if key not in self.known_waits:
            time, shared = self.times(setting, candidate, layers, option.mode)
            arriving = self.transfers(cuts, around)
            messages, alone = zip(around, arriving, strict=True), time + sum(arriving)
            recompute, _ = option.mode
            whole, sync = with_ports(self.problem, setting, candidate, layers, recompute, shared, messages, alone)
            self.known_waits[key] = (whole - alone, sync)
        wait, sync = self.known_waits[key]
        return replace(option, time=option.time + wait, sync=sync)

    def sent(self, setting: Setting, candidate: dict, layers) -> list[Sent]:
        key = (candidate["name"], layers)
        if key not in self.known_sent:
            self.known_sent[key] = sent(self.problem, self.network, setting, candidate, layers)
        return self.known_sent[key]

    def quickest(self, candidate: dict, layers) -> float:
        """What the compute alone of a stage takes in its quickest mode, whatever the setting."""
        key = (candidate["name"], layers)
        if key not in self.known_quickest:
            self.known_quickest[key] = min(compute_time(candidate, layers, mode) for mode in candidate["recompute"])
        return self.known_quickest[key]

    def cuts(self, candidate: dict, sets, run: int) -> tuple[float, float]:
        key = (candidate["name"], sets[run - 1], sets[run])
        if key not in self.known_cuts:
            self.known_cuts[key] = cuts_around(self.problem, candidate, sets, run)
        return self.known_cuts[key]

    def transfers(self, cuts, around: tuple[int, int]) -> tuple[float, float]:
        key = (cuts, around)
        if key not in self.known_transfers:
            self.known_transfers[key] = transfer_times(self.network, cuts, around)
        return self.known_transfers[key]

    def try_stages(self, setting: Setting, partition, sets, chosen) -> None:
        """Try every placement and mode of these stages, unless their compute alone is slower than the best plan."""
        widths = tuple(candidate["width"] for candidate in chosen)
        if sum(widths) > setting.replica_devices:
            return
        stages, devices = len(partition), setting.devices(chosen)
        pair = weights(setting.schedule, setting.micro_batches, stages, setting.chunks)
        if batch_time(pair, list(map(self.quickest, chosen, partition)), 0.0) > self.limit:
            return
        modes = [self.modes(setting, candidate, stages, devices) for candidate in chosen]
        if not all(modes):
            return
        levels = self.levels(setting, widths)
        if not levels:
            return
        cuts = [
            tuple(self.cuts(candidate, sets, run) for run in range(i, len(sets), stages))
            for i, candidate in enumerate(chosen, start=1)
        ]
        flying = [
            in_flight(setting.schedule, setting.micro_batches, stages, i, setting.chunks) for i in range(1, stages + 1)
        ]
        every = [
            [
                self.option(setting, candidate, layers, count, sum(front for front, _ in own), mode)
                for mode in usable
                if can_run(candidate, layers, mode[0])
            ]
            for candidate, layers, count, own, usable in zip(chosen, partition, flying, cuts, modes, strict=True)
        ]
        if not all(every):
            return
        for options in self.together(every):
            self.reachable = min(self.reachable, max(min(o.memory for o in stage) for stage in options))
            fitting = [[o for o in stage if o.memory <= self.capacity] for stage in options]
            for near, held in self.by_levels(setting, partition, chosen, cuts, levels, fitting):
                best = list(map(front, held))
                for cap in {option.sync for stage in best for option in stage}:
                    below = [[option for option in stage if option.sync <= cap] for stage in best]
                    if all(below):
                        fastest = [min(stage, key=lambda option: option.time) for stage in below]
                        self.try_placements(setting, partition, chosen, cuts, near, fastest)

    def together(self, every: list[list[Option]]):
        """The options from which each stage chooses freely: all of them, unless a rule asks for uniform modes."""
        if not self.rules.uniform:
            yield every
            return
        for kept in self.rules.joint_modes([option.mode for stage in every for option in stage]):
            options = [[option for option in stage if option.mode in kept] for stage in every]
            if all(options):
                yield options

    def try_placements(self, setting: Setting, partition, chosen, cuts, levels, options: list[Option]) -> None:
        stages = len(partition)
        pair = weights(setting.schedule, setting.micro_batches, stages, setting.chunks)
        sync = max(option.sync for option in options)
        if batch_time(pair, [option.time for option in options], sync) > self.limit:
            return
        key = (setting.devices(chosen), stages)
        for around, offsets in levels.items():
            times = [
                option.time + sum(self.transfers(cuts[i], (around[i], around[i + 1])))
                for i, option in enumerate(options)
            ]
            total = batch_time(pair, times, sync)
            if key not in self.best or total < self.best[key][0]:
                self.best[key] = (total, describe(setting, partition, chosen, offsets, [o.mode for o in options]))
                self.limit = min(self.limit, total * WORSE)

    def answer(self) -> Answer:
        if not self.best:
            return Answer(None, None, None if self.reachable == inf else self.reachable)
        least = min(total for total, _ in self.best.values())
        _, plan = min((key, plan) for key, (total, plan) in self.best.items() if total <= least * TIE)[:2]
        return Answer(least, plan, None)


def batch_time(pair: tuple[float, float], times: list[float], sync: float) -> float:
    a, b = pair
    return a * max(times) + b * sum(times) + sync


def front(options: list[Option]) -> list[Option]:
    """Those that no other beats in time and in time once per batch both."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda option: (option.time, option.sync)):
        if not kept or option.sync < kept[-1].sync:
            kept.append(option)
    return kept


def describe(setting: Setting, partition, chosen, offsets, modes) -> dict:
    """A plan as decisions only, layers by index."""
    return {
        "replicas": setting.replicas,
        "rank_order": setting.rank_order,
        "schedule": setting.schedule,
        "chunks": setting.chunks,
        "zero_degree": setting.zero_degree,
        "stages": [
            {
                "layers": list(layers),
                "candidate": candidate["name"],
                "offset": offset,
                "recompute": recompute,
                "zero": zero,
            }
            for layers, candidate, offset, (recompute, zero) in zip(partition, chosen, offsets, modes, strict=True)
        ],
    }


def solve(problem: dict, fits: float = FITS) -> Answer:
    """The best of all plans of a profile problem in SI numbers; memory may be so many times the capacity."""
    return Search(problem, fits).run()
