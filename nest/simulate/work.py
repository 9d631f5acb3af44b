"""What each stage has to do: PROBLEM.md section 4 in pieces of passes, read from decisions once more.

Shard groups and overlap ("Hiding") are sections of docs/explanation/problem.md. Where blocks lie, what crosses their
boundaries and what single collectives take is read as pricing reads it (`nest.plan`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy
from attrs import evolve, frozen

from nest.instance import Array, Candidate, Instance, ParameterGroup, RecomputeMode, Solution, StageDecision
from nest.plan.certificate import UNITS
from nest.plan.layout import boundaries, chunk_layers, cut_bytes, downsets, stages_of_chunks
from nest.plan.zero import DataParallelGroup, data_parallel_groups, slowest_collective
from nest.simulate.direct import received_directly

COMPUTE = frozenset({"forward", "backward", "recompute", "input-gradients", "weight-gradients", "update"})
"""Kinds of pieces that a device computes; the others are communication, or wait for it."""

COLLECTIVES = frozenset({"gather-weights", "reduce-gradients"})
"""Kinds of pieces in which the replicas take part together."""

RECEIVES = frozenset({"receive-activations", "receive-gradients"})
"""Kinds of pieces that occupy the link to another stage."""

WAIT = "wait-for-port"
"""Kind of the pieces in which a port of the stage's devices is still occupied and nothing else is left to do."""

WEIGHTS_SHARE = 0.5
"""Share of a backward pass, recomputation apart, that finds the gradients of weights: a matrix product takes as many
FLOP for either gradient (arXiv 2401.10241, table 1, but for the attention core)."""


@frozen
class Piece:
    """A part of a pass or of the optimizer step.

    Attributes:
        kind: one of `COMPUTE`, `COLLECTIVES` or `RECEIVES`, or `WAIT`.
        seconds: how long it takes, above 0.
    """

    kind: str
    seconds: float


Passes = Mapping[tuple[str, int], tuple[Piece, ...]]
"""By kind of pass and chunk, the pieces a pass consists of, in order."""


@frozen
class Ports:
    """How long a device's port at each level, innermost first, is occupied by what a stage sends, hidden or not.

    Attributes:
        often: seconds per micro-batch (`b_i` of PROBLEM.md section 4, Ports).
        once: seconds once per batch.
    """

    often: tuple[float, ...]
    once: tuple[float, ...]

    def traffic(self, micro_batches: int) -> tuple[float, ...]:
        """Seconds per batch, by level."""
        return tuple(micro_batches * often + once for often, once in zip(self.often, self.once, strict=True))


@frozen
class StageWork:
    """What one stage does, in seconds, and holds, in bytes.

    Attributes:
        passes: by kind of pass and chunk, the pieces a pass consists of, in order; backward passes also in two parts.
        optimizer_step: pieces of what happens once per batch, gradient reduction included, in order.
        resident: bytes of weights, gradients, optimizer state and the reserve, all the time.
        saved: bytes that each micro-batch in flight saves for backward, by chunk.
        first: bytes by which the first micro-batch in flight takes more than a further one.
        transient: bytes needed while a pass runs, by chunk.
        in_step: replicas, neighbours, whose weights and gradients are sharded together (`DataParallelism.in_step`).
        ports: what they carry; None: the stage's candidate does not say.
    """

    passes: Passes
    optimizer_step: tuple[Piece, ...]
    resident: float
    saved: tuple[float, ...]
    first: float
    transient: tuple[float, ...]
    in_step: int
    ports: Ports | None

    @property
    def chunks(self) -> int:
        """Runs of layers of the stage."""
        return len(self.saved)

    def seconds(self, kind: str, chunk: int) -> float:
        """Seconds of one pass."""
        return sum(piece.seconds for piece in self.passes[kind, chunk])

    def total(self, kind: str) -> float:
        """Seconds of the passes of one micro-batch through all chunks."""
        return sum(self.seconds(kind, chunk) for chunk in range(self.chunks))

    @property
    def time(self) -> float:
        """Seconds per micro-batch (`t_i` of PROBLEM.md section 4)."""
        return self.total("forward") + self.total("backward")

    @property
    def sync(self) -> float:
        """Seconds once per batch (`y_i`)."""
        return sum(piece.seconds for piece in self.optimizer_step)


