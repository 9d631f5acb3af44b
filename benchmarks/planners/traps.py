"""Traps: problems with an optimum that follows from how they are made, one for each kind of restriction of planners.

Numbers are whole or binary fractions, so that optima are exact. A batch of 13 cannot be divided among replicas: then
the step takes `12 * (slowest stage) + (sum of stages)`. `python -m benchmarks.planners.generate` writes the files;
tests/benchmarks/test_planner_traps.py finds the same optima by brute force.
"""

from collections.abc import Sequence
from typing import Any

from attrs import frozen

GIB = 2.0**30
"""Bytes that weights, tensors and memory are counted in; bandwidths are GiB/s."""

PRIME = 13
"""A batch that only one replica can have, or 13."""


@frozen
class Trap:
    """A problem and its optimum.

    Attributes:
        name: of its file.
        restriction: what planners that fall in do without.
        optimum: least step time, seconds.
        argument: why no plan is faster.
        problem: as `nest solve` reads it.
    """

    name: str
    restriction: str
    optimum: float
    argument: str
    problem: dict[str, Any]


def traps() -> tuple[Trap, ...]:
    """All of them, in the order of the table."""
    return (
        _powers(),
        _even(),
        _idle(),
        _gap(),
        _order(),
        _head(),
        _recompute(),
        _partial(),
        _skip(),
        _network(),
        _branch(),
    )


def _powers() -> Trap:
    candidates = [
        candidate([6 / width] * 6, [0] * 5, name=f"tp{width}", width=width, weights=[6 / width] * 6)
        for width in (1, 2, 3, 6)
    ]
    return Trap(
        "powers",
        "degrees that are powers of two",
        72.0,
        "12 micro-batches of 36 s of work on 6 devices take 72 s at least; one block of 6 devices takes just that.",
        problem(candidates, [(6, 1, 0)], batch=12, memory=1024),
    )


def _even() -> Trap:
    return Trap(
        "even",
        "stages of equally many layers",
        84.0,
        "One replica on two devices: the slower stage takes 6 s of the 12 s at least, 12 * 6 + 12. The first layer "
        "alone takes 6 s.",
        problem([candidate([6, 2, 2, 2], [0] * 3)], [(2, 1, 0)], batch=PRIME),
    )


def _idle() -> Trap:
    return Trap(
        "idle",
        "plans that use every device",
        25.0,
        "One message between the nodes takes 26 s. In a node, two replicas take 5 * 4 + 4 and 1 s for gradients. Two "
        "stages take 11 * 2 + 4 at least, one device takes 48.",
        problem([candidate([1] * 4, [1 / 8] * 3, weights=[1 / 4] * 4)], [(2, 1, 0), (2, 1, 26)], batch=12, memory=4),
    )


def _gap() -> Trap:
    return Trap(
        "gap",
        "stages side by side, without a gap",
        58.0,
        "Memory asks for a device per layer. A node has two, so one tensor goes between nodes: the small one costs "
        "less, and the middle stage takes 2 + 1 + 4/4 s. Device 1 has to stay idle.",
        problem([candidate([2] * 3, [1, 4], weights=[1 / 2] * 3)], [(2, 4, 0), (2, 1, 0)], batch=PRIME),
    )


def _order() -> Trap:
    return Trap(
        "order",
        "one rank order (dp-inner)",
        15.0,
        "Memory asks for two stages. Two replicas with stages in a node take 5 * 2 + 4, and 1 s for gradients between "
        "nodes. Replicas in a node take 5 * 3 + 6, one replica 11 * 2 + 4.",
        problem([candidate([1] * 2, [2], weights=[1] * 2)], [(2, 2, 0), (2, 1, 0)], batch=12, memory=2),
    )


def _head() -> Trap:
    return Trap(
        "head",
        "a last layer that counts as any other",
        64.0,
        "One replica on four devices: the slowest stage takes 4 s of the 16 s at least, 12 * 4 + 16. The last layer "
        "alone takes 4 s, and so do four of the others.",
        problem([candidate([1] * 12 + [4], [0] * 12)], [(4, 1, 0)], batch=PRIME),
    )


def _recompute() -> Trap:
    return Trap(
        "recompute",
        "one recompute mode for all stages",
        41.5,
        "Memory asks for two stages and for recomputation in the first, which holds two micro-batches: 2.5 s. The "
        "second takes 3 s without: 12 * 3 + 5.5.",
        problem(
            [candidate([2, 3], [0], weights=[1 / 2] * 2, held=[1, 1], saving=True)], [(2, 1, 0)], batch=PRIME, memory=2
        ),
    )


def _partial() -> Trap:
    return Trap(
        "partial",
        "stages that recompute all layers or none",
        59.25,
        "Memory asks for four layers in each stage. The first holds two micro-batches, which fit where it recomputes "
        "one layer or more: 4.25 s. The second takes 4 s without: 12 * 4.25 + 8.25.",
        problem(
            [candidate([1] * 8, [0] * 7, weights=[1 / 2] * 8, held=[1 / 8] * 8, saving=True)],
            [(2, 1, 0)],
            batch=PRIME,
            memory=4.75,
            recompute_layers=True,
        ),
    )


