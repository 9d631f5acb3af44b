"""Piper's problems (msr-fiddle/piper, NeurIPS 2021) as mixed plans of ours, and our plans priced by Piper's formula.

Piper minimises the largest over stages, each with its own tensor-parallel width `t` and replicas `d`, of

    sum of time/d + (2 * sum over cut edges of (bytes + sync)/d + 4 * (d - 1)/d * weights/N) / bandwidth

and asks of a stage's memory `sum of (a*y + b) <= M`, `y = ceil(replicas of this and later stages / d)`
(data/README.md). `relaxed` makes a problem of ours of it that has a plan at least as fast for each of Piper's, so that
its optimum bounds Piper's from below; `price` says what Piper's formula gives for a plan, which bounds it from above.
"""

from collections.abc import Mapping, Sequence
from math import ceil, lcm
from typing import Any

from attrs import frozen

BANDWIDTH = 25 * 2.0**30
"""Bytes per second of the published figures (data/README.md: one bandwidth, 25 GiB/s)."""

MICRO_BATCHES = 10**9
"""So many that filling the pipeline adds less than 1e-6 of the time, as Piper does not count it."""

Stage = tuple[Sequence[int], int, int]
"""Nodes, tensor-parallel width and replicas of a stage."""


@frozen
class Choice:
    """A node at one tensor-parallel width, with or without recomputation.

    Attributes:
        time: seconds per sample.
        weights: bytes.
        held: bytes per micro-batch in flight (`a`).
        fixed: bytes whatever is in flight (`b`).
        sync_in: bytes exchanged inside the block for a tensor that arrives, by producer.
        sync_out: the same for a tensor that leaves, by consumer.
    """

    time: float
    weights: float
    held: float
    fixed: float
    sync_in: Mapping[int, float]
    sync_out: Mapping[int, float]


@frozen
class PiperGraph:
    """One of Piper's inputs.

    Attributes:
        nodes: by tensor-parallel width, the choices of recomputation of each node, plain first.
        edges: producer, consumer, bytes.
        samples: micro-batches per batch, `N`.
    """

    nodes: tuple[Mapping[int, tuple[Choice, ...]], ...]
    edges: tuple[tuple[int, int, float], ...]
    samples: int

    @property
    def widths(self) -> tuple[int, ...]:
        """Tensor-parallel widths that every node can have, ascending."""
        return tuple(sorted(set.intersection(*(set(node) for node in self.nodes))))


def read(data: Mapping[str, Any]) -> PiperGraph:
    """The graph that a file of `piper/` holds."""
    place = {node["id"]: index for index, node in enumerate(data["nodes"])}

    def choice(given: Mapping[str, Any]) -> Choice:
        return Choice(
            time=given["timePerSample"],
            weights=given["parameterSize"],
            held=given["memoryUsageA"],
            fixed=given["memoryUsageB"],
            sync_in={place[int(name)]: size for name, size in given["syncTimeFw"].items()},
            sync_out={place[int(name)]: size for name, size in given["syncTimeBw"].items()},
        )

    return PiperGraph(
        nodes=tuple(
            {int(width): tuple(choice(each) for each in choices) for width, choices in node["TMPCs"].items()}
            for node in data["nodes"]
        ),
        edges=tuple((place[e["sourceId"]], place[e["destId"]], e["communicationCost"]) for e in data["edges"]),
        samples=data["mbsInBatch"],
    )


def shapes(graph: PiperGraph, devices: int) -> list[tuple[int, int]]:
    """Widths and replicas a stage may have: the replicas divide the samples, and the devices are enough."""
    replicas = [count for count in range(1, devices + 1) if graph.samples % count == 0]
    return [(width, count) for width in graph.widths for count in replicas if width * count <= devices]


