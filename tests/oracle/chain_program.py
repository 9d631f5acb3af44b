"""Section 5 of PROBLEM.md for chains too long to try every plan: a dynamic program over stages, layers and places.

For problems whose graph is the chain 0, 1, ..., N-1, without `constraints`, `fixed`, `search.mixed` and ports (`busy`).
Why it is exact:

* The only nested downsets of a chain are its tails, so the stages are ranges of layers. A plan is a setting, a number
  `s` of stages, and per stage a range, a slot (its offset over the width) and a mode.
* The time of a stage depends on its range, its mode, how many stages follow it (through memory) and the levels in
  front of and behind it; the level behind it on its slot and the next one's. So for one setting, `Table.least` goes
  over everything there is: `first[k][a][l][p]` is the least sum of times with which the layers from `a` on run as `k`
  stages, the first of them in slot `p`, behind a boundary of level `l`. Every place is a state of its own: nothing is
  assumed of gaps, of equal places or of where the first stage lies.
* A sum has optimal substructure; `max t` and `max y` have not, so they are limits: stages over `time_limit` or
  `sync_limit` are left out. With `y` limited, the first plan found has the least sum. Each further one is asked for a
  `max t` below that of the one before. A plan that is never found has a `max t` at least as large as a found one, and a
  sum at least as large. With the best `A * max t + B * sum t` under one limit on `y` known, plans with a `max y` not
  below that plan's cannot be better, so the next limit is just below it.
* Settings and numbers of stages are left out only where a lower bound on all their plans reaches the best plan:
  `max t >= sum t / s`, the least largest `t` without transfers, and the least largest `y`, each over all partitions.

The plan found is priced by `price.py`, so a value that no plan has cannot be returned.
"""

from dataclasses import dataclass
from functools import cached_property
from math import inf, nextafter

import numpy as np

from tests.oracle.brute_force import FITS, Answer, alone, describe
from tests.oracle.costs import can_run, compute_time, cuts_around, memory_of_more, memory_of_one, sent, zero_times
from tests.oracle.network import Network
from tests.oracle.parts import on_stage
from tests.oracle.price import price
from tests.oracle.settings import SCHEDULES, Rules, Setting, schedules_of, settings


@dataclass(frozen=True)
class Found:
    """Stages with the least sum of times under some limits."""

    total: float
    largest: float
    sync: float
    plan: dict


