"""What a replay is made of."""

from collections.abc import Mapping

from attrs import frozen

from nest.instance import Pass

COMPUTE = frozenset({"forward", "backward", "recompute", "input-gradients", "weight-gradients", "update"})
"""Kinds of pieces that a device computes; the others are communication, or wait for it."""

COLLECTIVES = frozenset({"gather-weights", "reduce-gradients"})
"""Kinds of pieces in which the replicas take part together."""

RECEIVES = frozenset({"receive-activations", "receive-gradients"})
"""Kinds of pieces that occupy the link to another stage."""

WAIT = "wait-for-port"
"""Kind of the pieces in which a port of the stage's devices is still occupied and nothing else is left to do."""

Points = tuple[tuple[float, float], ...]
"""Seconds from the beginning of the batch, and bytes from then on; of several at one time, the last."""


@frozen
class Piece:
    """A part of a pass or of the synchronisation.

    Attributes:
        kind: one of `COMPUTE`, `COLLECTIVES` or `RECEIVES`, or `WAIT`.
        seconds: how long it takes, above 0.
    """

    kind: str
    seconds: float


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
        synchronisation: pieces of what happens once per batch, in order.
        standing: bytes of weights, gradients, optimizer state and the reserve, all the time.
        kept: bytes that each micro-batch in flight keeps, by chunk.
        first: bytes by which the first micro-batch in flight takes more than a further one.
        transient: bytes needed while a pass runs, by chunk.
        in_step: replicas, neighbours, whose weights and gradients are sharded together (`Sharding.in_step`).
        ports: what they carry; None: the stage's candidate does not say.
    """

    passes: Mapping[tuple[str, int], tuple[Piece, ...]]
    synchronisation: tuple[Piece, ...]
    standing: float
    kept: tuple[float, ...]
    first: float
    transient: tuple[float, ...]
    in_step: int
    ports: Ports | None

    @property
    def chunks(self) -> int:
        """Runs of layers of the stage."""
        return len(self.kept)

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
        return sum(piece.seconds for piece in self.synchronisation)


@frozen
class Span:
    """A pass as it was run.

    Attributes:
        stage: from 0.
        run: the pass.
        start: seconds from the beginning of the batch.
        end: seconds.
    """

    stage: int
    run: Pass
    start: float
    end: float


@frozen
class Task:
    """A piece as it was run: what timelines draw.

    Attributes:
        stage: from 0.
        kind: of `Piece`.
        run: kind of the pass it is a piece of; None for what happens once per batch.
        micro_batch: from 0; None for what happens once per batch.
        chunk: of the stage, from 0.
        start: seconds from the beginning of the batch.
        end: seconds.
    """

    stage: int
    kind: str
    run: str | None
    micro_batch: int | None
    chunk: int
    start: float
    end: float


@frozen
class Timeline:
    """One replica's batch.

    Attributes:
        replica: from 0.
        spans: passes; on each stage in the order they were run.
        tasks: of these passes and of the synchronisation; on each stage in the order they were run.
        memory: for each stage, bytes over time.
        peaks: for each stage, the most bytes at any time.
    """

    replica: int
    spans: tuple[Span, ...]
    tasks: tuple[Task, ...]
    memory: tuple[Points, ...]
    peaks: tuple[float, ...]
