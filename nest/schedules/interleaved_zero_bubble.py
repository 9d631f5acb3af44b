"""Interleaved ZB-H1 (arXiv 2401.10241; PyTorch's `ScheduleInterleavedZeroBubble`): virtual stages, split backward.

The bubble of ZB-H1, `(s - 1) (f + b - w)`, is `v` times smaller, as chunks are. Exact where `w <= f` and `w <= b`.
"""

from attrs import evolve, field, frozen, validators

from nest.hooks.protocols import Pass
from nest.instance.schedule import Moment, moments_of_rounds
from nest.schedules.interleaved import in_rounds
from nest.schedules.zero_bubble import with_late_weights


@frozen
class InterleavedZeroBubble:
    """Each stage runs `v` chunks of layers in turn; the gradients of weights fill what is left of the bubble.

    Attributes:
        chunks: chunks of each stage (`v`), 2 or more.
    """

    chunks: int = field(default=2, validator=validators.ge(2))
    name = "interleaved-zero-bubble"
    fills = True

    def with_chunks(self, chunks: int) -> "InterleavedZeroBubble":
        """The same with `chunks` chunks for each stage."""
        return evolve(self, chunks=chunks)

    def admits(self, stages: int, micro_batches: int, chunks: int) -> bool:
        """`M` a multiple of `s`: rounds of `s` micro-batches."""
        return not micro_batches % stages

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float, float, float]:
        """`A = M`, `Bf = Bb = k`, `Bw = -k` with `k = (s - 1) / (s v)`, see the module."""
        share = (stages - 1) / (stages * self.chunks)
        return float(micro_batches), share, share, -share

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> tuple[Moment, ...]:
        """As its order has them: at most `v s` chunks, as much as `s` micro-batches, on every stage."""
        return moments_of_rounds(self, stage, stages, micro_batches)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """Rounds of `s` micro-batches, weights put off by one chunk more on each stage."""
        places = in_rounds(stages, micro_batches, self.chunks)
        return with_late_weights(places, self.chunks, self.chunks * stages - stage + 1, stage - 1)
