"""Random small profile problems, the same for the same stream of random numbers.

`random_problem(random)` takes any `random.Random`, also hypothesis' (`strategies.randoms`), so one generator
serves seeds and shrinking alike.
"""

from math import prod
from random import Random

from tests.agreement.graphs import random_edges
from tests.agreement.rules import random_constraints, random_fixed
from tests.oracle.brute_force import describe
from tests.oracle.network import Network
from tests.oracle.partitions import partitions
from tests.oracle.price import price
from tests.oracle.settings import SCHEDULES, settings

LARGEST_CLUSTER = 12
GROUPS = ("dense", "expert", "shared")


def random_problem(random: Random) -> dict:
    """A profile problem with up to 6 layers, 12 devices and 3 candidates."""
    count, edges = random_edges(random)
    cluster = random_cluster(random)
    numbers = Numbers(random)
    candidates = random_candidates(random, numbers, count, len(edges), Network(cluster))
    problem = {
        "nest": 1,
        "training": random_training(random, candidates),
        "cluster": cluster,
        "profile": {
            "layers": [f"layer {i}" for i in range(count)],
            "edges": edges,
            "candidates": candidates,
        },
    }
    random_search(random, problem)
    tighten(random, problem)
    if random.random() < 0.35:
        problem["constraints"] = random_constraints(random, problem)
    if random.random() < 0.2:
        problem["fixed"] = random_fixed(random, problem)
    return problem


