"""Random small profile problems, the same for the same stream of random numbers.

`random_problem(random)` takes any `random.Random`, also hypothesis' (`strategies.randoms`), so one generator
serves seeds and shrinking alike.
"""

from math import prod
from random import Random

from tests.agreement.candidates import Numbers, random_candidates, relate, repeat
from tests.agreement.graphs import Graph, random_graph
from tests.agreement.rules import random_constraints, random_fixed
from tests.oracle import parts
from tests.oracle.brute_force import alone, describe, split_of
from tests.oracle.chunks import splits, topological
from tests.oracle.network import Network
from tests.oracle.partitions import partitions
from tests.oracle.price import price
from tests.oracle.settings import SCHEDULES, Setting, settings

LARGEST_CLUSTER = 12
CHUNKED = "interleaved"
"""The schedule that deals chunks to problems of kind `chunked`."""
KINDS = ("any", "plain", "mixed", "chunked")
STRADDLED_FANOUTS = ([3, 2], [3, 3], [5, 2], [2, 3], [3, 2, 2], [2, 3, 2], [3, 4], [1, 4, 2])
"""Under these, several replicas or stages do not fill the groups, so that where blocks lie matters."""
CHUNKED_SCHEDULES = (
    [CHUNKED],
    [CHUNKED],
    ["1f1b", CHUNKED],
    [CHUNKED, "1f1b"],
    ["gpipe", CHUNKED, "zero-bubble"],
    ["zero-bubble"],
    ["zero-bubble-h2", "1f1b"],
)

UNEVEN_FANOUTS = ([6], [6, 1], [1, 6], [6, 2])
"""Under these, blocks of 2 and of 3 devices can both be aligned, and neither width divides the other."""


def random_problem(random: Random, kind: str = "any", *, sharded: bool = False) -> dict:
    """A profile problem with up to 6 layers, 12 devices and 3 candidates.

    A quarter of `any` problems mix candidates; those are smaller, as each stage has all candidates to try. With
    `sharded`, ZeRO has shard groups of several sizes to choose from, and may mostly be used.
    """
    drawn = "mixed" if random.random() < 0.25 else "plain"
    if kind == "chunked":
        return random_chunked_problem(random)
    mixed = (drawn if kind == "any" else kind) == "mixed"
    largest = random.choice([8, 8, 8, LARGEST_CLUSTER])
    cluster = random_mixed_cluster(random) if mixed else random_cluster(random, largest)
    network = Network(cluster)
    graph = random_graph(random, random.choice([4, 5, 5] if mixed else [4, 5, 5, 6]))
    numbers = Numbers(random)
    if mixed and random.random() < 0.7:
        numbers.traffic /= 10  # Where little is sent, several stages pay.
    shapes = random_mixed_shapes(random, network) if mixed else random_shapes(random, network)
    candidates = random_candidates(random, numbers, graph, shapes)
    if mixed and random.random() < 0.7:
        relate(random, candidates)
    if random.random() < 0.2:
        repeat(random, candidates, graph)
    problem = {
        "nest": 1,
        "training": random_training(random, candidates),
        "cluster": cluster,
        "profile": {
            "layers": [f"layer {i}" for i in range(graph.count)],
            "edges": graph.edges,
            "candidates": candidates,
        },
    }
    random_search(random, problem)
    if mixed:
        problem.setdefault("search", {})["mixed"] = True
    parted = sharded and random.random() < 0.6
    if sharded:
        random_zero_degrees(random, problem, parted)
    if not parted or random.random() < 0.5:
        tighten(random, problem)
    if random.random() < 0.35:
        problem["constraints"] = random_constraints(random, problem)
    if random.random() < 0.2:
        problem["fixed"] = random_fixed(random, problem)
    if parted:
        problem.setdefault("constraints", []).append("zero_degree < dp")
    ask_for_replicas(random, problem)
    count_copies(random, candidates)
    return problem


