"""Step time and stage memory of a plan: PROBLEM.md section 4 without a solver's tables."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy

from nest.instance import (
    Candidate,
    Instance,
    RecomputeMode,
    Solution,
    StageDecision,
    copies_of,
    fullest_moments,
    in_flight,
    stage_mode,
)
from nest.instance.schedule import Moment
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
from nest.plan.makespan import ChunkSeconds
from nest.plan.priced import PricedPlan as PricedPlan
from nest.plan.priced import PricedStage as PricedStage
from nest.plan.priced import replayed
from nest.plan.zero import DataParallelGroup, data_parallel_groups, exposed, often_by_chunk, zero_costs
from nest.spec import MemoryBreakdown


def evaluate(instance: Instance, solution: Solution) -> PricedPlan:
    """Price every number of a plan.

    Raises:
        ValueError: the decisions are not a plan: micro-batches of several sizes, a batch that the replicas cannot
            share, blocks outside the cluster, ... (`nest.plan.legality` has full sentences).
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
        replayed(schedule, micro_batches, stages) if replays else 0.0,
    )


def makespan(instance: Instance, solution: Solution) -> float:
    """Seconds of a plan's replay (`PricedPlan.replayed`).

    Raises:
        ValueError: see `evaluate`.
    """
    return evaluate(instance, solution).replayed


class Chunk(NamedTuple):
    """A chunk of a stage."""

    layers: tuple[int, ...]  # Of the chunk.
    cuts: tuple[Tensors, Tensors]  # Tensors across the boundaries before and after.
    around: tuple[Boundary, Boundary]  # Boundaries before and after.


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
    candidate, runs = instance.candidates[stage.candidate], [chunk.layers for chunk in chunks]
    mode, layers = stage_mode(instance, stage, runs), numpy.array(stage.layers)
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
    activations, peak, upper, parts = stage_memory(instance, stage, held, runs, moments, entering)
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
    if len(runs) > 1 and sharding:
        often = often_by_chunk(instance, stage, groups, runs)
    else:
        often = [(shared.often_forward, shared.often - 2 * shared.often_forward)] * len(runs)
    passes = chunk_seconds(candidate, mode, runs, ways, often, hidden, sharding)
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
        fitting=instance.cluster.memory if instance.cluster.fitting is None else instance.cluster.fitting,
        device_memory=instance.cluster.device_memory,
        passes=passes,
    )


def chunk_seconds(
    candidate: Candidate,
    mode: RecomputeMode,
    chunks: Sequence[Sequence[int]],
    messages: Sequence[tuple[float, float]],
    often: Sequence[tuple[float, float]],
    hidden: float,
    sharding: float,
) -> tuple[ChunkSeconds, ...]:
    """Times of the passes of each chunk of a stage (PROBLEM.md section 4, "Price and replay").

    Args:
        chunks: layers of each.
        messages: seconds of arriving activations and returning gradients of each.
        often: ZeRO gathering in a forward pass and scattering in a backward pass of each, exposed.
        hidden: seconds of all these messages that hide.
        sharding: exposed seconds per micro-batch of ZeRO communication.
    """
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
    """Memory of a stage besides its state, bytes: activations, transient, and total peak; and its parts.

    Args:
        state: bytes of weights, gradients and optimizer.
        chunks: layers of each chunk.
        moments: micro-batches in flight of each chunk, at the possibly fullest moments.
        entering: bytes of each chunk's inputs per micro-batch.
    """
    candidate, layers = instance.candidates[stage.candidate], numpy.array(stage.layers)
    mode, reserve = stage_mode(instance, stage, chunks), instance.cluster.reserve
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
    """Bytes of the micro-batches in flight beyond one of each chunk, given the bytes of one."""
    if len(set(moment)) == 1:
        return (moment[0] - 1) * sum(sizes)
    return sum([(count - 1) * size for count, size in zip(moment, sizes, strict=True)])
