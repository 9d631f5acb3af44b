"""Prices decisions: PROBLEM.md section 4, written down once more and without any solver's tables."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Candidate, Cluster, EstimateError, Instance, RecomputeMode, Schedule, Solution, chunks_of
from nest.plan.chunks import even_chunks
from nest.plan.memory import memory_parts
from nest.plan.state_costs import Peers, StateCosts, exposed, peers_of, state_costs
from nest.spec import MemoryBreakdown
from nest.tolerances import MEMORY_SLACK


@frozen
class PricedStage:
    """One stage with every number that PROBLEM.md section 4 gives it.

    Attributes:
        compute: forward and backward seconds per micro-batch, collectives inside the block included.
        collectives: what these add to it; 0 where layers were measured whole.
        recompute: seconds added to the backward pass per micro-batch.
        arriving: seconds per micro-batch to receive activations.
        returning: seconds per micro-batch to receive gradients.
        sharding: seconds per micro-batch of ZeRO communication.
        port_wait: seconds per micro-batch that the busiest port needs beyond all this (PROBLEM.md section 4, Ports).
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
        ports: seconds per micro-batch for which a device's port at each level is occupied (`b_i`); None: the candidate
            does not say.
        once_ports: the same once per batch.
    """

    compute: float
    collectives: float
    recompute: float
    arriving: float
    returning: float
    sharding: float
    port_wait: float
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
    ports: tuple[float, ...] | None
    once_ports: tuple[float, ...] | None

    @property
    def time(self) -> float:
        """Seconds per micro-batch (`t_i`)."""
        return self.compute + self.recompute + self.arriving + self.returning + self.sharding + self.port_wait

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
        fit_probability: that no stage needs more.
        time_error: how far the batch time may lie from what is predicted; None: it is exact.
    """

    micro_batches: int
    weights: tuple[float, float]
    stages: tuple[PricedStage, ...]
    capacity: float
    device_memory: float
    fit_probability: float
    time_error: EstimateError | None = None

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
    def idle_share(self) -> float:
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
    used_candidates = {stage.candidate for stage in solution.stages}
    first_blocks = {
        used: first_devices(solution, size, 0, instance.candidates[used].width).tolist() for used in used_candidates
    }
    peers = {used: peers_of(instance, solution, used, first_blocks[used]) for used in used_candidates}
    stages = tuple(
        _price_stage(
            instance,
            solution,
            index,
            schedule.in_flight(index + 1, count, micro_batches),
            runs[index::count],
            (around[index], around[index + 1]),
            peers[stage.candidate],
            micro_batches,
        )
        for index, stage in enumerate(solution.stages)
    )
    weights = schedule.weights(micro_batches, len(stages))
    cluster = instance.cluster
    return PricedPlan(
        micro_batches,
        (float(weights[0]), float(weights[1])),
        stages,
        cluster.memory,
        cluster.device_memory,
        cluster.fit_probability(max(stage.memory for stage in stages)),
        cluster.time_error,
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


def _price_stage(
    instance: Instance,
    solution: Solution,
    index: int,
    in_flight: float,
    runs: Sequence[tuple[frozenset[int], frozenset[int]]],
    around: tuple[int, int],
    peers: tuple[Peers, ...],
    micro_batches: int,
) -> PricedStage:
    stage = solution.stages[index]
    candidate = instance.candidates[stage.candidate]
    mode = candidate.mode(stage.recompute)
    layers = list(stage.layers)
    entering = [cut_bytes(instance, candidate, front) for front, _ in runs]
    leaving = [cut_bytes(instance, candidate, behind) for _, behind in runs]
    compute = float((candidate.forward[layers] + candidate.backward[layers]).sum())
    recompute = float(mode.extra[layers].sum())
    arriving = sum(_point_to_point(instance.cluster, each, around[0]) for each in entering)
    returning = sum(_point_to_point(instance.cluster, each, around[1]) for each in leaving)
    shared = state_costs(instance, stage, peers)
    sharding = exposed(instance, shared.often, compute + recompute, instance.space.often_exposed)
    once = exposed(instance, shared.once, compute + recompute, instance.space.exposed)
    port_wait, ports = 0.0, None
    if candidate.busy is not None:
        ports = _ports(candidate, mode, layers, shared, ((around[0], arriving), (around[1], returning)))
        without = compute + recompute + arriving + returning + sharding
        port_wait = max(0.0, *(each - without for each in ports))
        once = max(once, _held_up(instance, shared, ports, without + port_wait, micro_batches))
    state = sum(shared.held)
    further = (in_flight - 1) * float(mode.more[layers].sum())
    kept = float(mode.first[layers].sum()) + further
    stashed = (in_flight - 1) * sum(entering) if mode.stash_inputs else 0.0
    gathered = candidate.gathered if stage.zero >= 3 else 0.0
    peak = float(mode.peak[layers].max()) + gathered
    reserve = instance.cluster.reserve
    return PricedStage(
        compute=compute,
        # Rounding may deal out more to collectives than there is.
        collectives=0.0 if candidate.collectives is None else min(float(candidate.collectives[layers].sum()), compute),
        recompute=recompute,
        arriving=arriving,
        returning=returning,
        sharding=sharding,
        port_wait=port_wait,
        sync=once + shared.update,
        state=state,
        activations=kept + stashed,
        peak=peak,
        reserve=reserve,
        in_flight=in_flight,
        level_in=around[0],
        level_out=around[1],
        first_device=stage.offset * (1 if solution.rank_order == "pp-inner" else solution.replicas),
        width=candidate.width,
        parts=memory_parts(mode, layers, shared.held, kept + stashed, further, gathered, reserve),
        upper_memory=instance.cluster.upper(state + kept + stashed + peak + reserve),
        bytes_out=sum(leaving),
        ports=ports,
        once_ports=None if ports is None else tuple(shared.once_ports.tolist()),
    )


def _ports(
    candidate: Candidate,
    mode: RecomputeMode,
    layers: list[int],
    shared: StateCosts,
    messages: Iterable[tuple[int, float]],
) -> tuple[float, ...]:
    """Seconds per micro-batch that a stage keeps a device's port at each level occupied (`b_i`), hidden or not.

    `messages` are levels of boundaries and the seconds of what the stage receives over them.
    """
    assert candidate.busy is not None
    found = candidate.busy[:, layers].sum(axis=1) + shared.often_ports
    if mode.busy is not None:
        found = found + mode.busy[:, layers].sum(axis=1)
    for level, seconds in messages:
        if level >= 0:
            found[level] += seconds
    return tuple(found.tolist())


def _held_up(
    instance: Instance, shared: StateCosts, ports: tuple[float, ...], time: float, micro_batches: int
) -> float:
    """Seconds of what is sent once per batch that show because ports leave too little free for it; 0 where none hides.

    It hides under what is left of `time`, in all micro-batches, at the fullest of the levels it uses.
    """
    free = [time - busy for busy, used in zip(ports, shared.once_ports > 0, strict=True) if used]
    if instance.space.exposed >= 1 or not free:
        return 0.0
    return shared.once - micro_batches * min(free)
