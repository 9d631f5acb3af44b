"""Random networks of 4 to 8 devices that are no hierarchy, as `cluster.topology` writes them.

Numbers are binary fractions of a unit, so that sums of latencies are exact in any order.
"""

from collections.abc import Callable
from itertools import combinations, pairwise
from math import prod
from random import Random

from tests.oracle.topology import Topology

Rows = list[tuple[str, str]]
"""The two ends of each link."""

SHAPES = ([4], [5], [6], [2, 2], [2, 3], [3, 2], [2, 4], [4, 2], [2, 2, 2], [7], [8])


class Figures:
    """Draws bandwidths and latencies: in some networks all links are alike, in others they differ by a factor of 8."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.bandwidth = random.choice([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
        self.latency = random.choice([0.0, 1 / 1024, 1 / 64, 1 / 8])
        self.spread = random.choice([[1.0], [1.0, 1.0, 0.25], [1.0, 0.5, 0.125], None])

    def link(self) -> dict:
        random = self.random
        factor = random.choice(self.spread) if self.spread else random.randint(8, 64) / 64
        alike = self.spread == [1.0] or random.random() < 0.7
        return {"bandwidth": self.bandwidth * factor, "latency": self.latency * (1 if alike else random.randint(1, 4))}


def random_topology(random: Random, kind: str | None = None) -> dict:
    """A network that is no hierarchy; of a kind, where one is named."""
    while True:
        topology = (random.choice(OFTEN) if kind is None else KINDS[kind])(random)
        if no_hierarchy(Topology(topology)):
            return topology


def forwards(network: Topology) -> bool:
    """Whether some device passes on messages of others: then it is no hierarchy, although all pairs may be alike."""
    own = set(network.devices)
    return any(network.links[link].target in own for paths in network.path for path in paths for link in path[:-1])


def random_forwarding(random: Random) -> dict:
    """A torus, mesh, cube or other graph of devices with links all alike, mostly without latency."""
    while True:
        topology = random.choice([random_grid, random_grid, random_regular, random_connected])(random)
        alike = {"bandwidth": random.choice([1.0, 4.0, 16.0]), "latency": random.choice([0.0, 0.0, 1 / 64])}
        for part in [*topology.get("edges", topology.get("links", [])), *topology.values()]:
            if "bandwidth" in part:
                part.update(alike)
        if forwards(Topology(topology)):
            return topology


def random_grid(random: Random) -> dict:
    """A torus or a mesh by its parameters."""
    figures = Figures(random)
    link = {"bandwidth": figures.bandwidth, "latency": figures.latency}
    return {random.choice(["torus", "mesh"]): {"shape": random.choice(SHAPES), **link}}


def random_uneven_grid(random: Random) -> dict:
    """A ring, torus, mesh or cube whose links differ."""
    shape, closes = random.choice(SHAPES), random.random() < 0.6
    count = prod(shape)
    rows: list[tuple[int, int]] = []
    for device in range(count):
        for dimension, length in enumerate(shape):
            stride = prod(shape[dimension + 1 :])
            place = device // stride % length
            if place + 1 < length:
                rows.append((device, device + stride))
            elif closes and length > 2:
                rows.append((device, device - place * stride))
    return written(random, [f"d{i}" for i in range(count)], [], [(f"d{one}", f"d{two}") for one, two in rows])


def random_complete(random: Random) -> dict:
    """A link for every pair."""
    names = [f"d{i}" for i in range(random.randint(4, 8))]
    return written(random, names, [], list(combinations(names, 2)))


def random_matrix(random: Random) -> dict:
    """Every pair measured, in both directions."""
    figures, count = Figures(random), random.randint(4, 8)
    cells = [[figures.link() for _ in range(count)] for _ in range(count)]
    bandwidth = [[cell["bandwidth"] for cell in row] for row in cells]
    latency = [[cell["latency"] for cell in row] for row in cells]
    if random.random() < 0.5:
        return {"matrix": {"bandwidth": bandwidth, "latency": figures.latency}}
    return {"matrix": {"bandwidth": bandwidth, "latency": latency, "names": [f"host{i}" for i in range(count)]}}


def random_connected(random: Random) -> dict:
    """A tree, and links besides."""
    names = [f"d{i}" for i in range(random.randint(4, 8))]
    rows = [(names[random.randrange(i)], names[i]) for i in range(1, len(names))]
    others = [pair for pair in combinations(names, 2) if pair not in rows]
    return written(random, names, [], rows + random.sample(others, random.randint(0, min(len(names), len(others)))))


def random_regular(random: Random) -> dict:
    """Every device has as many links."""
    while True:
        count, degree = random.choice([(5, 2), (6, 3), (8, 3), (7, 4), (6, 4), (8, 4)])
        ends = [device for device in range(count) for _ in range(degree)]
        random.shuffle(ends)
        pairs = {tuple(sorted(pair)) for pair in zip(ends[::2], ends[1::2], strict=True)}
        if len(pairs) * 2 == len(ends) and all(one != two for one, two in pairs) and connected(count, pairs):
            rows = [(f"d{one}", f"d{two}") for one, two in sorted(pairs)]
            return written(random, [f"d{i}" for i in range(count)], [], rows)


def random_switched(random: Random) -> dict:
    """Islands of devices with links of their own, each device on one switch; switches in a row or all joined."""
    count, hubs = random.randint(4, 8), random.randint(1, 3)
    names, switches = [f"d{i}" for i in range(count)], [f"s{i}" for i in range(hubs)]
    rows = [(name, switches[i * hubs // count]) for i, name in enumerate(names)]
    rows += random.choice([list(pairwise(switches)), list(combinations(switches, 2))])
    island = random.choice([2, 3, 4])
    for first in range(0, count, island):
        if random.random() < 0.7:
            rows += pairwise(names[first : first + island])
    return written(random, names, switches, rows)


def random_routers(random: Random) -> dict:
    """Devices behind routers that are joined in a ring or in a row with links across."""
    count = random.randint(4, 6)
    routers = [f"r{i}" for i in range(count)]
    behind = [2, *(random.choice([1, 1, 2]) for _ in routers[1:])]
    while sum(behind) > 8:
        behind[behind.index(max(behind))] -= 1
    names = [f"d{i}.{j}" for i, number in enumerate(behind) for j in range(number)]
    rows = [(f"d{i}.{j}", routers[i]) for i, number in enumerate(behind) for j in range(number)]
    rows += pairwise(routers)
    others = [pair for pair in combinations(routers, 2) if pair not in rows]
    rows += random.sample(others, random.randint(1, 3))
    return written(random, names, routers, rows)


KINDS: dict[str, Callable[[Random], dict]] = {
    "torus or mesh": random_grid,
    "ring, torus, mesh or cube, links differ": random_uneven_grid,
    "a link for every pair": random_complete,
    "measured matrix": random_matrix,
    "connected at random": random_connected,
    "as many links at every device": random_regular,
    "islands on switches": random_switched,
    "behind routers": random_routers,
}

OFTEN = tuple(draw for draw in KINDS.values() for _ in range(2 if draw is random_uneven_grid else 1))
"""What a network is drawn from where no kind is named."""


def written(random: Random, devices: list[str], switches: list[str], rows: Rows) -> dict:
    """Node-link data, links in any order."""
    figures = Figures(random)
    nodes = [{"id": name} for name in devices] + [{"id": name, "kind": "switch"} for name in switches]
    edges = [{"source": one, "target": two, **figures.link()} for one, two in rows]
    if random.random() < 0.5:
        random.shuffle(edges)
    shared = {} if random.random() < 0.7 else {"graph": {"shared": random.random() < 0.5}}
    return {**shared, "nodes": nodes, random.choice(["edges", "links"]): edges}


def connected(count: int, pairs) -> bool:
    reached = {0}
    for _ in range(count):
        reached |= {end for pair in pairs if set(pair) & reached for end in pair}
    return len(reached) == count


def no_hierarchy(network: Topology) -> bool:
    """Whether levels of equal groups cannot say of every pair what the network does.

    In a hierarchy two of any three devices are as near as one of them and the third: of their three pairs two have the
    same latency and the same bandwidth. And every device has as many others at each latency and bandwidth. Where links
    between switches count as each device's share of them, bandwidths are left aside, and so are latencies that another
    of the shortest paths may have.
    """
    shared = any({link.source, link.target} <= switches(network) for link in network.links)
    every = range(network.size)
    if shared and any(len(set(latencies(network, one, two))) > 1 for one, two in combinations(every, 2)):
        return False
    figures = [
        [(network.latency[one][two], None if shared else network.bandwidth[one][two]) for two in every] for one in every
    ]
    around = {tuple(sorted(map(repr, row[:i] + row[i + 1 :]))) for i, row in enumerate(figures)}
    return len(around) > 1 or any(
        len({figures[one][two], figures[one][three], figures[two][three]}) == 3
        for one, two, three in combinations(every, 3)
    )


def switches(network: Topology) -> set[int]:
    return {end for link in network.links for end in (link.source, link.target)} - set(network.devices)


def latencies(network: Topology, one: int, two: int) -> list[float]:
    """Latencies of all paths between two devices with the fewest hops."""
    paths: list[tuple[int, float]] = [(network.devices[one], 0.0)]
    for _ in network.path[one][two]:
        paths = [
            (network.links[index].target, total + network.links[index].latency)
            for node, total in paths
            for index in network.leaving[node]
        ]
    return [total for node, total in paths if node == network.devices[two]]
