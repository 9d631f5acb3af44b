#!/usr/bin/env python3
"""Check a certificate of `nest certify`: no plan of its instance is faster than a bound; and the price of its plan.

The standard library alone, written from the problem's statement; `docs/explanation/certificate.md` has a lemma for each
rule. Nothing of nest is imported, and nothing is searched that the certificate does not name.
"""

import gc
import gzip
import json
import sys
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property, wraps
from itertools import groupby, pairwise
from math import fsum, inf
from operator import attrgetter, le
from os import PathLike
from typing import Any, NamedTuple

ROUND = 1e-10
"""Share of the bound left to rounding: sums of a thousand numbers of one sign lose less than 1e-12 of their total."""

Choice = tuple[str, int]  # Recompute mode and ZeRO stage.
Run = tuple[int, int]  # Layers between a closed set and a larger one, by number.
Runs = Sequence[Run]
Around = Sequence[tuple[int, int]]  # Levels in front of and behind each run.
Stage = tuple[Runs, Choice, Around]
Moment = Sequence[float]  # Micro-batches in flight of each chunk of a stage.
Terms = tuple[float, float, float]  # Of the slowest stage, the sum, and once per batch.
Group = tuple[tuple[tuple[int, ...], ...], int]  # Shapes of sets of devices side by side, and members of each.
Ways = Sequence[tuple[float, float, Sequence[tuple[float, float]]]]  # Seconds, seconds per byte, and both by port.
Sharding = tuple[list[float], float, list[float], float, float]  # See `Instance.sharding`.
Parts = tuple[list[float], list[float], float, float, float, float, float, float]  # See `Instance.stage`.
Pass = tuple[str, int, int, int]  # Kind, micro-batch, chunk, and whether the next runs beside it.
Lengths = dict[tuple[str, int], float]  # Seconds by kind of pass and chunk.
Option = tuple[float, float, float, float, float, Choice]  # Terms, bytes of one micro-batch and of another, choice.
Link = tuple[int, int, list[float], list[Option]]  # A stage between two cuts.
Ends = tuple[tuple[int, int | None], ...]  # Places of layers, with the blocks for recomputation in front, if known.
Numbers = dict[str, Any]  # Part of the certificate.

ANY = -2  # Level of a boundary that is not decided: the cheapest counts.
END = -1  # Level of no boundary.
RULES = ("totals", "counts", "recurrence", "placement", "replay")  # The first two bound sets of choices together.
MOST_CUTS = 3000  # Closed sets of layers of a graph that is checked.
MOST_ENDS = 8  # Layers beside the longest row of equal ones, distributed in every way.
MOST_STATES = 3_000_000  # States of a recurrence or replays of a case.


