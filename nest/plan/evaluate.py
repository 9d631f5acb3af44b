"""Prices decisions: PROBLEM.md section 4, written down once more and without any solver's tables."""

from collections.abc import Iterable, Sequence

from attrs import evolve, frozen

from nest.instance import (
    Candidate,
    EstimateError,
    Instance,
    RecomputeMode,
    Schedule,
    Solution,
    StageDecision,
    chunks_of,
)
from nest.plan.direct import Sizes, received
from nest.plan.layout import Boundary, boundaries, cut_bytes, downsets
from nest.plan.zero import DataParallelGroup, ZeroCosts, data_parallel_groups, exposed, zero_costs
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
        port_wait: seconds per micro-batch that the busiest port needs beyond all this (PROBLEM.md section 4, Ports); on
            a network, the fullest of the links that it uses (section 1).
        sync: seconds once per batch: gradient reduction, parameter gathering and optimizer step.
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
        time_error: how far the step time may lie from what is predicted; None: it is exact.
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
        """Longest gradient reduction and optimizer step, seconds per batch."""
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
        """The share of the step in which a device, on average over the stages, waits for others."""
        busy = self.micro_batches * sum(stage.time for stage in self.stages) / len(self.stages)
        whole = self.batch_time
        # Rounding must not make the share of a plan that never waits negative.
        return max((whole - self.sync - busy) / whole, 0.0) if whole > 0 else 0.0


def evaluate(instance: Instance, solution: Solution) -> PricedPlan:
    """Every number of the plan `solution` decides.

    Raises:
        ValueError: the decisions are not a plan: micro-batches of several sizes, a batch that the replicas
            cannot share, blocks outside the cluster, ... (`nest.plan.legality` says so in full sentences).
    """
    schedule = schedule_of(instance, solution)
    if len({instance.candidates[stage.candidate].samples for stage in solution.stages}) > 1:
        raise ValueError("the stages take micro-batches of different sizes")
    micro_batches = instance.micro_batches(instance.candidates[solution.stages[0].candidate], solution.replicas)
    if micro_batches is None:
        raise ValueError("the batch cannot be divided among the replicas")
    if instance.network is not None:
        from nest.plan.on_network import link_loads, on_devices

        instance, solution = on_devices(instance, solution)
    count = len(solution.stages)
    around = boundaries(instance, solution)
    runs = downsets(instance, solution)
    groups = data_parallel_groups(instance, solution)
    stages = tuple(
        _price_stage(
            instance,
            solution,
            index,
            schedule.in_flight(index + 1, count, micro_batches),
            runs[index::count],
            (around[index], around[index + 1]),
            groups[index],
            micro_batches,
            received(instance, solution, index, around) if instance.space.direct else None,
        )
        for index in range(count)
    )
    if solution.placement is not None:
        loads = link_loads(instance, solution, groups)
        waits = [max(0.0, loads.least_time(index) - stage.time) for index, stage in enumerate(stages)]
        stages = tuple(evolve(stage, port_wait=wait) for stage, wait in zip(stages, waits, strict=True))
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


def _price_stage(
    instance: Instance,
    solution: Solution,
    index: int,
    in_flight: float,
    runs: Sequence[tuple[frozenset[int], frozenset[int]]],
    around: tuple[Boundary, Boundary],
    groups: tuple[DataParallelGroup, ...],
    micro_batches: int,
    direct: tuple[Sizes, Sizes] | None,
) -> PricedStage:
    stage = solution.stages[index]
    candidate = instance.candidates[stage.candidate]
    mode = candidate.mode(stage.recompute)
    layers = list(stage.layers)
    entering = [cut_bytes(instance, candidate, front) for front, _ in runs]
    leaving = [cut_bytes(instance, candidate, behind) for _, behind in runs]
    compute = float((candidate.forward[layers] + candidate.backward[layers]).sum())
    recompute = float(mode.extra[layers].sum())
    arriving = sum(around[0].arriving(each) for each in entering)
    returning = sum(around[1].returning(each) for each in leaving)
    messages = [(around[0].level, arriving), (around[1].level, returning)]
    if direct is not None:
        entering, leaving = ([size for _, size in sizes] for sizes in direct)
        messages = [(level, _message(instance, level, size)) for sizes in direct for level, size in sizes]
        arriving = sum(seconds for _, seconds in messages[: len(entering)])
        returning = sum(seconds for _, seconds in messages[len(entering) :])
    shared = zero_costs(instance, stage, groups)
    sharding = exposed(instance, shared.often, compute + recompute, instance.space.often_exposed)
    once = exposed(instance, shared.once, compute + recompute, instance.space.exposed)
    port_wait, ports = 0.0, None
    if candidate.busy is not None and solution.placement is None:
        ports = _ports(candidate, mode, layers, shared, messages)
        without = compute + recompute + arriving + returning + sharding
        port_wait = max(0.0, *(each - without for each in ports))
        once = max(once, _exposed_by_ports(instance, shared, ports, without + port_wait, micro_batches))
    activations, peak, upper, parts = stage_memory(instance, stage, shared.held, in_flight, sum(entering))
    return PricedStage(
        compute=compute,
        # Rounding may make more of collectives than there is.
        collectives=0.0 if candidate.collectives is None else min(float(candidate.collectives[layers].sum()), compute),
        recompute=recompute,
        arriving=arriving,
        returning=returning,
        sharding=sharding,
        port_wait=port_wait,
        sync=once + shared.update,
        state=sum(shared.held),
        activations=activations,
        peak=peak,
        reserve=instance.cluster.reserve,
        in_flight=in_flight,
        level_in=around[0].level,
        level_out=around[1].level,
        first_device=stage.offset * (1 if solution.rank_order == "pp-inner" else solution.replicas),
        width=candidate.width,
        parts=parts,
        upper_memory=upper,
        bytes_out=sum(leaving),
        ports=ports,
        once_ports=None if ports is None else tuple(shared.once_ports.tolist()),
    )


