"""Random problems for schedules: chunks of any size, placed anyhow, and parts of a stage weighed apart."""

from dataclasses import replace
from random import Random

from tests.agreement.candidates import BYTES, TIMES, Numbers, random_candidates, records
from tests.agreement.drawn_schedules import random_schedule
from tests.agreement.graphs import Graph, random_graph
from tests.agreement.ports import occupy
from tests.agreement.problems import random_levels, random_problem, tighten
from tests.oracle.chunks import topological
from tests.oracle.network import Network
from tests.oracle.schedules import said_by

FANOUTS = ([4], [8], [2, 2], [4, 2], [2, 4], [2, 2, 2], [3, 2], [6], [5])
BUILT_IN = (
    "interleaved",
    "interleaved-zero-bubble",
    "zb-v",
    "dualpipe",
    "dualpipe-v",
    "zero-bubble",
    "zero-bubble-h2",
    "1f1b",
)
LARGEST_GRAPH = 5
"""Layers of a graph that is no chain: all its partitions are tried."""


def random_schedule_problem(random: Random) -> dict:
    """A problem of up to 8 layers and 8 devices; `schedules`, which no file has, are those of somebody's plug-in."""
    cluster = random_levels(random, random.choice(FANOUTS))
    drawn = [random_schedule(random, name) for name in random.choice([["drawn"], ["drawn"], ["drawn", "other"], []])]
    ends = random.choice([(), (), ("embedding", "head")])
    graph = random_chain_or_graph(random, len(ends))
    numbers = Numbers(random)
    if random.random() < 0.7:
        numbers.traffic /= 10
    network = Network(cluster)
    widths = [width for width in (1, 1, 1, 2) if network.admits(width)]
    shapes = [(random.choice(widths), 1) for _ in range(random.choice([1, 1, 1, 2]))]
    candidates = random_candidates(random, numbers, graph, shapes)
    if graph.count > len(ends) + 1 and random.random() < 0.75:
        line_up(random, candidates, graph, len(ends))
    for candidate in candidates:
        few_modes(random, candidate)
        find_weight_gradients(random, candidate)
    problem = {
        "nest": 1,
        "training": random_schedule_training(random, [each.name for each in drawn]),
        "cluster": cluster,
        "profile": {
            "layers": [f"layer {index}" for index in range(graph.count)],
            "edges": graph.edges,
            "candidates": candidates,
        },
        "search": {"zero": random.choice([[0], [0], [1], [0, 2], [3], [0, 3]])},
        "schedules": {each.name: each for each in drawn},
    }
    if random.random() < 0.6:
        problem["search"]["rank_order"] = [random.choice(["pp-inner", "dp-inner"])]
    order = topological(graph.count, graph.edges)
    for end, name in zip((order[0], order[-1]), ends, strict=False):
        problem["profile"]["layers"][end] = name
    if random.random() < 0.2:
        occupy(random, problem)
    tighten(random, problem)
    restrict(random, problem)
    return problem


def random_mixed_schedule_problem(random: Random) -> dict:
    """A problem that mixes candidates, with schedules of one chunk that weigh parts apart, hold copies, hide messages.

    `schedules` are those of somebody's plug-in, as in `random_schedule_problem`.
    """
    problem = random_problem(random, "mixed")
    drawn = [replace(random_schedule(random, name), chunks=1, placed="round") for name in ("drawn", "other")]
    training, fixed = problem["training"], problem.get("fixed", {})
    own = [each.name for each in random.choice([drawn[:1], drawn[:1], drawn, []])]
    others = random.choice([["zero-bubble"], ["zero-bubble-h2"], ["dualpipe"]]) if not own else []
    kept = [fixed["schedule"]] if "schedule" in fixed else []
    training["schedule"] = list(dict.fromkeys([*own, *others, *kept]))
    if kept and random.random() < 0.7:
        fixed["schedule"] = training["schedule"][0]
    for candidate in problem["profile"]["candidates"]:
        find_weight_gradients(random, candidate)
    if random.random() < 0.4:
        hiding = {"pipeline": random.choice([True, training["schedule"][:1]])}
        training["overlap"] = training.get("overlap", {}) | hiding
    if random.random() < 0.7:
        problem["constraints"] = [*problem.get("constraints", []), "pp > 1"]
    return {**problem, "schedules": {each.name: each for each in drawn if each.name in own}}