@frozen
class DataParallelism:
    """Seconds that a stage spends on data-parallel communication and its optimizer, and the bytes of its state.

    Attributes:
        gather: of weights, in a forward pass and once more in a backward pass; what is exposed of it.
        scatter: of gradients, in a backward pass; what is exposed of it.
        reduce: of gradients, once per batch, exposed or not; waiting for other ranks included.
        refresh: weights gathered after the optimizer step, exposed or not; waiting included.
        exposed: share of `reduce` and `refresh` that is exposed, ports aside.
        update: the optimizer step.
        state: bytes of weights, gradients and optimizer on a device.
        in_step: replicas, neighbours, that shard groups join; only these wait for each other in every micro-batch.
        often_ports: seconds per micro-batch for which a port of each level is occupied, exposed or not.
        once_ports: the same once per batch.
    """

    gather: float
    scatter: float
    reduce: float
    refresh: float
    exposed: float
    update: float
    state: float
    in_step: int
    often_ports: tuple[float, ...]
    once_ports: tuple[float, ...]


def stage_works(instance: Instance, solution: Solution) -> tuple[StageWork, ...]:
    """What every stage of a plan has to do.

    Communication of data parallelism is counted for a whole stage; each of its chunks has an equal share.
    """
    if instance.network is not None:
        from nest.plan.on_network import link_loads, on_devices

        instance, solution = on_devices(instance, solution)
    around, homes = boundaries(instance, solution), stages_of_chunks(instance, solution)
    runs = list(
        zip(homes, chunk_layers(instance, solution), downsets(instance, solution), pairwise(around), strict=True)
    )
    groups = data_parallel_groups(instance, solution)
    links = link_loads(instance, solution, groups) if solution.placement is not None else None
    micro_batches = instance.micro_batches(instance.candidates[solution.stages[0].candidate], solution.replicas)
    assert micro_batches is not None  # It is a plan of the problem.
    works = []
    for index, stage in enumerate(solution.stages):
        candidate = instance.candidates[stage.candidate]
        mode, layers = candidate.mode(stage.recompute), list(stage.layers)
        compute = float((candidate.forward[layers] + candidate.backward[layers] + mode.extra[layers]).sum())
        shared = data_parallelism(instance, groups[index], stage, compute)
        passes: dict[tuple[str, int], tuple[Piece, ...]] = {}
        own = [(list(chunk), cuts, sides) for home, chunk, cuts, sides in runs if home == index]
        chunks = [chunk for chunk, *_ in own]
        entering, messages = [], []
        for chunk, (_, cuts, sides) in enumerate(own):
            entering.append(cut_bytes(instance, candidate, cuts[0]))
            arriving = sides[0].arriving(entering[chunk])
            returning = sides[1].returning(cut_bytes(instance, candidate, cuts[1]))
            sent = [(sides[0].level, arriving), (sides[1].level, returning)]
            if instance.space.direct:
                entering, sent, (arriving, returning) = received_directly(instance, solution, index, around)
            messages += sent
            pieces = _passes(candidate, mode, chunks[chunk], arriving, returning, shared, solution.chunks)
            passes |= {(kind, chunk): each for kind, each in pieces.items()}
        ports = _ports(candidate, mode, layers, messages, shared)
        if links is not None:  # Links in place of ports; what is sent once per batch loads none.
            ports = Ports((links.least_time(index),), (0.0,))
        if ports is not None:
            passes = _waiting(passes, ports)
            shared = evolve(shared, exposed=_exposed_once(instance, shared, ports, time_of(passes), micro_batches))
        works.append(_work(instance, candidate, mode, stage.zero, passes, shared, ports, chunks, entering))
    return tuple(works)


