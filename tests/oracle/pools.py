"""Section 8 of PROBLEM.md: every plan of a problem with `cluster.pools`, and every number of an explicit one.

A pool by itself is a cluster, so that its stages cost what they cost there, in a problem and a setting of its own; what
is written here is which pools, candidates and places a plan may combine, and the boundaries between pools. Schedules
have one chunk for each stage.
"""

from dataclasses import dataclass
from itertools import chain, combinations, pairwise, product
from math import inf

from tests.oracle.brute_force import FITS, TIE, WORSE, Answer
from tests.oracle.costs import can_run, compute_time, cuts_around, memory, sent, stage_times, zero_times
from tests.oracle.makespan import chunks_of, priced, replayed
from tests.oracle.modes import Timed, pricing_of
from tests.oracle.network import Network
from tests.oracle.partitions import closed_under_successors, downsets, partitions
from tests.oracle.parts import on_stage
from tests.oracle.schedules import pipeline_of
from tests.oracle.settings import (
    RANK_ORDERS,
    Rules,
    Setting,
    given,
    hides_messages,
    micro_batches,
    schedules_of,
    zero_degrees_of,
)


def has_pools(problem: dict) -> bool:
    return given(problem["cluster"], "pools", None) is not None


class Cluster:
    """The pools of a problem by name, each as a problem of its own."""

    def __init__(self, problem: dict) -> None:
        self.problem = problem
        pools = problem["cluster"]["pools"]
        self.names = [pool["name"] for pool in pools]
        self.alone = {
            pool["name"]: {**problem, "cluster": {key: value for key, value in pool.items() if key != "name"}}
            for pool in pools
        }
        self.networks = {pool["name"]: Network(pool) for pool in pools}
        self.links = {frozenset(each["pools"]): each for each in given(problem["cluster"], "between", [])}

    def capacity(self, pool: str) -> float:
        return self.alone[pool]["cluster"]["memory"]

    def crossing(self, size: float, one: str, two: str) -> float:
        """Seconds of a message from one pool to another."""
        link = self.links[frozenset((one, two))]
        return given(link, "latency", 0.0) + size / link["bandwidth"] if size else 0.0

    def setting(self, candidate: dict, replicas: int, order: str, pipeline, degree: int | None) -> Setting:
        """What the stages of one pool share."""
        width, count = candidate["width"], micro_batches(self.problem, candidate["samples"], replicas)
        if count is None:
            count = -(-self.problem["training"]["global_batch"] // (replicas * candidate["samples"]))
        own = width * (self.networks[candidate["pool"]].size // (replicas * width))
        return Setting((candidate,), width, replicas, order, pipeline, count, own, degree)


@dataclass(frozen=True)
class Neighbours:
    """What lies on either side of a stage: a level of its own pool, or the name of another."""

    before: int | str | None
    behind: int | str | None

    def messages(self, cluster: Cluster, pool: str, cuts) -> list[list[tuple[int, float]]]:
        """The messages that arrive and those that return: the level, -1 for none of the pool's, and the seconds."""
        found = []
        for place, size in zip((self.before, self.behind), cuts, strict=True):
            if isinstance(place, str):
                found.append([(-1, cluster.crossing(size, pool, place))])
            elif place is None:
                found.append([(-1, 0.0)])
            else:
                found.append([(place, cluster.networks[pool].point_to_point(size, place))])
        return found

    def levels(self, cluster: Cluster, pool: str) -> tuple[int, int]:
        """As a plan file writes them: -1 for no boundary, one above the outermost for that of another pool."""
        outside = len(cluster.networks[pool].capacities)
        before, behind = (
            -1 if place is None else outside if isinstance(place, str) else place
            for place in (self.before, self.behind)
        )
        return before, behind


def neighbours(cluster: Cluster, settings: dict, pools, offsets) -> list[Neighbours] | None:
    """Of each stage; None: two neighbours lie in pools that nothing joins."""
    between: list[int | str | None] = [None]
    others: list[tuple] = []
    for i, (here, there) in enumerate(pairwise(pools)):
        if here == there:
            setting = settings[here]
            places = [(offsets[each], setting.width) for each in (i, i + 1)]
            level = setting.level_between(cluster.networks[here], *places)
            others.append((level, level))
        elif frozenset((here, there)) in cluster.links:
            others.append((there, here))
        else:
            return None
    sides = [between[0], *chain.from_iterable(others), None]
    return [Neighbours(*sides[2 * i : 2 * i + 2]) for i in range(len(pools))]


def chosen_of(problem: dict, plan: dict) -> list[dict]:
    named = {candidate["name"]: candidate for candidate in problem["profile"]["candidates"]}
    return [named[stage["candidate"]] for stage in plan["stages"]]


def settings_of(cluster: Cluster, plan: dict) -> dict[str, Setting]:
    """The setting of each pool that a plan uses."""
    pipeline = pipeline_of(cluster.problem, plan["schedule"])
    shared = (plan["replicas"], plan["rank_order"], pipeline, plan.get("zero_degree"))
    return {each["pool"]: cluster.setting(each, *shared) for each in chosen_of(cluster.problem, plan)}


def price(problem: dict, plan: dict) -> dict:
    """The step time, `M`, whether memory suffices, and FORMATS.md's numbers of every stage."""
    cluster, settings, chosen = Cluster(problem), settings_of(Cluster(problem), plan), chosen_of(problem, plan)
    count, pools = len(chosen), [candidate["pool"] for candidate in chosen]
    sets = downsets([stage["layers"] for stage in plan["stages"]])
    beside = neighbours(cluster, settings, pools, [stage["offset"] for stage in plan["stages"]])
    assert beside is not None
    stages, filling, chunks, fits = [], [], [], True
    hides = hides_messages(problem, plan["schedule"])
    for i, (stage, candidate, pool) in enumerate(zip(plan["stages"], chosen, pools, strict=True)):
        setting, own = settings[pool], cluster.alone[pool]
        weights = setting.pipeline.weights(setting.micro_batches, count)
        layers, zero = stage["layers"], stage["zero"]
        recompute = on_stage(problem, [layers], stage["recompute"])
        cuts = cuts_around(problem, candidate, sets, i + 1)
        compute = compute_time(candidate, layers, recompute)
        shared = zero_times(own, sent(own, cluster.networks[pool], setting, candidate, layers), compute, zero)
        arriving, returning = beside[i].messages(cluster, pool, cuts)
        time, added, sync = stage_times(
            own, setting, candidate, layers, recompute, shared, weights, arriving, returning
        )
        filling.append(added)
        ways = [[seconds for _, seconds in way] for way in (arriving, returning)]
        chunks.append(chunks_of(candidate, [tuple(layers)], recompute, shared, *ways, hides, time))
        moments = setting.pipeline.moments(i + 1, count, setting.micro_batches)
        size = memory(own, candidate, setting, [tuple(layers)], recompute, zero, moments, [cuts[0]])
        fits = fits and size <= cluster.capacity(pool) * FITS
        before, behind = beside[i].levels(cluster, pool)
        stages.append(
            {
                "pool": pool,
                "time": time,
                "sync_time": sync,
                "memory": size,
                "in_flight": setting.pipeline.in_flight(i + 1, count, setting.micro_batches),
                "level_in": before,
                "level_out": behind,
                "devices": [setting.first_device(stage["offset"], candidate["width"], 0), candidate["width"]],
            }
        )
    syncs = [stage["sync_time"] for stage in stages]
    closed = weights[0] * max(stage["time"] for stage in stages) + sum(filling) + max(syncs)
    return {
        **priced(problem, setting.pipeline, setting.micro_batches, closed, chunks, syncs),
        "micro_batches": setting.micro_batches,
        "fits": fits,
        "stages": stages,
    }


def violations(problem: dict, plan: dict) -> list[str]:
    """The rules of PROBLEM.md that the plan breaks, memory aside."""
    cluster, settings, chosen = Cluster(problem), settings_of(Cluster(problem), plan), chosen_of(problem, plan)
    partition = [stage["layers"] for stage in plan["stages"]]
    modes = [(stage["recompute"], stage["zero"]) for stage in plan["stages"]]
    edges, rules, pools = problem["profile"]["edges"], Rules(problem), [each["pool"] for each in chosen]
    devices = plan["replicas"] * sum(candidate["width"] for candidate in chosen)
    usable = [rules.modes(settings[each["pool"]], each, len(chosen), devices) for each in chosen]
    blocks = [(pool, stage["offset"], settings[pool]) for pool, stage in zip(pools, plan["stages"], strict=True)]
    in_pools = [[each for each in blocks if each[0] == pool] for pool in settings]
    kept = {
        "candidates of a pool are one": all(
            len({each["name"] for each in chosen if each["pool"] == pool}) == 1 for pool in pools
        ),
        "candidates take as many samples": len({each["samples"] for each in chosen}) == 1,
        "the batch can be dealt": micro_batches(problem, chosen[0]["samples"], plan["replicas"]) is not None,
        "the widths can be aligned": all(cluster.networks[each["pool"]].admits(each["width"]) for each in chosen),
        "the rank order may be used": plan["rank_order"] in given(problem.get("search"), "rank_order", RANK_ORDERS),
        "the shard groups may be used": plan.get("zero_degree") in zero_degrees_of(problem),
        "the shard groups are even": all(settings[each["pool"]].shards_evenly(each) for each in chosen),
        "the schedule may be used": plan["schedule"] in schedules_of(problem),
        "neighbours are joined": neighbours(cluster, settings, pools, [each[1] for each in blocks]) is not None,
        "every layer is in one stage": sorted(chain.from_iterable(partition))
        == list(range(len(problem["profile"]["layers"]))),
        "no stage is empty": all(partition),
        "stages are cut by downsets": all(closed_under_successors(each, edges) for each in downsets(partition)),
        "offsets are multiples of the width": all(offset % own.width == 0 for _, offset, own in blocks),
        "blocks lie in the replica": all(0 <= offset <= own.replica_devices - own.width for _, offset, own in blocks),
        "blocks of a pool are disjoint and in order": all(
            one + own.width <= two for same in in_pools for (_, one, own), (_, two, _) in pairwise(same)
        ),
        "modes may be used": all(mode in of_stage for mode, of_stage in zip(modes, usable, strict=True)),
        "layers can run in their modes": all(
            can_run(candidate, layers, on_stage(problem, [layers], recompute))
            for candidate, layers, (recompute, _) in zip(chosen, partition, modes, strict=True)
        ),
        "uniform choices are uniform": any(set(modes) <= set(kept) for kept in rules.joint_modes(modes)),
        "the partition may be used": rules.allow_partition(partition),
    }
    return [rule for rule, holds in kept.items() if not holds]


class Search:
    """The exhaustive search: schedules, replicas, orders, shard groups, a candidate for each pool, stages, places."""

    def __init__(self, problem: dict, fits: float = FITS) -> None:
        self.problem = problem
        self.cluster = Cluster(problem)
        self.rules = Rules(problem)
        self.fits = fits
        self.limit, self.best = inf, {}
        self.over = inf

    def run(self) -> Answer:
        profile = self.problem["profile"]
        every = partitions(len(profile["layers"]), profile["edges"])
        allowed = [each for each in every if self.rules.allow_partition(each)]
        for *shared, used, chosen in self.shared_settings():
            self.settings, self.chosen, self.known = used, chosen, {}
            for partition in sorted(allowed, key=len, reverse=True):
                for pools in product(self.settings, repeat=len(partition)):
                    if set(pools) == set(self.settings):
                        self.try_stages(shared, partition, pools)
        if not self.best:
            return Answer(None, None, None if self.over == inf else self.over)
        least = min(total for total, _ in self.best.values())
        _, plan = min(
            ((key, plan) for key, (total, plan) in self.best.items() if total <= least * TIE), key=lambda e: e[0]
        )
        return Answer(least, plan, None)

    def shared_settings(self):
        """What all stages share, and the setting and the candidate of each pool used."""
        profile, search = self.problem["profile"], self.problem.get("search")
        orders, degrees = given(search, "rank_order", RANK_ORDERS), zero_degrees_of(self.problem)
        usable = [each for each in profile["candidates"] if self.cluster.networks[each["pool"]].admits(each["width"])]
        sets = [
            chosen
            for count in range(1, len(self.cluster.names) + 1)
            for chosen in combinations(usable, count)
            if len({each["pool"] for each in chosen}) == count and len({each["samples"] for each in chosen}) == 1
        ]
        for name, chosen in product(schedules_of(self.problem), sets):
            pipeline = pipeline_of(self.problem, name)
            most = min(self.cluster.networks[each["pool"]].size // each["width"] for each in chosen)
            for replicas, order, degree in product(range(1, most + 1), orders, degrees):
                if micro_batches(self.problem, chosen[0]["samples"], replicas) is None:
                    continue
                own = {each["pool"]: self.cluster.setting(each, replicas, order, pipeline, degree) for each in chosen}
                if all(own[each["pool"]].shards_evenly(each) for each in chosen):
                    yield pipeline, replicas, order, degree, own, {each["pool"]: each for each in chosen}

    def remembered(self, key, make):
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    def options(self, pool: str, layers, stages: int, number: int, sets, devices: int):
        """The modes of a stage, each with its memory, its cost of parameters and the bytes around the stage."""
        candidate, setting, own = self.chosen[pool], self.settings[pool], self.cluster.alone[pool]
        cuts = cuts_around(self.problem, candidate, sets, number)
        moments = setting.pipeline.moments(number, stages, setting.micro_batches)
        groups = sent(own, self.cluster.networks[pool], setting, candidate, layers)
        found = []
        for mode in self.rules.modes(setting, candidate, stages, devices):
            recompute, zero = on_stage(self.problem, [layers], mode[0]), mode[1]
            if can_run(candidate, layers, recompute):
                shared = zero_times(own, groups, compute_time(candidate, layers, recompute), zero)
                size = memory(own, candidate, setting, [layers], recompute, zero, moments, [cuts[0]])
                found.append((mode, size, shared))
        return cuts, found

    def try_stages(self, shared, partition, pools) -> None:
        pipeline, replicas, *_ = shared
        stages, widths = len(partition), {pool: own.width for pool, own in self.settings.items()}
        counts = {pool: pools.count(pool) for pool in self.settings}
        if any(counts[pool] * widths[pool] > self.settings[pool].replica_devices for pool in counts):
            return
        if any(one != two and frozenset((one, two)) not in self.cluster.links for one, two in pairwise(pools)):
            return
        count = self.settings[pools[0]].micro_batches
        if not pipeline.admits(stages, count):
            return
        devices = replicas * sum(widths[pool] for pool in pools)
        sets = tuple(downsets(partition))
        pricing = pricing_of(self.problem, pipeline, count, pipeline.weights(count, stages))
        every = [
            self.remembered(
                ("options", pool, layers, stages, i, sets[i : i + 2], devices),
                lambda i=i, pool=pool, layers=layers: self.options(pool, layers, stages, i + 1, sets, devices),
            )
            for i, (pool, layers) in enumerate(zip(pools, partition, strict=True))
        ]
        for options in self.together([found for _, found in every]):
            over = max(
                min(size for _, size, _ in stage) - self.cluster.capacity(pool)
                for stage, pool in zip(options, pools, strict=True)
            )
            self.over = min(self.over, over)
            fitting = [
                [each for each in stage if each[1] <= self.cluster.capacity(pool) * self.fits]
                for stage, pool in zip(options, pools, strict=True)
            ]
            if all(fitting):
                cuts = [each for each, _ in every]
                self.try_places(shared, partition, pools, pricing, cuts, fitting, devices)

    def together(self, every):
        """The options from which each stage chooses freely: all, unless a rule asks for uniform modes."""
        if not all(every):
            return
        if not self.rules.uniform:
            yield every
            return
        for kept in self.rules.joint_modes([mode for stage in every for mode, _, _ in stage]):
            options = [[each for each in stage if each[0] in kept] for stage in every]
            if all(options):
                yield options

    def try_places(self, shared, partition, pools, pricing, cuts, fitting, devices) -> None:
        weights = pricing.weights
        least = [
            min(
                compute_time(self.chosen[pool], layers, on_stage(self.problem, [layers], mode[0])) + own.often
                for mode, _, own in stage
            )
            for stage, pool, layers in zip(fitting, pools, partition, strict=True)
        ]
        if weights[0] * max(least) + (weights[1] * sum(least) if pricing.aligned else 0.0) > self.limit:
            return
        key = (devices, len(pools), len(self.settings))
        for beside, offsets in self.placements(pools):
            timed = [
                [self.timed(pool, layers, weights, around, cut, each) for each in stage]
                for pool, layers, around, cut, stage in zip(pools, partition, beside, cuts, fitting, strict=True)
            ]
            known, _ = self.best.get(key, (inf, None))
            for total, modes in pricing.choices(timed, min(known, self.limit)):
                if key not in self.best or total < self.best[key][0]:
                    self.best[key] = (total, self.describe(shared, partition, pools, offsets, modes))
                    self.limit = min(self.limit, total * WORSE)

    def placements(self, pools):
        """Every set of places with other boundaries, and what lies beside each stage there."""

        def made():
            of_pool = {
                pool: list(setting.placements([setting.width] * pools.count(pool)))
                for pool, setting in self.settings.items()
            }
            found = {}
            for places in product(*of_pool.values()):
                left = dict(zip(of_pool, map(iter, places), strict=True))
                offsets = tuple(next(left[pool]) for pool in pools)
                beside = neighbours(self.cluster, self.settings, pools, offsets)
                found.setdefault(tuple(beside), offsets)
            return list(found.items())

        return self.remembered(("places", pools), made)

    def timed(self, pool, layers, weights, around, cuts, option) -> Timed:
        mode, _, shared = option

        def made():
            arriving, returning = around.messages(self.cluster, pool, cuts)
            setting, own, candidate = self.settings[pool], self.cluster.alone[pool], self.chosen[pool]
            recompute = on_stage(self.problem, [layers], mode[0])
            times = stage_times(own, setting, candidate, layers, recompute, shared, weights, arriving, returning)
            if not replayed(own, setting.pipeline):
                return Timed(mode, *times)
            ways = [[seconds for _, seconds in way] for way in (arriving, returning)]
            hides = hides_messages(own, setting.schedule)
            return Timed(mode, *times, chunks_of(candidate, [layers], recompute, shared, *ways, hides, times[0]))

        return self.remembered(("timed", pool, layers, weights, around, cuts, mode), made)

    def describe(self, shared, partition, pools, offsets, modes) -> dict:
        pipeline, replicas, order, degree = shared
        rows = zip(partition, pools, offsets, modes, strict=True)
        return {
            "replicas": replicas,
            "rank_order": order,
            "schedule": pipeline.name,
            "zero_degree": degree,
            "stages": [
                {
                    "layers": list(layers),
                    "candidate": self.chosen[pool]["name"],
                    "offset": offset,
                    "recompute": recompute,
                    "zero": zero,
                }
                for layers, pool, offset, (recompute, zero) in rows
            ],
        }


def solve(problem: dict, fits: float = FITS) -> Answer:
    """The best of all plans of a profile problem with pools.

    Of a problem without one, `reachable_memory` is by how many bytes the best plan exceeds its fullest device.
    """
    return Search(problem, fits).run()
