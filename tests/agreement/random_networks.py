"""Random profile problems on networks of 4 to 8 devices that are no hierarchy, small enough to try every placement."""

from random import Random

from tests.agreement.candidates import Numbers, random_candidates, relate, repeat
from tests.agreement.graphs import Graph, random_graph
from tests.agreement.problems import CHUNKED_SCHEDULES, random_even_graph, send_more
from tests.agreement.random_parts import thriftier
from tests.agreement.random_topologies import random_forwarding, random_topology
from tests.agreement.rules import random_constraints, random_fixed
from tests.oracle.network_plans import Search
from tests.oracle.topology import Topology

SCHEDULES = ("1f1b", "1f1b", "1f1b", "nest", "gpipe", "zero-bubble", ["1f1b", "gpipe"])
ZEROS = ([0], [0], [0, 1], [0, 2], [1, 3], [2], [3], [0, 3])
DEGREES = (2, [2, "all"], [1, 2, 3], [2, 4], [3, "all"])
"""Over how many ranks ZeRO may shard."""
RULES = (
    ["pp > 1"], ["pp > 1"], ["pp > 2"], ["pp == 4"], ["replicas == 2"], ["replicas > 1", "pp > 1"], ["replicas <= 2"],
    ["pp >= 2", "replicas >= 2", "uniform(zero)"],
    ["devices >= 5"], ["devices <= 3"], [], [], [],
)  # fmt: skip


def random_network_problem(random: Random, kind: str | None = None, *, mixed: bool = False, most: int = 8) -> dict:
    """A problem of up to so many devices, of which the network is one of `KINDS`, where one is named."""
    topology = random_topology(random, kind)
    while Topology(topology).size > most:
        topology = random_topology(random, kind)
    return random_problem_on(random, topology, mixed=mixed)


def random_forwarding_problem(random: Random) -> dict:
    """A problem on a network of devices alone whose links are alike; every other one drives all ports."""
    problem = random_problem_on(random, random_forwarding(random))
    problem["training"]["all_ports"] = random.random() < 0.5
    return problem


def random_chunked_problem(random: Random) -> dict:
    """The same with schedules that deal several chunks to a stage, on layers that most often come out even."""
    topology = random_topology(random)
    while Topology(topology).size > 6:
        topology = random_topology(random)
    problem = random_problem_on(random, topology, graph=random_even_graph(random, 0))
    problem["training"] |= {"schedule": random.choice(CHUNKED_SCHEDULES), "global_batch": random.choice([4, 6, 8, 12])}
    problem["constraints"] = random.choice([["pp > 1"], ["pp == 2"], ["pp > 1", "replicas <= 2"], ["chunks >= 2"]])
    return problem


def random_problem_on(random: Random, topology: dict, *, mixed: bool = False, graph: Graph | None = None) -> dict:
    """A problem of up to 6 layers in which what is sent takes about as long as what is computed.

    Where candidates are mixed, layers are fewer; a `graph` may be given.
    """
    count = Topology(topology).size
    if graph is None:
        graph = random_graph(random, 4 if mixed else random.choice([4, 5, 5, 6]))
    numbers = Numbers(random)
    numbers.traffic = random.choice([0.3, 3.0, 3.0, 10.0])
    widths = [width for width in (1, 1, 1, 2, 2, 3, 4) if count % width == 0]
    shapes = [(random.choice(widths), random.choice([1, 1, 2])) for _ in range(random.choice([1, 1, 2]))]
    if mixed:
        shapes = [(width, 1) for width in random.sample([w for w in (1, 2, 3, 4, 5) if count % w == 0], 2)]
    candidates = random_candidates(random, numbers, graph, shapes)
    if mixed:
        relate(random, candidates)
    for candidate in candidates:
        hold_alike(random, candidate)
    if random.random() < 0.3:
        repeat(random, candidates, graph)
    problem = {
        "nest": 1,
        "training": random_training(random, candidates),
        "cluster": {"memory": 1e9, "topology": topology},
        "search": {"zero": random.choice(ZEROS)},
        "profile": {
            "layers": [f"layer {i}" for i in range(graph.count)],
            "edges": graph.edges,
            "candidates": candidates,
        },
    }
    if rules := random.choice(RULES):
        problem["constraints"] = list(rules)
    if mixed:
        problem["search"]["mixed"] = True
    if random.random() < 0.4:
        tighten(random, problem)
    return problem