class Numbers:
    """Draws sizes and times; some problems have round numbers (many ties), some have many zeros.

    `state` scales the parameters and `traffic` the tensors between layers, against compute.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.round = random.random() < 0.3
        self.zeros = random.choice([0.0, 0.0, 0.1, 0.4])
        self.state = random.choice([1.0, 4.0, 4.0])
        self.traffic = random.choice([0.3, 3.0, 25.0])

    def draw(self, largest: float) -> float:
        if self.random.random() < self.zeros:
            return 0.0
        if self.round:
            return self.random.randint(1, 4) * largest / 4
        return round(self.random.uniform(0.02, 1.0) * largest, 4)

    def row(self, length: int, largest: float) -> list[float]:
        """One number a layer or edge; now and then all zero, or all alike."""
        kind = self.random.random()
        if kind < 0.08:
            return [0.0] * length
        if kind < 0.16:
            return [self.draw(largest)] * length
        return [self.draw(largest) for _ in range(length)]


def random_cluster(random: Random) -> dict:
    """Levels of any fan-out; most get slower outwards, some do not."""
    while True:
        fanouts = [random.randint(1, 4) for _ in range(random.randint(1, 3))]
        if 4 <= prod(fanouts) <= LARGEST_CLUSTER or (prod(fanouts) < 4 and random.random() < 0.1):
            break
    bandwidths = [round(10 ** random.uniform(0.0, 2.3), 3) for _ in fanouts]
    if random.random() < 0.7:
        bandwidths.sort(reverse=True)
    slow = random.choice([0.0, 0.01, 0.2])
    latencies = [0.0 if random.random() < 0.2 else round(random.uniform(0.0, slow), 5) for _ in fanouts]
    levels = [
        {"name": f"level {i}", "fanout": fanout, "bandwidth": bandwidth, "latency": latency}
        for i, (fanout, bandwidth, latency) in enumerate(zip(fanouts, bandwidths, latencies, strict=True))
    ]
    return {"memory": 1e9, "levels": levels}


def random_candidates(random: Random, numbers: Numbers, layers: int, edges: int, network: Network) -> list[dict]:
    widths = [width for width in (1, 1, 1, 2, 2, 3, 4, 6) if network.admits(width)]
    modes = ["none", *random.choice([[], ["full"], ["full"], ["selective", "full"], ["stage"]])]
    names = random.choice([["tp"], ["tp"], ["tp", "cp"], []])
    groups = random.choice([GROUPS[:1], GROUPS[:1], GROUPS[:2], GROUPS, ()])
    candidates = []
    for index in range(random.choice([1, 1, 2, 2, 3])):
        width = random.choice(widths)
        kept = modes if random.random() < 0.8 else random.sample(modes, random.randint(1, len(modes)))
        forward = numbers.row(layers, 2.0 / width)
        forward[0] = max(forward[0], 0.01)  # no plan takes no time at all
        candidates.append(
            {
                "name": f"c{index}",
                "degrees": random_degrees(random, names, width),
                "width": width,
                "samples": random.choice([1, 1, 2]),
                "forward": forward,
                "backward": [2 * time for time in forward] if random.random() < 0.7 else numbers.row(layers, 4.0),
                "state": {name: random_group(random, numbers, layers, width) for name in groups},
                "recompute": {mode: random_recompute(random, numbers, layers, mode) for mode in kept},
                "edge_bytes": numbers.row(edges, numbers.traffic),
            }
        )
    return candidates


def random_degrees(random: Random, names: list[str], width: int) -> dict:
    if not names:
        return {}
    if names == ["tp"]:
        return {"tp": width}
    cp = random.choice([c for c in range(1, width + 1) if width % c == 0])
    return {"tp": width // cp, "cp": cp}


def random_group(random: Random, numbers: Numbers, layers: int, width: int) -> dict:
    """A parameter group that is held alike by some ranks of the block, offset 0 among them."""
    others = random.sample(range(1, width), random.randint(0, width - 1)) if random.random() < 0.5 else []
    weights = numbers.row(layers, 4.0 * numbers.state)
    return {
        "ranks": sorted([0, *others]),
        "weights": weights,
        "gradients": list(weights) if random.random() < 0.5 else numbers.row(layers, 8.0 * numbers.state),
        "optimizer": [6 * size for size in weights]
        if random.random() < 0.5
        else numbers.row(layers, 20.0 * numbers.state),
        "update": numbers.row(layers, 0.1),
    }


def random_recompute(random: Random, numbers: Numbers, layers: int, mode: str) -> dict:
    share = 1.0 if mode == "none" else 0.3
    first = numbers.row(layers, 6.0 * share)
    kind = random.random()
    return {
        "extra": [0.0] * layers if mode == "none" else numbers.row(layers, 1.0),
        "first": first,
        "more": list(first) if kind < 0.5 else [0.0] * layers if kind < 0.75 else numbers.row(layers, 6.0 * share),
        "peak": [0.0] * layers if random.random() < 0.4 else numbers.row(layers, 5.0),
        "stash_inputs": random.random() < (0.15 if mode == "none" else 0.5),
    }


def random_training(random: Random, candidates: list[dict]) -> dict:
    least = max(candidate["samples"] for candidate in candidates)
    training: dict = {"global_batch": random.choice([b for b in (1, 2, 3, 4, 6, 8, 12, 24) if b >= least])}
    kind = random.random()
    if kind < 0.7:
        training["schedule"] = random.choice(SCHEDULES)
    elif kind < 0.9:
        training["schedule"] = random.sample(SCHEDULES, random.randint(1, 3))
    if random.random() < 0.6:
        training["uneven_batch"] = random.random() < 0.6
    if random.random() < 0.6:
        training["exposed"] = random.choice([0.0, 0.3, 0.75, 1.0])
    if random.random() < 0.2:
        training["overlap"] = {"data": random.random() < 0.5}
    return training


def random_search(random: Random, problem: dict) -> None:
    search: dict = {}
    if random.random() < 0.5:
        orders = ["pp-inner", "dp-inner"]
        search["rank_order"] = random.sample(orders, random.randint(1, 2))
    kind = random.random()
    if kind < 0.25:
        search["zero"] = [0]
    elif kind < 0.65:
        search["zero"] = random.sample(range(4), random.randint(1, 4))
    if random.random() < 0.2:
        modes = sorted({mode for c in problem["profile"]["candidates"] for mode in c["recompute"]})
        search["recompute"] = random.sample(modes, random.randint(1, len(modes)))
    if search:
        problem["search"] = search


def random_plan(random: Random, problem: dict, least_stages: int = 1) -> dict | None:
    """A plan that keeps section 3, whatever the constraints say; with `least_stages` where there is room."""
    network = Network(problem["cluster"])
    choices = list(settings(problem, network))
    if not choices:
        return None
    setting = random.choice(choices)
    blocks = setting.replica_devices // setting.width
    every = partitions(len(problem["profile"]["layers"]), problem["profile"]["edges"])
    most = min(blocks, max(map(len, every)))
    stages = random.randint(min(least_stages, most), most)
    partition = random.choice([p for p in every if len(p) == stages])
    offsets = sorted(random.sample(range(0, setting.replica_devices, setting.width), stages))
    modes = list(setting.candidate["recompute"])
    zeros = problem.get("search", {}).get("zero", [0, 1, 2, 3])
    choice = [(random.choice(modes), random.choice(zeros)) for _ in partition]
    return describe(setting, partition, offsets, choice)


def tighten(random: Random, problem: dict) -> None:
    """Give the cluster a memory near what some plan needs: above it, exactly it, or below it.

    Most often a plan of several stages is asked, for else one stage with many replicas nearly always wins.
    """
    cluster = problem["cluster"]
    if random.random() < 0.4:
        cluster["reserve"] = round(random.uniform(0.0, 5.0), 2)
    least_stages = random.choice([1, 2, 3, 4, 6])
    plans = [random_plan(random, problem, least_stages) for _ in range(random.choice([1, 3, 8]))]
    needs = [max(s["memory"] for s in price(problem, plan)["stages"]) for plan in plans if plan]
    if needs:
        factor = random.choice([0.6, 0.95, 1.0, 1.0, 1.0, 1.05, 1.2, 2.0])
        cluster["memory"] = max(min(needs) * factor, cluster.get("reserve", 0.0) + 0.01)
