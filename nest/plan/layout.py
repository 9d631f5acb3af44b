"""Places of a plan's stages, tensors between them, and port loads (PROBLEM.md sections 1, 3, 4)."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from nest.instance import (
    Array,
    Candidate,
    Cluster,
    Instance,
    Placement,
    RecomputeMode,
    Schedule,
    Solution,
    chunks_of,
    route,
)


def widest(instance: Instance, solution: Solution) -> int:
    """Width of the widest block of a plan (`g` of PROBLEM.md section 3 for mixed widths)."""
    return max(instance.candidates[stage.candidate].width for stage in solution.stages)


def replica_size(cluster: Cluster, widest: int, replicas: int) -> int:
    """Devices of one replica (`K` of PROBLEM.md section 3)."""
    return widest * (cluster.size // (replicas * widest))


def replica_sizes(instance: Instance, solution: Solution) -> list[int]:
    """For each stage, the devices of one replica on the cluster (`K`), or in its pool (`K_q`).

    The stages of a pool have one width (PROBLEM.md section 8).
    """
    wide = widest(instance, solution)
    sizes = []
    for stage in solution.stages:
        width = wide if instance.pools is None else instance.candidates[stage.candidate].width
        sizes.append(replica_size(instance.cluster_of(stage.candidate), width, solution.replicas))
    return sizes


def first_devices(solution: Solution, size: int, offset: int, width: int) -> NDArray[numpy.int64]:
    """First device of a block of `width` at `offset` in each replica of `size` devices (PROBLEM.md section 3)."""
    replicas = numpy.arange(solution.replicas, dtype=numpy.int64)
    if solution.rank_order == "pp-inner":
        return replicas * size + offset
    return offset * solution.replicas + replicas * width


def in_order(instance: Instance, solution: Solution) -> Placement:
    """Devices of every block in the order of ranks (PROBLEM.md section 3)."""
    size = replica_size(instance.cluster, widest(instance, solution), solution.replicas)
    columns = []
    for stage in solution.stages:
        width = instance.candidates[stage.candidate].width
        firsts = first_devices(solution, size, stage.offset, width).tolist()
        columns.append([tuple(range(first, first + width)) for first in firsts])
    return tuple(zip(*columns, strict=True))


def schedule_of(instance: Instance, solution: Solution) -> Schedule:
    """Schedule of a plan.

    Raises:
        ValueError: it is not among those allowed.
    """
    for schedule in instance.space.schedules:
        if schedule.name == solution.schedule and chunks_of(schedule) == solution.chunks:
            return schedule
    raise ValueError(f"the schedule {solution.schedule!r} with {solution.chunks} chunks is not among those allowed")


def stages_of_chunks(instance: Instance, solution: Solution) -> tuple[int, ...]:
    """Stage, from 0, of each chunk of a plan in pipeline order."""
    return route(schedule_of(instance, solution), len(solution.stages))


def _boundary_level(instance: Instance, solution: Solution, size: int, first: int, second: int) -> int:
    """Level of the boundary between two stages, by index and in pipeline order: worst over the replicas."""
    here, there = solution.stages[first], solution.stages[second]
    start = first_devices(solution, size, here.offset, instance.candidates[here.candidate].width)
    width = instance.candidates[there.candidate].width
    end = first_devices(solution, size, there.offset, width) + width - 1
    for level, capacity in enumerate(instance.cluster_of(here.candidate).capacities):
        if (start // capacity == end // capacity).all():
            return level
    raise ValueError(f"the blocks of stages {first + 1} and {second + 1} are not both in the cluster")


Path = tuple[float, float]  # Latency (s) and smallest bandwidth (bytes/s) on the path of a message.


class Boundary(NamedTuple):
    """Paths between two neighbouring stages, of which the slowest counts."""

    level: int = -1  # Of the cluster or pool; -1 without another stage, or if it is in another pool.
    forward: tuple[Path, ...] = ()  # Paths of activations.
    backward: tuple[Path, ...] = ()  # Paths of gradients.
    between_pools: bool = False  # The stages are in different pools, joined by a link.

    def seen_from(self, cluster: Cluster) -> int:
        """Level in documents: one above the outermost if the other stage is in another pool."""
        return len(cluster.levels) if self.between_pools else self.level

    def arriving(self, size: float) -> float:
        """Seconds until activations of `size` bytes have arrived (PROBLEM.md section 1, point to point)."""
        return _slowest(self.forward, size)

    def returning(self, size: float) -> float:
        """Seconds until gradients of `size` bytes have arrived."""
        return _slowest(self.backward, size)


def _slowest(paths: Iterable[Path], size: float) -> float:
    return max((latency + size / bandwidth for latency, bandwidth in paths), default=0.0) if size else 0.0


def boundaries(instance: Instance, solution: Solution) -> list[Boundary]:
    """Boundary before each chunk in pipeline order, then that behind the last; none between two chunks of one stage.

    Raises:
        ValueError: a block is not in the cluster.
    """
    known, sizes = dict[tuple[int, int], Boundary](), replica_sizes(instance, solution)
    between = list(pairwise(stages_of_chunks(instance, solution)))
    for here, there in between:
        if here != there and (here, there) not in known:
            known[here, there] = _boundary(instance, solution, sizes, here, there)
    return [Boundary(), *(known.get(each, Boundary()) for each in between), Boundary()]


def _boundary(instance: Instance, solution: Solution, sizes: Sequence[int], here: int, there: int) -> Boundary:
    """Boundary over which stage `here`, from 0, sends activations to `there`, and gets gradients back."""
    pools = [instance.pool_of(solution.stages[each].candidate) for each in (here, there)]
    if instance.pools is not None and pools[0] != pools[1]:
        link = instance.pools.link(*pools)
        if link is None:
            raise ValueError(f"nothing joins the pools of stages {here + 1} and {there + 1}")
        path = (link.latency, link.bandwidth)
        return Boundary(-1, (path,), (path,), between_pools=True)
    first, second = sorted((here, there))
    level = _boundary_level(instance, solution, sizes[first], first, second)
    if solution.placement is not None:
        return Boundary(level, *_paths(instance, solution, here, there))
    joining = instance.cluster_of(solution.stages[here].candidate).levels[level]
    path = (joining.latency, joining.bandwidth)
    return Boundary(level, (path,), (path,))


def _paths(instance: Instance, solution: Solution, here: int, there: int) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Paths of activations and of gradients between two stages of a placed plan."""
    assert instance.network is not None
    model = instance.network.model
    senders, receivers = counterparts(solution, here, there)
    ways = []
    for sources, targets in ((senders, receivers), (receivers, senders)):
        latency, bandwidth = model.latency[sources, targets], model.bandwidth[sources, targets]
        ways.append(tuple(sorted(set(zip(latency.tolist(), bandwidth.tolist(), strict=True)))))
    return ways[0], ways[1]


