"""The bound of the NEST paper: every stage takes as long as the slowest."""

from nest.hooks.protocols import Pass
from nest.schedules.one_forward_one_backward import one_by_one


class NestBound:
    """`M + s - 1` slots of the slowest stage's length, with the memory of one forward, one backward."""

    name = "nest"

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        """`A = M + s - 1`, `B = 0` (PROBLEM.md section 4)."""
        return float(micro_batches + stages - 1), 0.0

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
        """`min(M, s - i + 1)` (PROBLEM.md section 4)."""
        return min(micro_batches, stages - stage + 1)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """That of one forward, one backward, whose memory it has."""
        return one_by_one(stage, stages, micro_batches)