def random_chunked_problem(random: Random) -> dict:
    """A problem of 4 to 10 layers, most of them chains, with schedules that deal chunks or fill the bubble."""
    straddling = random.random() < 0.5
    cluster = random_levels(random, random.choice(STRADDLED_FANOUTS)) if straddling else random_mixed_cluster(random)
    network = Network(cluster)
    ends = random.choice([(), (), ("embedding", "head")])
    graph = random_even_graph(random, len(ends))
    numbers = Numbers(random)
    if random.random() < 0.6:
        numbers.traffic /= 10
    shapes = [(1, 1)] if straddling else random_shapes(random, network)[:2]
    candidates = random_candidates(random, numbers, graph, shapes)
    if random.random() < 0.4:
        repeat(random, candidates, graph)
    layers = [f"layer {i}" for i in range(graph.count)]
    problem = {
        "nest": 1,
        "training": random_training(random, candidates),
        "cluster": cluster,
        "profile": {"layers": layers, "edges": graph.edges, "candidates": candidates},
    }
    order = topological(graph.count, graph.edges)
    for end, name in zip((order[0], order[-1]), ends, strict=False):
        layers[end] = name
    problem["training"]["schedule"] = random.choice(CHUNKED_SCHEDULES)
    problem["training"]["global_batch"] = random.choice([4, 6, 8, 12, 24])
    random_search(random, problem)
    if random.random() < 0.1 and len(layers) <= 4:
        problem.setdefault("search", {})["mixed"] = True
    if random.random() < 0.15:
        random_zero_degrees(random, problem, parted=False)
    tighten(random, problem)
    if straddling:
        problem["constraints"] = random.choice([["pp > 1"], ["pp == 2"], ["pp > 2"], ["pp > 1", "replicas <= 2"]])
    elif random.random() < 0.3:
        problem["constraints"] = random_constraints(random, problem)
        if random.random() < 0.5:
            problem["constraints"].append(random.choice(["chunks >= 2", "chunks == 1 or pp <= 2", "chunks * pp <= 4"]))
    elif random.random() < 0.2:
        problem["fixed"] = random_fixed(random, problem)
    ask_for_replicas(random, problem)
    count_copies(random, candidates)
    return problem


def random_even_graph(random: Random, ends: int) -> Graph:
    """A graph that can be dealt evenly more often than not, with so many layers more at its ends."""
    if random.random() < 0.15:
        return random_graph(random)
    count = random.choice([4, 4, 4, 4, 5, 6, 6, 6, 8, 8]) + ends
    edges = [[layer, layer + 1] for layer in range(count - 1)]
    if random.random() < 0.3:
        edges += [[0, count - 1]]
    return Graph(count, edges, frozenset(), frozenset())


def random_cluster(random: Random, largest: int) -> dict:
    """Levels of any fan-out."""
    while True:
        fanouts = [random.randint(1, 4) for _ in range(random.randint(1, 3))]
        if 4 <= prod(fanouts) <= largest or (prod(fanouts) < 4 and random.random() < 0.1):
            return random_levels(random, fanouts)


def random_mixed_cluster(random: Random) -> dict:
    if random.random() < 0.3:
        return random_levels(random, random.choice(UNEVEN_FANOUTS))
    return random_cluster(random, 8)


def random_levels(random: Random, fanouts: list[int]) -> dict:
    """Most get slower outwards, some do not."""
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


def random_shapes(random: Random, network: Network) -> list[tuple[int, int]]:
    """Width and samples of each candidate."""
    widths = [width for width in (1, 1, 1, 2, 2, 3, 4, 6) if network.admits(width)]
    return [(random.choice(widths), random.choice([1, 1, 2])) for _ in range(random.choice([1, 1, 2, 2, 3]))]


def random_mixed_shapes(random: Random, network: Network) -> list[tuple[int, int]]:
    """Mostly of different widths, now and then of one width, and mostly of as many samples, so that they can mix."""
    widths = [width for width in (1, 2, 3, 4, 6) if network.admits(width)]
    count = random.choice([2, 2, 2, 3, 3])
    kind = random.random()
    if {2, 3} <= set(widths) and kind < 0.5:
        drawn = [2, 3, random.choice(widths)][:count]
    elif kind < 0.8:
        drawn = random.sample(widths, min(count, len(widths)))
    else:
        drawn = [random.choice(widths[:2]) for _ in range(count)]
    random.shuffle(drawn)
    usual = random.choice([1, 1, 2])
    return [(width, usual if random.random() < 0.85 else random.choice([1, 2])) for width in drawn]


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
    if random.random() < 0.35:
        training["hiding"] = True
        training["exposed"] = random.choice([0.0, 0.0, 0.1, 0.3, 1.0])
        send_more(random, candidates)
    if random.random() < 0.25:
        training["synchronisation"] = random.choice([0.5, 1.5, 4.0])
        training["sharded_synchronisation"] = random.choice([0.7, 1.0, 3.0])
    if random.random() < 0.2:
        training["overlap"] = {"data": random.random() < 0.5}
    return training


def send_more(random: Random, candidates: list[dict]) -> None:
    """Let more data-parallel communication be about than compute can hide, mostly."""
    factor = random.choice([1.0, 4.0, 15.0])
    for candidate in candidates:
        for group in candidate["state"].values():
            group["gradients"] = [size * factor for size in group["gradients"]]
            if random.random() < 0.5:
                group["weights"] = [size * factor for size in group["weights"]]


