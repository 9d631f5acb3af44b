"""Prices decisions: PROBLEM.md section 4, written down once more and without any solver's tables."""

from collections.abc import Sequence
from itertools import pairwise

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Candidate, Cluster, Instance, Schedule, Solution, StageDecision, chunks_of
from nest.plan.chunks import even_chunks
from nest.plan.memory import memory_parts
from nest.spec import MemoryBreakdown
from nest.tolerances import MEMORY_SLACK


@frozen
class _Peers:
    """The devices over which a parameter group's gradients are reduced (PROBLEM.md section 4).

    With `zero_degree`, runs of neighbours among them shard (shard groups), and those with the same place in their runs
    hold the same shard (replicate groups): hybrid sharding of PyTorch's FSDP, MiCS (arXiv 2205.00119).

    Attributes:
        shape: of all of them, as collectives see them.
        members: all of them (`z`).
        shards: shapes of the shard groups, each once.
        sharing: devices of a shard group; all of them without `zero_degree`.
        replicates: shapes of the replicate groups, each once; none when one shard group holds all devices.
    """

    shape: tuple[int, ...]
    members: int
    shards: tuple[tuple[int, ...], ...]
    sharing: int
    replicates: tuple[tuple[int, ...], ...] = ()


@frozen
class PricedStage:
    """One stage with every number that PROBLEM.md section 4 gives it.

    Attributes:
        compute: forward and backward seconds per micro-batch, collectives inside the block included.
        recompute: seconds added to the backward pass per micro-batch.
        arriving: seconds per micro-batch to receive activations.
        returning: seconds per micro-batch to receive gradients.
        sharding: seconds per micro-batch of ZeRO communication.
        sync: seconds once per batch: gradient reduction, parameter gathering, optimizer step.
        state: bytes of weights, gradients and optimizer.
        activations: bytes of activations of all micro-batches in flight.
        peak: transient bytes.
        reserve: bytes kept free.
        in_flight: micro-batches in flight; a fraction where a stage has several chunks.
        level_in: level of the boundary in front, -1 for none.
        level_out: level of the boundary behind, -1 for none.
        first_device: first device in replica 0.
        width: devices of the block.
        parts: what its memory is made of.
        upper_memory: the most it is taken to need: bytes, `training.memory_margin` and the reserve included.
        bytes_out: bytes that each device sends to the next stage per micro-batch.
    """

    compute: float
    recompute: float
    arriving: float
    returning: float
    sharding: float
    sync: float
    state: float
    activations: float
    peak: float
    reserve: float
    in_flight: float
    level_in: int
    level_out: int
    first_device: int
    width: int
    parts: MemoryBreakdown
    upper_memory: float
    bytes_out: float

    @property
    def time(self) -> float:
        """Seconds per micro-batch (`t_i`)."""
        return self.compute + self.recompute + self.arriving + self.returning + self.sharding

    @property
    def memory(self) -> float:
        """Bytes, the reserve included."""
        return self.state + self.activations + self.peak + self.reserve


@frozen
class PricedPlan:
    """A plan with every number.

    Attributes:
        micro_batches: micro-batches per replica (`M`).
        weights: `(A, B)` of the schedule.
        stages: in pipeline order.
        capacity: bytes per device that stages may be estimated to need (`H`): there is room for the margin beside it.
        device_memory: bytes per device.
    """

    micro_batches: int
    weights: tuple[float, float]
    stages: tuple[PricedStage, ...]
    capacity: float
    device_memory: float

    @property
    def slowest(self) -> float:
        """Seconds per micro-batch of the slowest stage."""
        return max(stage.time for stage in self.stages)

    @property
    def sync(self) -> float:
        """Longest synchronisation, seconds per batch."""
        return max(stage.sync for stage in self.stages)

    @property
    def batch_time(self) -> float:
        """Seconds per optimizer step (`T`)."""
        slowest, total = self.weights
        return slowest * self.slowest + total * sum(stage.time for stage in self.stages) + self.sync

    @property
    def fits(self) -> bool:
        """Whether every stage's memory is within capacity."""
        return not any(self.overfull)

    @property
    def overfull(self) -> tuple[bool, ...]:
        """For each stage, whether its memory, margin included, exceeds what a device has."""
        return self.exceeding(MEMORY_SLACK)

    def exceeding(self, slack: float) -> tuple[bool, ...]:
        """For each stage, whether its memory exceeds the capacity by more than the share `slack`."""
        return tuple(stage.memory > self.capacity * (1 + slack) for stage in self.stages)

    @property
    def bubble_share(self) -> float:
        """Share of the batch in which a device, on average over the stages, waits for the pipeline."""
        busy = self.micro_batches * sum(stage.time for stage in self.stages) / len(self.stages)
        whole = self.batch_time
        # Rounding must not make a plan without a bubble show a negative one.
        return max((whole - self.sync - busy) / whole, 0.0) if whole > 0 else 0.0


