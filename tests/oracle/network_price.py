"""Sections 1 and 4 of PROBLEM.md on a network that is no hierarchy: every number of a plan with its blocks on devices.

A plan is as `brute_force.describe` has it, but that a stage has no `offset`: the plan's `devices` are, for each replica
and stage, the devices of the block in the order of its ranks, by their place in the file.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import chain, pairwise

from tests.oracle.brute_force import FITS
from tests.oracle.chunks import chunk_numbers
from tests.oracle.costs import (
    Sent,
    compute_time,
    cuts_around,
    filling,
    finding_weight_gradients,
    memory,
    over,
    zero_times,
)
from tests.oracle.makespan import chunks_of, priced
from tests.oracle.partitions import closed_under_successors, downsets
from tests.oracle.parts import on_stage
from tests.oracle.price import can_run_in, candidates_of, is_split, runs_of
from tests.oracle.rings import Rings
from tests.oracle.schedules import pipeline_of
from tests.oracle.settings import Rules, Setting, given, micro_batches, schedules_of, zero_degrees_of
from tests.oracle.topology import Topology


class Machine:
    """A network with its rings."""

    def __init__(self, problem: dict) -> None:
        self.topology = Topology(problem["cluster"]["topology"])
        self.rings = Rings(self.topology, all_ports=given(problem["training"], "all_ports", False))
        self.size = self.topology.size

    def admits(self, width: int) -> bool:
        """Whether blocks may be so wide: there are no groups to align with but the whole network."""
        return self.size % width == 0


def setting_of(problem: dict, plan: dict, machine: Machine) -> Setting:
    """What the stages of a plan share. The rank order says nothing here; constraints may name it."""
    chosen = tuple(candidates_of(problem, plan))
    replicas, width = plan["replicas"], max(candidate["width"] for candidate in chosen)
    count = -(-problem["training"]["global_batch"] // (replicas * chosen[0]["samples"]))
    own = width * (machine.size // (replicas * width))
    order, degree = plan.get("rank_order", "pp-inner"), plan.get("zero_degree")
    pipeline = pipeline_of(problem, plan["schedule"], plan.get("chunks", 1))
    return Setting(chosen, width, replicas, order, pipeline, count, own, degree)


def counterparts(here, there) -> list[tuple[int, int]]:
    """Who sends activations to whom between two blocks: ranks of the narrower one have several counterparts."""
    widest = max(len(here), len(there))
    return [(here[q * len(here) // widest], there[q * len(there) // widest]) for q in range(widest)]


@dataclass(frozen=True)
class Boundary:
    """Between two runs of layers that follow each other: their stages, counted from 0, and what crosses it.

    `run` is the latter one, from 0. Each end takes in the bytes of its own candidate.
    """

    run: int
    here: int
    there: int
    activations: float
    gradients: float

    def ends(self, plan: dict) -> list[tuple[int, int]]:
        """Who sends activations to whom."""
        return [pair for blocks in plan["devices"] for pair in counterparts(blocks[self.here], blocks[self.there])]


def boundaries_of(problem: dict, chosen, sets, route) -> list[Boundary]:
    """All boundaries of a pipeline; `sets` are the downsets between the runs of layers, and `route` their stages."""
    found = []
    for run, (here, there) in enumerate(pairwise(route), start=1):
        if here == there:
            continue
        activations, _ = cuts_around(problem, chosen[there], sets, run + 1)
        _, gradients = cuts_around(problem, chosen[here], sets, run)
        found.append(Boundary(run, here, there, activations, gradients))
    return found


def translates(ranks: list[int], width: int) -> list[list[int]]:
    """The ranks that hold the same parameters, and the same further on in the block, as often as there is room."""
    found: list[list[int]] = []
    for step in range(width):
        moved = [rank + step for rank in ranks]
        taken = {rank for each in found for rank in each}
        if max(moved) < width and not taken & set(moved):
            found.append(moved)
    return found


def sharing(blocks, ranks: list[int]) -> list[list[int]]:
    """The sets of devices over which a stage with these blocks, one of each replica, reduces a group's gradients."""
    return [[block[rank] for block in blocks for rank in each] for each in translates(ranks, len(blocks[0]))]


def phase(machine: Machine, size: float, groups: list[list[int]]) -> list[float]:
    """Seconds of a reduce-scatter or an all-gather in groups that work side by side, and the latencies in them."""
    if not size or len(groups[0]) < 2:
        return [0.0, 0.0]
    rings = [machine.rings.cheapest(members, size) for members in groups]
    return list(max((ring.phase(size), (ring.members - 1) * ring.latency) for ring in rings))


