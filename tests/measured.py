"""Profiles of one measured candidate, as problems of tests have them."""

from collections.abc import Mapping, Sequence
from typing import Any

STATE = ("weights", "gradients", "optimizer", "update")
KEPT = ("extra", "first", "more", "peak")


def profile(
    forward: Sequence[float],
    backward: Sequence[float],
    *,
    edges: Sequence[Sequence[int]] | None = None,
    state: Mapping[str, Any] | None = None,
    kept: Mapping[str, Any] | None = None,
    sent: float = 0.0,
    **changes: Any,
) -> dict[str, Any]:
    """Layers of these seconds on one device each, a chain unless `edges` are given, with `sent` bytes on every edge.

    Without `state` layers have no parameters. What `state` and `kept` leave out is nothing; `changes` are of the
    candidate.
    """
    count = len(forward)
    if edges is None:
        edges = [[layer, layer + 1] for layer in range(count - 1)]
    candidate = {
        "name": "one",
        "degrees": {},
        "width": 1,
        "samples": 1,
        "forward": list(forward),
        "backward": list(backward),
        "state": {} if state is None else {"dense": {"ranks": [0], **_nothing(STATE, count), **state}},
        "recompute": {"none": {**_nothing(KEPT, count), **(kept or {})}},
        "edge_bytes": [sent] * len(edges),
        **changes,
    }
    layers = [f"l{layer}" for layer in range(count)]
    return {"layers": layers, "edges": [list(edge) for edge in edges], "candidates": [candidate]}


def _nothing(names: Sequence[str], count: int) -> dict[str, list[float]]:
    return {name: [0.0] * count for name in names}
