"""Galvatron's recurrence over layers and memory written again, from its authors' program.

PKU-DAIR/Hetu-Galvatron, `csrc/dp_core.cpp`: of each layer in turn, each number of MiB and each strategy of the layer
the least seconds of the layers so far. A layer's MiB are rounded up; what a stage needs beside its layers is taken off
the budget. Around it degrees, stages and replicas are powers of two that use all devices; blocks are divided evenly.

A strategy is here whether a layer is recomputed: tensor parallelism and the sharding are one for all layers.
"""

from collections.abc import Iterator
from math import ceil, inf
from random import Random
from typing import Any

import numpy

from tests.oracle.price import price, violations

MIB = 2.0**20
STRATEGIES = ("none", "full")


def random_chain(seed: int) -> dict[str, Any]:
    """Blocks alike between an embedding and a head on 8 or 16 devices, in memory that rarely holds all they compute."""
    random = Random(seed)
    blocks, fanouts = random.choice((8, 8, 12, 16)), random.choice(([8], [4, 2], [8, 2], [4, 4]))
    seconds, kept = random.uniform(0.002, 0.02), random.uniform(0.5, 3.0) * 1024 * MIB
    parameters, ends = random.uniform(0.2, 0.8) * 1024 * MIB, random.uniform(0.1, 2.0)
    again, rest = random.uniform(0.6, 1.0), random.uniform(0.02, 0.2)
    batch, sent = random.choice((16, 32, 64)), random.uniform(4, 64) * MIB

    def on(width: int) -> dict[str, Any]:
        def row(each: float, end: float) -> list[float]:
            return [end / width, *[each / width] * blocks, end / width]

        slower = 1 + 0.08 * random.random() * width
        forward = [each * slower for each in row(seconds, seconds * ends / 4)]
        held, state = row(kept, kept * ends / 8), row(parameters, parameters * ends)
        zeros = [0.0] * (blocks + 2)
        boundary = [held[0], *[each * rest for each in held[1:-1]], held[-1]]
        peak = [0.0, *[each * random.uniform(0.5, 1.0) for each in held[1:2]] * blocks, 0.0]
        run_again = [0.0, *[each * again for each in forward[1:-1]], 0.0]
        return {
            "name": f"tp{width}",
            "degrees": {"tp": width},
            "width": width,
            "samples": 1,
            "forward": forward,
            "backward": [2 * each for each in forward],
            "state": {
                "dense": {
                    "ranks": [0],
                    "weights": state,
                    "gradients": state,
                    "optimizer": [6 * each for each in state],
                    "update": zeros,
                }
            },
            "recompute": {
                "none": {"extra": zeros, "first": held, "more": held, "peak": zeros},
                "full": {"extra": run_again, "first": boundary, "more": boundary, "peak": peak},
            },
            "edge_bytes": [sent] * (blocks + 1),
        }

    problem = {
        "nest": 1,
        "training": {"global_batch": batch, "schedule": "1f1b"},
        "cluster": {
            "memory": 0.0,
            "reserve": random.choice((0.0, 1024 * MIB)),
            "levels": [
                {"fanout": fanout, "bandwidth": bandwidth, "latency": 5e-6}
                for fanout, bandwidth in zip(fanouts, (3e11, 2.5e10), strict=False)
            ],
        },
        "search": {"zero": [random.choice((0, 1, 1, 2, 3))], "recompute_layers": True},
        "profile": {
            "layers": ["embedding", *(f"layers.{index}" for index in range(blocks)), "head"],
            "edges": [[index, index + 1] for index in range(blocks + 1)],
            "candidates": [on(width) for width in (1, 2, 4, 8)],
        },
    }
    own = problem["profile"]["candidates"][0]
    whole = 8 * sum(own["state"]["dense"]["weights"]) + random.uniform(1, 4) * sum(own["recompute"]["none"]["first"])
    problem["cluster"]["memory"] = random.uniform(0.12, 0.4) * whole / random.choice((2, 4))
    return problem


def best(problem: dict[str, Any]) -> tuple[float, dict[str, Any] | None]:
    """The least step time of its plans, each priced by PROBLEM.md section 4, and the plan; endless: none fits."""
    found: list[tuple[float, dict[str, Any]]] = []
    for plan in _plans(problem):
        assert violations(problem, plan) == []
        numbers = price(problem, plan)
        assert numbers["fits"]
        found.append((numbers["batch_time"], plan))
    return min(found, key=lambda each: each[0], default=(inf, None))