def shard_groups(members: list[int], shards: int) -> list[list[int]]:
    """Runs of neighbours among those that hold the same parameters, replica by replica: each shards on its own."""
    return [members[first : first + shards] for first in range(0, len(members), shards)]


def sent(machine: Machine, setting: Setting, candidate: dict, blocks, layers) -> list[Sent]:
    """What each parameter group of a stage with these blocks sends."""
    found = []
    for group in candidate["state"].values():
        groups, shards = sharing(blocks, group["ranks"]), setting.shards(group["ranks"])
        runs = [run for members in groups for run in shard_groups(members, shards)]
        alike = [members[place::shards] for members in groups for place in range(shards)]
        gradients, weights = over(layers, group["gradients"]), over(layers, group["weights"])
        found.append(
            Sent(
                [2 * seconds for seconds in phase(machine, gradients, groups)],
                phase(machine, gradients, runs),
                phase(machine, weights, runs),
                [2 * seconds for seconds in phase(machine, gradients / shards, alike)],
                over(layers, group["update"]),
                shards,
            )
        )
    return found


def inside(machine: Machine, setting: Setting, candidate: dict, blocks, layers, zero: int) -> Counter[int]:
    """Bytes per micro-batch that the collectives of a stage with these blocks send over each link.

    ZeRO 2 scatters gradients in every micro-batch, ZeRO 3 gathers weights twice besides. What is sent once per batch
    loads nothing.
    """
    found: Counter[int] = Counter()
    for group in candidate["state"].values():
        sizes = [over(layers, group[key]) for key in ("gradients", "weights", "weights")]
        for members in sharing(blocks, group["ranks"]):
            for run in shard_groups(members, setting.shards(group["ranks"])):
                for size in sizes[: {2: 1, 3: 3}.get(zero, 0)]:
                    if size and len(run) > 1:
                        shares = machine.rings.cheapest(run, size).shares
                        found.update({link: size * share for link, share in shares.items()})
    return found


def across(machine: Machine, plan: dict, boundary: Boundary) -> Counter[int]:
    """Bytes per micro-batch over each link at a boundary: activations to and gradients from every counterpart."""
    path, found = machine.topology.path, Counter()
    for sender, receiver in boundary.ends(plan):
        for link in path[sender][receiver] if boundary.activations else ():
            found[link] += boundary.activations
        for link in path[receiver][sender] if boundary.gradients else ():
            found[link] += boundary.gradients
    return found


def waits(machine: Machine, own: list[Counter[int]], crossing: list[tuple[Boundary, Counter[int]]]) -> list[float]:
    """Seconds per micro-batch that the fullest link each stage uses needs for all that all stages send over it.

    What crosses a boundary is sent once, and both its stages use its links.
    """
    total: Counter[int] = Counter()
    for source in (*own, *(sent for _, sent in crossing)):
        total.update(source)
    found = []
    for stage in range(len(own)):
        around = [sent for boundary, sent in crossing if stage in (boundary.here, boundary.there)]
        used = {link for source in (own[stage], *around) for link in source}
        found.append(max((total[link] / machine.topology.links[link].capacity for link in used), default=0.0))
    return found