def evaluate(instance: Instance, solution: Solution) -> PricedPlan:
    """Every number of the plan `solution` decides.

    Raises:
        ValueError: the decisions are not a plan: micro-batches of several sizes, a batch that cannot be dealt to the
            replicas, blocks outside the cluster, ... (`nest.plan.legality` says so in full sentences).
    """
    schedule = schedule_of(instance, solution)
    if len({instance.candidates[stage.candidate].samples for stage in solution.stages}) > 1:
        raise ValueError("the stages take micro-batches of different sizes")
    micro_batches = instance.micro_batches(instance.candidates[solution.stages[0].candidate], solution.replicas)
    if micro_batches is None:
        raise ValueError("the batch cannot be dealt to the replicas")
    size = replica_size(instance.cluster, widest(instance, solution), solution.replicas)
    count = len(solution.stages)
    levels = [_boundary_level(instance, solution, size, index, index + 1) for index in range(count - 1)]
    # With several chunks the last stage sends back to the first.
    back = _boundary_level(instance, solution, size, 0, count - 1) if solution.chunks > 1 else -1
    around = [back, *levels, back]
    runs = _runs(instance, solution)
    # Stages of one candidate share them, and going through every replica is dear.
    peers = {used: _peers(instance, solution, size, used) for used in {stage.candidate for stage in solution.stages}}
    stages = tuple(
        _price_stage(
            instance,
            solution,
            index,
            schedule.in_flight(index + 1, count, micro_batches),
            runs[index::count],
            (around[index], around[index + 1]),
            peers[stage.candidate],
        )
        for index, stage in enumerate(solution.stages)
    )
    weights = schedule.weights(micro_batches, len(stages))
    cluster = instance.cluster
    return PricedPlan(
        micro_batches, (float(weights[0]), float(weights[1])), stages, cluster.memory, cluster.device_memory
    )


def schedule_of(instance: Instance, solution: Solution) -> Schedule:
    """The schedule of a plan.

    Raises:
        ValueError: it is not among those allowed.
    """
    for schedule in instance.space.schedules:
        if schedule.name == solution.schedule and chunks_of(schedule) == solution.chunks:
            return schedule
    raise ValueError(f"the schedule {solution.schedule!r} with {solution.chunks} chunks is not among those allowed")


def _runs(instance: Instance, solution: Solution) -> list[tuple[frozenset[int], frozenset[int]]]:
    """The downsets in front of and behind each chunk of the pipeline, in order; a stage without chunks is one."""
    chunks = [stage.layers for stage in solution.stages]
    if solution.chunks > 1:
        chunks = list(even_chunks(instance, len(solution.stages), solution.chunks))
    downsets = [frozenset[int]()]
    for layers in reversed(chunks):
        downsets.append(downsets[-1] | frozenset(layers))
    return list(pairwise(reversed(downsets)))


def widest(instance: Instance, solution: Solution) -> int:
    """Width of the widest block a plan uses (`g` of PROBLEM.md section 3 for mixed widths)."""
    return max(instance.candidates[stage.candidate].width for stage in solution.stages)


