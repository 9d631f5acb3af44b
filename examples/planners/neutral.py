"""What the example adapters share: the problem they read, the program they ask, the plan they write.

A problem is JSON on standard input, a plan JSON on standard output (docs/reference/planner-adapters.md). Nothing of
nest is imported.
"""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from math import prod


def problem_given() -> dict:
    """The problem on standard input."""
    return json.load(sys.stdin)


def fail(reason: str) -> None:
    """End with a reason on standard error, which becomes the planner's row."""
    print(reason, file=sys.stderr)
    sys.exit(1)


def network(problem: dict) -> tuple[int, float]:
    """Devices, and bytes per second of the fastest link: all that planners of one bandwidth know of a network."""
    cluster = problem["cluster"]
    if "levels" in cluster:
        levels = cluster["levels"]
        return prod(level["fanout"] for level in levels), max(level["bandwidth"] for level in levels)
    matrix = cluster["topology"].get("matrix")
    if matrix is None:
        fail("this adapter reads levels and measured matrices; the problem has another topology.")
    rows = matrix["bandwidth"]
    return len(rows), max(rate for a, row in enumerate(rows) for b, rate in enumerate(row) if a != b)


@dataclass(frozen=True)
class Shape:
    """A candidate with a number of replicas that share the batch evenly.

    Attributes:
        candidate: as in the problem.
        replicas: data-parallel degree.
        micro_batches: of each replica.
        blocks: stages that a replica has devices for.
    """

    candidate: dict
    replicas: int
    micro_batches: int
    blocks: int


def shapes(problem: dict) -> list[Shape]:
    """Every candidate with every number of replicas, those with fewer replicas first."""
    devices, _ = network(problem)
    batch, found = problem["training"]["global_batch"], []
    for candidate in problem["profile"]["candidates"]:
        for replicas in range(1, devices // candidate["width"] + 1):
            if batch % (replicas * candidate["samples"]) == 0:
                micro_batches = batch // (replicas * candidate["samples"])
                found.append(Shape(candidate, replicas, micro_batches, devices // (replicas * candidate["width"])))
    return found


def modes(problem: dict, candidate: dict) -> list[str]:
    """Recompute modes that may be used in all layers, those that cost least time first."""
    allowed = problem["search"].get("recompute") or list(candidate["recompute"])
    usable = [name for name in candidate["recompute"] if name in allowed]
    usable = [name for name in usable if None not in candidate["recompute"][name]["first"]]
    return sorted(usable, key=lambda name: sum(candidate["recompute"][name]["extra"]))


def room(problem: dict) -> float:
    """Bytes of a device that a stage may use."""
    return problem["cluster"]["memory"] - problem["cluster"].get("reserve", 0.0)


def state(candidate: dict, layer: int) -> float:
    """Bytes of weights, gradients and optimizer states of a layer, none of them sharded."""
    groups = candidate["state"].values()
    return sum(group[part][layer] for group in groups for part in ("weights", "gradients", "optimizer"))


def gradients(candidate: dict, layer: int) -> float:
    """Bytes of a layer's gradients."""
    return sum(group["gradients"][layer] for group in candidate["state"].values())


def seconds(candidate: dict, mode: str, layer: int) -> float:
    """Seconds of a layer per micro-batch, forward, backward and what is computed again."""
    return candidate["forward"][layer] + candidate["backward"][layer] + candidate["recompute"][mode]["extra"][layer]


def reducing(problem: dict, shape: Shape, layer: int) -> float:
    """Seconds per micro-batch of a layer's share in reducing gradients: a ring over the replicas, once per batch."""
    share = 2 * (shape.replicas - 1) / shape.replicas * gradients(shape.candidate, layer)
    return share / network(problem)[1] / shape.micro_batches


def asked(program: str | None, variable: str, document: dict, no_plan: str = "nothing") -> dict:
    """What a program writes on standard output of a document on its standard input.

    Args:
        program: command; None: that of a variable of the environment.
        variable: its name.
        document: written as JSON.
        no_plan: how its output begins where it ends with an error because nothing fits: then the answer is empty.
    """
    command = program or os.environ.get(variable)
    if not command:
        fail(f"no program: set {variable}, or give --program COMMAND.")
    try:
        done = subprocess.run(shlex.split(command), input=json.dumps(document), capture_output=True, text=True)
    except OSError as error:
        fail(f"{variable} cannot be started: {error}")
    if done.returncode and done.stdout.startswith(no_plan):
        return {}
    if done.returncode:
        told = (done.stdout.strip() or done.stderr.strip() or "it told nothing").splitlines()[-1]
        fail(f"{variable} ended with exit code {done.returncode}: {told}")
    try:
        return json.loads(done.stdout)
    except ValueError:
        fail(f"{variable} wrote no JSON document.")


def in_order(problem: dict, stages: list[list[int]]) -> list[list[int]]:
    """Stages such that none reads of a later one."""
    edges, waiting, done, found = problem["profile"]["edges"], list(stages), set(), []
    while waiting:
        for stage in waiting:
            if all(a in done or a in stage for a, b in edges if b in stage):
                break
        else:
            fail("its stages read of each other in a circle.")
        waiting.remove(stage)
        found.append(stage)
        done |= set(stage)
    return found


def plan(problem: dict, shape: Shape, stages: list[list[int]], recompute: list[str | dict]) -> dict:
    """The plan of stages side by side, replicas of a stage beside each other where the problem allows it.

    Args:
        problem: of the plan.
        shape: of all stages.
        stages: layers by place.
        recompute: mode of each stage, or the keys that say it.
    """
    layers, width = problem["profile"]["layers"], shape.candidate["width"]
    orders = problem["search"].get("rank_order") or ["pp-inner", "dp-inner"]
    order = "dp-inner" if "dp-inner" in orders else orders[0]
    stride = width * (shape.replicas if order == "dp-inner" else 1)
    schedule = problem["training"].get("schedule", "1f1b")
    zero = min(problem["search"].get("zero") or [0])
    return {
        "data_parallel": shape.replicas,
        "rank_order": order,
        "schedule": schedule if isinstance(schedule, str) else schedule[0],
        "stages": [
            {
                "layers": [layers[layer] for layer in sorted(stage)],
                "candidate": shape.candidate["name"],
                "zero": zero,
                "devices": [place * stride, width],
                **(mode if isinstance(mode, dict) else {"recompute": mode}),
            }
            for place, (stage, mode) in enumerate(zip(stages, recompute, strict=True))
        ],
    }


def write(best: dict | None) -> None:
    """The plan on standard output, or that there is none."""
    json.dump(best or {"status": "infeasible", "diagnosis": "by its own count no plan fits."}, sys.stdout)
