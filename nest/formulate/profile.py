"""Candidates of a profile: numbers from a file."""

from collections.abc import Sequence
from math import inf

from nest.errors import InputError, InputErrors
from nest.formulate.formulation import Formulation, kept_together
from nest.formulate.options import Options
from nest.instance import Candidate, Cluster, LayerGraph, ParameterGroup, Pools, RecomputeMode, partial
from nest.spec import ProfileCandidate, ProfileSpec


def from_profile(options: Options, cluster: Cluster, pools: Pools | None = None) -> Formulation:
    """Candidates of a profile, on `cluster` or each on its own of `pools`, and its layers.

    Raises:
        InputErrors: all their faults.
    """
    profile = options.profile
    assert isinstance(profile, ProfileSpec)
    candidates = profile_candidates(profile, cluster, options.training.global_batch, pools)
    degrees = {name for each in candidates for name in each.degrees}
    limits = options.degrees
    allowed = tuple(
        each for each in candidates if all(limits[name].among((each.degrees.get(name, 1),)) for name in options.listed)
    )
    if not allowed:
        limits_text = " and ".join(str(limits[name]) for name in options.listed)
        raise InputError(f"strategies: no candidate of the profile is left: {limits_text}.")
    graph = profile_graph(profile)
    return Formulation(
        graph, allowed, experts="etp" in degrees, together=kept_together(options.search.granularity, graph)
    )


def profile_graph(profile: ProfileSpec) -> LayerGraph:
    """Layers, with the slices of `tensor_slices` as tensors.

    Raises:
        InputError: names repeat, an edge names an unknown layer, or the edges form a cycle.
    """
    try:
        return LayerGraph(profile.layers, tensor_slices(profile)[0])
    except InputError as error:
        raise InputError(f"profile.edges: {error}") from None


Tensors = tuple[tuple[int, tuple[int, ...]], ...]


def tensor_slices(profile: ProfileSpec) -> tuple[Tensors, tuple[tuple[float, ...], ...]]:
    """Tensors whose sum over a cut is `cut(D)` of PROBLEM.md section 4, and their bytes for each candidate.

    The edges of one producer carry one tensor, which counts once for all consumers behind the cut: the largest crossing
    edge. That maximum is a sum: with edges in ascending order, slice `j` has the consumers of edge `j` and all larger
    ones, and the bytes by which edge `j` exceeds the one before it.
    """
    tensors: dict[tuple[int, tuple[int, ...]], int] = {}
    sizes: list[dict[int, float]] = []
    for candidate in profile.candidates:
        mine: dict[int, float] = {}
        leaving: dict[int, list[tuple[float, int]]] = {}
        for (producer, consumer), crossing in zip(profile.edges, candidate.edge_bytes, strict=False):
            leaving.setdefault(producer, []).append((crossing, consumer))
        for producer in sorted(leaving):
            edges = sorted(leaving[producer])
            below = 0.0
            for position, (size, _) in enumerate(edges):
                if position == 0 or size > below:
                    consumers = tuple(sorted({consumer for _, consumer in edges[position:]}))
                    mine[tensors.setdefault((producer, consumers), len(tensors))] = size - below
                    below = size
        sizes.append(mine)
    bytes_of = tuple(tuple(mine.get(index, 0.0) for index in range(len(tensors))) for mine in sizes)
    return tuple(tensors), bytes_of


def profile_candidates(
    profile: ProfileSpec, cluster: Cluster, global_batch: int, pools: Pools | None = None
) -> tuple[Candidate, ...]:
    """Candidates as given, each on `cluster` or, with `pools`, on its own.

    Raises:
        InputErrors: all faults: repeated names, arrays of the wrong length, a width the cluster cannot align, more
            samples than the batch has, ranks outside the block.
    """
    problems: list[str] = []
    candidates = []
    names = [candidate.name for candidate in profile.candidates]
    slices = tensor_slices(profile)[1]
    for index, written in enumerate(profile.candidates):
        place = f"profile.candidates[{index}]"
        if pools is not None:
            cluster = pools.members[pools.index(str(written.pool))].cluster
        mistakes = [
            *_lengths(written, place, len(profile.layers), len(profile.edges), len(cluster.levels)),
            *_misfits(written, place, cluster, global_batch),
        ]
        if names.index(written.name) != index:
            mistakes.append(f"{place}.name: an earlier candidate is called {written.name!r}; names must be unique.")
        problems += mistakes
        if not mistakes:
            candidates.append(_candidate(written, slices[index], place, problems))
    if problems:
        raise InputErrors(problems)
    return tuple(candidate for candidate in candidates if candidate is not None)


