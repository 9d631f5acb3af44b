"""The problems that are no files: real models on clusters of the catalogue, and layers with random costs."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

Problem = dict[str, Any]

EVERYTHING_OPEN = {
    "rank_order": ["pp-inner", "dp-inner"],
    "zero": [0, 1, 2, 3],
    "recompute": ["none", "selective", "full"],
}
"""The whole space of `search`; degrees are left out, which leaves every registered strategy open."""


def real(model: str, cluster: str | dict[str, Any], global_batch: int) -> Problem:
    """A model of the library on a cluster of the catalogue with everything open, at 8,192 tokens a sample."""
    return {
        "nest": 1,
        "model": model,
        "training": {"global_batch": global_batch, "sequence_length": 8192, "micro_batch": [1, 2, 4]},
        "cluster": cluster,
        "search": EVERYTHING_OPEN,
    }


def micro_batched(count: int) -> Problem:
    """Llama 3.1 405B on 16,384 H100 with so many micro-batches open, each twice the one before."""
    problem = real("llama-3.1-405b", "dgx-h100-superpod-16384", 8192)
    return {**problem, "training": {**problem["training"], "micro_batch": [2**power for power in range(count)]}}


def deep(layers: int, cluster: str | dict[str, Any], global_batch: int) -> Problem:
    """Transformer blocks with the widths of Llama 3 70B (its config.json), as many as wanted."""
    widths = {"hidden": 8192, "ffn": 28672, "heads": 64, "kv_heads": 8, "head_dim": 128, "vocab": 128256}
    model = {"transformer": {"layers": layers, **widths, "gated_mlp": True}}
    return {**real("", cluster, global_batch), "model": model}


def h100(fanouts: Sequence[int]) -> dict[str, Any]:
    """H100 on NVLink within a node and InfiniBand above, as `dgx-h100-superpod` of the catalogue has them."""
    levels = [{"fanout": fanouts[0], "bandwidth": "450 GB/s", "link": "nvlink4"}]
    levels += [{"fanout": fanout, "bandwidth": "50 GB/s", "link": "infiniband-ndr"} for fanout in fanouts[1:]]
    return {"device": "h100-sxm", "levels": levels}


def heterogeneous(layers: int, fanouts: Sequence[int], global_batch: int, seed: int = 1) -> Problem:
    """A chain of layers that all differ, with candidates 1, 2, 4 and 8 devices wide.

    Costs are drawn evenly around those of a transformer block: 2 ms forward and 1 GB of weights on one device. Weights
    are not sharded over replicas, so that 1,000 layers need two stages or more even 8 devices wide.
    """
    draw = Random(seed)
    base = [{name: draw.uniform(0.5, 1.5) for name in ("time", "weights", "held", "sent")} for _ in range(layers)]
    return {
        "nest": 1,
        "training": {"global_batch": global_batch},
        "cluster": {**h100(fanouts), "memory": "80 GB"},
        "search": {"rank_order": ["pp-inner", "dp-inner"], "zero": [0, 1, 2]},
        "profile": {
            "layers": [f"layer{index}" for index in range(layers)],
            "edges": [[index, index + 1] for index in range(layers - 1)],
            "candidates": [_candidate(base, width) for width in (1, 2, 4, 8)],
        },
    }


def towers(count: int, length: int, devices: int, seed: int = 1) -> Problem:
    """Chains side by side between a source and a sink, one device a stage: too many cuts for a dynamic program.

    Layers take 0.5 to 2 s forward and twice as much backward; what a layer sends takes a tenth of that forward.
    """
    draw = Random(seed)
    layers = count * length + 2
    chains = [[0, *range(1 + each * length, 1 + (each + 1) * length), layers - 1] for each in range(count)]
    forward = [draw.uniform(0.5, 2.0) for _ in range(layers)]
    sent, zeros = [draw.uniform(0.05, 0.2) for _ in range(layers)], [0.0] * layers
    edges = [[one, other] for chain in chains for one, other in pairwise(chain)]
    mode = {"extra": zeros, "first": zeros, "more": zeros, "peak": zeros, "stash_inputs": False}
    return {
        "nest": 1,
        "training": {"global_batch": 64, "schedule": "1f1b"},
        "cluster": {"memory": 1e9, "levels": [{"fanout": devices, "bandwidth": 1.0, "latency": 0.0}]},
        "search": {"rank_order": ["pp-inner"], "zero": [0]},
        "constraints": ["dp == 1"],
        "profile": {
            "layers": [f"layer{index}" for index in range(layers)],
            "edges": edges,
            "candidates": [
                {
                    "name": "device",
                    "degrees": {},
                    "width": 1,
                    "samples": 1,
                    "forward": forward,
                    "backward": [2 * seconds for seconds in forward],
                    "state": {},
                    "recompute": {"none": mode},
                    "edge_bytes": [sent[one] for one, _ in edges],
                }
            ],
        },
    }


def busy(path: Path, seed: int = 1) -> Problem:
    """The profile at `path` without layers that cost nothing: those at the ends left out, the others given a cost.

    Layers that cost nothing can be decided apart from the rest, which leaves GNMT 100 downsets. Here it has
    16,826, close to the published 17,914. What is added is up to a hundredth of the mean forward time, at random.
    """
    draw = Random(seed)
    problem: Problem = json.loads(path.read_text(encoding="utf-8"))
    profile = problem["profile"]
    producers, consumers = ({edge[end] for edge in profile["edges"]} for end in (0, 1))
    layers = range(len(profile["layers"]))
    costly = {layer for layer in layers if any(each["forward"][layer] > 0 for each in profile["candidates"])}
    kept = [layer for layer in layers if layer in costly | (producers & consumers)]
    edges = [index for index, edge in enumerate(profile["edges"]) if set(edge) <= set(kept)]
    mean = sum(profile["candidates"][0]["forward"]) / len(kept)
    added = [0.0 if layer in costly else draw.uniform(0.001, 0.01) * mean for layer in kept]
    profile["candidates"] = [_restricted(each, kept, edges) for each in profile["candidates"]]
    for candidate in profile["candidates"]:
        candidate["forward"] = [seconds + more for seconds, more in zip(candidate["forward"], added, strict=True)]
    place = {layer: index for index, layer in enumerate(kept)}
    profile["layers"] = [profile["layers"][layer] for layer in kept]
    profile["edges"] = [[place[layer] for layer in profile["edges"][index]] for index in edges]
    return problem


def _restricted(candidate: dict[str, Any], layers: Sequence[int], edges: Sequence[int]) -> dict[str, Any]:
    """A candidate of some of the layers and edges."""

    def arrays(given: dict[str, Any]) -> dict[str, Any]:
        whole = ("ranks", "stash_inputs")
        return {name: value if name in whole else [value[one] for one in layers] for name, value in given.items()}

    return {
        **candidate,
        **arrays({name: candidate[name] for name in ("forward", "backward")}),
        "state": {name: arrays(group) for name, group in candidate["state"].items()},
        "recompute": {name: arrays(mode) for name, mode in candidate["recompute"].items()},
        "edge_bytes": [candidate["edge_bytes"][one] for one in edges],
    }


def _candidate(base: Sequence[dict[str, float]], width: int) -> dict[str, Any]:
    """All costs divided by the width; the time by somewhat less, as wide blocks also communicate."""
    forward = [2e-3 * each["time"] / width**0.9 for each in base]
    weights = [1e9 * each["weights"] / width for each in base]
    held = [5e8 * each["held"] / width for each in base]
    inputs = [3e7 * each["sent"] for each in base]
    zeros = [0.0] * len(base)
    return {
        "name": f"tp{width}",
        "degrees": {"tp": width},
        "width": width,
        "samples": 1,
        "forward": forward,
        "backward": [2 * seconds for seconds in forward],
        "state": {
            "dense": {
                "ranks": [0],
                "weights": weights,
                "gradients": weights,
                "optimizer": [6 * size for size in weights],
                "update": [1e-12 * size for size in weights],
            }
        },
        "recompute": {
            "none": {"extra": zeros, "first": held, "more": held, "peak": zeros},
            "full": {"extra": forward, "first": inputs, "more": inputs, "peak": held},
        },
        "edge_bytes": inputs[:-1],
    }
