"""Random problems of the track `optimum`, small enough for proofs that share no code with nest."""

from random import Random
from typing import Any

SMALL, CHAINS = 7, 5
"""Problems with branched graphs that brute force solves, and longer chains that an independent program solves."""

GIB = 2.0**30


def drawn() -> dict[str, dict[str, Any]]:
    """Every problem by the name of its file. The seed of one is its name."""
    found = {f"small-{index}": _problem(Random(f"small-{index}"), 5, (2, 2, 2), True) for index in range(SMALL)}
    return found | {f"chain-{index}": _problem(Random(f"chain-{index}"), 12, (4, 4), False) for index in range(CHAINS)}


def _problem(random: Random, count: int, fanouts: tuple[int, ...], branched: bool) -> dict[str, Any]:
    """A few layers of uneven times on a network whose levels count, in memory that binds."""
    edges = [(index, index + 1) for index in range(count - 1)]
    if branched:
        edges = sorted({(random.randrange(consumer), consumer) for consumer in range(1, count) for _ in range(2)})
    seconds = [random.randint(2, 9) / 8 for _ in range(count)]
    weights = [random.randint(1, 8) / 8 for _ in range(count)]
    held = [random.randint(1, 8) / 16 for _ in range(count)]
    sent = [random.randint(1, 16) / 128 for _ in edges]
    bandwidth = 8.0
    levels = []
    for index, fanout in enumerate(fanouts):
        levels.append(
            {"name": f"level{index}", "fanout": fanout, "bandwidth": bandwidth * GIB, "latency": (index + 1) / 1024}
        )
        bandwidth /= random.choice([2, 4])
    widths = [1, *sorted(random.sample([2, 4], random.randint(1, 2)))]
    candidates = [_candidate(random, width, seconds, weights, held, sent) for width in widths]
    return {
        "nest": 1,
        "training": {"global_batch": random.choice([24, 32, 48]), "schedule": "1f1b"},
        "cluster": {"memory": random.randint(18, 32) / 8 * count / 5 * GIB, "levels": levels},
        "search": {
            "rank_order": ["pp-inner", "dp-inner"],
            "zero": random.choice([[0], [0, 1], [0, 1, 2, 3]]),
            "recompute": ["none", "full"],
        },
        "profile": {
            "layers": [f"layer{index}" for index in range(count)],
            "edges": [list(each) for each in edges],
            "candidates": candidates,
        },
    }


def _candidate(
    random: Random, width: int, seconds: list[float], weights: list[float], held: list[float], sent: list[float]
) -> dict[str, Any]:
    """Layers shared among the devices of a block, at some cost of time."""
    efficiency = 1 - random.randint(1, 3) * (width - 1) / 16
    times = [each / width / efficiency for each in seconds]
    zeros = [0.0] * len(seconds)
    kept = [each / width * GIB for each in held]
    own = [each / width * GIB for each in weights]
    return {
        "name": f"tp{width}",
        "degrees": {"tp": width},
        "width": width,
        "samples": 1,
        "forward": [each / 3 for each in times],
        "backward": [each * 2 / 3 for each in times],
        "state": {
            "dense": {
                "ranks": [0],
                "weights": own,
                "gradients": own,
                "optimizer": [2 * each for each in own],
                "update": [each / GIB / 64 for each in own],
            }
        },
        "recompute": {
            "none": {"extra": zeros, "first": kept, "more": kept, "peak": zeros},
            "full": {"extra": [each / 3 for each in times], "first": zeros, "more": zeros, "peak": kept},
        },
        "edge_bytes": [each * GIB for each in sent],
    }
