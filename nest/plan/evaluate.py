"""The step time of a plan and the memory of each stage: PROBLEM.md section 4 once more, without any solver's tables."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy

from nest.instance import (
    EstimateError,
    Instance,
    Schedule,
    Solution,
    StageDecision,
    Weights,
    copies_of,
    fullest_moments,
    in_flight,
)
from nest.instance.schedule import Moment
from nest.plan.certificate import Stuck
from nest.plan.layout import (
    Boundary,
    Sizes,
    Tensors,
    boundaries,
    chunk_layers,
    crossing,
    cut_bytes,
    exposed_by_ports,
    message,
    often_by_level,
    received,
    schedule_of,
    stages_of_chunks,
)
from nest.plan.makespan import ChunkSeconds, pipeline_length
from nest.plan.zero import DataParallelGroup, data_parallel_groups, exposed, often_by_chunk, zero_costs
from nest.spec import MemoryBreakdown
from nest.tolerances import MEMORY_SLACK


class PricedStage(NamedTuple):
    """One stage with every number that PROBLEM.md section 4 gives it.

    Attributes:
        compute: forward and backward seconds per micro-batch, collectives inside the block included.
        collectives: what these add to it; 0 where layers were measured whole.
        recompute: seconds added to the backward pass per micro-batch.
        arriving: seconds per micro-batch to receive activations.
        returning: seconds per micro-batch to receive gradients.
        sharding: seconds per micro-batch of ZeRO communication.
        hidden: seconds per micro-batch of what it receives that hide under its compute while the pipeline is full.
        forward: seconds per micro-batch of forward passes, with what they gather, messages aside.
        weight_gradients: seconds per micro-batch that find the gradients of weights (`w_i`).
        port_wait: seconds per micro-batch that the busiest port needs beyond all this (PROBLEM.md section 4, Ports); on
            a network, the fullest of the links that it uses (section 1).
        sync: seconds once per batch: gradient reduction, parameter gathering and optimizer step.
        state: bytes of weights, gradients and optimizer.
        activations: bytes of activations of all micro-batches in flight.
        peak: transient bytes.
        reserve: bytes kept free.
        in_flight: micro-batches in flight; a fraction where a stage has several chunks.
        level_in: level of the boundary in front, of several chunks the outermost; -1 for none.
        level_out: the same behind.
        first_device: first device in replica 0.
        width: devices of the block.
        parts: what its memory is made of.
        upper_memory: the most it is taken to need: bytes, `training.memory_margin` and the reserve included.
        bytes_out: bytes that each device sends to the next stage per micro-batch.
        ports: seconds per micro-batch for which a device's port at each level is occupied (`b_i`); None: the candidate
            does not say.
        once_ports: the same once per batch.
        capacity: bytes per device that it may be estimated to need (`H`): there is room for the margin beside it.
        device_memory: bytes per device.
        passes: what the passes of its chunks take, but for what ports make them wait.
    """

    compute: float
    collectives: float
    recompute: float
    arriving: float
    returning: float
    sharding: float
    hidden: float
    forward: float
    weight_gradients: float
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
    capacity: float
    device_memory: float
    passes: tuple[ChunkSeconds, ...]

    @property
    def grown_passes(self) -> tuple[ChunkSeconds, ...]:
        """The same, all longer by one factor where ports make them wait (PROBLEM.md section 4, "Price and replay")."""
        if not self.port_wait:
            return self.passes
        growth = self.time / (self.time - self.port_wait) if self.time > self.port_wait else 1.0
        return tuple(
            each._replace(forward=growth * each.forward, backward=growth * each.backward, weights=growth * each.weights)
            for each in self.passes
        )

    @property
    def time(self) -> float:
        """Seconds per micro-batch while the pipeline is full (`t_i`)."""
        return self.whole_time - self.hidden

    @property
    def whole_time(self) -> float:
        """Seconds per micro-batch with nothing hidden, as while the pipeline fills and drains."""
        return self.compute + self.recompute + self.arriving + self.returning + self.sharding + self.port_wait

    def weighed(self, weights: Weights) -> float:
        """Its part of the sum in the step time: `Bf f + Bb b + Bw w`, of what fills and drains the pipeline."""
        if weights.uniform:
            return weights.forward * self.whole_time
        inputs = self.compute + self.recompute + self.sharding - self.forward - self.weight_gradients
        weighed: float = weights.of_parts(self.forward, inputs, self.weight_gradients)
        weighed += weights.of_messages(self.arriving, self.returning)
        return weighed + weights.waiting * self.port_wait

    @property
    def memory(self) -> float:
        """Bytes, the reserve included."""
        return self.state + self.activations + self.peak + self.reserve


class PricedPlan(NamedTuple):
    """A plan with every number.

    Attributes:
        micro_batches: micro-batches per replica (`M`).
        weights: of the schedule.
        stages: in pipeline order.
        capacity: `H` of the fullest stage's devices.
        device_memory: bytes of each of these.
        fit_probability: that no stage needs more.
        time_error: how far the step time may lie from what is predicted, on the devices that are least known; None: it
            is exact.
        replayed: seconds that its replay takes; 0: it was not replayed, as it is priced by its closed form, or proved
            to take no longer.
    """

    micro_batches: int
    weights: Weights
    stages: tuple[PricedStage, ...]
    capacity: float
    device_memory: float
    fit_probability: float
    time_error: EstimateError | None = None
    replayed: float = 0.0

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
        """Seconds per optimizer step: the larger of closed form and replay (PROBLEM.md section 4)."""
        return max(self.closed_form, self.replayed)

    @property
    def closed_form(self) -> float:
        """`A max t + sum (Bf f + Bb b + Bw w) + max y` (PROBLEM.md section 4)."""
        weights = self.weights
        if weights.uniform:
            filling = weights.forward * sum(stage.whole_time for stage in self.stages)
        else:
            filling = sum(stage.weighed(weights) for stage in self.stages)
        return weights.slowest * self.slowest + filling + self.sync

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
        return tuple(stage.memory > stage.capacity * (1 + slack) for stage in self.stages)

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
    count, around = len(solution.stages), boundaries(instance, solution)
    every = zip(chunk_layers(instance, solution), crossing(instance, solution), pairwise(around), strict=True)
    chunks: list[list[Chunk]] = [[] for _ in range(count)]
    for home, chunk in zip(stages_of_chunks(instance, solution), every, strict=True):
        chunks[home].append(Chunk(*chunk))
    groups = data_parallel_groups(instance, solution)
    stages = tuple(
        _price_stage(
            instance,
            solution,
            index,
            chunks[index],
            fullest_moments(schedule, index + 1, count, micro_batches),
            copies_of(schedule),
            groups[index],
            micro_batches,
            received(instance, solution, index, around) if instance.space.direct else None,
        )
        for index in range(count)
    )
    if solution.placement is not None:
        loads = link_loads(instance, solution, groups)
        waits = [max(0.0, loads.least_time(index) - stage.time) for index, stage in enumerate(stages)]
        stages = tuple(stage._replace(port_wait=wait) for stage, wait in zip(stages, waits, strict=True))
    fullest = max(stages, key=lambda stage: stage.memory / stage.capacity)
    clusters = [instance.cluster_of(stage.candidate) for stage in solution.stages]
    errors = [cluster.time_error for cluster in clusters if cluster.time_error is not None]
    replays = instance.makespan is not None and instance.space.replays(schedule)
    return PricedPlan(
        micro_batches,
        instance.space.weights(schedule, micro_batches, len(stages)),
        stages,
        fullest.capacity,
        fullest.device_memory,
        min(cluster.fit_probability(stage.memory) for cluster, stage in zip(clusters, stages, strict=True)),
        max(errors, key=lambda error: error.spread, default=None),
        _replayed(schedule, micro_batches, stages) if replays else 0.0,
    )


def makespan(instance: Instance, solution: Solution) -> float:
    """Seconds of the replay of the plan `solution` decides (`PricedPlan.replayed`).

    Raises:
        ValueError: as `evaluate`.
    """
    return evaluate(instance, solution).replayed


def _replayed(schedule: Schedule, micro_batches: int, stages: Sequence[PricedStage]) -> float:
    """Seconds of a plan's replay; 0 where that is proved to take no longer than the closed form."""
    passes = [stage.grown_passes for stage in stages]
    suffices = getattr(schedule, "suffices", None)
    if suffices is not None and not any(stage.hidden for stage in stages):
        both = (
            tuple(sum(getattr(each, kind) for each in stage) for stage in passes) for kind in ("forward", "backward")
        )
        if suffices(*both):
            return 0.0
    try:
        return pipeline_length(schedule, micro_batches, passes) + max(stage.sync for stage in stages)
    except Stuck:  # An order that cannot be run is named when the plan is checked (`nest.simulate.contradiction`).
        return 0.0


