"""From a plan on levels to the question where on the network itself its blocks lie best."""

from itertools import pairwise

import numpy
from attrs import evolve
from numpy.typing import NDArray

from nest.formulate.cluster import time_scale
from nest.formulate.topology import topology
from nest.hooks.registry import Registry
from nest.instance import Cluster, Instance, Level, Solution
from nest.instance.pairs import Pairs
from nest.network import REFERENCE_MESSAGE, LevelMatrix, Reduced
from nest.plan.document import solution_of
from nest.plan.evaluate import PricedPlan, evaluate
from nest.plan.layout import first_devices, replica_size, widest
from nest.solve.placement.embedding import Embedding
from nest.solve.placement.problem import EmbeddingProblem, Link, Placement
from nest.spec import ClusterSpec, PlacementRecord, PlanDocument
from nest.tolerances import AGREEMENT

MOST_LEVELS = 16
"""Levels of the matrix: an 8 x 8 mesh has 14 distances, and each level costs CP-SAT a copy of its constraints."""

MOST_VALUES = 4
"""Bandwidths, and latencies, told apart where pairs differ in more than `MOST_LEVELS` ways: `MOST_VALUES` squared."""

Floats = NDArray[numpy.float64]


def irregular(cluster: ClusterSpec, registry: Registry) -> Pairs | None:
    """The pairs of a network that is no hierarchy, devices in the order of its levels; None: levels say it all."""
    if cluster.topology is None:
        return None
    network = topology(cluster.topology, registry, None)
    if not isinstance(network, Reduced) or network.best.exact:
        return None
    pairs, scale = network.pairs.reordered(network.best.order), time_scale(cluster)
    return evolve(pairs, bandwidth=pairs.bandwidth / scale, latency=pairs.latency * scale)


def placement(
    instance: Instance, solution: Solution, cluster: ClusterSpec, registry: Registry
) -> PlacementRecord | None:
    """Where CP-SAT puts the device groups of a plan on the network itself; None: levels say it all.

    `instance` is on the levels that the network was reduced to; `cluster` has files read into it.
    """
    pairs = irregular(cluster, registry)
    if pairs is None:
        return None
    from nest.solve.placement.embedding import embed

    return placement_record(embed(embedding_problem(instance, solution, pairs)), pairs.names)


def wrong_placement(
    instance: Instance, plan: PlanDocument, record: PlacementRecord, cluster: ClusterSpec, registry: Registry
) -> list[str]:
    """What is wrong with the placement that a plan, which holds otherwise, states: a sentence each."""
    pairs = irregular(cluster, registry)
    if pairs is None:
        return ["placement is given, but the network is a hierarchy, where levels say where blocks lie."]
    return placement_faults(record, embedding_problem(instance, solution_of(instance, plan), pairs), pairs.names)