def _message(instance: Instance, level: int, size: float) -> float:
    """Seconds of a message of `size` bytes over a level (PROBLEM.md section 1)."""
    return instance.cluster.levels[level].latency + size / instance.cluster.levels[level].bandwidth


def stage_memory(
    instance: Instance, stage: StageDecision, state: tuple[float, float, float], in_flight: float, entering: float
) -> tuple[float, float, float, MemoryBreakdown]:
    """The memory of a stage beside its state, bytes: activations, transient, the most of all; and its parts.

    Args:
        instance: of the plan.
        stage: the stage.
        state: bytes of weights, gradients and optimizer.
        in_flight: micro-batches in flight.
        entering: bytes of its inputs per micro-batch.
    """
    candidate, layers, reserve = instance.candidates[stage.candidate], list(stage.layers), instance.cluster.reserve
    mode = candidate.mode(stage.recompute)
    further = (in_flight - 1) * float(mode.more[layers].sum())
    saved = float(mode.first[layers].sum()) + further
    stashed = (in_flight - 1) * entering if mode.stash_inputs else 0.0
    gathered = candidate.gathered if stage.zero >= 3 else 0.0
    peak = float(mode.peak[layers].max()) + gathered
    overheads, unused = mode.overheads, further * mode.overheads.fragmentation
    largest = max(layers, key=lambda layer: float(mode.peak[layer]))
    communication = 0.0 if overheads.buffers is None else float(overheads.buffers[largest])
    parts = MemoryBreakdown(
        *state,
        activations=saved + stashed - unused,
        transient=max(float(mode.peak[largest]) - communication - overheads.framework, 0.0),
        communication=communication + gathered,
        framework=overheads.framework,
        fragmentation=unused,
        reserve=reserve,
    )
    return saved + stashed, peak, instance.cluster.upper(sum(state) + saved + stashed + peak + reserve), parts


def _ports(
    candidate: Candidate,
    mode: RecomputeMode,
    layers: list[int],
    shared: ZeroCosts,
    messages: Iterable[tuple[int, float]],
) -> tuple[float, ...]:
    """Seconds per micro-batch that a stage keeps a device's port at each level occupied (`b_i`), hidden or not.

    `messages` are levels of boundaries and the seconds of what the stage receives over them.
    """
    assert candidate.busy is not None
    busy = candidate.busy[:, layers].sum(axis=1) + shared.often_ports
    if mode.busy is not None:
        busy = busy + mode.busy[:, layers].sum(axis=1)
    for level, seconds in messages:
        if level >= 0:
            busy[level] += seconds
    return tuple(busy.tolist())


def _exposed_by_ports(
    instance: Instance, shared: ZeroCosts, ports: tuple[float, ...], time: float, micro_batches: int
) -> float:
    """Seconds of what is sent once per batch that are exposed because ports leave too little free; 0: none overlaps.

    It overlaps with what is left of `time`, in all micro-batches, at the fullest of the levels it uses.
    """
    free = [time - busy for busy, used in zip(ports, shared.once_ports > 0, strict=True) if used]
    if instance.space.exposed >= 1 or not free:
        return 0.0
    return shared.once - micro_batches * min(free)