class Chunk(NamedTuple):
    """A chunk of a stage.

    Attributes:
        layers: of the chunk.
        cuts: the tensors that cross the boundaries in front and behind.
        around: the boundaries in front and behind.
    """

    layers: tuple[int, ...]
    cuts: tuple[Tensors, Tensors]
    around: tuple[Boundary, Boundary]


def _price_stage(
    instance: Instance,
    solution: Solution,
    index: int,
    chunks: Sequence[Chunk],
    moments: Sequence[Moment],
    copies: int,
    groups: tuple[DataParallelGroup, ...],
    micro_batches: int,
    direct: tuple[Sizes, Sizes] | None,
) -> PricedStage:
    stage = solution.stages[index]
    instance = instance.at(stage.candidate)
    candidate = instance.candidates[stage.candidate]
    mode = candidate.mode(stage.recompute)
    layers = numpy.array(stage.layers)
    entering = [cut_bytes(candidate, chunk.cuts[0]) for chunk in chunks]
    leaving = [cut_bytes(candidate, chunk.cuts[1]) for chunk in chunks]
    compute = float((candidate.forward[layers] + candidate.backward[layers]).sum())
    recompute = float(mode.extra[layers].sum())
    received_over = [(chunk.around[0], size) for chunk, size in zip(chunks, entering, strict=True)]
    returned_over = [(chunk.around[1], size) for chunk, size in zip(chunks, leaving, strict=True)]
    messages = [(front.level, front.arriving(size)) for front, size in received_over]
    arriving = sum(seconds for _, seconds in messages)
    messages += [(behind.level, behind.returning(size)) for behind, size in returned_over]
    returning = sum(seconds for _, seconds in messages[len(chunks) :])
    if direct is not None:
        entering, leaving = ([size for _, size in sizes] for sizes in direct)
        messages = [(level, message(instance, level, size)) for sizes in direct for level, size in sizes]
        arriving = sum(seconds for _, seconds in messages[: len(entering)])
        returning = sum(seconds for _, seconds in messages[len(entering) :])
    shared = zero_costs(instance, stage, groups)
    sharding = exposed(instance, shared.often, compute + recompute, instance.space.often_exposed)
    once = exposed(instance, shared.once, compute + recompute, instance.space.exposed)
    hides = instance.space.hides(solution.schedule)
    hidden = min(arriving + returning, compute + recompute) if hides else 0.0
    port_wait, ports = 0.0, None
    if candidate.busy is not None and solution.placement is None:
        ports = often_by_level(candidate, mode, layers, shared.often_ports, messages)
        without = compute + recompute + arriving + returning + sharding - hidden
        port_wait = max(0.0, *(each - without for each in ports))
        once = max(
            once, exposed_by_ports(instance, shared.once, shared.once_ports, ports, without + port_wait, micro_batches)
        )
    weights, gradients, optimizer = (copies * each for each in shared.held)
    held = (weights, gradients, optimizer)
    activations, peak, upper, parts = stage_memory(
        instance, stage, held, [chunk.layers for chunk in chunks], moments, entering
    )
    gathering = sharding * shared.often_forward / shared.often if shared.often else 0.0
    ways = (
        list(
            zip(
                [front.arriving(size) for front, size in received_over],
                [behind.returning(size) for behind, size in returned_over],
                strict=True,
            )
        )
        if direct is None
        else [(arriving, returning)]
    )
    passes = chunk_seconds(instance, stage, groups, [chunk.layers for chunk in chunks], ways, hidden, sharding)
    return PricedStage(
        compute=compute,
        # Rounding may make more of collectives than there is.
        collectives=0.0 if candidate.collectives is None else min(float(candidate.collectives[layers].sum()), compute),
        recompute=recompute,
        arriving=arriving,
        returning=returning,
        sharding=sharding,
        hidden=hidden,
        forward=float(candidate.forward[layers].sum()) + gathering,
        weight_gradients=float(candidate.finding_weight_gradients[layers].sum()),
        port_wait=port_wait,
        sync=once + shared.update,
        state=sum(held),
        activations=activations,
        peak=peak,
        reserve=instance.cluster.reserve,
        in_flight=in_flight(moments),
        level_in=max(chunk.around[0].seen_from(instance.cluster) for chunk in chunks),
        level_out=max(chunk.around[1].seen_from(instance.cluster) for chunk in chunks),
        first_device=stage.offset * (1 if solution.rank_order == "pp-inner" else solution.replicas),
        width=candidate.width,
        parts=parts,
        upper_memory=upper,
        # Between two chunks of one stage nothing is sent.
        bytes_out=sum(leaving if direct else [size for behind, size in returned_over if behind.forward], 0.0),
        ports=ports,
        once_ports=None if ports is None else tuple(shared.once_ports.tolist()),
        capacity=instance.cluster.memory,
        device_memory=instance.cluster.device_memory,
        passes=passes,
    )