def replica_size(cluster: Cluster, widest: int, replicas: int) -> int:
    """Devices of one replica (`K` of PROBLEM.md section 3)."""
    return widest * (cluster.size // (replicas * widest))


def first_devices(solution: Solution, size: int, offset: int, width: int) -> NDArray[numpy.int64]:
    """First device of a block of `width` at `offset` in each replica of `size` devices (PROBLEM.md section 3)."""
    replicas = numpy.arange(solution.replicas, dtype=numpy.int64)
    if solution.rank_order == "pp-inner":
        return replicas * size + offset
    return offset * solution.replicas + replicas * width


def _boundary_level(instance: Instance, solution: Solution, size: int, first: int, second: int) -> int:
    """Level of the boundary between two stages, by index and in pipeline order: the worst over the replicas."""
    here, there = solution.stages[first], solution.stages[second]
    start = first_devices(solution, size, here.offset, instance.candidates[here.candidate].width)
    width = instance.candidates[there.candidate].width
    end = first_devices(solution, size, there.offset, width) + width - 1
    for level, capacity in enumerate(instance.cluster.capacities):
        if (start // capacity == end // capacity).all():
            return level
    raise ValueError(f"the blocks of stages {first + 1} and {second + 1} are not both in the cluster")


def cut_bytes(instance: Instance, candidate: Candidate, downset: frozenset[int]) -> float:
    """Bytes of the tensors produced outside `downset` and consumed in it (`cut(D)` of PROBLEM.md section 4)."""
    total = 0.0
    for (producer, consumers), size in zip(instance.graph.tensors, candidate.tensor_bytes, strict=True):
        if producer not in downset and any(consumer in downset for consumer in consumers):
            total += float(size)
    return total


def _point_to_point(cluster: Cluster, size: float, level: int) -> float:
    if size == 0 or level < 0:
        return 0.0
    return cluster.levels[level].latency + size / cluster.levels[level].bandwidth


def _peers(instance: Instance, solution: Solution, size: int, index: int) -> tuple[_Peers, ...]:
    """For each parameter group of candidate `index`, the devices of a stage at offset 0, which stands for all."""
    candidate = instance.candidates[index]
    first = first_devices(solution, size, 0, candidate.width).tolist()
    found = []
    for group in candidate.state:
        members = sorted({device + rank for device in first for rank in group.ranks})
        found.append(_shared(instance.cluster, members, solution.zero_degree or len(members)))
    return tuple(found)


def _shared(cluster: Cluster, members: list[int], degree: int) -> _Peers:
    """`members`, ascending, with ZeRO over `degree` of them at most."""
    count, shape = len(members), cluster.shape(members)
    if count <= degree:
        return _Peers(shape, count, (shape,), count)
    if count % degree:
        raise ValueError(f"{count} devices cannot be cut into shard groups of {degree}")
    shards = dict.fromkeys(cluster.shape(members[first : first + degree]) for first in range(0, count, degree))
    replicates = dict.fromkeys(cluster.shape(members[place::degree]) for place in range(degree))
    return _Peers(shape, count, tuple(shards), degree, tuple(replicates))


def _price_stage(
    instance: Instance,
    solution: Solution,
    index: int,
    in_flight: float,
    runs: Sequence[tuple[frozenset[int], frozenset[int]]],
    around: tuple[int, int],
    peers: tuple[_Peers, ...],
) -> PricedStage:
    stage = solution.stages[index]
    candidate = instance.candidates[stage.candidate]
    mode = candidate.mode(stage.recompute)
    layers = list(stage.layers)
    entering = [cut_bytes(instance, candidate, front) for front, _ in runs]
    leaving = [cut_bytes(instance, candidate, behind) for _, behind in runs]
    compute = float((candidate.forward[layers] + candidate.backward[layers]).sum())
    recompute = float(mode.extra[layers].sum())
    sharding, sync, held = _state_costs(instance, stage, peers, compute + recompute)
    state = sum(held)
    further = (in_flight - 1) * float(mode.more[layers].sum())
    kept = float(mode.first[layers].sum()) + further
    stashed = (in_flight - 1) * sum(entering) if mode.stash_inputs else 0.0
    gathered = candidate.gathered if stage.zero >= 3 else 0.0
    peak = float(mode.peak[layers].max()) + gathered
    reserve = instance.cluster.reserve
    return PricedStage(
        compute=compute,
        recompute=recompute,
        arriving=sum(_point_to_point(instance.cluster, each, around[0]) for each in entering),
        returning=sum(_point_to_point(instance.cluster, each, around[1]) for each in leaving),
        sharding=sharding,
        sync=sync,
        state=state,
        activations=kept + stashed,
        peak=peak,
        reserve=reserve,
        in_flight=in_flight,
        level_in=around[0],
        level_out=around[1],
        first_device=stage.offset * (1 if solution.rank_order == "pp-inner" else solution.replicas),
        width=candidate.width,
        parts=memory_parts(mode, layers, held, kept + stashed, further, gathered, reserve),
        upper_memory=instance.cluster.upper(state + kept + stashed + peak + reserve),
        bytes_out=sum(leaving),
    )


def _state_costs(
    instance: Instance, stage: StageDecision, peers: tuple[_Peers, ...], work: float
) -> tuple[float, float, tuple[float, float, float]]:
    """Seconds per micro-batch and per batch of the parameter groups at the stage's ZeRO stage, and what they hold.

    That is bytes of weights, gradients and optimizer. `work` are the seconds the stage computes per micro-batch,
    recomputation included.
    """
    candidate = instance.candidates[stage.candidate]
    zero = stage.zero
    layers = list(stage.layers)
    per_micro_batch = per_batch = updating = 0.0
    held = [0.0, 0.0, 0.0]
    for group, peer in zip(candidate.state, peers, strict=True):
        weights, gradients = float(group.weights[layers].sum()), float(group.gradients[layers].sum())
        optimizer, update = float(group.optimizer[layers].sum()), float(group.update[layers].sum())
        scatter = _slowest(instance, "reduce_scatter", gradients, peer.shards, peer.sharing)
        gather = _slowest(instance, "all_gather", weights, peer.shards, peer.sharing)
        # Shards are summed over the replicate groups once per batch; what nobody shards, over all devices.
        across = peer.members // peer.sharing
        reduce = _slowest(instance, "all_reduce", gradients / peer.sharing, peer.replicates, across)
        whole = _slowest(instance, "all_reduce", gradients, (peer.shape,), peer.members)
        added = {
            0: (0.0, whole),
            1: (0.0, scatter + gather + reduce),
            2: (scatter, gather + reduce),
            3: (scatter + 2 * gather, reduce),
        }[zero]
        per_micro_batch += added[0]
        per_batch += added[1]
        updating += update / (peer.sharing if zero else 1)
        for index, (size, sharded_from) in enumerate(((weights, 3), (gradients, 2), (optimizer, 1))):
            held[index] += size / (peer.sharing if zero >= sharded_from else 1)
    # The first forward and the last backward pass of a batch are all that what is sent once per batch hides under.
    waited = instance.space.synchronisation * (instance.space.sharded_synchronisation if zero else 1.0)
    once = _exposed(instance, waited * per_batch, work) + updating
    return _exposed(instance, per_micro_batch, work), once, (held[0], held[1], held[2])


def _exposed(instance: Instance, seconds: float, work: float) -> float:
    """What `seconds` of data-parallel communication add beside `work` seconds of compute (docs: "Hiding")."""
    shown = instance.space.exposed * seconds
    return max(shown, seconds - work) if instance.space.hiding else shown


def _slowest(instance: Instance, kind: str, size: float, shapes: tuple[tuple[int, ...], ...], members: int) -> float:
    """Seconds until groups of so many members and these shapes, which work side by side, are all done.

    No groups and no bytes take no time.
    """
    if size == 0:
        return 0.0
    price, levels = instance.collectives.time, instance.cluster.levels
    return max((float(price(kind, size, shape, levels, members=members)) for shape in shapes), default=0.0)
