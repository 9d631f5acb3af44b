"""Every number of one explicit plan, and every rule it breaks."""

from itertools import chain, pairwise

from tests.oracle.brute_force import FITS
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
from tests.oracle.partitions import closed_under_successors, downsets
from tests.oracle.settings import RANK_ORDERS, Rules, Setting, given, micro_batches, schedules_of


def setting_of(problem: dict, plan: dict) -> Setting:
    """What the stages of an explicit plan share; `M` is rounded up where the batch leaves a remainder."""
    candidate = next(c for c in problem["profile"]["candidates"] if c["name"] == plan["candidate"])
    replicas, width = plan["replicas"], candidate["width"]
    size = Network(problem["cluster"]).size
    count = -(-problem["training"]["global_batch"] // (replicas * candidate["samples"]))
    own = width * (size // (replicas * width))
    return Setting(candidate, replicas, plan["rank_order"], plan["schedule"], count, own)


def price(problem: dict, plan: dict) -> dict:
    """The batch time, `M`, whether memory suffices, and FORMATS.md's numbers of every stage."""
    network = Network(problem["cluster"])
    setting = setting_of(problem, plan)
    count = len(plan["stages"])
    cuts = cuts_of(problem, setting, downsets([stage["layers"] for stage in plan["stages"]]))
    offsets = [stage["offset"] for stage in plan["stages"]]
    levels = [-1, *setting.boundary_levels(network, offsets), -1]
    stages = []
    for i, stage in enumerate(plan["stages"]):
        layers, recompute, zero = stage["layers"], stage["recompute"], stage["zero"]
        around = (levels[i], levels[i + 1])
        flying = in_flight(setting.schedule, setting.micro_batches, count, i + 1)
        more, sync = zero_times(problem, network, setting, layers, zero)
        transfers = transfer_time(network, (cuts[i], cuts[i + 1]), around)
        stages.append(
            {
                "time": compute_time(setting, layers, recompute) + transfers + more,
                "sync_time": sync,
                "memory": memory(problem, setting, layers, recompute, zero, flying, cuts[i]),
                "in_flight": flying,
                "level_in": around[0],
                "level_out": around[1],
                "devices": [setting.first_device(stage["offset"], 0), setting.width],
            }
        )
    a, b = weights(setting.schedule, setting.micro_batches, count)
    times = [stage["time"] for stage in stages]
    return {
        "batch_time": a * max(times) + b * sum(times) + max(stage["sync_time"] for stage in stages),
        "micro_batches": setting.micro_batches,
        "fits": all(stage["memory"] <= problem["cluster"]["memory"] * FITS for stage in stages),
        "stages": stages,
    }


def violations(problem: dict, plan: dict) -> list[str]:
    """The rules of PROBLEM.md sections 2, 3 and 5 that the plan breaks, memory aside."""
    setting = setting_of(problem, plan)
    profile = problem["profile"]
    partition = [stage["layers"] for stage in plan["stages"]]
    offsets = [stage["offset"] for stage in plan["stages"]]
    modes = [(stage["recompute"], stage["zero"]) for stage in plan["stages"]]
    rules = Rules(problem)
    width = setting.width
    own = setting.replica_devices
    kept = {
        "the width can be aligned": Network(problem["cluster"]).admits(width),
        "the replica owns a block": own >= width,
        "the batch can be dealt": micro_batches(problem, setting.candidate["samples"], setting.replicas) is not None,
        "the rank order may be used": setting.rank_order in given(problem.get("search"), "rank_order", RANK_ORDERS),
        "the schedule may be used": setting.schedule in schedules_of(problem),
        "every layer is in one stage": sorted(chain.from_iterable(partition)) == list(range(len(profile["layers"]))),
        "no stage is empty": all(partition),
        "stages are cut by downsets": all(
            closed_under_successors(downset, profile["edges"]) for downset in downsets(partition)
        ),
        "offsets are multiples of the width": all(offset % width == 0 for offset in offsets),
        "blocks lie in the replica": all(offset in range(own - width + 1) for offset in offsets),
        "blocks are disjoint and in order": all(one + width <= two for one, two in pairwise(offsets)),
        "modes may be used": set(modes) <= set(rules.modes(setting, len(partition))),
        "uniform choices are uniform": any(set(modes) <= set(kept) for kept in rules.joint_modes(modes)),
        "the partition may be used": rules.allow_partition(partition),
    }
    return [rule for rule, holds in kept.items() if not holds]
