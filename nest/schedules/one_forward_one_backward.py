"""One forward, one backward (PipeDream-Flush, arXiv 2006.09503, section 3.2; Megatron-LM's default)."""

from nest.hooks.protocols import Pass
from nest.schedules.orders import one_by_one


class OneForwardOneBackward:
    """Each stage alternates forward and backward passes once the pipeline is full."""

    name = "1f1b"

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        """`A = M - 1`, `B = 1` (PROBLEM.md section 4)."""
        return float(micro_batches - 1), 1.0

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
        """`min(M, s - i + 1)` (PROBLEM.md section 4)."""
        return min(micro_batches, stages - stage + 1)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """As many forward passes as stages are left, then a backward and a forward pass in turn."""
        return one_by_one(stage, stages, micro_batches)
