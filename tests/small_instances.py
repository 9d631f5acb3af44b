"""Small instances for unit tests, built directly from numbers."""

from collections.abc import Sequence
from typing import Any

import numpy

from nest.hooks.registry import registry
from nest.instance import Candidate, Cluster, Instance, LayerGraph, Level, ParameterGroup, RecomputeMode, Space
from nest.solve.dp.downsets import Downsets, cuts, lattice, membership
from nest.spec.constraints import parse


def candidate(
    layers: int,
    *,
    name: str = "c",
    width: int = 1,
    samples: int = 1,
    tensors: int | None = None,
    seed: int = 0,
    scale: float = 1.0,
    degrees: dict[str, int] | None = None,
) -> Candidate:
    """A candidate with random costs and two recompute modes."""
    draw = numpy.random.default_rng(seed)
    forward = draw.uniform(0.5, 2.0, layers) * scale
    held = draw.uniform(1.0, 4.0, layers)
    zeros = numpy.zeros(layers)
    return Candidate(
        name=name,
        degrees=degrees or {"tp": width},
        width=width,
        samples=samples,
        forward=forward,
        backward=2 * forward,
        state=(ParameterGroup("dense", (0,), held, held, 6 * held, held / 100),),
        recompute=(
            RecomputeMode("none", zeros, 3 * held, 3 * held, zeros),
            RecomputeMode("full", forward, held, held, 2 * held),
        ),
        tensor_bytes=draw.uniform(1.0, 20.0, layers - 1 if tensors is None else tensors),
    )


def chain(count: int) -> LayerGraph:
    """Layers `l0`, `l1`, ... one after the other."""
    return LayerGraph(tuple(f"l{i}" for i in range(count)), tuple((i, (i + 1,)) for i in range(count - 1)))


def downsets_of(
    graph: LayerGraph, together: Sequence[Sequence[int]] = (), partition: Sequence[Sequence[int]] | None = None
) -> Downsets:
    """All downsets of `graph` that keep these groups of layers whole, or those of a partition."""
    return lattice(membership(cuts(graph, together, partition), len(graph.layers)))


def cluster(fanouts: Sequence[int] = (2, 2), memory: float = 1e9, reserve: float = 0.0) -> Cluster:
    """Levels with bandwidths 100, 10, 1, ... and latencies 0.01, 0.02, ..."""
    levels = tuple(Level(f"level{i}", fanout, 10.0 ** (2 - i), 0.01 * (i + 1)) for i, fanout in enumerate(fanouts))
    return Cluster(levels, memory, reserve)


def instance(
    candidates: Sequence[Candidate],
    *,
    graph: LayerGraph | None = None,
    machines: Cluster | None = None,
    schedules: Sequence[str] = ("1f1b",),
    constraints: Sequence[str] = (),
    **space: Any,
) -> Instance:
    """An instance with the registered schedules and collective model."""
    known = registry()
    settings: dict[str, Any] = {
        "global_batch": 8,
        "uneven_batch": False,
        "exposed": 1.0,
        "rank_orders": ("pp-inner", "dp-inner"),
        "zero": (0, 1, 2, 3),
        **space,
    }
    return Instance(
        cluster=machines or cluster(),
        graph=graph or chain(len(candidates[0].forward)),
        candidates=tuple(candidates),
        space=Space(
            schedules=tuple(known.schedules()[name] for name in schedules),
            constraints=tuple(parse(text) for text in constraints),
            **settings,
        ),
        collectives=known.collective_models()["alpha-beta"],
    )
