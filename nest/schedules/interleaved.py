"""Interleaved one forward, one backward: Megatron-LM's virtual pipeline stages (arXiv 2104.04473, section 2.2)."""

from attrs import evolve, field, frozen, validators

from nest.hooks.protocols import Pass
from nest.instance.schedule import Moment, moments_of_rounds
from nest.schedules.one_forward_one_backward import in_turn


@frozen
class Interleaved:
    """Each stage runs `v` chunks of layers in turn, so that the pipeline fills in a `v`-th of the time.

    Attributes:
        chunks: chunks of each stage (`v`), 2 or more.
    """

    chunks: int = field(default=2, validator=validators.ge(2))
    name = "interleaved"
    fills = True

    def with_chunks(self, chunks: int) -> "Interleaved":
        """The same with `chunks` chunks for each stage."""
        return evolve(self, chunks=chunks)

    def admits(self, stages: int, micro_batches: int, chunks: int) -> bool:
        """`M` a multiple of `s`: rounds of `s` micro-batches."""
        return not micro_batches % stages

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        """`A = M - 1/v`, `B = 1/v` (PROBLEM.md section 4), a bubble of `(s - 1) t / v` (the paper's section 2.2)."""
        return micro_batches - 1 / self.chunks, 1 / self.chunks

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> tuple[Moment, ...]:
        """As its order has them: at most `min(M v, 2 (s - i) + (v - 1) s + 1)` chunks (PROBLEM.md section 4).

        That is Megatron-LM's warm-up of `2 (s - i) + (v - 1) s` chunks and the one that runs.
        """
        return moments_of_rounds(self, stage, stages, micro_batches)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """Rounds of `s` micro-batches: each chunk runs a round before the next chunk does (the paper's section 2.2).

        Chunks run backward in the reverse order. A stage begins with as many forward passes as `in_flight` counts.
        """
        places = in_rounds(stages, micro_batches, self.chunks)
        forward = [Pass("forward", index, chunk) for chunk, index in places]
        backward = [Pass("backward", index, self.chunks - 1 - chunk) for chunk, index in places]
        return in_turn(forward, [[each] for each in backward], 2 * (stages - stage) + (self.chunks - 1) * stages + 1)


def in_rounds(stages: int, micro_batches: int, chunks: int) -> list[tuple[int, int]]:
    """Chunks and micro-batches in the order in which they run forward: rounds of `s`, chunk after chunk."""
    rounds = [range(first, min(first + stages, micro_batches)) for first in range(0, micro_batches, stages)]
    return [(chunk, index) for indices in rounds for chunk in range(chunks) for index in indices]
