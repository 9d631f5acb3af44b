"""The NEST paper's dynamic program written again in plain loops, from the page on `nest-paper` alone."""

from math import ceil, inf, log2
from random import Random
from typing import Any


def random_chain(seed: int) -> dict[str, Any]:
    """Four to ten layers on up to 32 devices: messages and gradients take about as long as layers compute."""
    random = Random(seed)
    count = random.randint(4, 10)
    forward = [random.randint(1, 10) / 1024 for _ in range(count)]
    sent = [10 ** random.uniform(5.5, 8) for _ in range(count - 1)]
    gradients = [float(round(10 ** random.uniform(6, 8.5))) for _ in range(count)]
    held = [random.randint(1, 30) * 1e7 for _ in range(count)]
    zeros = [0.0] * count
    fanouts = [random.choice((2, 4)), random.choice((2, 4)), *([2] if random.random() < 0.5 else [])]

    def on(width: int) -> dict[str, Any]:
        state = [each / width for each in gradients]
        return {
            "name": f"w{width}",
            "degrees": {"tp": width},
            "width": width,
            "samples": 1,
            "forward": [each / width for each in forward],
            "backward": [2 * each / width for each in forward],
            "state": {
                "dense": {"ranks": [0], "weights": state, "gradients": state, "optimizer": zeros, "update": zeros}
            },
            "recompute": {"none": {"extra": zeros, "first": held, "more": held, "peak": zeros}},
            "edge_bytes": sent,
        }

    levels = [
        {"fanout": fanout, "bandwidth": 10 ** random.uniform(9.5, 11.5), "latency": 10 ** random.uniform(-6, -4)}
        for fanout in fanouts
    ]
    return {
        "nest": 1,
        "training": {"global_batch": random.choice((8, 16, 32, 64)), "schedule": "nest", "uneven_batch": True},
        "cluster": {"memory": random.choice((1e12, 3e9)), "levels": levels},
        "search": {"zero": [0], "rank_order": ["pp-inner"]},
        "profile": {
            "layers": [f"layer {index}" for index in range(count)],
            "edges": [[index, index + 1] for index in range(count - 1)],
            "candidates": [on(width) for width in (1, 2)[: random.randint(1, 2)]],
        },
    }


def best(problem: dict[str, Any]) -> tuple[float, int, int, tuple[int, ...]]:
    """Seconds (endless: no plan), candidate, replicas, and the first layers of the stages behind the first."""
    found = [_best(problem, index) for index in range(len(problem["profile"]["candidates"]))]
    return min(found, key=lambda each: each[0])


def _best(problem: dict[str, Any], index: int) -> tuple[float, int, int, tuple[int, ...]]:
    levels, batch = problem["cluster"]["levels"], problem["training"]["global_batch"]
    own = problem["profile"]["candidates"][index]
    width, count = own["width"], len(own["forward"])
    devices = 1
    for level in levels:
        devices *= level["fanout"]
    state = own["state"]["dense"]

    def load(start: int, end: int, behind: int) -> float:
        """A stage's compute; endless where it does not fit with one micro-batch for itself and each stage behind."""
        layers = range(start, end)
        held = sum(state["weights"][i] + state["gradients"][i] for i in layers)
        held += (behind + 1) * sum(own["recompute"]["none"]["first"][i] for i in layers)
        if held > problem["cluster"]["memory"]:
            return inf
        return sum(own["forward"][i] + own["backward"][i] for i in layers)

    def message(level: int, cut: int) -> float:
        if cut == count:
            return 0.0
        below = levels[: level + 1]
        once = max(each["latency"] for each in below) + own["edge_bytes"][cut - 1] / min(
            each["bandwidth"] for each in below
        )
        return once if level == 0 else 2 * once

    def shared(one: int, other: int) -> int:
        """The level at which two devices meet."""
        size = 1
        for place, level in enumerate(levels):
            size *= level["fanout"]
            if one // size == other // size:
                return place
        raise AssertionError

    every = range(len(levels))
    value = {(0, count): [0.0 for _ in every]}
    following: dict[tuple[int, int], int] = {}
    most = min(count, devices // width)
    for stages in range(1, most):
        level = 0 if stages == 1 else shared((stages - 2) * width, (stages - 1) * width)
        for start in range(1, count):
            entry = [inf for _ in every]
            for end in range(start + 1, count + 1):
                rest = value.get((stages - 1, end))
                if rest is None:
                    continue
                inside = load(start, end, stages - 1) + message(level, end)
                reached = [max(inside + message(over, start), rest[level]) for over in every]
                if sum(reached) < sum(entry):
                    entry = [min(pair) for pair in zip(entry, reached, strict=True)]
                    following[stages, start] = end
            if entry[0] < inf:
                value[stages, start] = entry

    answer: tuple[float, int, int, int] = (inf, 0, 0, 0)
    for stages in range(1, most + 1):
        for replicas in range(1, devices // (stages * width) + 1):
            for cut in range(1, count + 1):
                rest = value.get((stages - 1, cut))
                if rest is None:
                    continue
                slowest = max(load(0, cut, stages - 1) + message(0, cut), rest[0])
                reduced = _reduced(levels, replicas, devices // replicas, sum(state["gradients"][:cut]), shared)
                time = slowest * (ceil(batch / replicas) + stages - 1) + reduced
                if time < answer[0]:
                    answer = time, replicas, stages, cut
    time, replicas, stages, cut = answer
    cuts = [cut] if stages > 1 else []
    for left in range(stages - 1, 1, -1):
        cuts.append(following[left, cuts[-1]])
    return time, index, replicas, tuple(cuts)


def _reduced(levels: list[dict[str, Any]], replicas: int, apart: int, size: float, shared: Any) -> float:
    if replicas == 1:
        return 0.0
    first, *above = levels[: shared(0, (replicas - 1) * apart) + 1]
    total = sum(first["latency"] + size / 2**step / first["bandwidth"] for step in range(int(log2(replicas))))
    below = 0.0
    for level in above:
        total += 2 * (level["latency"] + size / level["bandwidth"]) + below
        below += total
    return total
