"""Section 5 of PROBLEM.md: try every plan, keep the best.

A plan is a setting, a partition, a placement and a mode (recompute, ZeRO) per stage. Settings, partitions
and placements are enumerated. Only two things are not spelled out, and `test_brute_force.py` compares with a
version that spells out both:

* a placement enters the cost through the levels of its boundaries only: equal level sequences are tried once;
* for each cap on `max y`, every stage takes its fastest mode whose `y` keeps the cap, because `A` and `B` are
  not negative. The cap runs over every `y` there is.
"""

from dataclasses import dataclass
from math import inf

from tests.oracle.costs import (
    compute_time,
    cuts_of,
    in_flight,
    memory,
    transfer_time,
    weights,
    zero_times,
)
from tests.oracle.network import Network
from tests.oracle.partitions import downsets, partitions
from tests.oracle.settings import Rules, Setting, settings

FITS = 1 + 1e-12
"""Memory may exceed the capacity by rounding, no more."""
TIE = 1 + 1e-12
"""Batch times within this factor count as equal (PROBLEM.md section 5)."""


@dataclass(frozen=True)
class Answer:
    """The best plan; or none, with the smallest worst-stage memory of the plans allowed but for memory."""

    batch_time: float | None
    plan: dict | None
    reachable_memory: float | None


@dataclass(frozen=True)
class Option:
    """A mode of a stage with its time (transfers aside), its time once per batch and its memory."""

    mode: tuple[str, int]
    time: float
    sync: float
    memory: float


class Search:
    """The exhaustive search of one problem."""

    def __init__(self, problem: dict) -> None:
        self.problem = problem
        self.network = Network(problem["cluster"])
        self.rules = Rules(problem)
        self.capacity = problem["cluster"]["memory"] * FITS
        self.layers = problem["profile"]["layers"]
        self.best: dict[tuple[int, int], tuple[float, dict]] = {}
        self.reachable = inf

    def run(self) -> Answer:
        every = partitions(len(self.layers), self.problem["profile"]["edges"])
        allowed = [(p, downsets(p)) for p in every if self.rules.allow_partition(p)]
        for setting in settings(self.problem, self.network):
            self.begin(setting)
            for partition, sets in allowed:
                if len(partition) * setting.width <= setting.replica_devices:
                    self.try_partition(setting, partition, sets)
        return self.answer()

    def begin(self, setting: Setting) -> None:
        """Forget what was remembered of another setting."""
        self.stage_options: dict = {}
        self.stage_modes = {}
        self.level_sequences = {}
        for stages in range(1, len(self.layers) + 1):
            self.stage_modes[stages] = self.rules.modes(setting, stages)
            sequences = {}
            for offsets in setting.placements(stages):
                sequences.setdefault(setting.boundary_levels(self.network, offsets), offsets)
            self.level_sequences[stages] = sequences

    def options(self, setting: Setting, layers, flying: int, cut: float, stages: int) -> list[Option]:
        """What a stage may do, without regard to memory."""
        key = (layers, flying, cut, stages)
        if key not in self.stage_options:
            found = []
            for recompute, zero in self.stage_modes[stages]:
                more, sync = zero_times(self.problem, self.network, setting, layers, zero)
                time = compute_time(setting, layers, recompute) + more
                size = memory(self.problem, setting, layers, recompute, zero, flying, cut)
                found.append(Option((recompute, zero), time, sync, size))
            self.stage_options[key] = found
        return self.stage_options[key]

    def try_partition(self, setting: Setting, partition, sets) -> None:
        stages = len(partition)
        cuts = cuts_of(self.problem, setting, sets)
        every = [
            self.options(setting, layers, in_flight(setting.schedule, setting.micro_batches, stages, i), cut, stages)
            for i, (layers, cut) in enumerate(zip(partition, cuts, strict=False), start=1)
        ]
        for kept in self.rules.joint_modes(self.stage_modes[stages]):
            options = [[option for option in stage if option.mode in kept] for stage in every]
            self.reachable = min(self.reachable, max(min(o.memory for o in stage) for stage in options))
            fitting = [[option for option in stage if option.memory <= self.capacity] for stage in options]
            for cap in {option.sync for stage in fitting for option in stage}:
                below = [[option for option in stage if option.sync <= cap] for stage in fitting]
                if all(below):
                    choice = [min(stage, key=lambda option: option.time) for stage in below]
                    self.try_placements(setting, partition, cuts, choice)

    def try_placements(self, setting: Setting, partition, cuts, choice: list[Option]) -> None:
        stages = len(partition)
        a, b = weights(setting.schedule, setting.micro_batches, stages)
        sync = max(option.sync for option in choice)
        key = (setting.replicas * setting.width * stages, stages)
        for inner, offsets in self.level_sequences[stages].items():
            levels = [-1, *inner, -1]
            times = [
                option.time + transfer_time(self.network, (cuts[i], cuts[i + 1]), (levels[i], levels[i + 1]))
                for i, option in enumerate(choice)
            ]
            total = a * max(times) + b * sum(times) + sync
            if key not in self.best or total < self.best[key][0]:
                self.best[key] = (total, describe(setting, partition, offsets, [o.mode for o in choice]))

    def answer(self) -> Answer:
        if not self.best:
            return Answer(None, None, None if self.reachable == inf else self.reachable)
        least = min(total for total, _ in self.best.values())
        _, plan = min((key, plan) for key, (total, plan) in self.best.items() if total <= least * TIE)[:2]
        return Answer(least, plan, None)


def describe(setting: Setting, partition, offsets, modes) -> dict:
    """A plan as decisions only, layers by index."""
    return {
        "candidate": setting.candidate["name"],
        "replicas": setting.replicas,
        "rank_order": setting.rank_order,
        "schedule": setting.schedule,
        "stages": [
            {"layers": list(layers), "offset": offset, "recompute": recompute, "zero": zero}
            for layers, offset, (recompute, zero) in zip(partition, offsets, modes, strict=True)
        ],
    }


def solve(problem: dict) -> Answer:
    """The best of all plans of a profile problem in SI numbers."""
    return Search(problem).run()