def embedding_problem(instance: Instance, solution: Solution, pairs: Pairs) -> EmbeddingProblem:
    """What CP-SAT is asked: where the device groups of `solution` lie best.

    Device `i` of the levels is row `i` of `pairs`.
    """
    cluster = instance.cluster
    matrix = worst_levels(pairs, cluster)
    widths = tuple(instance.candidates[stage.candidate].width for stage in solution.stages)
    ported, instance = evaluate(instance, solution), _without_ports(instance)
    priced = evaluate(instance, solution)
    occupied = any(stage.ports is not None for stage in ported.stages)
    links = [*_boundaries(instance, solution, matrix), *_gradients(instance, solution, matrix, priced)]
    alone = solution.replicas == 1
    leaf = cluster.capacities[0]
    leaves = range(-(-max(widths) // leaf))
    return EmbeddingProblem(
        level=matrix.level,
        replicas=solution.replicas,
        widths=widths,
        leaf=leaf,
        meeting=numpy.array([[max(cluster.level(one * leaf, two * leaf), 0) for one in leaves] for two in leaves]),
        compact=tuple(
            (pairs.bandwidth >= level.bandwidth) & (pairs.latency <= level.latency) & ~numpy.eye(pairs.size, dtype=bool)
            for level in cluster.levels
        ),
        links=tuple(links),
        times=tuple(stage.compute + stage.recompute + (stage.sharding if alone else 0.0) for stage in priced.stages),
        syncs=tuple(stage.sync if alone else 0.0 for stage in priced.stages),
        weights=priced.weights,
        start=_start(instance, solution),
        least_times=tuple(max(stage.ports or (0.0,)) for stage in ported.stages) if occupied else (),
        least_syncs=tuple(
            stage.sync if stage.sync > alike.sync else 0.0
            for stage, alike in zip(ported.stages, priced.stages, strict=True)
            if occupied
        ),
    )


def placement_record(embedding: Embedding, names: tuple[str, ...]) -> PlacementRecord:
    """What the plan document says of an embedding; `names` are those of the devices."""
    return PlacementRecord(
        status="optimal" if embedding.optimal else "feasible",
        batch_time=embedding.batch_time,
        lower_bound=embedding.batch_time if embedding.optimal else embedding.lower_bound,
        method=embedding.method,
        replicas=tuple(
            tuple(tuple(names[device] for device in block) for block in replica) for replica in embedding.placement
        ),
    )


def placement_faults(record: PlacementRecord, problem: EmbeddingProblem, names: tuple[str, ...]) -> list[str]:
    """What is wrong with a placement as written, a sentence each; its price is worked out anew.

    `names` are those of the devices, in the order of the levels.
    """
    place = {name: index for index, name in enumerate(names)}
    unknown = [name for replica in record.replicas for block in replica for name in block if name not in place]
    if unknown:
        return [f"placement names {unknown[0]!r}, which is no device of the network."]
    placed = tuple(tuple(tuple(place[name] for name in block) for block in replica) for replica in record.replicas)
    if not problem.allowed(placed):
        return ["placement does not give every block devices of its own, near enough to each other."]
    seconds = problem.price(placed)
    if abs(seconds - record.batch_time) > AGREEMENT * seconds:
        return [f"placement.batch_time is {record.batch_time:.10g}, recomputed {seconds:.10g}."]
    if record.lower_bound > record.batch_time * (1 + AGREEMENT):
        return [f"placement.lower_bound is {record.lower_bound:.10g}, above its batch_time {record.batch_time:.10g}."]
    if record.status == "optimal" and record.lower_bound < record.batch_time * (1 - AGREEMENT):
        return [f"placement is optimal, but its lower_bound {record.lower_bound:.10g} is below its batch_time."]
    return []


def worst_levels(pairs: Pairs, cluster: Cluster) -> LevelMatrix:
    """The level matrix of a network: as fine as it can be, and nowhere slower than the levels of `cluster`.

    Where pairs differ in no more than `MOST_LEVELS` ways, each way is a level, so the matrix loses nothing. Otherwise
    bandwidths are rounded down, and latencies up, to few values, those of the cluster's levels among them.
    """
    apart = ~numpy.eye(pairs.size, dtype=bool)
    bandwidth, latency = pairs.bandwidth[apart], pairs.latency[apart]
    if len(numpy.unique(numpy.stack([bandwidth, latency]), axis=1)[0]) > MOST_LEVELS:
        levels = cluster.levels
        slower = _few(numpy.unique(bandwidth), [level.bandwidth for level in levels], bandwidth.min())
        bandwidth = slower[numpy.searchsorted(slower, bandwidth, side="right") - 1]
        longer = _few(numpy.unique(latency), [level.latency for level in levels], latency.max())
        latency = longer[numpy.searchsorted(longer, latency, side="left")]
    values, which = numpy.unique(numpy.stack([bandwidth, latency]), axis=1, return_inverse=True)
    order = numpy.argsort(values[1] + REFERENCE_MESSAGE / values[0], kind="stable")
    level = numpy.full(apart.shape, -1, dtype=numpy.int8)
    level[apart] = numpy.argsort(order)[which.reshape(-1)]
    return LevelMatrix(pairs.names, tuple(values[0][order].tolist()), tuple(values[1][order].tolist()), level)


def _few(values: Floats, values_kept: list[float], last: float) -> Floats:
    """Values to round to: those to be kept, the last resort, and others where neighbours are furthest apart."""
    chosen = {*values_kept, float(last)}
    gaps = numpy.argsort(-numpy.diff(values), kind="stable")
    for gap in gaps.tolist():
        if len(chosen) >= MOST_VALUES:
            break
        # Either end: bandwidths are rounded down to the upper, latencies up to the lower.
        chosen.add(float(values[gap + 1] if last == values[0] else values[gap]))
    return numpy.array(sorted(chosen))


def _without_ports(instance: Instance) -> Instance:
    """The instance with candidates that do not say how busy ports are."""
    candidates = tuple(
        evolve(each, busy=None, recompute=tuple(evolve(mode, busy=None) for mode in each.recompute))
        for each in instance.candidates
    )
    return evolve(instance, candidates=candidates)


def _at_levels(instance: Instance, solution: Solution, matrix: LevelMatrix) -> list[PricedPlan]:
    """The plan priced as if all communication between blocks were on one level, for each of the matrix."""
    cluster = instance.cluster
    return [
        evaluate(evolve(instance, cluster=evolve(cluster, levels=(Level("", cluster.size, *figures),))), solution)
        for figures in zip(matrix.bandwidth, matrix.latency, strict=True)
    ]


def _boundaries(instance: Instance, solution: Solution, matrix: LevelMatrix) -> list[Link]:
    """Activations and gradients of activations between neighbouring stages of each replica.

    With several chunks the last stage is a neighbour of the first.
    """
    plans = _at_levels(instance, solution, matrix)
    count = len(solution.stages)
    neighbours = [*pairwise(range(count)), *([(count - 1, 0)] if solution.chunks > 1 else [])]
    links = []
    for here, there in neighbours:
        groups = tuple(((replica, here), (replica, there)) for replica in range(solution.replicas))
        forward = tuple(plan.stages[there].arriving for plan in plans)
        backward = tuple(plan.stages[here].returning for plan in plans)
        if forward == backward:
            links.append(Link(groups, False, forward, (here, there)))
        else:
            links.append(Link(groups, False, forward, (there,)))
            links.append(Link(groups, False, backward, (here,)))
    return links


def _gradients(instance: Instance, solution: Solution, matrix: LevelMatrix, priced: PricedPlan) -> list[Link]:
    """What the replicas of each stage say to each other: ZeRO's share per micro-batch, and the gradient reduction."""
    if solution.replicas == 1:
        return []
    plans = _at_levels(instance, solution, matrix)
    links = []
    for index, (stage, own) in enumerate(zip(solution.stages, priced.stages, strict=True)):
        groups = (tuple((replica, index) for replica in range(solution.replicas)),)
        inside = any(len(group.ranks) > 1 for group in instance.candidates[stage.candidate].state)
        aligned = _aligned(instance, solution, own.width)
        sharding = tuple(plan.stages[index].sharding for plan in plans)
        sync = tuple(plan.stages[index].sync for plan in plans)
        links.append(_cheaper(Link(groups, inside, sharding, (index,), None, aligned, own.sharding)))
        links.append(_cheaper(Link(groups, inside, sync, (), index, aligned, own.sync)))
    return [link for link in links if max(link.seconds) > 0]


def _cheaper(link: Link) -> Link:
    """The link without its aligned sets where they cannot be cheaper."""
    return link if link.aligned_seconds < max(link.seconds) else evolve(link, aligned=(), aligned_seconds=0.0)


def _aligned(instance: Instance, solution: Solution, width: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Where the replicas' blocks of one stage can lie by the plan's rank order, at each offset."""
    size = replica_size(instance.cluster, widest(instance, solution), solution.replicas)
    starts = []
    for offset in range(0, size - width + 1, width):
        firsts = first_devices(solution, size, offset, width).tolist()
        starts.append(tuple(tuple(range(first, first + width)) for first in firsts))
    return tuple(starts)


def _start(instance: Instance, solution: Solution) -> Placement:
    """Where the levels have the blocks."""
    size = replica_size(instance.cluster, widest(instance, solution), solution.replicas)
    columns = []
    for stage in solution.stages:
        width = instance.candidates[stage.candidate].width
        firsts = first_devices(solution, size, stage.offset, width).tolist()
        columns.append([tuple(range(first, first + width)) for first in firsts])
    return tuple(zip(*columns, strict=True))
