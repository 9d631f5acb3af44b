"""Random layer graphs: chains, chains with skips, forks and joins, random DAGs, loose parts, and layers that dangle."""

from dataclasses import dataclass
from itertools import combinations
from random import Random

KINDS = {"chain": 6, "skips": 6, "fork": 5, "dag": 5, "loose": 4}
"""Shapes, and how many layers a graph of the shape has at most, so that trying all partitions stays quick."""


@dataclass(frozen=True)
class Graph:
    """Layers and edges; `idle` layers do nothing, and nothing goes over `empty` edges."""

    count: int
    edges: list[list[int]]
    idle: frozenset[int]
    empty: frozenset[int]

    @property
    def busy(self) -> int:
        """The first layer that does something."""
        return min(set(range(self.count)) - self.idle)


def random_graph(random: Random, most: int = 6) -> Graph:
    """A graph of at most so many layers; their numbering need not follow their order."""
    kind = random.choice(["chain", "chain", "skips", "fork", "dag", "loose"])
    count = random_count(random, min(most, KINDS[kind]))
    edges = random_edges(random, kind, count)
    dangling = random_dangling(random, count, min(most, KINDS[kind]) - count)
    idle = {layer for layer, _ in dangling if random.random() < 0.8}
    edges += [(edge, layer in idle) for layer, edge in dangling if edge is not None]
    count += len(dangling)
    names = list(range(count))
    if random.random() < 0.4:
        random.shuffle(names)
    if random.random() < 0.3:
        random.shuffle(edges)
    return Graph(
        count,
        [[names[one], names[two]] for (one, two), _ in edges],
        frozenset(names[layer] for layer in idle),
        frozenset(i for i, (_, empty) in enumerate(edges) if empty),
    )


def random_count(random: Random, most: int) -> int:
    """Rather many layers than few."""
    return most - min(random.randint(0, most - 1), random.randint(0, most - 1))


def random_edges(random: Random, kind: str, count: int) -> list[tuple[tuple[int, int], bool]]:
    """Edges, none of them empty."""
    pairs = list(combinations(range(count), 2))
    chain = [(i, i + 1) for i in range(count - 1)]
    if kind == "chain":
        edges = chain
    elif kind == "skips":
        edges = chain + [pair for pair in pairs if pair not in chain and random.random() < 0.3]
    elif kind == "fork":
        middle = range(1, count - 1)
        edges = [(0, i) for i in middle] + [(i, count - 1) for i in middle] or chain
    elif kind == "dag":
        edges = [pair for pair in pairs if random.random() < 0.55]
    else:
        edges = [pair for pair in pairs if random.random() < 0.25]
    return [(edge, False) for edge in edges]


def random_dangling(random: Random, count: int, room: int) -> list[tuple[int, tuple[int, int] | None]]:
    """Further layers that nothing consumes, that need nothing, or both, each with its edge.

    Exported models have such layers: constants, masks, outputs that nobody reads.
    """
    if random.random() < 0.65:
        return []
    found = []
    for layer in range(count, count + min(room, random.choice([1, 1, 2]))):
        other = random.randrange(count)
        found.append((layer, random.choice([(other, layer), (layer, other), (other, layer), (layer, other), None])))
    return found