def counterparts(solution: Solution, here: int, there: int) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64]]:
    """Devices of a placed plan's stage `here`, and those of `there` that they send to, in all replicas.

    Ranks send to the same rank; with blocks of different widths, each of the wider one has a share of the other.
    """
    assert solution.placement is not None
    senders, receivers = [], []
    for blocks in solution.placement:
        one, two = blocks[here], blocks[there]
        most = max(len(one), len(two))
        senders += [one[rank * len(one) // most] for rank in range(most)]
        receivers += [two[rank * len(two) // most] for rank in range(most)]
    return numpy.array(senders, dtype=numpy.int64), numpy.array(receivers, dtype=numpy.int64)


Tensors = tuple[int, ...]  # Tensors of the layer graph, as indices, ascending.


def cut_bytes(candidate: Candidate, tensors: Tensors) -> float:
    """Bytes of the tensors across a boundary (`cut(D)` of PROBLEM.md section 4)."""
    return float(sum(candidate.tensor_bytes[each] for each in tensors))


def crossing(instance: Instance, solution: Solution) -> list[tuple[Tensors, Tensors]]:
    """Tensors across the boundaries before and after each chunk of the pipeline, in order.

    They are made in chunks before the boundary and read in one behind it.
    """
    chunks = chunk_layers(instance, solution)
    place = {layer: index for index, layers in enumerate(chunks) for layer in layers}
    fronts: list[list[int]] = [[] for _ in range(len(chunks) + 1)]
    for tensor, (producer, consumers) in enumerate(instance.graph.tensors):
        last = max((place.get(layer, -1) for layer in consumers), default=-1)
        for front in range(place.get(producer, -1) + 1, last + 1):
            fronts[front].append(tensor)
    return list(pairwise(map(tuple, fronts)))


def even_chunks(instance: Instance, stages: int, chunks: int) -> tuple[tuple[int, ...], ...]:
    """Layers of each of `stages * chunks` chunks in pipeline order, split evenly.

    Raises:
        ValueError: the blocks do not divide evenly.
    """
    blocks = even_blocks(instance, stages * chunks)
    if not blocks:
        raise ValueError(f"{len(instance.space.blocks)} blocks cannot make {stages} stages of {chunks} even chunks")
    size = len(blocks) // (stages * chunks)
    return tuple(
        tuple(sorted(layer for block in blocks[first : first + size] for layer in block))
        for first in range(0, len(blocks), size)
    )


def evenly_split(instance: Instance, solution: Solution) -> bool:
    """True if stages, or their chunks, have equal numbers of transformer blocks in order (`Space.even`)."""
    stages = len(solution.stages)
    if solution.chunks > 1:
        runs = [tuple(sorted(run)) for run in chunk_layers(instance, solution)]
        even = bool(even_blocks(instance, stages * solution.chunks))
        return even and runs == list(even_chunks(instance, stages, solution.chunks))
    homes = {layer: index for index, stage in enumerate(solution.stages) for layer in stage.layers}
    blocks = instance.space.blocks
    size, left = divmod(len(blocks), stages)
    return not left and all(homes[layer] == number // size for number, block in enumerate(blocks) for layer in block)


def even_blocks(instance: Instance, parts: int) -> tuple[tuple[int, ...], ...]:
    """Blocks that divide into so many parts, with embedding and head only if needed; empty: impossible."""
    for blocks in (instance.space.blocks, instance.space.blocks_and_ends):
        if not len(blocks) % parts:
            return blocks
    return ()


def chunk_units(instance: Instance) -> tuple[tuple[int, ...], ...]:
    """Units of chunks of any size, in order: transformer blocks and, if they count, embedding and head."""
    return instance.space.blocks_and_ends or instance.space.blocks


def chunk_layers(instance: Instance, solution: Solution) -> list[tuple[int, ...]]:
    """Layers of each chunk of the pipeline, in order; by default those of the even split.

    Raises:
        ValueError: stages give chunks, but not all of them.
    """
    if solution.chunks == 1:
        return [stage.layers for stage in solution.stages]
    if not any(stage.chunks for stage in solution.stages):
        return list(even_chunks(instance, len(solution.stages), solution.chunks))
    if any(len(stage.chunks) != solution.chunks for stage in solution.stages):
        raise ValueError(f"some stage does not list the layers of its {solution.chunks} chunks")
    following = [iter(stage.chunks) for stage in solution.stages]
    return [next(following[stage]) for stage in stages_of_chunks(instance, solution)]


def runs_of_stages(instance: Instance, solution: Solution) -> list[list[tuple[int, ...]]]:
    """Layers of each chunk of every stage, in pipeline order.

    Raises:
        ValueError: see `chunk_layers`.
    """
    runs: list[list[tuple[int, ...]]] = [[] for _ in solution.stages]
    for layers, home in zip(chunk_layers(instance, solution), stages_of_chunks(instance, solution), strict=True):
        runs[home].append(layers)
    return runs


Sizes = tuple[tuple[int, float], ...]  # Levels of the cluster, each with bytes per micro-batch of one message over it.


def received(instance: Instance, solution: Solution, index: int, around: Sequence[Boundary]) -> tuple[Sizes, Sizes]:
    """Activations, then gradients, that a stage receives.

    Activations are of tensors that it reads from earlier stages, each once, from its maker. Gradients are of tensors
    that it makes for later stages, each once, over the outermost level to a reader.

    Args:
        index: of the stage.
        around: boundary before each stage, then that behind the last.
    """
    candidate = instance.candidates[solution.stages[index].candidate]
    stage_of = {layer: number for number, stage in enumerate(solution.stages) for layer in stage.layers}
    activations: dict[int, float] = {}
    gradients: dict[int, float] = {}
    for (producer, consumers), size in zip(instance.graph.tensors, candidate.tensor_bytes.tolist(), strict=True):
        made, read = stage_of[producer], {stage_of[consumer] for consumer in consumers}
        if size and made < index and index in read:
            level = _level(around, made, index)
            activations[level] = activations.get(level, 0.0) + size
        if size and made == index < max(read, default=index):
            level = _level(around, index, max(read))
            gradients[level] = gradients.get(level, 0.0) + size
    return tuple(sorted(activations.items())), tuple(sorted(gradients.items()))


def _level(around: Sequence[Boundary], front: int, behind: int) -> int:
    """Level between two stages: with blocks in pipeline order, the outermost boundary's between."""
    return max(boundary.level for boundary in around[front + 1 : behind + 1])


def message(instance: Instance, level: int, size: float) -> float:
    """Seconds of a message of `size` bytes over a level (PROBLEM.md section 1)."""
    return instance.cluster.levels[level].latency + size / instance.cluster.levels[level].bandwidth


def often_by_level(
    candidate: Candidate,
    mode: RecomputeMode,
    layers: NDArray[numpy.int64],
    sharding: Array,
    messages: Iterable[tuple[int, float]],
) -> tuple[float, ...]:
    """Seconds per micro-batch that a stage occupies a device's port at each level (`b_i`), hidden or not.

    `sharding` is ZeRO communication by level, shape `(levels,)`; `messages` are levels of boundaries with the seconds
    of received messages.
    """
    assert candidate.busy is not None
    busy = candidate.busy[:, layers].sum(axis=1) + sharding
    if mode.busy is not None:
        busy = busy + mode.busy[:, layers].sum(axis=1)
    for level, seconds in messages:
        if level >= 0:
            busy[level] += seconds
    return tuple(busy.tolist())


def exposed_by_ports(
    instance: Instance, once: float, once_ports: Array, ports: tuple[float, ...], time: float, micro_batches: int
) -> float:
    """Seconds of communication per batch that are exposed because ports are busy; 0: none overlaps.

    It overlaps with the rest of `time`, in all micro-batches, at the fullest of its levels.
    """
    free = [time - busy for busy, used in zip(ports, once_ports > 0, strict=True) if used]
    if instance.space.exposed >= 1 or not free:
        return 0.0
    return once - micro_batches * min(free)
