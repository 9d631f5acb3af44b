"""Tasks of each stage: PROBLEM.md section 4 in pieces of passes, computed independently from decisions.

Shard groups and overlap ("Hiding") are sections of docs/explanation/problem.md. Places of blocks, tensors across
boundaries and times of single collectives come from `nest.plan`, as for pricing.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from attrs import evolve, frozen

from nest.instance import Candidate, Instance, RecomputeMode, Solution, Weights, copies_of, stage_mode
from nest.instance.schedule import BACKWARD, FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS, WHOLE, Step
from nest.plan.layout import (
    Boundary,
    boundaries,
    chunk_layers,
    crossing,
    cut_bytes,
    received,
    schedule_of,
    stages_of_chunks,
)
from nest.plan.zero import data_parallel_groups
from nest.simulate.sharding import DataParallelism, data_parallelism

COMPUTE = frozenset({"forward", "backward", "recompute", "input-gradients", "weight-gradients", "update"})
"""Kinds of pieces computed by a device; the others are communication, or waits."""

COLLECTIVES = frozenset({"gather-weights", "reduce-gradients"})  # Kinds of pieces that replicas run together.

RECEIVES = frozenset({"receive-activations", "receive-gradients"})
"""Kinds of pieces that occupy the link to another stage."""

WAIT = "wait-for-port"  # Kind of pieces that only wait for an occupied port.


@frozen
class Piece:
    """A part of a pass or of the optimizer step."""

    kind: str  # One of `COMPUTE`, `COLLECTIVES` or `RECEIVES`, or `WAIT`.
    seconds: float  # Above 0.


Passes = Mapping[Step, tuple[Piece, ...]]  # Pieces of a pass in order, by kind of pass and chunk.


@frozen
class Ports:
    """Occupation of a device's port at each level, innermost first, by a stage's communication, hidden or not."""

    often: tuple[float, ...]  # Seconds per micro-batch (`b_i` of PROBLEM.md section 4, Ports).
    once: tuple[float, ...]  # Seconds once per batch.

    def traffic(self, micro_batches: int) -> tuple[float, ...]:
        """Seconds per batch, by level."""
        return tuple(micro_batches * often + once for often, once in zip(self.often, self.once, strict=True))


@frozen
class StageWork:
    """Work of one stage in seconds, and its memory in bytes."""

    passes: Passes  # By kind of pass and chunk, the pieces of a pass in order; backward passes also in two parts.
    # By kind of pass and chunk, the seconds of messages that hide under the compute of a full pipeline, from when they
    # are sent; without those of 0 s.
    travel: Mapping[Step, float]
    optimizer_step: tuple[Piece, ...]  # Pieces of communication and work once per batch, in order.
    # Bytes of weights, gradients, optimizer state and the reserve, on a device with all copies of the stage.
    resident: float
    saved: tuple[float, ...]  # Bytes that each micro-batch in flight saves for backward, by chunk.
    first: float  # Extra bytes of the first micro-batch in flight.
    transient: tuple[float, ...]  # Bytes needed while a pass runs, by chunk.
    in_step: int  # Neighbouring replicas whose weights and gradients are sharded together (`DataParallelism.in_step`).
    ports: Ports | None  # Their occupation; None: unknown.

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
        """Seconds per micro-batch in a full pipeline (`t_i` of PROBLEM.md section 4)."""
        return max([time_of(self.passes), *(() if self.ports is None else self.ports.often)])

    def weighed(self, weights: Weights) -> float:
        """Part of the sum in the step time, `Bf f + Bb b + Bw w`, for filling and draining the pipeline.

        Scattering of gradients counts with input gradients, and waits for ports half with forward passes.
        """
        hidden = {kind: sum(each for (of, _), each in self.travel.items() if of == kind) for kind in WHOLE}
        if weights.uniform:
            return weights.forward * (self.time + sum(hidden.values()))
        pieces = [(kind, piece) for (kind, _), each in self.passes.items() for piece in each]
        whole = [(kind, piece) for kind, piece in pieces if kind in WHOLE]
        wait = self.time - sum(piece.seconds for _, piece in whole if piece.kind != WAIT)
        received = {kind: sum(p.seconds for of, p in whole if of == kind and p.kind in RECEIVES) for kind in WHOLE}
        forward = self.total(FORWARD) - received[FORWARD]
        forward -= sum(piece.seconds for kind, piece in whole if kind == FORWARD and piece.kind == WAIT)
        found = sum(piece.seconds for _, piece in pieces if piece.kind == WEIGHT_GRADIENTS)
        inputs = self.time - wait - sum(received.values()) - forward - found
        weighed: float = weights.of_parts(forward, inputs, found)
        weighed += weights.of_messages(*(received[kind] + hidden[kind] for kind in WHOLE))
        return weighed + weights.waiting * wait

    @property
    def sync(self) -> float:
        """Seconds once per batch (`y_i`)."""
        return sum(piece.seconds for piece in self.optimizer_step)


def stage_works(instance: Instance, solution: Solution) -> tuple[StageWork, ...]:
    """Work of every stage of a plan."""
    if instance.network is not None:
        from nest.plan.on_network import link_loads, on_devices

        instance, solution = on_devices(instance, solution)
    around, homes = boundaries(instance, solution), stages_of_chunks(instance, solution)
    runs = list(
        zip(homes, chunk_layers(instance, solution), crossing(instance, solution), pairwise(around), strict=True)
    )
    groups = data_parallel_groups(instance, solution)
    links = link_loads(instance, solution, groups) if solution.placement is not None else None
    micro_batches = instance.micro_batches(instance.candidates[solution.stages[0].candidate], solution.replicas)
    assert micro_batches is not None  # It is a plan of the problem.
    works: list[StageWork] = []
    copies = copies_of(schedule_of(instance, solution))
    for index, stage in enumerate(solution.stages):
        candidate, seen = instance.candidates[stage.candidate], instance.at(stage.candidate)
        hides = seen.space.hides(solution.schedule)
        own = [(list(chunk), cuts, sides) for home, chunk, cuts, sides in runs if home == index]
        chunks, layers = [chunk for chunk, *_ in own], list(stage.layers)
        mode = stage_mode(instance, stage, chunks)
        compute = float((candidate.forward[layers] + candidate.backward[layers] + mode.extra[layers]).sum())
        shared = data_parallelism(seen, groups[index], stage, chunks, compute)
        entering, messages, received = [], [], []
        for chunk, (_, cuts, sides) in enumerate(own):
            entering.append(cut_bytes(candidate, cuts[0]))
            arriving = sides[0].arriving(entering[chunk])
            returning = sides[1].returning(cut_bytes(candidate, cuts[1]))
            sent = [(sides[0].level, arriving), (sides[1].level, returning)]
            if instance.space.direct:
                entering, sent, (arriving, returning) = received_directly(instance, solution, index, around)
            messages += sent
            received.append((arriving, returning))
        beside = _hidden_share(received, compute) if hides else 0.0
        passes: dict[Step, tuple[Piece, ...]] = {}
        travel: dict[Step, float] = {}
        for chunk, ways in enumerate(received):
            arriving, returning = (seconds * (1 - beside) for seconds in ways)
            sharding = shared.gather[chunk], shared.scatter[chunk]
            pieces = _passes(candidate, mode, chunks[chunk], arriving, returning, *sharding)
            passes |= {(kind, chunk): each for kind, each in pieces.items()}
            for kinds, seconds in (((FORWARD,), ways[0]), ((BACKWARD, INPUT_GRADIENTS), ways[1])):
                travel |= {(kind, chunk): seconds * beside for kind in kinds if seconds * beside > 0}
        ports = _ports(candidate, mode, layers, messages, shared)
        if links is not None:  # Links in place of ports; what is sent once per batch loads none.
            ports = Ports((links.least_time(index),), (0.0,))
        if ports is not None:
            passes = _waiting(passes, ports)
            time = max(time_of(passes), *ports.often)
            shared = evolve(shared, exposed=_exposed_once(seen, shared, ports, time, micro_batches))
        shared = evolve(shared, state=copies * shared.state)
        works.append(_work(seen, candidate, mode, stage.zero, passes, travel, shared, ports, chunks, entering))
    return tuple(works)


def _hidden_share(received: Iterable[tuple[float, float]], compute: float) -> float:
    """Share of the seconds of a stage's messages that a micro-batch's compute can hide."""
    seconds = sum(map(sum, received))
    return min(compute / seconds, 1.0) if seconds else 0.0


def _passes(
    candidate: Candidate,
    mode: RecomputeMode,
    layers: list[int],
    arriving: float,
    returning: float,
    gather: float,
    scatter: float,
) -> dict[str, tuple[Piece, ...]]:
    """Pieces of every kind of pass over one chunk.

    A stage first receives, then gathers sharded weights, computes, and scatters gradients.
    """
    backward, found = (float(row[layers].sum()) for row in (candidate.backward, candidate.finding_weight_gradients))
    before = [
        ("receive-gradients", returning),
        ("gather-weights", gather),
        ("recompute", float(mode.extra[layers].sum())),
    ]
    after = ("reduce-gradients", scatter)
    return {
        "forward": _pieces(
            [
                ("receive-activations", arriving),
                ("gather-weights", gather),
                ("forward", float(candidate.forward[layers].sum())),
            ]
        ),
        "backward": _pieces([*before, ("backward", backward), after]),
        "input-gradients": _pieces([*before, ("input-gradients", backward - found)]),
        "weight-gradients": _pieces([("weight-gradients", found), after]),
    }


def _work(
    instance: Instance,
    candidate: Candidate,
    mode: RecomputeMode,
    zero: int,
    passes: Passes,
    travel: Mapping[Step, float],
    shared: DataParallelism,
    ports: Ports | None,
    chunks: list[list[int]],
    entering: list[float],
) -> StageWork:
    """Work of a stage with its memory: saved bytes of a micro-batch count chunk by chunk."""
    stashed = [each if mode.stash_inputs else 0.0 for each in entering]
    saved = [float(mode.more[layers].sum()) + stash for layers, stash in zip(chunks, stashed, strict=True)]
    first = sum(float(mode.first[layers].sum()) for layers in chunks) - sum(saved)
    gathered = candidate.gathered if zero >= 3 else 0.0
    return StageWork(
        passes=passes,
        travel=travel,
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
    return tuple(Piece(kind, seconds) for kind, seconds in parts if seconds > 0)


def _ports(
    candidate: Candidate,
    mode: RecomputeMode,
    layers: list[int],
    messages: Iterable[tuple[int, float]],
    shared: DataParallelism,
) -> Ports | None:
    """Port occupation of a stage's devices; None: unknown.

    `messages` are those received in a micro-batch: levels of the boundaries, -1 for none, and seconds.
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


