"""Random chains where communication matters, of 6 to 14 layers on 8 to 64 devices.

Their sizes are those of `small/chains.jsonl` in the shared data: layers differ by an order of magnitude, each network
level is several times slower than the one inside it, and memory holds few plans. Batches with odd factors and uneven
batches give numbers of replicas that do not divide a node, so that stages straddle nodes and gaps pay.
"""

from itertools import pairwise
from random import Random

from tests.oracle.brute_force import alone, describe
from tests.oracle.chain_program import Table
from tests.oracle.network import Network
from tests.oracle.price import price
from tests.oracle.settings import settings

FANOUTS = (
    (2, 2, 2), (2, 2, 3), (3, 2, 2), (2, 3, 4), (4, 2, 2), (2, 4, 2), (4, 3, 2), (8, 2, 2), (4, 4, 2), (6, 2, 2),
    (5, 2, 3), (8, 4, 2), (8, 4),
)  # fmt: skip
DEGREES = ([(1, 1)], [(1, 1), (1, 2)], [(2, 1)], [(1, 1), (2, 1)], [(1, 1), (2, 1), (2, 2)], [(1, 1), (4, 1), (4, 2)])
"""Width and samples of the candidates a problem has."""
ZEROS = ([0], [0], [0, 1], [0, 2], [0, 1, 3])


def random_chain(random: Random, *, sharded: bool = False) -> dict:
    """A chain as a profile problem in SI numbers; now and then nothing fits.

    With `sharded`, ZeRO is used and has shard groups to choose from, and there are replicas enough to part.
    """
    layers = random.randint(6, 14)
    cluster = random_network(random)
    problem = {
        "nest": 1,
        "training": {
            "global_batch": random.choice([6, 7, 9, 10, 12, 14, 15, 18, 20, 21, 24, 28, 30, 36, 64]),
            "schedule": random.choice(["1f1b", "1f1b", "1f1b", "gpipe", "nest"]),
            "uneven_batch": random.random() < 0.5,
            **random.choice([{"exposed": 1.0}, {"exposed": 1.0}, {"exposed": 0.3}, {"exposed": 0.1, "hiding": True}]),
            **random.choice([{}, {}, {"synchronisation": 2.5, "sharded_synchronisation": 1.7}]),
        },
        "cluster": cluster,
        "search": {
            "rank_order": random.choice([["pp-inner"], ["dp-inner"], ["pp-inner", "dp-inner"]]),
            "zero": random.choice(ZEROS),
        },
        "profile": {
            "layers": [f"layer {i}" for i in range(layers)],
            "edges": [[i, i + 1] for i in range(layers - 1)],
            "candidates": random_candidates(random, layers, Network(cluster)),
        },
    }
    if sharded:
        problem["search"]["zero"] = random.choice([[1], [2, 3], [1, 3], [3]])
        problem["search"]["zero_degree"] = random.sample(["all", 2, 4, 6, 8], random.randint(1, 3))
        problem["training"]["global_batch"] = random.choice([16, 24, 36, 64, 96])
    limit_memory(random, problem)
    return problem


def random_network(random: Random) -> dict:
    fanouts = random.choice(FANOUTS)
    bandwidth = random.uniform(80.0, 320.0)
    levels = []
    for index, fanout in enumerate(fanouts):
        latency = 0.0 if random.random() < 0.5 else random.uniform(0.0, 0.05)
        levels.append({"name": f"level {index}", "fanout": fanout, "bandwidth": bandwidth, "latency": latency})
        bandwidth /= random.uniform(2.0, 12.0)
    return {"memory": 1e9, "levels": levels}


def row(random: Random, length: int, least: float, largest: float) -> list[float]:
    return [round(random.uniform(least, largest), 3) for _ in range(length)]


def random_candidates(random: Random, layers: int, network: Network) -> list[dict]:
    """One model, split in several ways: wider blocks hold less and are quicker, but less than in proportion."""
    shapes = [shape for shape in random.choice(DEGREES) if network.admits(shape[0])] or [(1, 1)]
    times, first, peak = row(random, layers, 0.2, 2.2), row(random, layers, 1.0, 6.0), row(random, layers, 0.0, 4.0)
    kept = [share * size for share, size in zip(row(random, layers, 0.1, 0.6), first, strict=True)]
    weights, sizes = row(random, layers, 1.0, 4.5), row(random, layers - 1, 1.0, 40.0)
    stash = random.random() < 0.5
    candidates = []
    for width, samples in shapes:
        speed = samples**0.9 / width**0.85
        forward = [time * speed for time in times]
        share = samples / width
        plain = {
            "extra": [0.0] * layers,
            "first": [size * share for size in first],
            "more": [size * share for size in first],
            "peak": [0.0] * layers,
            "stash_inputs": False,
        }
        full = {
            "extra": forward,
            "first": [size * share for size in kept],
            "more": [size * share for size in kept],
            "peak": [size * share for size in peak],
            "stash_inputs": stash,
        }
        own = [size / width for size in weights]
        candidates.append(
            {
                "name": f"tp{width}mb{samples}",
                "degrees": {"tp": width},
                "width": width,
                "samples": samples,
                "forward": forward,
                "backward": [2 * time for time in forward],
                "state": {
                    "dense": {
                        "ranks": [0],
                        "weights": own,
                        "gradients": own,
                        "optimizer": [6 * size for size in own],
                        "update": [0.01 * size for size in own],
                    }
                },
                "recompute": {"none": plain, "full": full} if random.random() < 0.6 else {"none": plain},
                "edge_bytes": [size * samples for size in sizes],
            }
        )
    return candidates


def limit_memory(random: Random, problem: dict) -> None:
    """Give devices about the memory that some plan of several stages, of equally many layers, needs."""
    network = Network(problem["cluster"])
    tables = [Table(problem, network, setting) for setting in settings(problem, network)]
    table = random.choice(tables)
    stages = random.randint(min(3, table.most), min(10, table.most))
    cuts = [table.count * i // stages for i in range(stages + 1)]
    partition = [tuple(range(one, two)) for one, two in pairwise(cuts)]
    offsets = [slot * table.setting.width for slot in range(stages)]
    modes = [random.choice(table.modes) for _ in partition]
    plan = describe(table.setting, alone(partition), [table.candidate] * stages, offsets, modes)
    needed = max(stage["memory"] for stage in price(problem, plan)["stages"])
    problem["cluster"]["memory"] = round(needed * random.choice([0.5, 0.7, 0.8, 0.9, 1.0]), 3)