def _passes(
    candidate: Candidate,
    mode: RecomputeMode,
    layers: list[int],
    arriving: float,
    returning: float,
    shared: DataParallelism,
    chunks: int,
) -> dict[str, tuple[Piece, ...]]:
    """Pieces of every kind of pass over one chunk.

    A stage first receives, then gathers weights that are sharded, computes, and scatters gradients.
    """
    backward = float(candidate.backward[layers].sum())
    before = [
        ("receive-gradients", returning),
        ("gather-weights", shared.gather / chunks),
        ("recompute", float(mode.extra[layers].sum())),
    ]
    after = ("reduce-gradients", shared.scatter / chunks)
    return {
        "forward": _pieces(
            [
                ("receive-activations", arriving),
                ("gather-weights", shared.gather / chunks),
                ("forward", float(candidate.forward[layers].sum())),
            ]
        ),
        "backward": _pieces([*before, ("backward", backward), after]),
        "input-gradients": _pieces([*before, ("input-gradients", backward * (1 - WEIGHTS_SHARE))]),
        "weight-gradients": _pieces([("weight-gradients", backward * WEIGHTS_SHARE), after]),
    }


def _work(
    instance: Instance,
    candidate: Candidate,
    mode: RecomputeMode,
    zero: int,
    passes: Passes,
    shared: DataParallelism,
    ports: Ports | None,
    chunks: list[list[int]],
    entering: list[float],
) -> StageWork:
    """The stage with its memory: what it saves of a micro-batch is counted chunk by chunk."""
    stashed = [each if mode.stash_inputs else 0.0 for each in entering]
    saved = [float(mode.more[layers].sum()) + stash for layers, stash in zip(chunks, stashed, strict=True)]
    first = sum(float(mode.first[layers].sum()) for layers in chunks) - sum(saved)
    gathered = candidate.gathered if zero >= 3 else 0.0
    return StageWork(
        passes=passes,
        optimizer_step=_pieces(
            [
                ("reduce-gradients", shared.reduce * shared.exposed),
                ("update", shared.update),
                ("gather-weights", shared.refresh * shared.exposed),
            ]
        ),
        resident=shared.state + instance.cluster.reserve,
        saved=tuple(saved),
        first=first,
        transient=tuple(float(mode.peak[layers].max()) + gathered for layers in chunks),
        in_step=shared.in_step,
        ports=ports,
    )


def _pieces(parts: Iterable[tuple[str, float]]) -> tuple[Piece, ...]:
    """What takes time."""
    return tuple(Piece(kind, seconds) for kind, seconds in parts if seconds > 0)


def data_parallelism(
    instance: Instance, groups: Sequence[DataParallelGroup], stage: StageDecision, work: float
) -> DataParallelism:
    """What data parallelism costs a stage.

    Args:
        instance: of the plan.
        groups: of the stage's candidate, one for each of its parameter groups.
        stage: the stage.
        work: seconds it computes per micro-batch, recomputation included.
    """
    candidate, space = instance.candidates[stage.candidate], instance.space
    stage = evolve(stage, zero=space.effective_zero(stage.zero))
    sent = numpy.zeros((4, 1 + len(instance.cluster.levels)))
    update, state, in_step = 0.0, 0.0, 1
    for parameters, group in zip(candidate.state, groups, strict=True):
        sent += _sent(instance, stage, parameters, group)
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
        gather=gather * often,
        scatter=scatter * often,
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
    """The sum over a stage's layers of what so many devices share from a ZeRO stage on."""
    return float(row[list(stage.layers)].sum()) / (shard_size if stage.zero >= sharded_from else 1)


