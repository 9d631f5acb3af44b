"""Random candidates: their costs for each layer, whatever the problem around them."""

from copy import deepcopy
from random import Random

from tests.agreement.graphs import Graph

GROUPS = ("dense", "expert", "shared")
TIMES = {"forward", "backward", "extra", "update"}
BYTES = {"weights", "gradients", "optimizer", "first", "more", "peak"}


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


def random_candidates(random: Random, numbers: Numbers, graph: Graph, shapes: list[tuple[int, int]]) -> list[dict]:
    layers, edges = graph.count, len(graph.edges)
    modes = ["none", *random.choice([[], ["full"], ["full"], ["selective", "full"], ["stage"]])]
    names = random.choice([["tp"], ["tp"], ["tp", "cp"], ["tp", "ep"], []])
    groups = random.choice([GROUPS[:1], GROUPS[:1], GROUPS[:2], GROUPS, ()])
    candidates = []
    for index, (width, samples) in enumerate(shapes):
        kept = modes if random.random() < 0.8 else random.sample(modes, random.randint(1, len(modes)))
        forward = numbers.row(layers, 2.0 / width)
        forward[graph.busy] = max(forward[graph.busy], 0.01)  # no plan takes no time at all
        candidate = {
            "name": f"c{index}",
            "degrees": random_degrees(random, names, width),
            "width": width,
            "samples": samples,
            "forward": forward,
            "backward": [2 * time for time in forward] if random.random() < 0.7 else numbers.row(layers, 4.0),
            "state": {name: random_group(random, numbers, layers, width) for name in groups},
            "recompute": {mode: random_recompute(random, numbers, layers, mode) for mode in kept},
            "edge_bytes": numbers.row(edges, numbers.traffic),
        }
        silence(candidate, graph)
        candidates.append(candidate)
    return candidates


def records(candidate: dict) -> dict:
    """Whatever holds a candidate's rows, by its place."""
    held = {(key, name): record for key in ("state", "recompute") for name, record in candidate[key].items()}
    return held | {(): candidate}


def relate(random: Random, candidates: list[dict]) -> None:
    """Make all candidates like the first, each good at some layers and bad at others, so that mixing them pays.

    The wider a block is, the less of a layer each of its devices holds.
    """
    base = deepcopy(records(candidates[0]))
    spread = random.choice([[1.0], [0.3, 1.0, 2.5], [0.3, 1.0, 2.5]])
    for candidate in candidates:
        slower = [random.choice(spread) for _ in candidate["forward"]]
        larger = [random.choice([0.3, 1.0, 2.5]) / candidate["width"] for _ in candidate["forward"]]
        for place, record in records(candidate).items():
            for key in sorted((TIMES | BYTES) & set(record)) if place in base else ():
                factors = slower if key in TIMES else larger
                record[key] = [value * factor for value, factor in zip(base[place][key], factors, strict=True)]


def repeat(random: Random, candidates: list[dict], graph: Graph) -> None:
    """Let layers be copies of one or two of them, so that whole stages cost the same."""
    models = [graph.busy, *random.choice([[], [random.randrange(graph.count)]])]
    copied = [layer if layer in models else random.choice(models) for layer in range(graph.count)]
    alike = random.random() < 0.7
    for candidate in candidates:
        for record in records(candidate).values():
            for key in (TIMES | BYTES) & set(record):
                record[key] = [record[key][layer] for layer in copied]
        if alike:
            candidate["edge_bytes"] = candidate["edge_bytes"][:1] * len(candidate["edge_bytes"])
        silence(candidate, graph)


def silence(candidate: dict, graph: Graph) -> None:
    """Let idle layers cost nothing, and nothing go over empty edges."""
    for record in records(candidate).values():
        for key in (TIMES | BYTES) & set(record):
            record[key] = [0.0 if layer in graph.idle else value for layer, value in enumerate(record[key])]
    sizes = enumerate(candidate["edge_bytes"])
    candidate["edge_bytes"] = [0.0 if edge in graph.empty else size for edge, size in sizes]


def random_degrees(random: Random, names: list[str], width: int) -> dict:
    if not names:
        return {}
    if names == ["tp"]:
        return {"tp": width}
    other = random.choice([degree for degree in range(1, width + 1) if width % degree == 0])
    return {"tp": width // other, names[1]: other}


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