def random_parts_problem(random: Random) -> dict:
    """The same in less memory than the best plan of whole stages needs, with stages that recompute some layers."""
    problem = random_network_problem(random, mixed=random.random() < 0.2, most=6)
    for candidate in problem["profile"]["candidates"]:
        kept = candidate["recompute"].setdefault("none", next(iter(candidate["recompute"].values())))
        candidate["recompute"]["full"] = thriftier(random, candidate, kept)
    search = Search(problem)
    plan = search.run().plan
    if plan is not None:
        need = max(stage["memory"] for stage in search.priced(plan)["stages"])
        problem["cluster"]["memory"] = max(need, 0.01) * random.choice([0.7, 0.8, 0.9, 1.0])
    problem["search"]["recompute_layers"] = True
    return problem


def random_sharded_problem(random: Random) -> dict:
    """The same with shard groups of several sizes to choose from, and replicas."""
    problem = random_network_problem(random, most=6)
    problem["search"] |= {"zero": random.choice([[1], [2], [3], [0, 1], [1, 3]]), "zero_degree": random.choice(DEGREES)}
    problem["constraints"] = random.choice(
        [["replicas > 1"], ["replicas >= 4"], ["replicas > 1", "pp > 1"], ["zero_degree < dp"]]
    )
    problem["training"] |= {"global_batch": random.choice([8, 12, 24]), "uneven_batch": True}
    return problem


def random_ported_problem(random: Random) -> dict:
    """The same on a torus or mesh, or on another product, where collectives drive all ports of a device at once."""
    problem = random_network_problem(random, random.choice(["torus or mesh", "torus or mesh", None]))
    problem["training"]["all_ports"] = True
    return problem


def random_ruled_problem(random: Random) -> dict:
    """The same with constraints of every kind or decisions taken. The rank order, which no network has, is left out."""
    problem = random_network_problem(random, mixed=random.random() < 0.2, most=6)
    levels = [{"fanout": Topology(problem["cluster"]["topology"]).size, "bandwidth": 1.0, "latency": 0.0}]
    on_levels = {**problem, "cluster": {"memory": 1e9, "levels": levels}}
    if random.random() < 0.75:
        texts = [text for text in random_constraints(random, on_levels) if "rank_order" not in text]
        problem["constraints"] = [*problem.get("constraints", []), *texts]
    if random.random() < 0.4:
        decisions = random_fixed(random, on_levels)
        problem["fixed"] = {name: value for name, value in decisions.items() if name != "rank_order"}
    return problem


def hold_alike(random: Random, candidate: dict) -> None:
    """Let most groups be held by one rank of a block, by all, or by every other one, as strategies have it."""
    width = candidate["width"]
    for group in candidate["state"].values():
        if random.random() < 0.8:
            group["ranks"] = random.choice([[0], list(range(width)), list(range(0, width, 2))])


def random_training(random: Random, candidates: list[dict]) -> dict:
    least = max(candidate["samples"] for candidate in candidates)
    training = {
        "global_batch": random.choice([batch for batch in (2, 4, 6, 8, 12, 24) if batch >= least]),
        "schedule": random.choice(SCHEDULES),
        "uneven_batch": random.random() < 0.4,
        "exposed": random.choice([1.0, 1.0, 1.0, 0.3]),
    }
    kind = random.random()
    if kind < 0.15:
        training |= {"hiding": True, "exposed": random.choice([0.0, 0.1])}
        send_more(random, candidates)
    elif kind < 0.3:
        training |= {"synchronisation": 1.5, "sharded_synchronisation": 0.7}
    return training


def tighten(random: Random, problem: dict) -> None:
    """Give the devices a memory at which the best plan of all, or one like it, just does not fit or just fits."""
    search = Search(problem)
    plan = search.run().plan
    if plan is None:
        return
    need = max(stage["memory"] for stage in search.priced(plan)["stages"])
    if need:
        problem["cluster"]["memory"] = need * random.choice([0.5, 0.8, 0.99, 1.0])