def _sent(instance: Instance, stage: StageDecision, parameters: ParameterGroup, group: DataParallelGroup) -> Array:
    """What one parameter group sends, with all of it exposed (PROBLEM.md section 4, the table).

    Returns: gather, scatter, reduce and refresh, each as `slowest_collective`; shape `(4, 1 + levels)`.
    """
    layers, zero, size = list(stage.layers), stage.zero, group.shard_size
    weights, gradients = float(parameters.weights[layers].sum()), float(parameters.gradients[layers].sum())
    nothing = numpy.zeros(1 + len(instance.cluster.levels))
    if zero == 0:
        whole = slowest_collective(instance, "all_reduce", gradients, group.whole, group.members)
        return numpy.array([nothing, nothing, whole, nothing])
    scatter = slowest_collective(instance, "reduce_scatter", gradients, group.shards, size)
    gather = slowest_collective(instance, "all_gather", weights, group.shards, size)
    across = slowest_collective(instance, "all_reduce", gradients / size, group.replicates, group.members // size)
    if zero == 1:
        return numpy.array([nothing, nothing, scatter + across, gather])
    if parameters.pieces is not None and (count := float(parameters.pieces[layers].sum())) > 1:
        scatter = count * slowest_collective(instance, "reduce_scatter", gradients / count, group.shards, size)
        if zero == 3:
            gather = count * slowest_collective(instance, "all_gather", weights / count, group.shards, size)
    return numpy.array([gather if zero == 3 else nothing, scatter, across, gather if zero == 2 else nothing])


def _exposed_share(instance: Instance, seconds: float, work: float, least: float) -> float:
    """The exposed share of `seconds` beside `work` seconds of compute, `least` at least (section "Hiding")."""
    if seconds == 0:
        return 0.0
    return max(least, (seconds - work) / seconds if instance.space.hiding else 0.0)


def _ports(
    candidate: Candidate,
    mode: RecomputeMode,
    layers: list[int],
    messages: Iterable[tuple[int, float]],
    shared: DataParallelism,
) -> Ports | None:
    """What the ports of a stage's devices carry; None: its candidate does not say.

    `messages` are what it receives in a micro-batch: levels of the boundaries, -1 for none, and seconds.
    """
    if candidate.busy is None:
        return None
    often = [float(row[layers].sum()) for row in candidate.busy]
    for level, seconds in enumerate(shared.often_ports):
        often[level] += seconds
        often[level] += 0.0 if mode.busy is None else float(mode.busy[level][layers].sum())
    for level, seconds in messages:
        if level >= 0:
            often[level] += seconds
    return Ports(tuple(often), shared.once_ports)


def _waiting(passes: Passes, ports: Ports) -> dict[tuple[str, int], tuple[Piece, ...]]:
    """Passes that wait for the busiest port, each in proportion to its length, so that equal ones stay equal.

    Forward and backward passes together are one micro-batch.
    """
    alone = time_of(passes)
    wait = max(ports.often) - alone
    if wait <= 0:
        return dict(passes)
    lengths = {each: _seconds(pieces) if alone else float(UNITS[each[0]]) for each, pieces in passes.items()}
    whole = sum(length for (kind, _), length in lengths.items() if kind in ("forward", "backward"))
    waits = {each: wait * (length / whole) for each, length in lengths.items()}
    return {each: (*pieces, *([Piece(WAIT, waits[each])] if waits[each] else [])) for each, pieces in passes.items()}


def time_of(passes: Passes) -> float:
    """Seconds of a micro-batch (`t_i`)."""
    return sum(_seconds(pieces) for (kind, _), pieces in passes.items() if kind in ("forward", "backward"))


def _exposed_once(instance: Instance, shared: DataParallelism, ports: Ports, time: float, micro_batches: int) -> float:
    """The exposed share of what a stage sends once per batch: at least what ports leave too little free for.

    It overlaps with what every micro-batch, which takes `time`, leaves of the fullest port that it uses.
    """
    sent = shared.reduce + shared.refresh
    free = [time - often for often, once in zip(ports.often, ports.once, strict=True) if once > 0]
    if instance.space.exposed >= 1 or not free:
        return shared.exposed
    return max(shared.exposed, (sent - micro_batches * min(free)) / sent)


def _seconds(pieces: Iterable[Piece]) -> float:
    return sum(piece.seconds for piece in pieces)