def random_chain_or_graph(random: Random, ends: int) -> Graph:
    """Mostly a chain long enough for several chunks on several stages."""
    if random.random() < 0.12:
        return random_graph(random, LARGEST_GRAPH)
    count = min(random.choice([4, 5, 5, 6, 6, 7, 7, 8]) + ends, 8)
    edges = [[layer, layer + 1] for layer in range(count - 1)]
    if random.random() < 0.15:
        edges.append([0, count - 1])
    return Graph(count, edges, frozenset(), frozenset())


def line_up(random: Random, candidates: list[dict], graph: Graph, ends: int) -> None:
    """Let layers between the ends be alike in one to three runs, and what crosses cuts inside a run, too."""
    order = topological(graph.count, graph.edges)
    inner = order[1:-1] if ends else order
    cuts = sorted(random.sample(range(1, len(inner)), min(random.choice([0, 0, 1, 1, 2]), len(inner) - 1)))
    model = {layer: layer for layer in order}
    for first, behind in zip([0, *cuts], [*cuts, len(inner)], strict=True):
        model |= dict.fromkeys(inner[first:behind], inner[first])
    for candidate in candidates:
        for record in records(candidate).values():
            for key in (TIMES | BYTES) & set(record):
                record[key] = [record[key][model[layer]] for layer in range(graph.count)]
        first_of: dict[tuple[int, int], float] = {}
        candidate["edge_bytes"] = [
            first_of.setdefault((model[one], model[two] == model[one]), size)
            for (one, two), size in zip(graph.edges, candidate["edge_bytes"], strict=True)
        ]


def few_modes(random: Random, candidate: dict) -> None:
    """Two recompute modes at most, so that every choice of modes can be tried."""
    names = list(candidate["recompute"])
    kept = random.sample(names, min(random.choice([1, 1, 2]), len(names)))
    candidate["recompute"] = {name: candidate["recompute"][name] for name in kept}


def find_weight_gradients(random: Random, candidate: dict) -> None:
    """Mostly say how much of the backward pass finds gradients of weights, up to all that may."""
    if random.random() < 0.3:
        return
    share = random.choice([None, 0.0, 1.0, 1.0])
    pairs = zip(candidate["forward"], candidate["backward"], strict=True)
    most = [backward / 2 for _, backward in pairs]
    candidate["weight_gradients"] = [each * (random.random() if share is None else share) for each in most]


def random_schedule_training(random: Random, drawn: list[str]) -> dict:
    schedules = drawn + random.sample(BUILT_IN, random.choice([0, 0, 1] if drawn else [1, 2]))
    training: dict = {
        "global_batch": random.choice([2, 4, 4, 6, 8, 8, 12, 16]),
        "schedule": list(dict.fromkeys(schedules)),
        "exposed": random.choice([0.0, 0.5, 1.0]),
    }
    if random.random() < 0.35:
        training["overlap"] = {"pipeline": random.choice([True, training["schedule"][:1]])}
    if random.random() < 0.2:
        training["hiding"] = True
    return training


def restrict(random: Random, problem: dict) -> None:
    """Ask for stages, mostly, and now and then for layers that stay together or chunks."""
    layers = problem["profile"]["layers"]
    constraints = [random.choice(["pp > 1", "pp > 1", "pp == 2", "pp == 3", "pp > 2", "pp == 4"])]
    if random.random() < 0.5:
        constraints.append(random.choice(["replicas == 1", "replicas <= 2", "replicas == 2", "replicas % 2 == 1"]))
    if random.random() < 0.1:
        constraints.append('same_stage("{}", "{}")'.format(*random.sample(layers, 2)) if len(layers) > 1 else "pp < 3")
    if random.random() < 0.1:
        constraints.append(random.choice(["chunks > 1", "chunks <= 2", "chunks * pp <= 4", "uniform(recompute)"]))
    if random.random() < 0.85:
        problem["constraints"] = constraints
    if random.random() < 0.1:
        problem["fixed"] = random.choice([{"chunks": 2}, {"chunks": 3}, {"pp": 2}, {"replicas": 1}])
        offered = {said_by(problem, name).chunks for name in problem["training"]["schedule"]}
        if "chunks" in problem["fixed"] and not offered & {None, problem["fixed"]["chunks"]}:
            del problem["fixed"]  # Bad input, not infeasible.