def _skip() -> Trap:
    return Trap(
        "skip",
        "tensors that pass no stage between",
        49.0,
        "A boundary takes each stage beside it 1 s, as the tensor of the first layer is relayed to the last. Two "
        "stages of 2.5 s take 12 * 3.5 + 7. In three, one of 3 s or more has a boundary, or one of 1.5 s has two.",
        problem(
            [candidate([1, 1.5, 1.5, 1], [0, 0, 0, 1])],
            [(3, 1, 0)],
            batch=PRIME,
            edges=[(0, 1), (1, 2), (2, 3), (0, 3)],
        ),
    )


def _network() -> Trap:
    fast = {(0, 1), (0, 2), (2, 3)}
    pairs = [[4.0 if (a, b) in fast or (b, a) in fast else 1.0 for b in range(4)] for a in range(4)]
    made = problem([candidate([2] * 4, [2] * 3, weights=[1 / 2] * 4)], [], batch=PRIME)
    del made["cluster"]["levels"]
    made["cluster"]["topology"] = {
        "matrix": {"bandwidth": [[each * GIB for each in row] for row in pairs], "latency": [[0.0] * 4] * 4}
    }
    return Trap(
        "network",
        "a network of nested groups",
        47.0,
        "Memory asks for a device per layer. Stages on devices 1, 0, 2 and 3 use fast links alone, 12 * 3 + 11, and "
        "no link is faster.",
        made,
    )


def _branch() -> Trap:
    return Trap(
        "branch",
        "one order of a branched graph",
        56.0,
        "One replica on two devices: the slower stage takes 4 s of the 8 s at least, 12 * 4 + 8. The first and the "
        "third layer take 4 s.",
        problem([candidate([1, 2, 3, 2], [0] * 4)], [(2, 1, 0)], batch=PRIME, edges=[(0, 1), (0, 2), (1, 3), (2, 3)]),
    )


def candidate(
    seconds: Sequence[float],
    sent: Sequence[float],
    *,
    name: str = "one",
    width: int = 1,
    weights: Sequence[float] | None = None,
    held: Sequence[float] | None = None,
    saving: bool = False,
) -> dict[str, Any]:
    """A candidate of one sample, a quarter of its time forward, without optimizer states.

    Args:
        seconds: of each layer, forward and backward.
        sent: GiB over each edge.
        name: of the candidate.
        width: devices of a block.
        weights: GiB of each layer, and as many of gradients; None: none.
        held: GiB of each layer for a micro-batch in flight; None: none.
        saving: whether a mode `full` runs the forward pass again and holds nothing.
    """
    zeros = [0.0] * len(seconds)
    own, kept = ([GIB * each for each in given or zeros] for given in (weights, held))
    modes = {"none": {"extra": zeros, "first": kept, "more": kept, "peak": zeros}}
    if saving:
        modes["full"] = {"extra": [each / 4 for each in seconds], "first": zeros, "more": zeros, "peak": zeros}
    state = {"ranks": [0], "weights": own, "gradients": own, "optimizer": zeros, "update": zeros}
    return {
        "name": name,
        "degrees": {"tp": width},
        "width": width,
        "samples": 1,
        "forward": [each / 4 for each in seconds],
        "backward": [each * 3 / 4 for each in seconds],
        "state": {"dense": state} if weights else {},
        "recompute": modes,
        "edge_bytes": [GIB * each for each in sent],
    }


def problem(
    candidates: Sequence[dict[str, Any]],
    levels: Sequence[tuple[int, float, float]],
    *,
    batch: int,
    memory: float = 1.0,
    edges: Sequence[tuple[int, int]] | None = None,
    **search: Any,
) -> dict[str, Any]:
    """A problem of these candidates: a chain, unless edges are given.

    Args:
        candidates: of the profile.
        levels: fan-out, GiB/s and seconds of latency, innermost first.
        batch: samples.
        memory: GiB of a device.
        edges: producers and consumers; None: a chain.
        search: keys of `search` beside the rank orders and ZeRO 0.
    """
    count = len(candidates[0]["forward"])
    return {
        "nest": 1,
        "training": {"global_batch": batch, "schedule": "1f1b"},
        "cluster": {
            "memory": memory * GIB,
            "levels": [
                {"name": f"level{index}", "fanout": fanout, "bandwidth": bandwidth * GIB, "latency": float(latency)}
                for index, (fanout, bandwidth, latency) in enumerate(levels)
            ],
        },
        "search": {"rank_order": ["pp-inner", "dp-inner"], "zero": [0], **search},
        "profile": {
            "layers": [f"layer{index}" for index in range(count)],
            "edges": [list(each) for each in edges or [(index, index + 1) for index in range(count - 1)]],
            "candidates": list(candidates),
        },
    }