def price(problem: dict, plan: dict, machine: Machine | None = None) -> dict:
    """The step time, `M`, whether memory suffices, and the numbers of every stage."""
    machine = machine or Machine(problem)
    setting = setting_of(problem, plan, machine)
    chosen, count = setting.candidates, len(plan["stages"])
    runs, route = runs_of(problem, plan), setting.pipeline.route(count)
    boundaries, sets = boundaries_of(problem, chosen, downsets(runs), route), downsets(runs)
    blocks = [[replica[stage] for replica in plan["devices"]] for stage in range(count)]
    own = [inside(machine, setting, chosen[i], blocks[i], s["layers"], s["zero"]) for i, s in enumerate(plan["stages"])]
    held_up = waits(machine, own, [(each, across(machine, plan, each)) for each in boundaries])
    message = machine.topology.message
    weights = setting.pipeline.weights(setting.micro_batches, count)
    stages, added, passes = [], [], []
    for i, stage in enumerate(plan["stages"]):
        layers, zero, candidate = stage["layers"], stage["zero"], chosen[i]
        chunks = [run for run, home in enumerate(route) if home == i]
        held = [runs[run] for run in chunks]
        recompute = on_stage(problem, held, stage["recompute"])
        compute = compute_time(candidate, layers, recompute)
        shared = zero_times(problem, sent(machine, setting, candidate, blocks[i], layers), compute, zero)
        ways = [[0.0] * len(chunks), [0.0] * len(chunks)]
        for each in boundaries:
            if each.there == i:
                ways[0][chunks.index(each.run)] = max(message(each.activations, *pair) for pair in each.ends(plan))
            if each.here == i:
                ways[1][chunks.index(each.run - 1)] = max(
                    message(each.gradients, *pair[::-1]) for pair in each.ends(plan)
                )
        arriving, returning = map(sum, ways)
        entering = [cuts_around(problem, candidate, sets, run + 1)[0] for run in chunks]
        moments = setting.pipeline.moments(i + 1, count, setting.micro_batches)
        whole = compute + arriving + returning + shared.often
        forward = over(layers, candidate["forward"]) + arriving + shared.gathered
        gradients = over(layers, finding_weight_gradients(candidate))
        added.append(filling(weights, whole, forward, gradients, max(held_up[i] - whole, 0.0)))
        passes.append(chunks_of(candidate, held, recompute, shared, *ways, False, max(whole, held_up[i])))
        stages.append(
            {
                "time": max(whole, held_up[i]),
                "sync_time": shared.once,
                "memory": memory(problem, candidate, setting, held, recompute, zero, moments, entering),
                "in_flight": setting.pipeline.in_flight(i + 1, count, setting.micro_batches),
            }
        )
    syncs = [stage["sync_time"] for stage in stages]
    closed = weights[0] * max(stage["time"] for stage in stages) + sum(added) + max(syncs)
    return {
        **priced(problem, setting.pipeline, setting.micro_batches, closed, passes, syncs),
        "micro_batches": setting.micro_batches,
        "fits": all(stage["memory"] <= problem["cluster"]["memory"] * FITS for stage in stages),
        "stages": stages,
    }


def violations(problem: dict, plan: dict, machine: Machine | None = None) -> list[str]:
    """The rules of PROBLEM.md sections 2, 3 and 5 that a placed plan breaks, memory aside."""
    machine = machine or Machine(problem)
    setting = setting_of(problem, plan, machine)
    chosen, profile, rules = setting.candidates, problem["profile"], Rules(problem)
    partition = [stage["layers"] for stage in plan["stages"]]
    widths = [candidate["width"] for candidate in chosen]
    modes = [(stage["recompute"], stage["zero"]) for stage in plan["stages"]]
    used = [device for blocks in plan["devices"] for block in blocks for device in block]
    shape = [[len(block) for block in blocks] for blocks in plan["devices"]]
    devices, runs = setting.devices(chosen), runs_of(problem, plan)
    usable = [rules.modes(setting, candidate, len(partition), devices) for candidate in chosen]
    mixed = given(problem.get("search"), "mixed", False)
    kept = {
        "the widths can be placed": all(map(machine.admits, widths)) and any(True for _ in setting.placements(widths)),
        "candidates may be mixed": mixed or len({candidate["name"] for candidate in chosen}) == 1,
        "micro-batches are of one size": len({candidate["samples"] for candidate in chosen}) == 1,
        "the batch can be dealt": micro_batches(problem, setting.samples, setting.replicas) == setting.micro_batches,
        "the schedule has so many chunks": setting.chunks in chunk_numbers(problem, setting.pipeline.said),
        "chunks are a split of the model": is_split(problem, setting, partition, runs),
        "the schedule admits stages and micro-batches": setting.pipeline.admits(len(partition), setting.micro_batches),
        "the schedule may be used": setting.schedule in schedules_of(problem),
        "the shard group may be used": setting.zero_degree in zero_degrees_of(problem)
        and all(map(setting.shards_evenly, chosen)),
        "every replica has a block for each stage": shape == [widths] * setting.replicas,
        "devices have one rank": len(set(used)) == len(used) and set(used) <= set(range(machine.size)),
        "every layer is in one stage": sorted(chain(*partition)) == list(range(len(profile["layers"]))),
        "no stage is empty": all(partition),
        "downsets are closed": all(closed_under_successors(d, profile["edges"]) for d in downsets(runs or partition)),
        "modes may be used": all(mode in of_stage for mode, of_stage in zip(modes, usable, strict=True)),
        "layers can run in their modes": can_run_in(problem, setting, chosen, partition, runs, modes),
        "uniform choices are uniform": any(set(modes) <= set(kept) for kept in rules.joint_modes(modes)),
        "the partition may be used": rules.allow_partition(partition),
    }
    return [rule for rule, holds in kept.items() if not holds]