class Table:
    """One setting: what every range of layers costs as a stage, and how far every two slots are apart.

    Arrays go by mode, first layer and the layer behind the last, and are infinite where that is no range; `levels` goes
    by slot and later slot.
    """

    def __init__(self, problem: dict, network: Network, setting: Setting) -> None:
        self.problem, self.network, self.setting = problem, network, setting
        [self.candidate] = setting.candidates
        self.count = len(problem["profile"]["layers"])
        self.slots = setting.replica_devices // setting.width
        self.most = min(self.count, self.slots)
        self.modes = Rules(problem).modes(setting, self.candidate, 1, setting.devices([self.candidate]))
        self.capacity = problem["cluster"]["memory"] * FITS

    @cached_property
    def stages(self) -> np.ndarray:
        """Time without transfers, time once a batch, memory with one micro-batch in flight and for each further one."""
        problem, candidate, setting = self.problem, self.candidate, self.setting
        found = np.full((4, len(self.modes), self.count + 1, self.count + 1), inf)
        for first in range(self.count):
            for behind in range(first + 1, self.count + 1):
                layers = range(first, behind)
                groups = sent(problem, self.network, setting, candidate, layers)
                for mode, (chosen, zero) in enumerate(self.modes):
                    recompute = on_stage(problem, [layers], chosen)
                    if not can_run(candidate, layers, recompute):
                        continue
                    compute = compute_time(candidate, layers, recompute)
                    shared = zero_times(problem, groups, compute, zero)
                    one = memory_of_one(problem, candidate, setting, layers, recompute, zero)
                    further = memory_of_more(candidate, layers, recompute, self.cut(first))
                    found[:, mode, first, behind] = compute + shared.often, shared.once, one, further
        return found

    def cut(self, first: int) -> float:
        """Bytes over the boundary in front of this layer."""
        sets = [frozenset(range(first, self.count)), frozenset()]
        return cuts_around(self.problem, self.candidate, sets, 1)[0]

    def memory(self, following: int) -> np.ndarray:
        """Memory of a stage that so many stages follow."""
        one, further = self.stages[2:]
        flying = self.setting.pipeline.in_flight(1, following + 1, self.setting.micro_batches)
        return one if flying == 1 else one + (flying - 1) * further

    def fitting(self, kind: int, following: int, sync_limit: float = inf) -> np.ndarray:
        """Time (0) or time once a batch (1) of a stage in each mode, infinite where it exceeds memory or the limit."""
        kept = (self.memory(following) <= self.capacity) & (self.stages[1] <= sync_limit)
        return np.where(kept, self.stages[kind], inf)

    @cached_property
    def transfers(self) -> np.ndarray:
        """What receiving the tensor in front of each layer takes over each level."""
        cuts = [self.cut(first) for first in range(self.count)] + [0.0]
        levels = range(len(self.network.capacities))
        return np.array([[self.network.point_to_point(cut, level) for level in levels] for cut in cuts])

    @cached_property
    def levels(self) -> np.ndarray:
        """The level of the boundary between blocks in two slots, the worst over the replicas; -1 where out of order.

        A group is a range of devices, so two blocks lie in one group if the first device and the last one do.
        """
        width = self.setting.width
        offsets = np.arange(self.slots) * width
        worst = np.zeros((self.slots, self.slots), dtype=int)
        for replica in range(self.setting.replicas):
            first = self.setting.first_device(offsets, width, replica)
            last = first + width - 1
            apart = [first[:, None] // capacity != last[None, :] // capacity for capacity in self.network.capacities]
            worst = np.maximum(worst, sum(map(np.asarray, apart)))
        return np.where(np.arange(self.slots)[:, None] < np.arange(self.slots)[None, :], worst, -1)

    def least_largest(self, values) -> np.ndarray:
        """For each number of stages, the least that the largest value can be, over partitions and modes.

        `values(following)` gives the value of every stage that so many stages follow.
        """
        found = np.full((self.most + 1, self.count + 1), inf)
        found[0, self.count] = -inf
        for stages in range(1, self.most + 1):
            one = values(stages - 1).min(axis=0)
            found[stages] = np.maximum(one, found[stages - 1][None, :]).min(axis=1)
        return found[:, 0]

    def times(self, following: int, time_limit: float, sync_limit: float) -> np.ndarray:
        """Time of a stage in its fastest mode, by first layer, layer behind, level in front and level behind."""
        alone = self.fitting(0, following, sync_limit).min(axis=0)
        arriving = self.transfers[:, None, :, None] + self.transfers[None, :, None, :]
        together = alone[:, :, None, None] + arriving
        return np.where(together <= time_limit, together, inf)

    def run(self, stages: int, time_limit: float = inf, sync_limit: float = inf) -> tuple[list, list, list]:
        """`first`, `times` and `rest` for every number of stages up to this one.

        `rest[k][a][l][p]` is the least `first[k][a][l][q]` of all `q` behind `p` and at level `l` from it.
        """
        count, depth = self.count, len(self.network.capacities)
        nothing = np.full((count + 1, depth, self.slots), inf)
        nothing[count] = 0.0  # Behind the last stage no tensor crosses: any level does.
        first, times, rest = [nothing], [None], [nothing]
        at_level = [self.levels == level for level in range(depth)]
        for following in range(stages):
            times.append(self.times(following, time_limit, sync_limit))
            sums = times[-1][..., None] + rest[-1][None, :, None, :, :]
            first.append(sums.min(axis=(1, 3)))
            behind = [
                np.where(near, first[-1][:, level, None, :], inf).min(axis=2) for level, near in enumerate(at_level)
            ]
            rest.append(np.stack(behind, axis=1))
        return first, times, rest

    def least_sums(self) -> np.ndarray:
        """For each number of stages, the least sum of times; no plan of the setting has a smaller one."""
        first, _, _ = self.run(self.most)
        return np.array([inf] + [layer_sums[0, 0].min() for layer_sums in first[1:]])

    def least(self, stages: int, time_limit: float, sync_limit: float) -> Found | None:
        """The plan of so many stages with the least sum of times, under limits on every stage."""
        first, times, rest = self.run(stages, time_limit, sync_limit)
        total = first[stages][0, 0].min()
        if total == inf:
            return None
        layer, level, slot = 0, 0, int(first[stages][0, 0].argmin())
        partition, slots, modes, spent, syncs = [], [], [], [], []
        for left in range(stages, 0, -1):
            sums = times[left][layer, :, level, :] + rest[left - 1][:, :, slot]
            behind, next_level = np.unravel_index(sums.argmin(), sums.shape)
            mode = int(self.fitting(0, left - 1, sync_limit)[:, layer, behind].argmin())
            partition.append(tuple(range(layer, behind)))
            slots.append(slot)
            modes.append(self.modes[mode])
            spent.append(float(times[left][layer, behind, level, next_level]))
            syncs.append(float(self.stages[1, mode, layer, behind]))
            if left > 1:
                later = np.where(self.levels[slot] == next_level, first[left - 1][behind, next_level], inf)
                slot = int(later.argmin())
            layer, level = int(behind), int(next_level)
        offsets = [slot * self.setting.width for slot in slots]
        plan = describe(self.setting, alone(partition), [self.candidate] * stages, offsets, modes)
        return Found(float(total), max(spent), max(syncs), plan)


class ChainSearch:
    """The best plan of one chain."""

    def __init__(self, problem: dict) -> None:
        count = len(problem["profile"]["layers"])
        if problem["profile"]["edges"] != [[layer, layer + 1] for layer in range(count - 1)]:
            raise ValueError("the chain program plans chains, their layers in order")
        if problem.get("constraints") or problem.get("fixed") or (problem.get("search") or {}).get("mixed"):
            raise ValueError("the chain program knows no constraints, no decisions and no mixed candidates")
        if not set(schedules_of(problem)) <= set(SCHEDULES):
            raise ValueError(f"the chain program knows the schedules {', '.join(SCHEDULES)}")
        if problem["training"].get("price", "closed-form") != "closed-form":
            raise ValueError("the chain program knows the closed form only; the brute force replays")
        if any(candidate.get("busy") is not None for candidate in problem["profile"]["candidates"]):
            raise ValueError(
                "the chain program knows no ports: there, what is sent once per batch depends on the places"
            )
        self.problem = problem
        self.network = Network(problem["cluster"])
        self.best = inf
        self.plan: dict | None = None

    def run(self) -> Answer:
        tables = [Table(self.problem, self.network, setting) for setting in settings(self.problem, self.network)]
        tables = sorted((table for table in tables if table.modes), key=self.compute_bound)
        for table in tables:
            if self.compute_bound(table) < self.best:
                self.search(table)
        if self.plan is None:
            worst = [table.least_largest(table.memory).min() for table in tables]
            least = min(worst, default=inf)
            return Answer(None, None, None if least == inf else least)
        return Answer(price(self.problem, self.plan)["batch_time"], self.plan, None)

    def compute_bound(self, table: Table) -> float:
        """A bound on the step time of every plan of a setting: all layers in turn, without extras, well balanced."""
        compute = sum(table.candidate["forward"]) + sum(table.candidate["backward"])
        pairs = [self.weights(table, stages) for stages in range(1, table.most + 1)]
        return min(a * compute / stages + b * compute for stages, (a, b) in enumerate(pairs, start=1))

    def weights(self, table: Table, stages: int) -> tuple[int, int]:
        return table.setting.pipeline.pair(table.setting.micro_batches, stages)

    def search(self, table: Table) -> None:
        sums = table.least_sums()
        slowest = table.least_largest(lambda following: table.fitting(0, following))
        syncs = table.least_largest(lambda following: table.fitting(1, following))
        bounds = []
        for stages in range(1, table.most + 1):
            a, b = self.weights(table, stages)
            if sums[stages] < inf:
                slowest_at_least = max(sums[stages] / stages, slowest[stages])
                bounds.append((a * slowest_at_least + b * sums[stages] + syncs[stages], stages))
        for bound, stages in sorted(bounds):
            if bound < self.best:
                self.walk(table, stages, float(slowest[stages]), float(syncs[stages]))

    def walk(self, table: Table, stages: int, slowest: float, sync: float) -> None:
        """Limit `y` further and further, until no plan of so many stages can be better than the best."""
        a, b = self.weights(table, stages)
        sync_limit = inf
        while True:
            found = self.fastest(table, stages, slowest, sync_limit, self.best - sync)
            if found is None:
                return
            total = a * found.largest + b * found.total + found.sync
            if total < self.best:
                self.best, self.plan = total, found.plan
            sync_limit = nextafter(found.sync, -inf)

    def fastest(self, table: Table, stages: int, slowest: float, sync_limit: float, target: float) -> Found | None:
        """The least `A * max t + B * sum t` under a limit on `y`, or None where it is not below the target."""
        a, b = self.weights(table, stages)
        best, time_limit = None, inf
        while True:
            found = table.least(stages, time_limit, sync_limit)
            if found is None or a * max(found.total / stages, slowest) + b * found.total >= target:
                return best
            value = a * found.largest + b * found.total
            if value < target:
                best, target = found, value
            time_limit = nextafter(found.largest, -inf)


def solve_chain(problem: dict) -> Answer:
    """The best of all plans of a chain in SI numbers."""
    return ChainSearch(problem).run()