def remembered(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Cache what a method returns, by these decisions of its first argument, a case, and by its other arguments."""
    decisions = attrgetter(*names) if names else lambda first: first

    def cached(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def found(self: Any, first: Any, *others: Any) -> Any:
            cache, key = self.cache[method], (decisions(first), others)
            answer = cache.get(key)
            if answer is None:
                answer = cache[key] = method(self, first, *others)
            return answer

        return found

    return cached


class Choices(tuple[Choice, ...]):
    """Choices of which a stage takes one; a tuple that computes its hash once."""

    alike = False  # Whether all stages of a plan have one ZeRO stage.

    @cached_property
    def key(self) -> int:
        """Hash."""
        return super().__hash__()

    def __hash__(self) -> int:
        return self.key

    @cached_property
    def names(self) -> frozenset[str]:
        """Pure recompute modes."""
        return frozenset(name for mode, _ in self for name in mode.split(":")[::2])

    @cached_property
    def zeros(self) -> frozenset[int]:
        """ZeRO stages."""
        return frozenset(zero for _, zero in self)

    @cached_property
    def families(self) -> list[list[tuple[int, Choice]]]:
        """Choices that differ in the blocks that they recompute alone, by their number."""
        found = defaultdict(list)
        for mode, zero in self:
            first, *parts = mode.split(":")
            found[first, *parts[1:], zero].append((int(parts[0]) if parts else 0, (mode, zero)))
        return [sorted(family) for family in found.values()]


class Refused(Exception):  # noqa: N818 - a verdict
    """A certificate that proves nothing; the text says where."""


class Costs:
    """Numbers of a candidate, and their sums over runs of layers."""

    def __init__(
        self, data: Numbers, cuts: list[int], tensors: list[tuple[int, list[int]]], levels: Sequence[object]
    ) -> None:
        self.width, self.samples, self.data = data["width"], data["samples"], data
        self.layers = layers = len(data["forward"])
        self.forward, self.backward, self.busy = data["forward"], data["backward"], data.get("busy")
        self.weights = data.get("weight_gradients") or [each / 2 for each in self.backward]
        self.modes = {name: dict(mode) for name, mode in data["recompute"].items()}
        self.state = [data["state"][name] for name in sorted(data["state"])]
        rows = [self.forward, self.backward, self.weights, *(self.busy or ())]
        for group in self.state:
            rows += [group[name] for name in ("weights", "gradients", "optimizer", "update")]
            rows += [group["pieces"]] if group.get("pieces") else []
        for mode in self.modes.values():
            mode["bad"] = [each is None for each in mode["first"]]
            mode["first"] = [0.0 if each is None else each for each in mode["first"]]
            mode["busy"] = mode.get("busy") or ([[0.0] * layers] * len(levels) if self.busy else [])
            rows += [*(mode[name] for name in ("bad", "extra", "first", "more", "peak")), *mode["busy"]]
        sizes = data["edge_bytes"]
        if len(sizes) != len(tensors) or not all(len(row) == layers for row in rows):
            raise Refused("a row of the instance has another length than the layers")
        if not all(0 <= each < 1e31 for row in (sizes, *rows) for each in row):
            raise Refused("a number of the instance is negative or not finite")
        kinds: dict[Any, int] = {}
        self.by_layer = [kinds.setdefault(column, layer) for layer, column in enumerate(zip(*rows, strict=True))]
        self.kinds = list(kinds.values())  # First layer of each class of equal ones.
        self.numbers = [self.by_layer.count(kind) for kind in self.kinds]
        pairs = list(zip(tensors, sizes, strict=True))
        self.cut = [sum(size for (maker, readers), size in pairs if crosses(cut, maker, readers)) for cut in cuts]
        self.cuts, self.sums, self.gathered = cuts, {}, data.get("gathered", 0.0)
        self.cache: dict[Any, dict[Any, Any]] = defaultdict(dict)

    def over(self, key: Hashable, row: Sequence[float], runs: Runs) -> float:
        """Sum of a row over runs of layers, each from one closed set to a larger one; rounded once a run."""
        total = 0.0
        for run in runs:
            if (key, run) not in self.sums:
                self.sums[key, run] = fsum([row[layer] for layer in self.inside(run)])
            total += self.sums[key, run]
        return total

    @remembered()
    def inside(self, run: Run) -> list[int]:
        """Layers of a run."""
        inside = self.cuts[run[1]] & ~self.cuts[run[0]]
        return [layer for layer in range(self.layers) if inside >> layer & 1]


def check_numbers(data: Numbers) -> None:
    """Refuse an instance with numbers for which the formulas have no meaning; rows are checked by `Costs`."""
    layers, candidates, schedules, found = data["layers"], data["candidates"], data["schedules"], []
    counts = [layers, data["global_batch"], *(level[0] for level in data["levels"])]
    counts += [each[name] for each in candidates for name in ("width", "samples")]
    counts += [each[name] for each in schedules for name in ("chunks", "copies")]
    counts += [each for each in data["zero_degrees"] if each is not None]
    if not all(type(each) is int and each > 0 for each in counts):
        raise Refused("a count of the instance is no whole number from 1")
    named = ("together", "partition", "units", "blocks", "recomputed_units")
    groups = [layer for name in named for group in data.get(name) or () for layer in group]
    groups += [layer for maker, readers in data["tensors"] for layer in (maker, *readers)]
    if not all(type(each) is int and 0 <= each < layers for each in groups):
        raise Refused("the instance names a layer that it has not")
    if any(len(group) != len({*group}) for name in named for group in data.get(name) or ()):
        raise Refused("the instance names a layer twice in one group")
    for each in candidates:
        found.append(each.get("gathered", 0.0))
        for group in each["state"].values():
            ranks = group["ranks"]
            if not ranks or ranks != sorted({*ranks} & {*range(each["width"])}):
                raise Refused("the ranks of a group are not those of a block")
    names = ("memory", "reserve", "exposed", "exposed_often", "synchronisation", "sharded_synchronisation")
    found += [data[name] for name in names]
    for each in schedules:
        for decided, table in each["tables"].items():
            if table is not None:
                micro_batches, stages = map(int, decided.split(","))
                check_table(each["chunks"], micro_batches, stages, table)
                found += [*table["weights"][:3], abs(table["weights"][3])]
                found += [count for moments in table["held"] for moment in moments for count in moment]
    if not all(0 <= each < 1e31 for each in found):
        raise Refused("a number of the instance is negative or not finite")
    flags = [data[name] for name in ("uneven_batch", "hiding", "whole_gradients", "adapters")]
    flags += [each[name] for each in schedules for name in ("staggered", "hides", "replayed")]
    if not (all(type(each) is bool for each in flags) and {*data["rank_orders"]} <= {"pp-inner", "dp-inner"}):
        raise Refused("a flag or rank order of the instance is none")
    if not all(type(each) is int and 0 <= each <= 3 for each in data["zero"]):
        raise Refused("a ZeRO stage of the instance is none")


def check_table(chunks: int, micro_batches: int, stages: int, table: Numbers) -> None:
    """Refuse numbers of a schedule that are none of any schedule."""
    rows, stops = table["held"], table["route"]
    if len(table["weights"]) != 4:
        raise Refused("a schedule has other weights than four")
    if len(stops) != stages * chunks or sorted(stops) != sorted([*range(stages)] * chunks):
        raise Refused("a schedule's route does not lead through each stage once per chunk")
    if len(rows) != stages or not all(rows) or not all(len(moment) == chunks for row in rows for moment in row):
        raise Refused("a schedule has no micro-batches in flight for each chunk of each stage")
    for moments, order in zip(rows, table["order"], strict=True) if "order" in table else ():
        now, seen, passes = [0] * chunks, set(), defaultdict(list)
        for kind, batch, chunk, _ in order:
            passes[kind].append((batch, chunk))
            now[chunk] += {"f": 1, "i": 0}.get(kind, -1)
            seen.add(tuple(now))
        forward, whole, parts, weights = (passes.pop(kind, []) for kind in "fbiw")
        every = [divmod(number, chunks) for number in range(min(micro_batches * chunks, len(order) + 1))]
        if passes or not all(sorted(own) == every for own in (forward, whole + parts, whole + weights)):
            raise Refused("a stage of a schedule does not run every micro-batch forward and backward once")
        if order[-1][3]:
            raise Refused("the last pass of a stage of a schedule runs beside a further one")
        if not all(any(all(map(le, held, most)) for most in moments) for held in seen):
            raise Refused("a stage of a schedule has more micro-batches in flight than the instance says")


def crosses(cut: int, maker: int, readers: Sequence[int]) -> bool:
    """Return whether a tensor is made outside a closed set and read inside."""
    return not cut >> maker & 1 and any(cut >> reader & 1 for reader in readers)


class Case(NamedTuple):
    """Decisions of a plan before its stages."""

    candidate: int
    replicas: int
    order: int
    schedule: int
    degree: int | None
    stages: int
    batches: int  # Micro-batches of a replica.
    size: int  # Devices of a replica.

    def __str__(self) -> str:
        names = ("candidate", "replicas", "order", "schedule", "degree", "stages")
        return ", ".join(f"{name} {getattr(self, name)}" for name in names)


class Instance:
    """Sections 1 to 3 of the problem in numbers, and section 4's formulas."""

    def __init__(self, data: Numbers) -> None:
        check_numbers(data)
        self.data = data
        self.cache: dict[Any, dict[Any, Any]] = defaultdict(dict)
        self.levels = data["levels"]
        self.capacity, size = [], 1
        for fanout, bandwidth, latency in self.levels:
            size *= fanout
            self.capacity.append(size)
            if not (0 < bandwidth < inf and 0 <= latency < inf):
                raise Refused("a level of the instance is none")
        self.devices = size
        self.room = data["memory"] * (1 + 1.01e-12) - data["reserve"]  # Rounding may fill a stage by 1e-12 too much.
        self.tensors, self.layers = data["tensors"], data["layers"]
        self.cuts = self.closed_sets()
        self.place = {cut: index for index, cut in enumerate(self.cuts)}
        self.candidates = [Costs(each, self.cuts, self.tensors, self.levels) for each in data["candidates"]]
        self.schedules, self.orders = data["schedules"], data["rank_orders"]
        self.larger = self.pairs()
        self.units = [sum(1 << layer for layer in unit) for unit in data["recomputed_units"]]  # Blocks, as bits.
        self.unit_of = {layer: number for number, unit in enumerate(data["recomputed_units"]) for layer in unit}

    def closed_sets(self) -> list[int]:
        """Sets of layers that hold all readers of what they make, as bits, small ones first."""
        readers = [0] * self.layers
        for maker, others in self.tensors:
            for other in others:
                readers[maker] |= 1 << other
        growth, found, front = [0], {0}, [0]
        while front:
            following = []
            for cut in front:
                for layer in range(self.layers):
                    grown = cut | 1 << layer
                    if grown != cut and readers[layer] & ~cut == 0 and grown not in found:
                        found.add(grown)
                        following.append(grown)
            if len(found) > MOST_CUTS:
                raise Refused(f"the layer graph has more than {MOST_CUTS} cuts")
            growth += following
            front = following
        if growth[-1] != (1 << self.layers) - 1:
            raise Refused("the layer graph has a cycle")
        return growth

    def pairs(self) -> dict[int, list[int]]:
        """For each closed set that a plan may cut at, the larger ones."""
        kept = [sum(1 << layer for layer in group) for group in self.data.get("together", ())]
        free = [i for i, cut in enumerate(self.cuts) if all(cut & group in (0, group) for group in kept)]
        if self.data.get("partition"):
            cut, allowed = 0, [0]
            for stage in reversed(self.data["partition"]):
                cut |= sum(1 << layer for layer in stage)
                allowed.append(self.place.get(cut, -1))
            free = [i for i in free if i in allowed]
        self.free = free
        return {a: [b for b in free if b != a and self.cuts[a] & ~self.cuts[b] == 0] for a in free}

    # Section 1: messages and collectives.

    def message(self, size: float, level: int) -> float:
        """Seconds of a message."""
        if not size or level == END:
            return 0.0
        if level == ANY:
            return min(latency + size / bandwidth for _, bandwidth, latency in self.levels)
        return self.levels[level][2] + size / self.levels[level][1]

    def shape(self, members: Iterable[int]) -> tuple[int, ...]:
        """Most children with members in any group, by level."""
        found, below = [], 1
        for capacity in self.capacity:
            groups = defaultdict(set)
            for member in members:
                groups[member // capacity].add(member // below)
            found.append(max(map(len, groups.values())))
            below = capacity
        return tuple(found)

    @remembered()
    def lines(self, kind: str, shape: tuple[int, ...], members: int) -> Ways:
        """Ways to run a collective, as seconds, seconds per byte, and both for the port of each level."""
        if self.data.get("collectives") is not None:
            return self.measured(f"{kind} {members} in {' x '.join(map(str, shape))}")
        phases = 2 if kind == "all_reduce" else 1
        ports, inside, narrowest, flat = [], 1, inf, []
        for level, (count, (_, bandwidth, latency)) in enumerate(zip(shape, self.levels)):
            ports.append((phases * (count - 1) * latency, phases * (count - 1) / count / inside / bandwidth))
            inside, narrowest = inside * count, min(narrowest, bandwidth)
            if count > 1:
                flat = [(0.0, 0.0)] * len(self.levels)
                flat[level] = (phases * (members - 1) * latency, phases * (members - 1) / members / narrowest)
        return [(sum(a for a, _ in each), sum(b for _, b in each), each) for each in (ports, flat)]

    def measured(self, name: str) -> Ways:
        """Ways to run a collective whose costs the instance lists; affine in its bytes, with nothing negative."""
        if name not in self.data["collectives"]:
            raise Refused(f"the instance has no cost of {name}")
        ways = [(a, b, [tuple(port) for port in ports]) for a, b, ports in self.data["collectives"][name]]
        for a, b, ports in ways:
            numbers = [a, b, *(each for port in ports for each in port)]
            if len(ports) != len(self.levels) or len(numbers) != 2 + 2 * len(ports):
                raise Refused(f"the cost of {name} has another number of levels")
            if not all(0 <= each < 1e31 for each in numbers):
                raise Refused(f"a cost of {name} is negative or not finite")
        if not ways:
            raise Refused(f"the instance has no cost of {name}")
        return ways

    def collective(self, kind: str, size: float, group: Group) -> list[float]:
        """Seconds of a collective over sets of devices side by side, then those of each port."""
        shapes, members = group
        worst = [0.0] * (1 + len(self.levels))
        if size and members > 1:
            for shape in shapes:
                ways = self.lines(kind, shape, members)
                latency, slope, ports = min(ways, key=lambda way: way[0] + size * way[1])
                taken = [latency + size * slope, *(a + size * b for a, b in ports)]
                worst = [max(pair) for pair in zip(worst, taken)]
        return worst

    @remembered("candidate", "replicas", "order", "degree")
    def groups(self, case: Case) -> list[tuple[Group, Group, Group]]:
        """For each parameter group: all its devices, those that shard, and those with the same shard."""
        costs = self.candidates[case.candidate]
        step = case.size if self.orders[case.order] == "pp-inner" else costs.width
        return [self.group(tuple(group["ranks"]), step, case.replicas, case.degree) for group in costs.state]

    @remembered()
    def group(self, ranks: tuple[int, ...], step: int, replicas: int, degree: int | None) -> tuple[Group, Group, Group]:
        """Groups of devices for one parameter group, whose replicas are `step` devices apart."""
        members = sorted(replica * step + rank for replica in range(replicas) for rank in ranks)
        count = len(members)
        whole = ((self.shape(members),), count)
        if degree is None or count <= degree:
            return whole, whole, ((), 1)
        shards = {self.shape(members[i : i + degree]) for i in range(0, count, degree)}
        same = {self.shape(members[i::degree]) for i in range(degree)}
        return whole, (tuple(shards), degree), (tuple(same), count // degree)

    # Section 3: the cases of the plan space.

    @cached_property
    def cases(self) -> list[Case]:
        """Every combination of candidate, replicas, rank order, schedule, shard groups and number of stages."""
        found: list[Case] = []
        batch, uneven, given = (
            self.data["global_batch"],
            self.data["uneven_batch"],
            len(self.data.get("partition") or ()),
        )
        for index, costs in enumerate(self.candidates):
            width = costs.width
            if not all(c % width == 0 or width % c == 0 for c in self.capacity):
                continue
            for d in range(1, min(self.devices // width, batch // costs.samples) + 1):
                if batch % (d * costs.samples) and not uneven:
                    continue
                batches, size = -(-batch // (d * costs.samples)), width * (self.devices // (d * width))
                counts = [n for n in range(1, min(size // width, self.layers) + 1) if given in (0, n)]
                admitted = [
                    [stages for stages in counts if self.admits(schedule, batches, stages)]
                    for schedule in range(len(self.schedules))
                ]
                for degree in self.degrees(costs, d):
                    for order in range(len(self.orders)):
                        for schedule, own in enumerate(admitted):
                            decided = index, d, order, schedule, degree
                            found += [Case(*decided, stages, batches, size) for stages in own]
        return found

    def degrees(self, costs: Costs, replicas: int) -> list[int | None]:
        """Numbers of ranks that ZeRO may shard over: each divides the ranks of every group, or is no less."""
        counts = [replicas * len(group["ranks"]) for group in costs.state]
        return [
            each
            for each in self.data["zero_degrees"]
            if each is None or not any(count > each and count % each for count in counts)
        ]

    def admits(self, schedule: int, batches: int, stages: int) -> bool:
        """Return whether a schedule has such plans."""
        name, chunks = self.schedules[schedule]["name"], self.schedules[schedule]["chunks"]
        if chunks > 1:
            units = len(self.data["units"])
            if stages < 2 or stages * chunks > units:
                return False
        if name in ("1f1b", "gpipe", "nest"):
            return True
        if name == "interleaved":
            return batches % stages == 0
        return self.table(schedule, batches, stages) is not None

    def table(self, schedule: int, batches: int, stages: int) -> Any:
        """Numbers of a schedule that has no formula here; None: it has no such plans."""
        tables = self.schedules[schedule]["tables"]
        if f"{batches},{stages}" not in tables:
            name = self.schedules[schedule]["name"]
            raise Refused(f"schedule {name} has no numbers for {batches} micro-batches in {stages} stages")
        return tables[f"{batches},{stages}"]

    def choices(self, case: Case) -> Sequence[Choices]:
        """Sets of allowed choices: a plan takes one set, and each of its stages a mode and a ZeRO stage of it."""
        return self.sets(*self.listed(case))

    def listed(self, case: Case) -> tuple[int | None, int | None]:
        """Candidate whose choices are all allowed, or the number of the sets that the instance lists for a case."""
        if self.data.get("allowed") is None:
            return case.candidate, None
        return None, self.by_stages(case).get(str(case.stages))

    @remembered("candidate", "replicas", "order", "schedule", "degree")
    def by_stages(self, case: Case) -> Numbers:
        """For each number of stages, the number of the sets of choices."""
        return self.data["allowed"]["cases"].get(",".join(map(str, case[:5])), {})

    @remembered()
    def sets(self, candidate: int | None, number: int | None) -> list[Choices]:
        """Sets of choices by what `listed` names."""
        if candidate is not None:
            names = self.candidates[candidate].data["choices"]
            return [Choices((str(mode), int(zero)) for mode in names for zero in self.data["zero"])] if names else []
        sets = [] if number is None else self.data["allowed"]["sets"][number]
        if any(zero not in self.data["zero"] for some in sets for _, zero in some) or (number or 0) < 0:
            raise Refused("the instance allows choices that it has not")
        return [Choices((str(mode), int(zero)) for mode, zero in some) for some in sets if some]

    @remembered()
    def together(self, listed: tuple[int | None, int | None], low: int, high: int) -> Choices:
        """Choices of some of the sets that `listed` names."""
        sets = self.sets(*listed)[low:high]
        found = Choices(dict.fromkeys(choice for some in sets for choice in some))
        found.alike = all(len(some.zeros) == 1 for some in sets)
        return found

    # Section 4: weights, micro-batches in flight, stages.

    @remembered("schedule", "batches", "stages")
    def weights(self, case: Case) -> list[float]:
        """`A`, then `B` of forward passes, input and weight gradients, arriving and returning messages."""
        schedule, m, s = self.schedules[case.schedule], case.batches, case.stages
        name, v = schedule["name"], schedule["chunks"]
        if name in ("1f1b", "gpipe"):
            row = [m - 1.0, 1.0, 1.0, 1.0]
        elif name == "nest":
            row = [m + s - 1.0, 0.0, 0.0, 0.0]
        elif name == "interleaved":
            row = [m - 1 / v, 1 / v, 1 / v, 1 / v]
        else:
            row = self.table(case.schedule, m, s)["weights"]
        return [*row, *((1.0, 1.0) if schedule["hides"] else row[1:3])]

    @remembered("schedule", "batches", "stages")
    def held(self, case: Case, stage: int) -> Sequence[Moment]:
        """Micro-batches in flight of the chunks of a stage, from 1, at its fullest moments."""
        name, m, s = self.schedules[case.schedule]["name"], case.batches, case.stages
        if name in ("1f1b", "nest"):
            return ((min(m, s - stage + 1),),)
        return ((m,),) if name == "gpipe" else tuple(map(tuple, self.table(case.schedule, m, s)["held"][stage - 1]))

    def split(self, mode: str, runs: Runs) -> Sequence[tuple[str, Runs]]:
        """Runs of layers of each pure mode of a stage, by the first blocks that a partial mode recomputes."""
        if ":" not in mode:
            return [(mode, runs)]
        first, count, rest = mode.split(":")
        parts = {first: [], rest: []}
        for smaller, larger in runs:
            inside, taken, done = self.cuts[larger] & ~self.cuts[smaller], 0, 0
            for unit in self.units:
                if unit & inside and done < int(count):
                    taken, done = taken | unit & inside, done + 1
            # Layers behind the recomputed blocks, these, and layers in front of them, such as the embedding.
            near = self.cuts[smaller] | taken
            while (grown := near | self.behind(near) & self.cuts[larger]) != near:
                near = grown
            ends = [smaller, self.place.get(near & ~taken), self.place.get(near), larger]
            if None in ends:
                raise Refused("the recomputed blocks of a stage are no run of layers")
            parts[first].append((ends[1], ends[2]))
            parts[rest] += [(ends[0], ends[1]), (ends[2], ends[3])]
        return [(name, [run for run in own if run[0] != run[1]]) for name, own in parts.items()]

    @remembered()
    def behind(self, layers: int) -> int:
        """Readers of what some layers make."""
        return sum(1 << i for i in {i for maker, readers in self.tensors if layers >> maker & 1 for i in readers})

    def effective(self, zero: int) -> int:
        """ZeRO stage whose costs count."""
        if self.data["adapters"] and zero < 3:
            return 0
        return 1 if zero == 2 and self.data["whole_gradients"] else zero

    @remembered("candidate", "replicas", "order", "degree")
    def sharding(self, case: Case, runs: Runs, zero: int) -> Sharding:
        """Seconds of ZeRO per micro-batch and port, its part in forward passes, once per batch, update; bytes."""
        costs, data = self.candidates[case.candidate], self.data
        zero, count = self.effective(zero), 1 + len(self.levels)
        often, once, gathering, update, held = [0.0] * count, [0.0] * count, 0.0, 0.0, 0.0
        for number, (group, (whole, shards, same)) in enumerate(zip(costs.state, self.groups(case))):
            rows = ("weights", "gradients", "optimizer", "update")
            weights, gradients, optimizer, updating = (costs.over((number, row), group[row], runs) for row in rows)
            pieces = max(1.0, costs.over((number, "pieces"), group["pieces"], runs)) if group.get("pieces") else 1.0
            z = shards[1] if zero else 1
            reduced = self.collective("all_reduce", gradients / z, same if zero else whole)
            scattered = gradients / (pieces if zero > 1 else 1) if zero else 0.0
            scatter = self.collective("reduce_scatter", scattered, shards)
            gathered = weights / (pieces if zero > 2 else 1) if zero else 0.0
            gather = self.collective("all_gather", gathered, shards)
            for i, (a, b, c) in enumerate(zip(reduced, scatter, gather)):
                once[i] += a + (b if zero == 1 else 0.0) + (c if zero < 3 else 0.0)
                often[i] += pieces * ((b if zero > 1 else 0.0) + (2 * c if zero > 2 else 0.0))
            gathering += pieces * gather[0] if zero > 2 else 0.0
            update += updating / z
            held += weights / (z if zero > 2 else 1) + gradients / (z if zero > 1 else 1) + optimizer / z
        once[0] *= data["synchronisation"] * (data["sharded_synchronisation"] if zero else 1.0)
        return often, gathering, once, update, held

    def stage(self, case: Case, runs: Runs, choice: Choice, around: Around) -> tuple[float, float, float, Parts]:
        """Times of a stage: `t`, its part of the sum, `y`, and seconds of the passes of its chunks.

        With boundaries of `ANY` level these are lower bounds.
        """
        costs, data, weights = self.candidates[case.candidate], self.data, self.weights(case)
        over, hides = costs.over, self.schedules[case.schedule]["hides"]
        parts = self.split(choice[0], runs)
        forward, gradients = over("f", costs.forward, runs), over("w", costs.weights, runs)
        extra = sum(over(("extra", mode), costs.modes[mode]["extra"], own) for mode, own in parts)
        work = forward + over("b", costs.backward, runs) + extra
        arriving = [self.message(costs.cut[larger], front) for (_, larger), (front, _) in zip(runs, around)]
        returning = [self.message(costs.cut[smaller], behind) for (smaller, _), (_, behind) in zip(runs, around)]
        messages = sum(arriving) + sum(returning)
        often, gathering, once, update, _ = self.sharding(case, runs, choice[1])
        shown, e = data["exposed_often"] * often[0], data["exposed"]
        sync = e * once[0]
        if data["hiding"]:
            shown, sync = max(shown, often[0] - work), max(sync, once[0] - work)
        hidden = min(messages, work) if hides else 0.0
        time, wait = work + messages + shown - hidden, 0.0
        known = all(level != ANY for pair in around for level in pair)
        if costs.busy:
            ports = list(often[1:])
            for level in range(len(ports)):
                ports[level] += over(("busy", level), costs.busy[level], runs)
                ports[level] += sum(over(("busy", level, m), costs.modes[m]["busy"][level], own) for m, own in parts)
            for seconds, level in zip((*arriving, *returning), [f for f, _ in around] + [b for _, b in around]):
                if level >= 0:
                    ports[level] += seconds
            wait = max(0.0, max(ports) - time)
            time += wait
            free = [time - busy for busy, used in zip(ports, once[1:]) if used > 0]
            if e < 1 and free and known:
                sync = max(sync, once[0] - case.batches * min(free))
        if len(set(weights[1:])) == 1:
            filling = weights[1] * (time + hidden)
        else:
            gathered = gathering / often[0] * shown if often[0] else 0.0
            inputs = work + shown - forward - gathered - gradients
            filling = weights[1] * (forward + gathered) + weights[2] * inputs + weights[3] * gradients
            filling += weights[4] * sum(arriving) + weights[5] * sum(returning)
            filling += (weights[1] + weights[2]) / 2 * wait if known else 0.0
        passes = (arriving, returning, shown, often[0], hidden, messages, time, wait)
        return time, filling, sync + update, passes

    def memory(self, case: Case, runs: Runs, choice: Choice) -> tuple[float, list[float]]:
        """Bytes of a stage with one micro-batch in flight in each chunk, and of each further one in each."""
        costs, parts = self.candidates[case.candidate], self.split(choice[0], runs)
        if any(costs.over(("bad", mode), costs.modes[mode]["bad"], own) > 0.5 for mode, own in parts):
            return inf, [0.0] * len(runs)
        held = self.schedules[case.schedule]["copies"] * self.sharding(case, runs, choice[1])[4]
        first = sum(costs.over(("first", mode), costs.modes[mode]["first"], own) for mode, own in parts)
        peak = max(costs.modes[mode]["peak"][i] for mode, own in parts for run in own for i in costs.inside(run))
        stash = any(costs.modes[mode].get("stash_inputs") for mode, own in parts if own)
        further = []
        for run in runs:
            own = self.split(choice[0], [run])
            more = sum(costs.over(("more", mode), costs.modes[mode]["more"], part) for mode, part in own)
            further.append(more + (costs.cut[run[1]] if stash else 0.0))
        return held + first + peak + (costs.gathered if choice[1] > 2 else 0.0), further

    def fits(self, memory: tuple[float, Sequence[float]], moments: Iterable[Moment]) -> bool:
        """Return whether a stage fits at each of its fullest moments."""
        first, further = memory
        most = max(sum((count - 1) * more for count, more in zip(moment, further)) for moment in moments)
        return first + most <= self.room

    @remembered("candidate", "replicas", "order")
    def level(self, case: Case, one: int, two: int) -> int:
        """Level of the boundary between blocks at two slots: the worst over the replicas."""
        inner, width = self.orders[case.order] == "pp-inner", self.candidates[case.candidate].width
        apart, step = (case.size, width) if inner else (width, width * case.replicas)
        first, last = (slot * step for slot in sorted((one, two)))
        starts = [(r * apart + first, r * apart + last + width - 1) for r in range(case.replicas)]
        fits = (i for i, size in enumerate(self.capacity) if all(one // size == two // size for one, two in starts))
        return next(fits)

    # Section 4: the price of a plan.

    def order_of(self, case: Case, stage: int) -> Sequence[Pass]:
        """Passes of the device of a stage, from 1: kind, micro-batch, chunk, and whether the next runs beside it."""
        name, m, s = self.schedules[case.schedule]["name"], case.batches, case.stages
        if name not in ("1f1b", "nest", "gpipe"):
            return self.table(case.schedule, m, s)["order"][stage - 1]
        ahead = m if name == "gpipe" else min(m, s - stage + 1)
        passes = [("f", i, 0, 0) for i in range(ahead)]
        for i in range(m):
            passes.append(("b", i, 0, 0))
            if ahead + i < m:
                passes.append(("f", ahead + i, 0, 0))
        return passes

    def passes(self, case: Case, runs: Runs, choice: Choice, priced: Parts) -> tuple[Lengths, Lengths]:
        """Seconds of a stage's passes by kind and chunk, and of the messages that each waits for beside its work."""
        costs, (arriving, returning, shown, _, hidden, messages, time, wait) = (self.candidates[case.candidate], priced)
        beside = hidden / messages if hidden else 0.0
        grow = time / (time - wait) if wait and time > wait else 1.0
        gather, scatter = self.often_by_chunk(case, runs, choice[1])
        total = sum(2 * a + b for a, b in zip(gather, scatter))
        share, lengths, travel = shown / total if total else 0.0, {}, {}
        for chunk, run in enumerate(runs):
            over, parts = (lambda key, row, run=run: costs.over(key, row, [run])), self.split(choice[0], [run])
            extra = sum(costs.over(("extra", mode), costs.modes[mode]["extra"], own) for mode, own in parts)
            forward = (1 - beside) * arriving[chunk] + over("f", costs.forward) + share * gather[chunk]
            back = (1 - beside) * returning[chunk] + extra + over("b", costs.backward)
            back += share * (gather[chunk] + scatter[chunk])
            weights = over("w", costs.weights) + share * scatter[chunk]
            for kind, seconds in (("f", forward), ("b", back), ("i", back - weights), ("w", weights)):
                lengths[kind, chunk] = grow * seconds
            travel["f", chunk], travel["w", chunk] = beside * arriving[chunk], 0.0
            travel["b", chunk] = travel["i", chunk] = beside * returning[chunk]
        return lengths, travel

    def often_by_chunk(self, case: Case, runs: Runs, zero: int) -> tuple[list[float], list[float]]:
        """Seconds that ZeRO gathers and scatters per micro-batch by chunk: by bytes, latencies in equal parts."""
        costs, zero = self.candidates[case.candidate], self.effective(zero)
        found = [0.0] * len(runs), [0.0] * len(runs)
        for number, (group, (_, shards, _)) in enumerate(zip(costs.state, self.groups(case))):
            pieces = max(1.0, costs.over((number, "pieces"), group["pieces"], runs)) if group.get("pieces") else 1.0
            for row, kind, name, least in (
                (found[0], "all_gather", "weights", 3),
                (found[1], "reduce_scatter", "gradients", 2),
            ):
                size = costs.over((number, name), group[name], runs) / pieces
                if zero < least or not size or shards[1] < 2:
                    continue
                ways = [min(self.lines(kind, s, shards[1]), key=lambda w: w[0] + size * w[1]) for s in shards[0]]
                latency, slope, _ = max(ways, key=lambda way: way[0] + size * way[1])
                for chunk, run in enumerate(runs):
                    row[chunk] += pieces * latency / len(runs)
                    row[chunk] += slope * costs.over((number, name), group[name], [run])
        return found

    def makespan(self, case: Case, stages: Sequence[tuple[Lengths, Lengths]], route: list[int]) -> float:
        """End of the last pass when every device runs its passes in order; stages are lengths and travel."""
        s, m, last = case.stages, case.batches, len(route) - 1
        copies, own = self.schedules[case.schedule]["copies"], [[] for _ in range(s)]
        for place, stage in enumerate(route):
            own[stage].append(place)
        orders = [self.order_of(case, stage + 1) for stage in range(s)]
        ends, clocks, begun, done, moved = {}, [0.0] * s, [None] * s, [0] * s, True

        def ready(device: int, step: Pass) -> tuple[Any, float, tuple[str, int, int]]:
            kind, batch, chunk, _ = step
            stage = s - 1 - device if copies == 2 and 2 * batch >= m else device
            place = own[stage][chunk]
            sent = ("f", place - 1, batch) if kind == "f" else ("b", place + 1, batch)
            free = kind == "w" or (place == 0 if kind == "f" else place == last)
            lengths, travel = stages[stage]
            arrival = 0.0 if free else ends[sent] + travel[kind, chunk] if sent in ends else None
            return arrival, lengths[kind, chunk], ("f" if kind == "f" else "w" if kind == "w" else "b", place, batch)

        while moved:
            moved = False
            for device, order in enumerate(orders):
                while done[device] < len(order):
                    count = 1
                    while order[done[device] + count - 1][3]:
                        count += 1
                    steps = [ready(device, step) for step in order[done[device] : done[device] + count]]
                    if any(arrival is None for arrival, _, _ in steps):
                        break
                    start = max(clocks[device], *(arrival for arrival, _, _ in steps))
                    begun[device] = start if begun[device] is None else begun[device]
                    clocks[device] = start + sum(length for _, length, _ in steps)
                    ends |= {key: clocks[device] for _, _, key in steps}
                    done[device], moved = done[device] + count, True
        if any(count < len(order) for count, order in zip(done, orders)):
            return 0.0
        if self.schedules[case.schedule]["staggered"]:
            return max(end - start for end, start in zip(clocks, begun))
        return max(clocks)

    def route(self, case: Case) -> list[int]:
        """Stage of each chunk in pipeline order, from 0."""
        v, s = self.schedules[case.schedule]["chunks"], case.stages
        if self.schedules[case.schedule]["name"] == "interleaved" or v == 1:
            return [chunk % s for chunk in range(s * v)]
        return self.table(case.schedule, case.batches, s)["route"]

    def priced(self, case: Case, stages: Sequence[Stage], route: list[int]) -> tuple[float, float]:
        """Closed form and price of stages, each its runs, choice and levels around."""
        times = [self.stage(case, *each) for each in stages]
        most = max(y for _, _, y, _ in times)
        closed = self.weights(case)[0] * max(t for t, _, _, _ in times) + sum(f for _, f, _, _ in times) + most
        if not self.schedules[case.schedule]["replayed"]:
            return closed, closed
        passes = [self.passes(case, runs, choice, each[3]) for (runs, choice, _), each in zip(stages, times)]
        return closed, max(closed, self.makespan(case, passes, route) + most)

    def price(self, plan: Numbers) -> float:
        """Price of a plan, after a check that it is one."""
        index, d, order = plan["candidate"], plan["replicas"], plan["order"]
        stages = plan["stages"]
        decided = (index, d, order, plan["schedule"], plan["degree"], len(stages))
        found = next((case for case in self.cases if case[:6] == decided), None)
        if found is None:
            raise Refused("the plan is in no case of the instance")
        route, width = self.route(found), self.candidates[index].width
        chosen = [tuple(stage["choice"]) for stage in stages]
        if not any(set(chosen) <= set(some) for some in self.choices(found)):
            raise Refused("the plan's choices are not allowed")
        slots = [stage["slot"] for stage in stages]
        ordered = all(type(slot) is int for slot in slots) and slots == sorted(set(slots)) and slots[0] >= 0
        if not ordered or slots[-1] * width + width > found.size:
            raise Refused("the plan's blocks are not in order")
        following, cut, runs = [list(stage["chunks"]) for stage in stages], self.cuts[-1], [() for _ in stages]
        around, chunks = [[] for _ in stages], []
        for stage in route:
            layers = following[stage].pop(0) if following[stage] else []
            rest = cut & ~sum(1 << layer for layer in set(layers))
            if (
                len(layers) != len(set(layers))
                or rest == cut
                or any(not cut >> layer & 1 for layer in layers)
                or self.place.get(rest) not in self.free
            ):
                raise Refused("a chunk of the plan does not lie between two allowed cuts")
            chunks.append((stage, (self.place[rest], self.place[cut])))
            cut = rest
        if cut or any(following):
            raise Refused("the plan does not hold every layer once")
        for number, (stage, run) in enumerate(chunks):
            near = [chunks[i][0] if 0 <= i < len(chunks) else stage for i in (number - 1, number + 1)]
            around[stage].append(tuple(END if o == stage else self.level(found, slots[stage], slots[o]) for o in near))
            runs[stage] += (run,)
        for number, (own, choice) in enumerate(zip(runs, chosen), 1):
            if not self.fits(self.memory(found, own, choice), self.held(found, number)):
                raise Refused(f"stage {number} of the plan does not fit")
        return self.priced(found, list(zip(runs, chosen, around)), route)[1]


class Stretch(NamedTuple):
    """Equal layers in a row of a chain; the places of layers count from the model's last layer."""

    order: tuple[int, ...]  # Layer at each place.
    start: int  # Place of the last of them.
    count: int
    others: int | None  # Blocks for recomputation besides them, if each of them is one.
    marks: frozenset[int] | None  # These blocks, if each is one layer and they are in order.
    blocks: frozenset[int] | None  # One layer of each transformer block, if each of them is one.


class Chunk(NamedTuple):
    """Facts on a chunk that hold in all plans of a split."""

    least: int  # Layers of the stretch that it holds.
    most: int
    ends: Ends  # Places of other layers, with the blocks in front of them, if known.
    front: tuple[int, int]  # Fewest and most blocks for recomputation in front of its layers of the stretch.
    sides: int  # Boundaries to other stages.


class Chunks:
    """Chunks of a stage; equal ones are one object."""

    def __init__(self, chunks: tuple[Chunk, ...]) -> None:
        self.chunks, self.ends = chunks, tuple(end for chunk in chunks for end in chunk.ends)
        self.least, self.most = sum(chunk.least for chunk in chunks), sum(chunk.most for chunk in chunks)


class Rules:
    """Lower bounds on all plans of a case: each proves that none is faster than `claim`."""

    def __init__(self, instance: Instance, claim: float) -> None:
        self.instance, self.claim, self.states = instance, claim * (1 + ROUND), 0
        self.cache: dict[Any, dict[Any, Any]] = defaultdict(dict)

    def prove(self, case: Case, last: int) -> int:
        """Prove a case by rules up to the last; return the last that it needs, both by number.

        Sets of choices are bounded together, or else in halves.

        Raises:
            Refused: the rules do not prove the case.
        """
        listed = self.instance.listed(case)
        count = len(self.instance.sets(*listed))
        needed, left = 0, [(0, count)] if count else []
        while left:
            low, high = left.pop()
            bound, said = 0.0, ""
            for number in range(last + 1 if high - low == 1 else min(last + 1, 2)):
                self.states = 0
                try:
                    bound = getattr(self, RULES[number])(case, self.instance.together(listed, low, high))
                except Refused as refused:
                    said = f": {refused}"
                if bound >= self.claim:
                    needed = max(needed, number)
                    break
            else:
                if high - low == 1:
                    raise Refused(f"rule {RULES[last]} bounds the case of {case} by {bound:.9g} s only{said}")
                left += [((low + high) // 2, high), (low, (low + high) // 2)]
        return needed

    @remembered()
    def pure(self, choices: Choices) -> Choices:
        """Choices of layers: each pure mode with each ZeRO stage as it counts."""
        own = {(name, self.instance.effective(zero)) for mode, zero in choices for name in mode.split(":")[::2]}
        return Choices(sorted(own))

    @remembered("candidate")
    def lean(self, case: Case, names: frozenset[str]) -> tuple[list[float], float, float, list[float]]:
        """Least seconds of each layer over some modes, the largest, the busiest port, and sums over all layers."""
        costs = self.instance.candidates[case.candidate]
        modes, layers = [costs.modes[name] for name in sorted(names)], range(costs.layers)
        extra = [min(mode["extra"][i] for mode in modes) for i in layers]
        work = [f + b + e for f, b, e in zip(costs.forward, costs.backward, extra, strict=True)]
        busy = [
            sum(row[i] + min(mode["busy"][level][i] for mode in modes) for i in layers)
            for level, row in enumerate(costs.busy or ())
        ]
        sums = [sum(row) for row in (costs.forward, costs.backward, costs.weights, extra)]
        return work, max(work), max(busy, default=0.0), sums

    @remembered("candidate", "replicas", "order", "degree")
    def whole(self, case: Case, choices: Choices) -> tuple[Any, ...]:
        """Sums over all layers, the least message, and the least seconds once per batch of a stage of all layers.

        These are for plans of one ZeRO stage, and for any plan (Lemma 1).
        """
        inst, updates, shown = self.instance, [], []
        for zero in choices.zeros:
            _, _, once, update, _ = inst.sharding(case, ((0, len(inst.cuts) - 1),), zero)
            updates.append(update)
            # Sets of one shape: a collective's seconds are concave in its bytes.
            shown.append(inst.data["exposed"] * once[0] if case.degree is None else 0.0)
        sync = min(map(sum, zip(updates, shown))), min(updates) + self.least_share(case) * min(shown)
        return *self.lean(case, choices.names)[1:], self.hop(case), sync

    @remembered("candidate")
    def least_share(self, case: Case) -> float:
        """Sum over the layers of their least share in a group's weights or gradients."""
        costs = self.instance.candidates[case.candidate]
        rows = [row for group in costs.state for row in (group["weights"], group["gradients"]) if any(row)]
        return sum(min((row[i] / fsum(row) for row in rows), default=0.0) for i in range(costs.layers))

    def terms(self, case: Case, choices: Choices, extra: float = 0.0) -> tuple[float, float, float]:
        """Lower bounds on the slowest stage, the sum and the time once per batch, from all layers together.

        `extra` is what all layers recompute, at least.
        """
        schedule = self.instance.schedules[case.schedule]
        largest, busy, (forward, backward, gradients, least), hop, sync = self.whole(case, choices)
        _, first, inputs, weights, arriving, returning = self.instance.weights(case)
        extra, s = max(extra, least), case.stages
        hops = s * schedule["chunks"] - 1 if schedule["chunks"] == 1 or schedule["name"] == "interleaved" else 0
        messages = 0.0 if schedule["hides"] else 2 * hops * hop
        slowest = max((forward + backward + extra + messages) / s, largest, busy / s)
        filling = first * forward + inputs * (backward + extra - gradients) + weights * gradients
        return slowest, filling + (arriving + returning) * hops * hop, sync[not choices.alike] / s

    def totals(self, case: Case, choices: Choices) -> float:
        """Rule 1: the slowest stage takes the mean at least; memory of all stages leaves only so much unrecomputed."""
        a = self.instance.weights(case)[0]

        def bound(extra: float) -> float:
            slowest, filling, sync = self.terms(case, choices, extra)
            return a * slowest + filling + sync

        found = bound(0.0)
        if found >= self.claim:
            return found
        extra = self.recomputation(case, self.pure(choices))
        return bound(extra) if extra < inf else inf

    @remembered("candidate", "replicas", "degree", "schedule", "stages")
    def recomputation(self, case: Case, pure: Choices) -> float:
        """Least seconds that all layers recompute, for their bytes to fit all stages; infinite: they never do."""
        inst, s, found = self.instance, case.stages, 0.0
        costs, flying = inst.candidates[case.candidate], [max(map(min, inst.held(case, i))) for i in range(1, s + 1)]
        extra = [costs.modes[name]["extra"] for name, _ in pure]
        spent = [sum(n * row[i] for n, i in zip(costs.numbers, costs.kinds, strict=True)) for row in extra]
        rows = self.weighted(case, pure, flying[0])
        ratios = [self.ratio(case, pure, flying[0], count) for count in flying]
        room = sum(inst.room / ratio if ratio > 0 else inf for ratio in ratios)
        totals = [sum(n * each for n, each in zip(costs.numbers, row, strict=True)) for row in rows]
        lightest = sum(n * min(each) for n, each in zip(costs.numbers, zip(*rows, strict=True), strict=True))
        if lightest > room * (1 + ROUND):
            return inf
        pairs = list(zip(spent, totals, strict=True))
        for price in {(e - f) / (m - n) for e, n in pairs for f, m in pairs if e > f and n < m < inf}:
            least = -price * room
            for place, (number, kind) in enumerate(zip(costs.numbers, costs.kinds, strict=True)):
                least += number * min(row[kind] + price * held[place] for row, held in zip(extra, rows, strict=True))
            found = max(found, least * (1 - ROUND))
        return found

    @remembered("candidate", "replicas", "degree", "schedule")
    def ratio(self, case: Case, pure: Choices, middle: float, flying: float) -> float:
        """Least share of the bytes with `middle` micro-batches in flight that a layer needs with `flying`."""
        pairs = zip(self.weighted(case, pure, flying), self.weighted(case, pure, middle), strict=True)
        both = [(one, two) for own, other in pairs for one, two in zip(own, other, strict=True)]
        return min((one / two for one, two in both if 0 < two < inf), default=1.0)

    @remembered("candidate", "replicas", "degree", "schedule")
    def weighted(self, case: Case, pure: Choices, flying: float) -> list[list[float]]:
        """Bytes of each class of layers by choice, at least, with so many micro-batches in flight."""
        costs, rows = self.instance.candidates[case.candidate], []
        for name, zero in pure:
            mode, row = costs.modes[name], []
            for i, state in zip(costs.kinds, self.bytes_of(case, zero), strict=True):
                row.append(inf if mode["bad"][i] else mode["first"][i] + (flying - 1) * mode["more"][i] + state)
            rows.append(row)
        return rows

    @remembered("candidate", "replicas", "degree", "schedule")
    def bytes_of(self, case: Case, zero: int) -> list[float]:
        """Bytes of weights, gradients and optimizer of each class of layers."""
        return [self.state(case, layer, zero) for layer in self.instance.candidates[case.candidate].kinds]

    @remembered("candidate")
    def alike(self, case: Case, run: Run) -> Run:
        """First of all runs whose layers cost the same in the same blocks, between cuts of as many bytes."""
        inst, costs = self.instance, self.instance.candidates[case.candidate]
        layers, units = costs.inside(run), [inst.unit_of.get(layer, -1) for layer in costs.inside(run)]
        ranks = {unit: rank for rank, unit in enumerate(sorted(set(units)))}
        word = tuple((costs.by_layer[layer], ranks[unit], unit >= 0) for layer, unit in zip(layers, units))
        ends = (run[0] == 0, run[1] == len(inst.cuts) - 1, costs.cut[run[0]], costs.cut[run[1]])
        return self.cache["alike"].setdefault((case.candidate, word, ends), run)

    @remembered("candidate", "replicas", "degree", "schedule")
    def held(self, case: Case, run: Run, choice: Choice) -> tuple[float, float]:
        """Bytes of a stage with one micro-batch in flight, and of each further one."""
        first, (more,) = self.instance.memory(case, (run,), choice)
        return first, more

    @remembered("candidate", "replicas", "order", "schedule", "degree")
    def options(self, case: Case, choices: Choices, run: Run, weights: tuple[float, ...]) -> list[Option]:
        """Choices of a stage between the cheapest boundaries: `t`, sum, `y`, bytes; none without memory."""
        whole, found = len(self.instance.cuts) - 1, []
        around = [(END if run[1] == whole else ANY, END if run[0] == 0 else ANY)]
        for choice in choices:
            first, more = self.held(case, run, choice)
            if first <= self.instance.room:
                found.append((*self.instance.stage(case, (run,), choice, around)[:3], first, more, choice))
        return found

    def tables(self, case: Case, choices: Choices) -> tuple[float, list[dict[int, Terms]], list[list[Link]]]:
        """Rule 3's recurrence: least largest `t`, sum and largest `y`, each alone, of the last and first stages.

        What exceeds what the other terms leave of the claim is left out, until nothing more is.
        """
        inst, (a, *weights), s = self.instance, self.instance.weights(case), case.stages
        slowest, filling, sync = self.terms(case, choices)
        whole, lean = len(inst.cuts) - 1, ("work", choices.names)
        work, over = self.lean(case, choices.names)[0], inst.candidates[case.candidate].over
        left = {cut: over(lean, work, [(cut, whole)]) if cut != whole else 0.0 for cut in inst.free}
        for _ in range(6):
            limit, most = (self.claim - filling - sync) / a if a > 0 else inf, self.claim - a * slowest - filling
            behind: list[dict[int, Terms]] = [{0: (0.0, 0.0, 0.0)}]
            front: list[dict[int, Terms]] = [*({} for _ in range(s)), {whole: (0.0, 0.0, 0.0)}]
            links: list[list[Link]] = []
            known: dict[Any, tuple[list[Option], list[float]]] = {}
            for position in range(1, s + 1):
                moments, row, own = inst.held(case, s - position + 1), {}, []
                for smaller, rest in behind[-1].items():
                    for larger in inst.larger[smaller]:
                        if (larger == whole) != (position == s) or left[larger] > (s - position) * limit:
                            continue
                        run = (smaller, larger)
                        if over(lean, work, [run]) >= limit:
                            continue
                        key = self.alike(case, run), moments
                        if key not in known:
                            self.states += 1
                            fit = [
                                o
                                for o in self.options(case, choices, key[0], tuple(weights))
                                if o[0] < limit and o[2] < most and inst.fits((o[3], [o[4]]), moments)
                            ]
                            known[key] = fit, [min(column, default=inf) for column in zip(*(o[:3] for o in fit))]
                        fit, least = known[key]
                        if fit:
                            own.append((smaller, larger, least, fit))
                            row[larger] = joined(least, rest, row.get(larger))
                behind.append(row)
                links.append(own)
                if self.states > MOST_STATES:
                    raise Refused("a case has too many stages to check")
            for position in range(s, 0, -1):
                for smaller, larger, least, _ in links[position - 1]:
                    if larger in front[position]:
                        row = front[position - 1]
                        row[smaller] = joined(least, front[position][larger], row.get(smaller))
            if whole not in behind[s]:
                return inf, front, links
            before = (slowest, filling, sync)
            slowest, filling, sync = (max(pair) for pair in zip(before, behind[s][whole]))
            bound = a * slowest + filling + sync
            if bound >= self.claim or (slowest, filling, sync) == before:
                break
        return bound, front, links

    @remembered("candidate")
    def stretch(self, case: Case) -> Stretch:
        """Longest row of equal layers of a chain."""
        inst, costs = self.instance, self.instance.candidates[case.candidate]
        units, blocks = inst.data["recomputed_units"], inst.data.get("blocks", ())
        order = tuple((after & ~before).bit_length() - 1 for before, after in zip(inst.cuts, inst.cuts[1:]))
        start = count = place = 0
        for row in (sum(1 for _ in same) for _, same in groupby(costs.by_layer[layer] for layer in order)):
            start, count, place = *((place, row) if row > count else (start, count)), place + row
        inside = order[start : start + count]
        others = len(units) - count if all([layer] in units for layer in inside) else None
        layers = [unit[0] for unit in units if len(unit) == 1]
        known = len(layers) == len(units) and layers == [layer for layer in order[::-1] if layer in layers]
        sized = frozenset(block[0] for block in blocks) if all([layer] in blocks for layer in inside) else None
        return Stretch(order, start, count, others, frozenset(layers) if known else None, sized)

    def sizes(self, case: Case) -> Sequence[int]:
        """Most blocks of a chunk in any plan: one of these; chunks but the first and last may have one less."""
        stretch, chunks = self.stretch(case), case.stages * self.instance.schedules[case.schedule]["chunks"]
        if chunks == case.stages or stretch.blocks is None:
            return (0,)
        return range(-(-len(stretch.blocks) // chunks), len(stretch.blocks) // max(chunks - 2, 1) + 2)

    def splits(self, case: Case, size: int, exact: bool) -> list[list[Chunks]]:
        """Chunks of each stage for each way to distribute the layers beside the stretch, or for all ways together."""
        return self.splits_of((self.stretch(case), case.stages, *self.instance.route(case)), size, exact)

    @remembered()
    def splits_of(self, along: tuple[Any, ...], size: int, exact: bool) -> list[list[Chunks]]:
        """See `splits`, of a stretch, a number of stages, and the stage of each chunk in pipeline order."""
        (stretch, stages, *route), layers, found = along, self.instance.layers, []
        last, rear, blocks, marks = len(route) - 1, stretch.start, stretch.blocks or (), stretch.marks
        ahead, loose = layers - rear - stretch.count, (0, stretch.others or 0)
        apart = [0, *(int(one != other) for one, other in pairwise(route)), 0]
        outer = [[(layers - 1, None)] * bool(ahead), [(0, None)] * bool(rear)]  # Ends of the first and the last chunk.
        for fronts in compositions(ahead) if exact else ((),):
            for backs in compositions(rear) if exact else ((),):
                if len(fronts) + len(backs) > last + 2:
                    continue
                parts: list[list[Chunk]] = [[] for _ in range(stages)]
                top, bottom = layers, rear
                for place, stage in enumerate(route):
                    free, back = place in (0, last), last - place
                    if exact:
                        own = range(top - 1, top - 1 - (fronts[place] if place < len(fronts) else 0), -1)
                        rest = range(bottom - 1, bottom - 1 - (backs[back] if back < len(backs) else 0), -1)
                        top, bottom = top - len(own), bottom - len(rest)
                        held = sum(stretch.order[each] in blocks for each in (*own, *rest))
                        front = [stretch.order[each] in marks for each in own] if marks is not None else None
                        passed = loose if front is None else (sum(front), sum(front))
                        ends = [(each, None if front is None else sum(front[:i])) for i, each in enumerate(own)]
                        ends += [(each, None) for each in rest]
                        least = 0 if ends and not size else 1
                        if size:
                            least = 0 if free else size - 1 - held
                        most = size - held if size else stretch.count
                        if place + 1 < len(fronts) or back + 1 < len(backs):  # Further such layers follow or lead.
                            if least > 0 or most < 0:
                                break
                            most = 0
                    else:
                        ends = [*(outer[0] if not place else ()), *(outer[1] if not back else ())]
                        passed, least, most = loose, 0, stretch.count
                        if size:
                            least, most = 0 if free else size - 1 - len(blocks) + stretch.count, size
                    least, most = max(least, 0), min(most, stretch.count)
                    if least > most:
                        break
                    parts[stage].append(Chunk(least, most, tuple(ends), passed, apart[place] + apart[place + 1]))
                else:
                    found.append([self.cache["chunks"].setdefault(key, Chunks(key)) for key in map(tuple, parts)])
        return found

    @remembered("candidate", "replicas", "degree", "schedule")
    def state(self, case: Case, layer: int, zero: int) -> float:
        """Bytes of weights, gradients and optimizer of a layer."""
        costs, size = self.instance.candidates[case.candidate], 0.0
        for group, (_, (_, z), _) in zip(costs.state, self.instance.groups(case), strict=True):
            held = zip(("weights", "gradients", "optimizer"), (3, 2, 1), strict=True)
            size += sum(group[each][layer] / (z if zero >= least else 1) for each, least in held)
        return self.instance.schedules[case.schedule]["copies"] * size

    @remembered("candidate", "replicas", "degree", "schedule")
    def capacity(self, case: Case, choice: Choice, chunks: Chunks, moment: Moment) -> int:
        """Most layers of the stretch in the chunks of a stage that memory holds; -1: not even the fewest."""
        inst, costs, stretch = self.instance, self.instance.candidates[case.candidate], self.stretch(case)
        zero, layer = inst.effective(choice[1]), stretch.order[stretch.start]
        state, modes = self.state(case, layer, zero), [costs.modes[name] for name in choice[0].split(":")[::2]]
        room, peak, steps, found = inst.room - (costs.gathered if choice[1] > 2 else 0.0), 0.0, [], 0
        for chunk, count in zip(chunks.chunks, moment, strict=True):
            for place, passed in chunk.ends:
                end, own = stretch.order[place], self.of_end(case, choice[0], place, passed)
                least = min(mode["first"][end] + (count - 1) * mode["more"][end] for mode in own)
                room -= least + self.state(case, end, zero)
                peak = max(peak, min(mode["peak"][end] for mode in own))
            each = [mode["first"][layer] + (count - 1) * mode["more"][layer] + state for mode in modes]
            base, heavy, light = chunk.least, each[0], each[-1]
            part = self.recomputed(case, choice[0], chunk)[heavy <= light]
            room, found = room - base * light - min(part, base) * (heavy - light), found + base
            # What one more layer takes at least; where later ones take less, all take as little.
            first = max(min(part, chunk.most) - base, 0) if heavy <= light or part >= chunk.most else 0
            steps += [(heavy, first), (light, max(chunk.most - base - first, 0))]
        whole = room - max(peak, min(mode["peak"][layer] for mode in modes))
        held = found if (whole if found else room - peak) >= 0 else -1
        for step, most in sorted(steps) if held == found else ():
            taken = most if step <= 0 else min(most, max(0, int(whole / step * (1 + ROUND))))
            whole, held = whole - taken * step, held + taken
            if taken < most:
                break
        return stretch.count if min(steps)[0] < 0 else held

    def recomputed(self, case: Case, mode: str, chunk: Chunk) -> tuple[int, int]:
        """Fewest and most layers of the stretch that a chunk of a partial mode recomputes, if it has them."""
        stretch, parts = self.stretch(case), mode.split(":")
        if len(parts) == 1 or stretch.others is None:
            return 0, stretch.count
        return max(int(parts[1]) - chunk.front[1], 0), max(int(parts[1]) - chunk.front[0], 0)

    def of_end(self, case: Case, mode: str, place: int, passed: int | None) -> list[Numbers]:
        """Modes that a layer beside the stretch may be in, with so many blocks in front of it in its chunk."""
        names = mode.split(":")[::2]
        if self.stretch(case).order[place] not in self.instance.unit_of:
            names = names[-1:]
        elif passed is not None and len(names) > 1:
            names = names[:1] if passed < int(mode.split(":")[1]) else names[1:]
        return [self.instance.candidates[case.candidate].modes[name] for name in names]

    @remembered("candidate")
    def rates(self, case: Case, mode: str, chunks: Chunks) -> tuple[Any, ...]:
        """Seconds of a layer of the stretch, of its recomputation, of ends and ports; `recomputed`; boundaries."""
        costs, stretch = self.instance.candidates[case.candidate], self.stretch(case)
        layer, modes = stretch.order[stretch.start], [costs.modes[name] for name in mode.split(":")[::2]]
        beside = [(stretch.order[place], self.of_end(case, mode, place, passed)) for place, passed in chunks.ends]
        fixed = sum(costs.forward[e] + costs.backward[e] + min(own["extra"][e] for own in each) for e, each in beside)
        ports = [
            [row[e] + min(own["busy"][level][e] for own in each) for e, each in ((layer, modes), *beside)]
            for level, row in enumerate(costs.busy or ())
        ]
        heavy, light = modes[0]["extra"][layer], modes[-1]["extra"][layer]
        bounds = [self.recomputed(case, mode, chunk) for chunk in chunks.chunks] if heavy != light else []
        partly = any(few < chunk.most for (few, _), chunk in zip(bounds, chunks.chunks))
        spans = [(few, chunk.least, chunk.most) for (few, _), chunk in zip(bounds, chunks.chunks)] if partly else []
        sums = sum(many for _, many in bounds), sum(chunk.sides for chunk in chunks.chunks)
        work = costs.forward[layer] + costs.backward[layer]
        return work, light, heavy - light, fixed, [(each, sum(rest)) for each, *rest in ports], spans, sums

    def pace(self, case: Case, choice: Choice, chunks: Chunks) -> Callable[[int], Terms]:
        """Least `t` of a stage by its layers of the stretch, with their recomputation and what ZeRO shows."""
        inst = self.instance
        work, light, more, fixed, ports, spans, (many, sides) = self.rates(case, choice[0], chunks)
        ends, most, messages = chunks.ends, chunks.most, self.hop(case) * sides
        sharded, never = inst.effective(choice[1]) > 1, [0.0] * (1 + len(inst.levels))
        hides, hiding, exposed = inst.schedules[case.schedule]["hides"], inst.data["hiding"], inst.data["exposed_often"]

        def pace(count: int) -> Terms:
            extra, low = count * light, count
            if spans:
                low = sum(min(few, max(fewest, count - most + own)) for few, fewest, own in spans)
            if more:
                extra += min(low * more, min(count, many) * more)
            often = self.shared(case, choice, ends, count)[0] if sharded else never
            shown, busy = exposed * often[0], count * work + extra + fixed
            time = max(busy, messages) + shown if hides else busy + messages + shown
            if hiding:
                time = max(time, often[0])
            for sent, (each, rest) in zip(often[1:], ports):
                time = max(time, sent + count * each + rest)
            return time, extra, shown

        return pace

    def shared(self, case: Case, choice: Choice, ends: Ends, count: int) -> Sharding:
        """Seconds of ZeRO of so many layers of the stretch and the ends of a stage, see `Instance.sharding`."""
        start = self.stretch(case).start
        runs = (*([(start, start + count)] if count else []), *((place, place + 1) for place, _ in ends))
        return self.instance.sharding(case, runs, choice[1])

    @remembered("candidate", "replicas", "order")
    def hop(self, case: Case) -> float:
        """Least seconds of a message between two blocks of a case."""
        inst, costs = self.instance, self.instance.candidates[case.candidate]
        # A group of devices that holds both holds all between.
        span = costs.width * (2 if inst.orders[case.order] == "pp-inner" else case.replicas + 1)
        size = min((costs.cut[i] for i in inst.free if 0 < i < len(inst.cuts) - 1), default=0.0)
        levels = [level for level, capacity in enumerate(inst.capacity) if capacity >= span]
        return min((inst.message(size, level) for level in levels), default=0.0)

    def counts(self, case: Case, choices: Choices) -> float:
        """Rule 2: stages by their numbers of layers of one kind, with memory and time for each."""
        inst, found, known = self.instance, inf, {}
        if len(inst.cuts) != inst.layers + 1 or inst.data.get("partition"):
            return 0.0
        few = inst.layers - self.stretch(case).count <= MOST_ENDS
        for size in self.sizes(case):
            for exact in (False, True) if few else (False,):
                splits = self.splits(case, size, exact)
                bound = min((self.counted(case, choices, stages, known, few > exact) for stages in splits), default=inf)
                if bound >= self.claim:
                    break
            found = min(found, bound)
        return found

    def counted(
        self, case: Case, choices: Choices, stages: list[Chunks], known: dict[Any, Any], roughly: bool
    ) -> float:
        """Bound of stages whose chunks are known but for their layers of the stretch; roughly: 0 if these fit."""
        inst = self.instance
        a, *w = inst.weights(case)
        slowest, filling, sync = self.terms(case, choices)
        limit, count = (self.claim - filling - sync) / a if a > 0 else inf, self.stretch(case).count
        fewest, tops, held = [own.least for own in stages], [], self.fullest(case)
        if sum(fewest) > count:
            return inf
        for stage, own in enumerate(stages):
            moment = held[stage]
            if own not in known:
                known[own] = self.fastest(case, choices, own, limit)
            key, top = (own, moment), -1
            if key not in known:
                for fast, _, _, choice in known[own]:
                    if fast <= top:
                        break
                    top = max(top, min(fast, self.capacity(case, choice, own, moment)))
                known[key] = top
            tops.append(known[key])
            if tops[-1] < fewest[stage]:
                return inf
        if sum(tops) < count or roughly:
            return inf if sum(tops) < count else 0.0
        labels: dict[int, list[Any]] = {0: [(slowest, 0.0, sync)]}
        for stage, own in enumerate(stages):
            following: dict[int, list[Any]] = defaultdict(list)
            behind = sum(tops[stage + 1 :]), sum(fewest[stage + 1 :])
            for used, before in labels.items():
                for number in range(fewest[stage], tops[stage] + 1):
                    if not behind[1] <= count - used - number <= behind[0]:
                        continue
                    key = (own, held[stage], number)
                    if key not in known:
                        known[key] = []
                        for fast, _, _, choice in known[own]:
                            if number <= min(fast, self.capacity(case, choice, own, held[stage])):
                                add(known[key], self.added(case, choice, own, number, choices, w), False)
                    for time, more, y in known[key]:
                        for mt, mf, my in before:
                            self.states += 1
                            label = (max(mt, time), mf + more, max(my, y))
                            if a * label[0] + filling + label[1] + label[2] < self.claim:
                                add(following[used + number], label, False)
            if self.states > MOST_STATES:
                raise Refused("a case has too many plans to check")
            labels = following
        return min((a * t + filling + f + y for own in labels.values() for t, f, y in own), default=inf)

    @remembered("schedule", "batches", "stages")
    def fullest(self, case: Case) -> list[Moment]:
        """Micro-batches in flight of each stage at the moment with most."""
        return [max(self.instance.held(case, stage), key=sum) for stage in range(1, case.stages + 1)]

    def fastest(self, case: Case, choices: Choices, own: Chunks, limit: float) -> list[tuple[int, int, int, Choice]]:
        """Most layers of the stretch that a stage runs in less than `limit` by ZeRO stage, part and choice.

        The most are first, and of equally many those that likely take the fewest bytes.
        """
        fewest, most = own.least, min(own.most, self.stretch(case).count)
        fast, ways, known, spans = None, [], {}, {(max(c.front[1], len(c.ends)), c.most) for c in own.chunks}
        for family in choices.families:
            for part, choice in family:
                key = choice[0], max(self.instance.effective(choice[1]), 1)
                if key not in known:
                    pace = self.pace(case, choice, own)
                    if fast is None:
                        fast = fewest + bisect_left(range(fewest, most + 1), limit, key=lambda n: pace(n)[0]) - 1
                    while fast < most and pace(fast + 1)[0] < limit:  # Choices side by side are about as fast.
                        fast += 1
                    while fast >= fewest and pace(fast)[0] >= limit:
                        fast -= 1
                    known[key] = fast
                fast = known[key]
                ways.append((fast, choice[1], part, choice))
                if part >= max(front + min(held, fast + 1) for front, held in spans):
                    break  # Further ones recompute no more: this is all that a chunk of such a stage may hold.
        return sorted(ways, reverse=True)

    def added(self, case: Case, choice: Choice, own: Chunks, count: int, choices: Choices, w: Sequence[float]) -> Terms:
        """Terms of a stage with so many layers of the stretch, beside the recomputation that the filling counts."""
        time, extra, shown = self.pace(case, choice, own)(count)
        modes, layer = (
            self.instance.candidates[case.candidate].modes,
            self.stretch(case).order[self.stretch(case).start],
        )
        least = min(modes[name]["extra"][layer] for name in choices.names)
        more = w[1] * max(0.0, extra - count * least) + (w[0] * shown if len(set(w)) == 1 else 0.0)
        _, _, once, update, _ = self.shared(case, choice, own.ends, count)
        return time, more, update + self.instance.data["exposed"] * once[0]

    def recurrence(self, case: Case, choices: Choices) -> float:
        """Rule 3: stages between any cuts, with every boundary at its cheapest level."""
        if self.instance.schedules[case.schedule]["chunks"] > 1:
            return 0.0
        return self.tables(case, choices)[0]

    def placement(self, case: Case, choices: Choices, replay: bool = False) -> float:
        """Rules 4 and 5: every plan that the recurrence leaves, with its blocks; its closed form, or its replay."""
        inst, s = self.instance, case.stages
        if inst.schedules[case.schedule]["chunks"] > 1:
            return 0.0
        bound, front, links = self.tables(case, choices)
        if bound >= self.claim:
            return bound
        a, slots = inst.weights(case)[0], 0
        slots = case.size // inst.candidates[case.candidate].width
        exact, labels = {}, {(0, slots, END): [(0.0, 0.0, 0.0, None)]}
        for position in range(1, s + 1):
            by_cut, following = defaultdict(list), defaultdict(list)
            for (cut, slot, level), own in labels.items():
                by_cut[cut].append((slot, level, own))
            for smaller, larger, _, fit in links[position - 1]:
                if larger not in front[position]:
                    continue
                rest = front[position][larger]
                for slot, level, own in by_cut[smaller]:
                    for place in range(s - position, slot):
                        if position > 1 and inst.level(case, place, slot) != level:
                            continue
                        before = range(s - position - 1, place) if position < s else ()
                        for near in {inst.level(case, i, place) for i in before} or (END,):
                            for *_, choice in fit:
                                key = (smaller, larger, choice, near, level)
                                if key not in exact:
                                    exact[key] = inst.stage(case, ((smaller, larger),), choice, [(near, level)])
                                t, filling, y, _ = exact[key]
                                for mt, mf, my, path in own:
                                    self.states += 1
                                    label = (max(t, mt), filling + mf, max(y, my), (path, key) if replay else None)
                                    least = a * max(label[0], rest[0]) + label[1] + rest[1] + max(label[2], rest[2])
                                    if least < self.claim:
                                        add(following[larger, place, near], label, replay)
                            if self.states > MOST_STATES:
                                raise Refused("a case has too many plans to check")
            labels = following
        found, seen = inf, set()
        for own in labels.values():
            for mt, mf, my, path in own:
                value, stages = a * mt + mf + my, []
                while path is not None:
                    path, (smaller, larger, choice, near, level) = path
                    stages.append((((smaller, larger),), choice, [(near, level)]))
                key = tuple((runs[0], choice, around[0]) for runs, choice, around in stages)
                if replay and key not in seen:
                    seen.add(key)
                    self.states += case.batches * s
                    value = inst.priced(case, stages, inst.route(case))[1]
                found = min(found, value)
        return found

    def replay(self, case: Case, choices: Choices) -> float:
        """Rule 5, see `placement`."""
        return self.placement(case, choices, replay=True)


def compositions(total: int) -> Iterator[tuple[int, ...]]:
    """Sequences of positive numbers with a sum."""
    if not total:
        yield ()
    for first in range(1, total + 1):
        for rest in compositions(total - first):
            yield first, *rest


def joined(one: Sequence[float], other: Sequence[float], least: Sequence[float] | None) -> Terms:
    """Terms of a stage and the stages beside it, or those known if they are less."""
    terms = (max(one[0], other[0]), one[1] + other[1], max(one[2], other[2]))
    if least is None:
        return terms
    return min(terms[0], least[0]), min(terms[1], least[1]), min(terms[2], least[2])


def add(labels: list[Any], label: tuple[Any, ...], every: bool) -> None:
    """Keep a label that no other equals in all terms; or every one."""
    if not every and any(all(a <= b for a, b in zip(each[:3], label)) for each in labels):
        return
    if not every:
        labels[:] = [each for each in labels if not all(a <= b for a, b in zip(label[:3], each))]
    labels.append(label)


def check_tree(rules: Rules, node: Numbers, left: Sequence[Case]) -> None:
    """Check that a tree's leaves cover some cases and prove them by their rules."""
    if "rule" in node:
        if node["rule"] not in RULES:
            raise Refused(f"there is no rule {node['rule']!r}")
        for case in left:
            rules.prove(case, RULES.index(node["rule"]))
        return
    if node["by"] not in ("candidate", "replicas", "order", "schedule", "degree", "stages"):
        raise Refused(f"cases are not split by {node['by']!r}")
    inside = defaultdict(list)
    for case in left:
        inside[getattr(case, node["by"]) or 0].append(case)
    for value, cases in inside.items():
        part = next((part for ranges, part in node["parts"] if any(low <= value <= high for low, high in ranges)), None)
        if part is not None:
            check_tree(rules, part, cases)
        elif (case := next(filter(rules.instance.choices, cases), None)) is not None:
            raise Refused(f"no leaf covers the case of {case}")


def read(path: str | PathLike[str]) -> Numbers:
    """Certificate in a file, compressed or not."""
    with open(path, "rb") as file:
        data = file.read()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data, object_pairs_hook=unlike)


def unlike(pairs: list[tuple[str, Any]]) -> Numbers:
    """Object of a file, whose keys differ."""
    if len(found := dict(pairs)) < len(pairs):
        raise Refused("a key occurs twice")
    return found


def check(certificate: Numbers) -> tuple[float, float | None]:
    """Check a certificate; return the bound and the plan's price.

    Raises:
        Refused: it proves nothing.
    """
    try:
        instance, claim = Instance(certificate["instance"]), certificate["lower_bound"]
        if isinstance(claim, bool) or not 0 <= claim < inf:
            raise Refused(f"the claimed bound is {claim!r}")
        unpriced = instance.data.get("complete_below")
        if unpriced is not None and not unpriced >= claim:
            raise Refused(f"candidates that are not priced are only said to take {unpriced} s")
        price = instance.price(certificate["plan"]) if certificate.get("plan") is not None else None
        check_tree(Rules(instance, claim), certificate["cases"], instance.cases)
        if price is not None and price < claim:
            raise Refused(f"the plan's price is {price!r} s, below the claimed bound")
        if price is not None and not abs(price - certificate["price"]) <= 1e-9 * price:
            raise Refused(f"the plan's price is {price!r}, not {certificate['price']!r}")
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise Refused(f"the certificate is no such file: {type(error).__name__} {error}") from error
    return claim, price


def main(arguments: list[str]) -> int:
    """Check the file named on the command line."""
    if len(arguments) != 1:
        print("usage: check_certificate.py CERTIFICATE", file=sys.stderr)
        return 2
    gc.disable()  # Nothing here is a cycle.
    try:
        certificate = read(arguments[0])
        claim, price = check(certificate)
    except (OSError, EOFError, RecursionError, ValueError, zlib.error, Refused) as refused:
        print(f"not proved: {refused}")
        return 1
    print(f"no plan of this instance has a price below {claim!r} s")
    if price is not None:
        print(f"the plan's price is {price!r} s")
    if (unpriced := certificate["instance"].get("complete_below")) is not None:
        print(f"not checked: candidates without numbers take at least {unpriced!r} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
