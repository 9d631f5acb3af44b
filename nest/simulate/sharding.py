"""Data-parallel costs of a stage for replays: the table of ZeRO stages in PROBLEM.md section 4, read again."""

import math
from collections.abc import Sequence

import numpy
from attrs import evolve, frozen

from nest.instance import Array, Instance, ParameterGroup, StageDecision
from nest.plan.zero import DataParallelGroup, slowest_collective


@frozen
class DataParallelism:
    """Seconds of a stage's data-parallel communication and optimizer, and bytes of its state."""

    gather: tuple[float, ...]  # Of weights, in a forward pass and again in a backward pass, by chunk; the exposed part.
    scatter: tuple[float, ...]  # Of gradients, in a backward pass, by chunk; the exposed part.
    reduce: float  # Of gradients, once per batch, exposed or not; with waits for other ranks.
    refresh: float  # Weights gathered after the optimizer step, exposed or not; with waits.
    exposed: float  # Exposed share of `reduce` and `refresh`, without ports.
    update: float  # The optimizer step.
    state: float  # Bytes of weights, gradients and optimizer on a device.
    in_step: int  # Neighbouring replicas in a shard group; only these wait for each other in every micro-batch.
    often_ports: tuple[float, ...]  # Seconds per micro-batch that a port of each level is occupied, exposed or not.
    once_ports: tuple[float, ...]  # The same once per batch.


def data_parallelism(
    instance: Instance,
    groups: Sequence[DataParallelGroup],
    stage: StageDecision,
    chunks: Sequence[list[int]],
    work: float,
) -> DataParallelism:
    """Data-parallel costs of a stage.

    Args:
        groups: of the stage's candidate, one for each of its parameter groups.
        chunks: layers of each of its chunks.
        work: seconds of compute per micro-batch, with recomputation.
    """
    candidate, space = instance.candidates[stage.candidate], instance.space
    stage = evolve(stage, zero=space.effective_zero(stage.zero))
    sent, by_chunk = numpy.zeros((4, 1 + len(instance.cluster.levels))), numpy.zeros((2, len(chunks)))
    update, state, in_step = 0.0, 0.0, 1
    for parameters, group in zip(candidate.state, groups, strict=True):
        whole, parts = _sent(instance, stage, parameters, group, chunks)
        sent, by_chunk = sent + whole, by_chunk + parts
        size, ranks = group.shard_size, len(parameters.ranks)
        update += _share(parameters.update, stage, 1, size)
        state += _share(parameters.weights, stage, 3, size) + _share(parameters.gradients, stage, 2, size)
        state += _share(parameters.optimizer, stage, 1, size)
        # Where shard groups overlap, they wait for all that they overlap with.
        in_step = math.lcm(in_step, math.lcm(size, ranks) // ranks)
    gather, scatter, reduce, refresh = (float(seconds) for seconds in sent[:, 0])
    often = _exposed_share(instance, 2 * gather + scatter, work, space.often_exposed)
    waited = space.synchronisation * (space.sharded_synchronisation if stage.zero else 1.0)
    return DataParallelism(
        gather=tuple((by_chunk[0] * often).tolist()),
        scatter=tuple((by_chunk[1] * often).tolist()),
        reduce=reduce * waited,
        refresh=refresh * waited,
        exposed=_exposed_share(instance, waited * (reduce + refresh), work, space.exposed),
        update=update,
        state=state,
        in_step=in_step,
        often_ports=tuple((2 * sent[0, 1:] + sent[1, 1:]).tolist()),
        # Who waits occupies nothing; where ranks take less than the model says, their ports do, too.
        once_ports=tuple((min(waited, 1.0) * (sent[2, 1:] + sent[3, 1:])).tolist()),
    )


def _share(row: Array, stage: StageDecision, sharded_from: int, shard_size: int) -> float:
    """Sum over a stage's layers of values that so many devices share from a ZeRO stage on."""
    return float(row[list(stage.layers)].sum()) / (shard_size if stage.zero >= sharded_from else 1)


def _sent(
    instance: Instance,
    stage: StageDecision,
    parameters: ParameterGroup,
    group: DataParallelGroup,
    chunks: Sequence[list[int]],
) -> tuple[Array, Array]:
    """Communication of one parameter group, all exposed (PROBLEM.md section 4, the table).

    Returns: gather, scatter, reduce and refresh, each as `slowest_collective`, shape `(4, 1 + levels)`; then gather and
        scatter by chunk, shape `(2, chunks)`.
    """
    layers, zero, size = list(stage.layers), stage.zero, group.shard_size
    weights, gradients = float(parameters.weights[layers].sum()), float(parameters.gradients[layers].sum())
    nothing, by_chunk = numpy.zeros(1 + len(instance.cluster.levels)), numpy.zeros((2, len(chunks)))
    if zero == 0:
        whole = slowest_collective(instance, "all_reduce", gradients, group.whole, group.members)
        return numpy.array([nothing, nothing, whole, nothing]), by_chunk
    across = slowest_collective(instance, "all_reduce", gradients / size, group.replicates, group.members // size)
    gather = slowest_collective(instance, "all_gather", weights, group.shards, size)
    if zero == 1:
        scatter = slowest_collective(instance, "reduce_scatter", gradients, group.shards, size)
        return numpy.array([nothing, nothing, scatter + across, gather]), by_chunk
    pieces = 1.0 if parameters.pieces is None else max(float(parameters.pieces[layers].sum()), 1.0)
    scatter, by_chunk[1] = _by_chunk(instance, "reduce_scatter", parameters.gradients, group, chunks, pieces)
    if zero == 2:
        return numpy.array([nothing, scatter, across, gather]), by_chunk
    gather, by_chunk[0] = _by_chunk(instance, "all_gather", parameters.weights, group, chunks, pieces)
    return numpy.array([gather, scatter, across, nothing]), by_chunk


STEP = 2.0**-16
"""Share of a collective's bytes that separates its latencies: `seconds - bytes * d seconds / d bytes`. Rounding then
errs by some 1e-11 of the seconds."""


def _by_chunk(
    instance: Instance, kind: str, row: Array, group: DataParallelGroup, chunks: Sequence[list[int]], pieces: float
) -> tuple[Array, Array]:
    """A collective of every micro-batch, in so many pieces, over all bytes of the chunks in a row.

    Returns: its seconds and ports, as `slowest_collective`; then its seconds by chunk: latencies in equal parts, the
        rest in proportion to bytes (PROBLEM.md section 4, "Price and replay").
    """
    sizes = numpy.array([row[layers].sum() for layers in chunks])
    size, shards, members = float(sizes.sum()) / pieces, group.shards, group.shard_size
    whole = pieces * slowest_collective(instance, kind, size, shards, members)
    if len(chunks) == 1 or not whole[0]:
        return whole, numpy.full(len(chunks), whole[0])
    less = pieces * slowest_collective(instance, kind, size * (1 - STEP), shards, members)[0]
    growing = min((whole[0] - less) / STEP, whole[0])
    return whole, (whole[0] - growing) / len(chunks) + growing * sizes / sizes.sum()


def _exposed_share(instance: Instance, seconds: float, work: float, least: float) -> float:
    """Exposed share of `seconds` beside `work` seconds of compute, at least `least` (section "Hiding")."""
    if seconds == 0:
        return 0.0
    return max(least, (seconds - work) / seconds if instance.space.hiding else 0.0)