def _waiting(passes: dict[Step, tuple[Piece, ...]], ports: Ports) -> dict[Step, tuple[Piece, ...]]:
    """Lengthen all passes by one factor if the busiest port needs longer: they wait for it at their ends."""
    alone = time_of(passes)
    share = max(ports.often) / alone - 1 if alone else 0.0
    return {each: (*pieces, *_pieces([(WAIT, share * _seconds(pieces))])) for each, pieces in passes.items()}


def time_of(passes: Passes) -> float:
    """Seconds of a micro-batch (`t_i`)."""
    return sum(_seconds(pieces) for (kind, _), pieces in passes.items() if kind in ("forward", "backward"))


def _exposed_once(instance: Instance, shared: DataParallelism, ports: Ports, time: float, micro_batches: int) -> float:
    """Exposed share of communication once per batch, at least what ports are too busy for.

    It overlaps with what every micro-batch, which takes `time`, leaves of its fullest port.
    """
    sent = shared.reduce + shared.refresh
    free = [time - often for often, once in zip(ports.often, ports.once, strict=True) if once > 0]
    if instance.space.exposed >= 1 or not free:
        return shared.exposed
    return max(shared.exposed, (sent - micro_batches * min(free)) / sent)


def _seconds(pieces: Iterable[Piece]) -> float:
    return sum(piece.seconds for piece in pieces)


def received_directly(
    instance: Instance, solution: Solution, index: int, around: Sequence[Boundary]
) -> tuple[list[float], list[tuple[int, float]], tuple[float, float]]:
    """Bytes that enter a stage, seconds of its messages with their levels, and totals of each direction."""
    figures = [(level.latency, level.bandwidth) for level in instance.cluster.levels]
    activations, gradients = received(instance, solution, index, around)
    ways = [
        [(level, figures[level][0] + size / figures[level][1]) for level, size in sizes]
        for sizes in (activations, gradients)
    ]
    arriving, returning = (sum(seconds for _, seconds in way) for way in ways)
    return [sum(size for _, size in activations)], ways[0] + ways[1], (arriving, returning)
