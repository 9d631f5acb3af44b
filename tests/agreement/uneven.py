"""Random chains on clusters that their blocks do not divide neatly, so that where blocks lie matters and gaps pay."""

from math import prod
from random import Random

FANOUTS = ([8, 2], [4, 2], [5, 2], [3, 2], [3, 3], [4, 3], [6, 2], [7, 2], [2, 5], [3, 2, 2], [2, 3, 2], [5, 3])
"""Of these some are no powers of two, and replicas of most numbers straddle the groups of the others."""


def random_uneven_problem(random: Random) -> dict:
    """A chain of 3 to 5 layers, with tensors that differ much, as several stages of several replicas."""
    fanouts = random.choice(FANOUTS)
    layers = random.choice([3, 4, 4, 5])
    size = prod(fanouts)
    width = random.choice([1, 1, 1, 2]) if all(fanout % 2 == 0 for fanout in fanouts[:1]) else 1
    stages = random.choice([each for each in (2, 3, 3, 4) if each <= min(layers, size // width)])
    roomy = [each for each in range(1, size + 1) if size // (each * width) > stages]
    straddling = [each for each in roomy if fanouts[0] % (each * width) and each * width % fanouts[0]]
    replicas = random.choice(straddling or roomy or [1])
    rules = [f"pp == {stages}" if random.random() < 0.6 else "pp > 1"]
    if random.random() < 0.8:
        rules.append(f"replicas == {replicas}")
    return {
        "nest": 1,
        "training": {
            "global_batch": replicas * random.choice([1, 2, 3, 4]),
            "schedule": random.choice(["1f1b", "1f1b", "gpipe", "nest"]),
            "uneven_batch": random.random() < 0.3,
        },
        "cluster": {"memory": 1e12, "levels": random_levels(random, fanouts)},
        "search": {
            "rank_order": random.choice([["dp-inner"], ["dp-inner"], ["pp-inner"], ["pp-inner", "dp-inner"]]),
            "zero": random.choice([[0], [0, 1], [3]]),
        },
        "constraints": rules,
        "profile": {
            "layers": [f"layer {i}" for i in range(layers)],
            "edges": [[i, i + 1] for i in range(layers - 1)],
            "candidates": [random_candidate(random, layers, width)],
        },
    }


def random_levels(random: Random, fanouts: list[int]) -> list[dict]:
    """Each level is much slower than the one inside it."""
    bandwidth, latency = 1e11, random.choice([0.0, 0.0, 1e-6])
    levels = []
    for fanout in fanouts:
        levels.append({"fanout": fanout, "bandwidth": bandwidth, "latency": latency})
        bandwidth /= random.choice([3.0, 10.0, 100.0])
    return levels


def random_candidate(random: Random, layers: int, width: int) -> dict:
    """Layers alike or nearly so; tensors between them large or small, so that some must not leave a group."""
    alike = random.random() < 0.5
    forward = [0.1 if alike else round(random.uniform(0.08, 0.12), 3) for _ in range(layers)]
    nothing = [0.0] * layers
    weights = [random.choice([0.0, 1e8, 4e8])] * layers
    group = {"ranks": [0], "weights": weights, "gradients": weights, "optimizer": weights, "update": nothing}
    kept = [random.choice([1e9, 2e9]) for _ in range(layers)]
    return {
        "name": "c",
        "degrees": {"tp": width},
        "width": width,
        "samples": 1,
        "forward": forward,
        "backward": [2 * time for time in forward],
        "state": random.choice([{}, {"dense": group}]),
        "recompute": {"none": {"extra": nothing, "first": kept, "more": kept, "peak": nothing, "stash_inputs": False}},
        "edge_bytes": [random.choice([1e9, 1e9, 2e8, 1e3, 0.0]) for _ in range(layers - 1)],
    }