def relaxed(graph: PiperGraph, devices: int, memory: float) -> dict[str, Any]:
    """A problem whose fastest plan is at least as fast per micro-batch as Piper's best.

    Exact: time, replicas inside a stage, the gradients' share, tensors of edges that no stage can skip, devices.
    Relaxed: of the choices of recomputation each node takes the least time and the least memory; one micro-batch is in
    flight; edges that a stage may skip cost nothing, as ours are relayed and Piper's are not; where the two ends of an
    edge state different exchanges, the smaller counts.
    """
    open_shapes = shapes(graph, devices)
    whole = lcm(*(width * count for width, count in open_shapes))
    return {
        "nest": 1,
        "training": {"global_batch": MICRO_BATCHES, "schedule": "nest"},
        # Every width divides the fan-out, and twice the devices leave room for any order of aligned blocks.
        "cluster": {
            "memory": memory,
            "levels": [{"fanout": whole * -(-2 * devices // whole), "bandwidth": BANDWIDTH, "latency": 0.0}],
        },
        "search": {"mixed": True, "rank_order": ["pp-inner"], "zero": [0]},
        "constraints": ["replicas == 1", f"devices <= {devices}"],
        "profile": {
            "layers": [f"node{index}" for index in range(len(graph.nodes))],
            "edges": [[producer, consumer] for producer, consumer, _ in graph.edges],
            "candidates": [_candidate(graph, width, replicas) for width, replicas in open_shapes],
        },
    }


def alike(graph: PiperGraph, devices: int, memory: float) -> dict[str, Any]:
    """The problem for a planner that counts as Piper does.

    Every edge costs what it costs there, recomputation is a choice of the stage, and memory grows with the
    micro-batches in flight.

    Our own step time of its plans is another: tensors are relayed, and every stage of a pipeline holds as many
    micro-batches as there are stages behind it, where Piper's holds fewer if later stages have fewer replicas.
    """
    problem = relaxed(graph, devices, memory)
    for candidate in problem["profile"]["candidates"]:
        width, replicas = candidate["degrees"]["tp"], candidate["degrees"]["batch"]
        choices = [node[width] for node in graph.nodes]
        zeros = [0.0] * len(choices)
        share = 4 * (replicas - 1) / replicas / graph.samples / BANDWIDTH
        plain = [options[0].time / replicas + share * options[0].weights for options in choices]
        candidate["forward"] = plain
        candidate["edge_bytes"] = [
            2 * (size + _exchange(graph, producer, consumer, width)) / replicas
            for producer, consumer, size in graph.edges
        ]
        candidate["recompute"] = {
            name: {
                "extra": [(options[mode].time - options[0].time) / replicas for options in choices],
                "first": [options[mode].held + options[mode].fixed for options in choices],
                "more": [options[mode].held for options in choices],
                "peak": zeros,
            }
            for mode, name in enumerate(("none", "full"))
            if all(len(options) > mode for options in choices)
        }
    return problem


def _candidate(graph: PiperGraph, width: int, replicas: int) -> dict[str, Any]:
    zeros = [0.0] * len(graph.nodes)
    choices = [node[width] for node in graph.nodes]
    least = [min(each.time for each in options) for options in choices]
    weights = [min(each.weights for each in options) for options in choices]
    held = [min(each.held + each.fixed for each in options) for options in choices]
    share = 4 * (replicas - 1) / replicas / graph.samples / BANDWIDTH
    certain = unskippable(graph)
    return {
        "name": f"{width}x{replicas}",
        "degrees": {"tp": width, "batch": replicas},
        "width": width * replicas,
        "samples": 1,
        "forward": [time / replicas + share * size for time, size in zip(least, weights, strict=True)],
        "backward": zeros,
        "state": {},
        "recompute": {"none": {"extra": zeros, "first": held, "more": zeros, "peak": zeros}},
        "edge_bytes": [
            2 * (size + _exchange(graph, producer, consumer, width)) / replicas if one in certain else 0.0
            for one, (producer, consumer, size) in enumerate(graph.edges)
        ],
    }


def _exchange(graph: PiperGraph, producer: int, consumer: int, width: int) -> float:
    ends = [choice.sync_out.get(consumer, 0.0) for choice in graph.nodes[producer][width]]
    ends += [choice.sync_in.get(producer, 0.0) for choice in graph.nodes[consumer][width]]
    return min(ends)


def unskippable(graph: PiperGraph) -> set[int]:
    """Indices of the edges between whose ends no other node can come: all others precede one or follow the other."""
    before = _reached(graph, 1)
    after = _reached(graph, 0)
    count = len(graph.nodes)
    return {
        index
        for index, (producer, consumer, _) in enumerate(graph.edges)
        if len(before[producer] | after[consumer] | {producer, consumer}) == count
    }


def _reached(graph: PiperGraph, end: int) -> list[set[int]]:
    """The nodes that each node reaches along the edges (`end` 0) or against them (`end` 1)."""
    following: list[list[int]] = [[] for _ in graph.nodes]
    for edge in graph.edges:
        ends = edge[:2]
        following[ends[end]].append(ends[1 - end])
    found = []
    for start in range(len(graph.nodes)):
        reached: set[int] = set()
        waiting = [start]
        while waiting:
            new = set(following[waiting.pop()]) - reached
            reached |= new
            waiting += new
        found.append(reached)
    return found


def price(graph: PiperGraph, stages: Sequence[Stage], devices: int, memory: float) -> float | None:
    """Seconds per sample by Piper's formula; None when the plan is not one of Piper's.

    A stage that does not fit without recomputation recomputes in every node.
    """
    total = [sum(replicas for _, _, replicas in stages[index:]) for index in range(len(stages))]
    used = sum(width * replicas for _, width, replicas in stages)
    if used > devices or total[0] > graph.samples:
        return None
    slowest = 0.0
    for (nodes, width, replicas), later in zip(stages, total, strict=True):
        flying = ceil(later / replicas)
        fitting = [
            mode
            for mode in range(min(len(graph.nodes[node][width]) for node in nodes))
            if sum(_bytes(graph.nodes[node][width][mode], flying) for node in nodes) <= memory
        ]
        if not fitting:
            return None
        slowest = max(slowest, min(_stage_time(graph, set(nodes), width, replicas, mode) for mode in fitting))
    return slowest


def _bytes(choice: Choice, flying: int) -> float:
    return choice.held * flying + choice.fixed


def _stage_time(graph: PiperGraph, nodes: set[int], width: int, replicas: int, mode: int) -> float:
    chosen = {node: graph.nodes[node][width][mode] for node in nodes}
    moved = 0.0
    for producer, consumer, size in graph.edges:
        if producer in nodes and consumer not in nodes:
            moved += size + chosen[producer].sync_out.get(consumer, 0.0)
        if consumer in nodes and producer not in nodes:
            moved += size + chosen[consumer].sync_in.get(producer, 0.0)
    compute = sum(choice.time for choice in chosen.values()) / replicas
    weights = sum(choice.weights for choice in chosen.values())
    return compute + (2 * moved / replicas + 4 * (replicas - 1) / replicas * weights / graph.samples) / BANDWIDTH