def chunk_seconds(
    instance: Instance,
    stage: StageDecision,
    groups: tuple[DataParallelGroup, ...],
    chunks: Sequence[Sequence[int]],
    messages: Sequence[tuple[float, float]],
    hidden: float,
    sharding: float,
) -> tuple[ChunkSeconds, ...]:
    """What the passes of each chunk of a stage take (PROBLEM.md section 4, "Price and replay").

    Args:
        instance: as the stage sees it.
        stage: its decisions.
        groups: of its candidate's parameter groups.
        chunks: layers of each.
        messages: seconds of the activations that arrive at each, and of the gradients that return.
        hidden: seconds of all these that hide.
        sharding: seconds per micro-batch of ZeRO communication that show.
    """
    candidate = instance.candidates[stage.candidate]
    mode = candidate.mode(stage.recompute)
    often = often_by_chunk(instance, stage, groups, chunks) if sharding else [(0.0, 0.0)] * len(chunks)
    whole = sum(2 * gather + scatter for gather, scatter in often)
    shown, beside = (sharding / whole if whole else 0.0), (hidden / sum(map(sum, messages)) if hidden else 0.0)
    found = []
    for layers, (gather, scatter), (arriving, returning) in zip(map(list, chunks), often, messages, strict=True):
        weights = float(candidate.finding_weight_gradients[layers].sum()) + shown * scatter
        computed = float((mode.extra + candidate.backward)[layers].sum()) + shown * (gather + scatter)
        found.append(
            ChunkSeconds(
                forward=(1 - beside) * arriving + shown * gather + float(candidate.forward[layers].sum()),
                backward=(1 - beside) * returning + computed,
                weights=weights,
                arriving=beside * arriving,
                returning=beside * returning,
            )
        )
    return tuple(found)