def _plans(problem: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One for each tensor-parallel degree and each number of stages, where all stages have one."""
    devices, batch = 1, problem["training"]["global_batch"]
    for level in problem["cluster"]["levels"]:
        devices *= level["fanout"]
    blocks, zero = len(problem["profile"]["layers"]) - 2, problem["search"]["zero"][0]
    for candidate in problem["profile"]["candidates"]:
        stages = 1
        while stages * candidate["width"] <= devices and blocks % stages == 0:
            replicas = devices // (stages * candidate["width"])
            micro_batches = batch // replicas
            runs = [list(range(1 + at * blocks // stages, 1 + (at + 1) * blocks // stages)) for at in range(stages)]
            runs = [[0] * (at == 0) + run + [blocks + 1] * (at == stages - 1) for at, run in enumerate(runs)]
            chosen = [
                _recomputed(problem, candidate, run, replicas, min(stages - at, micro_batches))
                for at, run in enumerate(runs)
            ]
            if None not in chosen:
                yield {
                    "replicas": replicas,
                    "rank_order": "pp-inner",
                    "schedule": "1f1b",
                    "chunks": 1,
                    "zero_degree": None,
                    "stages": [
                        {
                            "layers": run,
                            "candidate": candidate["name"],
                            "offset": at * candidate["width"],
                            "recompute": _said(count, run, blocks),
                            "zero": zero,
                            "chunks": None,
                        }
                        for at, (run, count) in enumerate(zip(runs, chosen, strict=True))
                    ],
                }
            stages *= 2


def _said(count: int, run: list[int], blocks: int) -> Any:
    """A number of blocks as nest says it: an embedding in front of them counts, too, and runs nothing again."""
    if count in (0, sum(1 <= layer <= blocks for layer in run)):
        return "full" if count else "none"
    return "full", count + (run[0] == 0), "none"


def _recomputed(
    problem: dict[str, Any], candidate: dict[str, Any], run: list[int], replicas: int, held: int
) -> int | None:
    """How many layers of a stage are recomputed, with so many micro-batches in flight; None: it does not fit."""
    found = [_program(problem, candidate, run, replicas, held, some) for some in (STRATEGIES[:1], STRATEGIES)]
    return min((each for each in found if each is not None), default=(0.0, None))[1]


def _program(
    problem: dict[str, Any], candidate: dict[str, Any], run: list[int], replicas: int, held: int, strategies
) -> tuple[float, int] | None:
    """The least seconds of a stage whose layers have these strategies, and how many are recomputed."""
    zero, modes = problem["search"]["zero"][0], candidate["recompute"]
    shards = [replicas if zero >= least else 1 for least in (3, 2, 1)]
    state = candidate["state"]["dense"]
    beside = problem["cluster"]["reserve"] + max(modes[each]["peak"][layer] for each in strategies for layer in run)
    budget = int(problem["cluster"]["memory"] / MIB) - ceil(beside / MIB)
    if budget < 0:
        return None
    sizes, seconds = [], []
    for layer in run:
        rows = zip(("weights", "gradients", "optimizer"), shards, strict=True)
        own = sum(state[name][layer] / among for name, among in rows)
        each = [own + modes[name]["first"][layer] + (held - 1) * modes[name]["more"][layer] for name in strategies]
        sizes.append([ceil(size / MIB) for size in each])
        taken = candidate["forward"][layer] + candidate["backward"][layer]
        seconds.append([taken + modes[name]["extra"][layer] for name in strategies])
    # With every MiB the least seconds, and how many layers are recomputed then.
    least, counts = numpy.zeros(budget + 1), numpy.zeros(budget + 1, dtype=int)
    for own, taken in zip(sizes, seconds, strict=True):
        after, following = numpy.full(budget + 1, inf), numpy.zeros(budget + 1, dtype=int)
        for choice, (size, time) in enumerate(zip(own, taken, strict=True)):
            reached = least[: max(budget + 1 - size, 0)] + time
            better = numpy.flatnonzero(reached < after[size:])
            after[size + better] = reached[better]
            following[size + better] = counts[better] + (choice if time > taken[0] else 0)
        least, counts = after, following
    return (float(least[budget]), int(counts[budget])) if least[budget] < inf else None
