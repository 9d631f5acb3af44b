"""Random small problems with two or three pools, and plans of them that keep to section 8 of PROBLEM.md."""

from math import prod
from random import Random

from tests.agreement.candidates import Numbers, random_candidates, relate, repeat
from tests.agreement.graphs import random_graph
from tests.agreement.ports import occupy
from tests.agreement.problems import (
    STRADDLED_FANOUTS,
    ask_for_replicas,
    count_copies,
    random_levels,
    random_search,
    random_training,
    random_zero_degrees,
)
from tests.agreement.rules import random_constraints
from tests.oracle.network import Network
from tests.oracle.partitions import partitions
from tests.oracle.parts import choices
from tests.oracle.pools import Search, price, violations

NAMES = ("new", "old", "older")
LARGEST_POOL = 6
FILLING = ["zero-bubble", "zero-bubble-h2"]
"""Schedules that weigh parts of a stage's time apart."""


def random_pool_problem(random: Random) -> dict:
    """Up to 5 layers on two pools, or 4 on three, of up to 6 devices each, every pool with one or two candidates."""
    pools = [random_pool(random, name) for name in NAMES[: random.choice([2, 2, 2, 3])]]
    networks = {pool["name"]: Network(pool) for pool in pools}
    graph = random_graph(random, 5 if len(pools) == 2 else 4)
    numbers = Numbers(random)
    if random.random() < 0.6:
        numbers.traffic /= 10  # Where little is sent, several stages pay.
    samples = random.choice([1, 1, 1, 2])
    shapes, homes = [], []
    for pool in pools:
        widths = [width for width in (1, 1, 2, 2, 3, 4) if networks[pool["name"]].admits(width)]
        for _ in range(random.choice([1, 1, 2])):
            shapes.append((random.choice(widths), samples if random.random() < 0.9 else 3 - samples))
            homes.append(pool["name"])
    candidates = random_candidates(random, numbers, graph, shapes)
    if random.random() < 0.6:
        relate(random, candidates)
    if random.random() < 0.2:
        repeat(random, candidates, graph)
    for candidate, home in zip(candidates, homes, strict=True):
        candidate["pool"] = home
        candidate["name"] = f"{home}-{candidate['name']}"
    problem = {
        "nest": 1,
        "training": random_training(random, candidates),
        "cluster": {"pools": pools, "between": random_links(random, pools)},
        "profile": {
            "layers": [f"layer {i}" for i in range(graph.count)],
            "edges": graph.edges,
            "candidates": candidates,
        },
    }
    if random.random() < 0.25:
        problem["training"]["schedule"] = random.choice([FILLING[:1], FILLING[1:], [FILLING[0], "1f1b"]])
    if random.random() < 0.15:
        problem["training"].setdefault("overlap", {})["pipeline"] = True
    random_search(random, problem)
    if random.random() < 0.2:
        random_zero_degrees(random, problem, parted=False)
    if random.random() < 0.25:
        for pool in pools:
            own = [each for each in candidates if each["pool"] == pool["name"]]
            occupy(random, {"cluster": pool, "profile": {"candidates": own}, "training": problem["training"]})
    tighten(random, problem)
    if random.random() < 0.35:
        problem["constraints"] = random_constraints(random, problem)
    if len(problem["profile"]["layers"]) > 1 and random.random() < 0.3:
        problem["constraints"] = [*problem.get("constraints", []), "pp > 1"]
    ask_for_replicas(random, problem)
    count_copies(random, candidates)
    return problem


def random_pool(random: Random, name: str) -> dict:
    """A pool of a few devices under one level or two, at times such that replicas or stages straddle groups."""
    while True:
        fanouts = [random.randint(1, 4) for _ in range(random.randint(1, 2))]
        if random.random() < 0.4:
            fanouts = list(random.choice(STRADDLED_FANOUTS))
        if prod(fanouts) <= LARGEST_POOL:
            return {"name": name, **random_levels(random, fanouts)}


def random_links(random: Random, pools: list[dict]) -> list[dict]:
    """Every pair, or now and then not every one."""
    names = [pool["name"] for pool in pools]
    pairs = [[one, two] for i, one in enumerate(names) for two in names[i + 1 :]]
    if random.random() < 0.12:
        pairs.remove(random.choice(pairs))
    links = []
    for pair in pairs:
        random.shuffle(pair)
        latency = random.choice([0.0, round(random.uniform(0.0, 0.2), 5)])
        links.append({"pools": pair, "bandwidth": round(10 ** random.uniform(0.0, 2.0), 3), "latency": latency})
    return links


def random_plan(random: Random, problem: dict, least_stages: int) -> dict | None:
    """A plan that keeps to section 8, whatever constraints and memory say; None: none was found in a few tries."""
    search = Search(problem)
    every = partitions(len(problem["profile"]["layers"]), problem["profile"]["edges"])
    shared = list(search.shared_settings())
    for _ in range(12 if shared else 0):
        pipeline, replicas, order, degree, settings, chosen = random.choice(shared)
        most = min(sum(own.replica_devices // own.width for own in settings.values()), max(map(len, every)))
        stages = max(random.randint(min(least_stages, most), most), 1)
        partition = random.choice([each for each in every if len(each) == stages])
        pools = [random.choice(list(settings)) for _ in partition]
        left = {}
        for pool, own in settings.items():
            places = list(own.placements([own.width] * pools.count(pool)))
            if not places:
                break
            left[pool] = iter(random.choice(places))
        if len(left) < len(settings):
            continue
        zeros = problem.get("search", {}).get("zero", [0, 1, 2, 3])
        plan = {
            "replicas": replicas,
            "rank_order": order,
            "schedule": pipeline.name,
            "zero_degree": degree,
            "stages": [
                {
                    "layers": list(layers),
                    "candidate": chosen[pool]["name"],
                    "offset": next(left[pool]),
                    "recompute": random.choice(choices(problem, chosen[pool])),
                    "zero": random.choice(zeros),
                }
                for layers, pool in zip(partition, pools, strict=True)
            ],
        }
        if "neighbours are joined" not in violations(problem, plan):
            return plan
    return None


def tighten(random: Random, problem: dict) -> None:
    """Give pools a memory near what some plan needs there: above it, exactly it, or below it."""
    pools = problem["cluster"]["pools"]
    for pool in pools:
        if random.random() < 0.4:
            pool["reserve"] = round(random.uniform(0.0, 5.0), 2)
    plans = [random_plan(random, problem, random.choice([2, 3, 3, 4])) for _ in range(random.choice([1, 3, 8]))]
    needs: dict[str, list[float]] = {}
    for plan in filter(None, plans):
        for stage in price(problem, plan)["stages"]:
            needs.setdefault(stage["pool"], []).append(stage["memory"])
    factor = random.choice([0.6, 0.95, 1.0, 1.0, 1.05, 1.2, 2.0])
    for pool in pools:
        own = needs.get(pool["name"])
        if own:
            wanted = random.choice([min(own), max(own), max(own)]) * factor * random.choice([1.0, 1.0, 0.8, 1.5])
            pool["memory"] = max(wanted, pool.get("reserve", 0.0) + 0.01)