def stage_memory(
    instance: Instance,
    stage: StageDecision,
    state: tuple[float, float, float],
    chunks: Sequence[tuple[int, ...]],
    moments: Iterable[Moment],
    entering: Sequence[float],
) -> tuple[float, float, float, MemoryBreakdown]:
    """The memory of a stage beside its state, bytes: activations, transient, the most of all; and its parts.

    Args:
        instance: of the plan.
        stage: the stage.
        state: bytes of weights, gradients and optimizer.
        chunks: the layers of each chunk.
        moments: micro-batches in flight of each chunk, at the moments that may be the fullest.
        entering: bytes of each chunk's inputs per micro-batch.
    """
    candidate, layers = instance.candidates[stage.candidate], numpy.array(stage.layers)
    mode, reserve = candidate.mode(stage.recompute), instance.cluster.reserve
    more = [float(mode.more[list(chunk)].sum()) for chunk in chunks]
    # With as many micro-batches of every chunk this is what PROBLEM.md has for a stage of one run of layers.
    further, stashed = max(
        ((_beyond_first(each, more), _beyond_first(each, entering) if mode.stash_inputs else 0.0) for each in moments),
        key=sum,
    )
    saved = float(mode.first[layers].sum()) + further
    gathered = candidate.gathered if stage.zero >= 3 else 0.0
    peaks = mode.peak[layers]
    peak, largest = float(peaks.max()) + gathered, layers[int(peaks.argmax())]
    overheads, unused = mode.overheads, further * mode.overheads.fragmentation
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


def _beyond_first(moment: Moment, sizes: Sequence[float]) -> float:
    """Bytes of the micro-batches in flight beyond one of each chunk, whose micro-batches take so many each."""
    if len(set(moment)) == 1:
        return (moment[0] - 1) * sum(sizes)
    return sum([(count - 1) * size for count, size in zip(moment, sizes, strict=True)])