def ask_for_replicas(random: Random, problem: dict) -> None:
    """Where communication hides, let there often be some."""
    if problem["training"].get("hiding") and random.random() < 0.5:
        problem["constraints"] = [*problem.get("constraints", []), "replicas > 1"]


def count_copies(random: Random, candidates: list[dict]) -> None:
    """Let some candidates say how many samples one of their copies takes; what `dp` is follows."""
    if random.random() < 0.3:
        for candidate in candidates:
            if random.random() < 0.7:
                candidate["micro_batch"] = random.choice([1, candidate["samples"]])


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


def random_zero_degrees(random: Random, problem: dict, parted: bool) -> None:
    """Shard groups to choose from, and often replicas enough to part; where they must be, no large ones."""
    search = problem.setdefault("search", {})
    degrees = random.sample([1, 2, 2, 2, 3, 3, 4] + ([] if parted else ["all", "all", 6]), random.choice([1, 2, 2, 3]))
    search["zero_degree"] = degrees[0] if len(degrees) == 1 and random.random() < 0.5 else degrees
    if random.random() < 0.6:
        search["zero"] = random.sample([1, 2, 3], random.randint(1, 3))
    if parted or random.random() < 0.6:
        problem["training"]["global_batch"] = random.choice([4, 8, 12, 24])


def random_plan(random: Random, problem: dict, least_stages: int = 1) -> dict | None:
    """A plan that keeps section 3, whatever the constraints say; with `least_stages` where there is room."""
    network = Network(problem["cluster"])
    choices = list(settings(problem, network))
    if not choices:
        return None
    setting = random.choice(choices)
    if setting.chunks > 1:
        return random_chunked_plan(random, problem, setting)
    every = partitions(len(problem["profile"]["layers"]), problem["profile"]["edges"])
    narrowest = min(candidate["width"] for candidate in setting.candidates)
    most = min(setting.replica_devices // narrowest, max(map(len, every)))
    stages = random.randint(min(least_stages, most), most)
    chosen = draw(random, setting, stages)
    while not (placements := list(setting.placements([candidate["width"] for candidate in chosen]))):
        stages -= 1  # One stage, as wide as the setting says, has room.
        chosen = draw(random, setting, stages)
    partition = random.choice([p for p in every if len(p) == stages])
    zeros = problem.get("search", {}).get("zero", [0, 1, 2, 3])
    choice = [(random.choice(parts.choices(problem, candidate)), random.choice(zeros)) for candidate in chosen]
    return describe(setting, alone(partition), chosen, random.choice(placements), choice)


def random_chunked_plan(random: Random, problem: dict, setting: Setting) -> dict | None:
    """A plan of several chunks with this setting, where it has one."""
    (candidate,) = setting.candidates
    room = setting.replica_devices // setting.width
    possible = [each for each in splits(problem, setting.pipeline, setting.micro_batches) if len(each[0]) <= room]
    if not possible:
        return None
    split = split_of(*random.choice(possible))
    chosen = [candidate] * len(split.stages)
    zeros = problem.get("search", {}).get("zero", [0, 1, 2, 3])
    modes = [(random.choice(parts.choices(problem, candidate)), random.choice(zeros)) for _ in chosen]
    placements = list(setting.placements([setting.width] * len(chosen)))
    return describe(setting, split, chosen, random.choice(placements), modes)


def draw(random: Random, setting: Setting, stages: int) -> list[dict]:
    """A candidate for each stage, one of them as wide as the setting says."""
    chosen = [random.choice(setting.candidates) for _ in range(stages)]
    widest = [candidate for candidate in setting.candidates if candidate["width"] == setting.width]
    chosen[random.randrange(stages)] = random.choice(widest)
    return chosen


def tighten(random: Random, problem: dict) -> None:
    """Give the cluster a memory near what some plan needs: above it, exactly it, or below it.

    Most often a plan of several stages is asked, for else one stage with many replicas nearly always wins.
    """
    cluster = problem["cluster"]
    if random.random() < 0.4:
        cluster["reserve"] = round(random.uniform(0.0, 5.0), 2)
    mixed = problem.get("search", {}).get("mixed", False)  # One stage mixes nothing.
    least_stages = random.choice([2, 3, 3, 4] if mixed else [1, 2, 3, 4, 6])
    plans = [random_plan(random, problem, least_stages) for _ in range(random.choice([3, 8] if mixed else [1, 3, 8]))]
    needs = [max(s["memory"] for s in price(problem, plan)["stages"]) for plan in plans if plan]
    if needs:
        factor = random.choice([0.6, 0.95, 1.0, 1.0, 1.0, 1.05] + ([] if mixed else [1.2, 2.0]))
        cluster["memory"] = max(min(needs) * factor, cluster.get("reserve", 0.0) + 0.01)
