"""Every number of one explicit plan, and every rule it breaks."""

from itertools import chain, pairwise

from tests.oracle.brute_force import FITS
from tests.oracle.chunks import chunk_numbers, even_split, splits_into, stages_of
from tests.oracle.costs import can_run, compute_time, cuts_around, memory, messages, sent, stage_times, zero_times
from tests.oracle.direct import received, sends_directly
from tests.oracle.makespan import chunks_of, priced
from tests.oracle.network import Network
from tests.oracle.partitions import closed_under_successors, downsets
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


def candidates_of(problem: dict, plan: dict) -> list[dict]:
    """The candidate of each stage."""
    named = {candidate["name"]: candidate for candidate in problem["profile"]["candidates"]}
    return [named[stage["candidate"]] for stage in plan["stages"]]


def widest_of(problem: dict, plan: dict) -> dict:
    """The candidate of the widest stage; of several, of the first in pipeline order."""
    return max(candidates_of(problem, plan), key=lambda candidate: candidate["width"])


def setting_of(problem: dict, plan: dict) -> Setting:
    """What the stages of an explicit plan share; `M` is rounded up where the batch leaves a remainder."""
    widest = widest_of(problem, plan)
    replicas, width = plan["replicas"], widest["width"]
    size = Network(problem["cluster"]).size
    count = -(-problem["training"]["global_batch"] // (replicas * widest["samples"]))
    own = width * (size // (replicas * width))
    chosen = tuple(candidates_of(problem, plan))
    pipeline = pipeline_of(problem, plan["schedule"], plan.get("chunks", 1))
    return Setting(chosen, width, replicas, plan["rank_order"], pipeline, count, own, plan.get("zero_degree"))


def runs_of(problem: dict, plan: dict) -> list[tuple[int, ...]] | None:
    """The runs of layers that the pipeline goes through: the stages, or the chunks; an even split where none says.

    None: there is no such split, or not every stage says its chunks.
    """
    stages, chunks = plan["stages"], plan.get("chunks", 1)
    if chunks == 1:
        return [tuple(stage["layers"]) for stage in stages]
    if not any(stage.get("chunks") for stage in stages):
        return even_split(problem, len(stages) * chunks)
    if any(len(stage.get("chunks") or ()) != chunks for stage in stages):
        return None
    following = [iter(stage["chunks"]) for stage in stages]
    route = pipeline_of(problem, plan["schedule"], chunks).route(len(stages))
    return [tuple(sorted(next(following[stage]))) for stage in route]


def price(problem: dict, plan: dict) -> dict:
    """The step time, `M`, whether memory suffices, and FORMATS.md's numbers of every stage."""
    network = Network(problem["cluster"])
    setting = setting_of(problem, plan)
    chosen = candidates_of(problem, plan)
    count = len(plan["stages"])
    runs, route = runs_of(problem, plan), setting.pipeline.route(count)
    sets = downsets(runs)
    widths = [candidate["width"] for candidate in chosen]
    levels = setting.levels_around(network, widths, [stage["offset"] for stage in plan["stages"]])
    weights = setting.pipeline.weights(setting.micro_batches, count)
    stages, filling, chunks = [], [], []
    hides = hides_messages(problem, setting.schedule)
    for i, (stage, candidate) in enumerate(zip(plan["stages"], chosen, strict=True)):
        layers, zero = stage["layers"], stage["zero"]
        own = [run for run, home in enumerate(route) if home == i]
        held = [runs[run] for run in own]
        recompute = on_stage(problem, held, stage["recompute"])
        fronts, behinds = [levels[run] for run in own], [levels[run + 1] for run in own]
        cuts = [cuts_around(problem, candidate, sets, run + 1) for run in own]
        moments = setting.pipeline.moments(i + 1, count, setting.micro_batches)
        entering = [front for front, _ in cuts]
        arriving = messages(network, entering, fronts)
        returning = messages(network, [behind for _, behind in cuts], behinds)
        if sends_directly(problem):
            parts = received(problem, network, setting, candidate, plan, widths, i)
            entering = [sum(parts[0].values())]
            arriving, returning = (messages(network, part.values(), part) for part in parts)
        compute = compute_time(candidate, layers, recompute)
        shared = zero_times(problem, sent(problem, network, setting, candidate, layers), compute, zero)
        time, added, sync = stage_times(
            problem, setting, candidate, layers, recompute, shared, weights, arriving, returning
        )
        filling.append(added)
        ways = [[seconds for _, seconds in way] for way in (arriving, returning)]
        if sends_directly(problem):
            ways = [[sum(way)] for way in ways]
        chunks.append(chunks_of(candidate, held, recompute, shared, *ways, hides, time))
        stages.append(
            {
                "time": time,
                "sync_time": sync,
                "memory": memory(problem, candidate, setting, held, recompute, zero, moments, entering),
                "in_flight": setting.pipeline.in_flight(i + 1, count, setting.micro_batches),
                "level_in": max(fronts),
                "level_out": max(behinds),
                "devices": [setting.first_device(stage["offset"], candidate["width"], 0), candidate["width"]],
            }
        )
    syncs = [stage["sync_time"] for stage in stages]
    closed = weights[0] * max(stage["time"] for stage in stages) + sum(filling) + max(syncs)
    return {
        **priced(problem, setting.pipeline, setting.micro_batches, closed, chunks, syncs),
        "micro_batches": setting.micro_batches,
        "fits": all(stage["memory"] <= problem["cluster"]["memory"] * FITS for stage in stages),
        "stages": stages,
    }


def can_run_in(problem: dict, setting: Setting, chosen, partition, runs, modes) -> bool:
    """Whether all layers of stages with these chunks can run in their modes."""
    if runs is None:
        return False
    route = setting.pipeline.route(len(partition))
    held = [[run for run, home in zip(runs, route, strict=True) if home == i] for i in range(len(partition))]
    own = [on_stage(problem, each, recompute) for each, (recompute, _) in zip(held, modes, strict=True)]
    return all(map(can_run, chosen, partition, own))


def is_split(problem: dict, setting: Setting, partition, runs) -> bool:
    """Whether the layers of several chunks are a split of the model, and those of the stages are theirs."""
    if setting.chunks == 1:
        return True
    if runs is None or runs not in list(splits_into(problem, len(runs))):
        return False
    return list(map(sorted, partition)) == list(map(list, stages_of(runs, setting.pipeline.route(len(partition)))))


def violations(problem: dict, plan: dict) -> list[str]:
    """The rules of PROBLEM.md sections 2, 3 and 5 that the plan breaks, memory aside."""
    network = Network(problem["cluster"])
    setting = setting_of(problem, plan)
    profile = problem["profile"]
    chosen = candidates_of(problem, plan)
    partition = [stage["layers"] for stage in plan["stages"]]
    places = [(stage["offset"], candidate["width"]) for stage, candidate in zip(plan["stages"], chosen, strict=True)]
    modes = [(stage["recompute"], stage["zero"]) for stage in plan["stages"]]
    rules = Rules(problem)
    usable = [rules.modes(setting, candidate, len(partition), setting.devices(chosen)) for candidate in chosen]
    own = setting.replica_devices
    runs = runs_of(problem, plan)
    kept = {
        "the schedule has so many chunks": setting.chunks in chunk_numbers(problem, setting.pipeline.said),
        "chunks are a split of the model": is_split(problem, setting, partition, runs),
        "the schedule admits stages and micro-batches": setting.pipeline.admits(len(partition), setting.micro_batches),
        "stages of several chunks have one candidate": setting.chunks == 1
        or len({candidate["name"] for candidate in chosen}) == 1,
        "the widths can be aligned": all(network.admits(width) for _, width in places),
        "candidates take as many samples": len({candidate["samples"] for candidate in chosen}) == 1,
        "candidates may be mixed": given(problem.get("search"), "mixed", False)
        or len({candidate["name"] for candidate in chosen}) == 1,
        "the replica owns a block": own >= setting.width,
        "the batch can be dealt": micro_batches(problem, setting.samples, setting.replicas) is not None,
        "the rank order may be used": setting.rank_order in given(problem.get("search"), "rank_order", RANK_ORDERS),
        "the shard groups may be used": setting.zero_degree in zero_degrees_of(problem),
        "the shard groups are even": all(setting.shards_evenly(candidate) for candidate in chosen),
        "the schedule may be used": setting.schedule in schedules_of(problem),
        "every layer is in one stage": sorted(chain.from_iterable(partition)) == list(range(len(profile["layers"]))),
        "no stage is empty": all(partition),
        "stages are cut by downsets": all(
            closed_under_successors(downset, profile["edges"]) for downset in downsets(runs or partition)
        ),
        "offsets are multiples of the width": all(offset % width == 0 for offset, width in places),
        "blocks lie in the replica": all(offset in range(own - width + 1) for offset, width in places),
        "blocks are disjoint and in order": all(one + width <= two for (one, width), (two, _) in pairwise(places)),
        "modes may be used": all(mode in of_stage for mode, of_stage in zip(modes, usable, strict=True)),
        "layers can run in their modes": can_run_in(problem, setting, chosen, partition, runs, modes),
        "uniform choices are uniform": any(set(modes) <= set(kept) for kept in rules.joint_modes(modes)),
        "the partition may be used": rules.allow_partition(partition),
    }
    return [rule for rule, holds in kept.items() if not holds]
