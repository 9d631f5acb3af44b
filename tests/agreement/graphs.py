"""Random layer graphs: chains, chains with skips, forks and joins, random DAGs, and loose parts."""

from itertools import combinations
from random import Random


def random_edges(random: Random) -> tuple[int, list[list[int]]]:
    """The number of layers, and edges whose numbering need not follow the order of the layers."""
    kind = random.choice(["chain", "chain", "skips", "fork", "dag", "loose"])
    most = 4 if kind == "loose" else 6 if kind in ("chain", "skips") else 5
    count = most - min(random.randint(0, most - 1), random.randint(0, most - 1))
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
    names = list(range(count))
    if random.random() < 0.4:
        random.shuffle(names)
    edges = [[names[one], names[two]] for one, two in edges]
    if random.random() < 0.3:
        random.shuffle(edges)
    return count, edges