def _lengths(written: ProfileCandidate, place: str, layers: int, edges: int, levels: int) -> list[str]:
    arrays: list[tuple[str, Sequence[object], int, str]] = [
        ("forward", written.forward, layers, "layers"),
        ("backward", written.backward, layers, "layers"),
        ("edge_bytes", written.edge_bytes, edges, "edges"),
    ]
    if written.weight_gradients is not None:
        arrays.append(("weight_gradients", written.weight_gradients, layers, "layers"))
    for name, group in written.state.items():
        for part in ("weights", "gradients", "optimizer", "update"):
            arrays.append((f"state.{name}.{part}", getattr(group, part), layers, "layers"))
    for name, mode in written.recompute.items():
        for part in ("extra", "first", "more", "peak"):
            arrays.append((f"recompute.{name}.{part}", getattr(mode, part), layers, "layers"))
    rows = {"busy": written.busy} | {f"recompute.{name}.busy": mode.busy for name, mode in written.recompute.items()}
    for name, busy in rows.items():
        if busy is not None:
            arrays += [(f"{name}[{level}]", row, layers, "layers") for level, row in enumerate(busy)]
    mistakes = [
        f"{place}.{name} has {len(values)} numbers for {count} {what}."
        for name, values, count, what in arrays
        if len(values) != count
    ]
    return mistakes + [
        f"{place}.{name} has {len(busy)} rows for {levels} levels of the network."
        for name, busy in rows.items()
        if busy is not None and len(busy) != levels
    ]


def _misfits(written: ProfileCandidate, place: str, cluster: Cluster, global_batch: int) -> list[str]:
    mistakes = [
        f"{place}.recompute.{name}: nest reserves this form of name; rename the mode."
        for name in written.recompute
        if partial(name) is not None
    ]
    if written.width > cluster.size:
        where = "the cluster" if written.pool is None else f"pool {written.pool!r}"
        mistakes.append(f"{place}.width is {written.width}, but {where} has {cluster.size} devices.")
    elif not cluster.admits(written.width):
        groups = ", ".join(str(capacity) for capacity in cluster.capacities)
        mistakes.append(
            f"{place}.width is {written.width}, which does not align with groups of {groups} devices; one must "
            "divide the other at every level."
        )
    if written.micro_batch is not None and written.samples % written.micro_batch:
        mistakes.append(
            f"{place}.micro_batch is {written.micro_batch}, which does not divide samples ({written.samples}): "
            "samples are micro_batch times the copies."
        )
    if written.samples > global_batch:
        mistakes.append(f"{place}.samples is {written.samples}, more than training.global_batch ({global_batch}).")
    for name, group in written.state.items():
        if len(set(group.ranks)) < len(group.ranks) or max(group.ranks) >= written.width:
            mistakes.append(f"{place}.state.{name}.ranks: offsets must differ and be below width ({written.width}).")
    return mistakes


def _candidate(
    written: ProfileCandidate, tensor_bytes: tuple[float, ...], place: str, problems: list[str]
) -> Candidate | None:
    try:
        return Candidate(
            name=written.name,
            degrees=dict(written.degrees),
            width=written.width,
            samples=written.samples,
            micro_batch=written.micro_batch,
            forward=written.forward,
            backward=written.backward,
            state=tuple(
                ParameterGroup(name, tuple(sorted(g.ranks)), g.weights, g.gradients, g.optimizer, g.update)
                for name, g in written.state.items()
            ),
            recompute=tuple(
                RecomputeMode(
                    name,
                    m.extra,
                    [inf if size is None else size for size in m.first],
                    m.more,
                    m.peak,
                    m.stash_inputs,
                    busy=m.busy,
                )
                for name, m in written.recompute.items()
            ),
            tensor_bytes=tensor_bytes,
            busy=written.busy,
            weight_gradients=written.weight_gradients,
            pool=written.pool,
        )
    except InputError as error:
        problems.append(f"{place}: {error}")
        return None
