"""DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1; deepseek-ai/DualPipe): pipelines from both ends at once.

Half of the micro-batches begin at the first device, half at the last, whose devices hold two stages each: `i` and
`s + 1 - i`. The two of a device overlap forward and backward passes as the two chunks of DualPipeV do. The bubble is
`(s / 2 - 1) (f + 2 b - w)` (the README's `(PP / 2 - 1) (F&B + B - 3 W)`, whose `B` is a whole backward pass and whose
`F&B` takes as long as both). Exact where `f = b >= w`.
"""

from attrs import evolve

from nest.hooks.protocols import Pass
from nest.schedules.dualpipe_v import in_a_v


class DualPipe:
    """Every device holds the parameters of two stages."""

    name = "dualpipe"
    copies = 2

    def admits(self, stages: int, micro_batches: int, chunks: int) -> bool:
        """Both even, and `M >= 2 s` (dualpipe.py asserts that)."""
        return not stages % 2 and not micro_batches % 2 and micro_batches >= 2 * stages

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float, float, float]:
        """`A = M`, `Bf = k`, `Bb = 2 k`, `Bw = -k` with `k = (s / 2 - 1) / s`, see the module."""
        share = (stages / 2 - 1) / stages
        return float(micro_batches), share, 2 * share, -share

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
        """`s + 1` on every device, of both its stages together (the README's `PP + 1`)."""
        return stages + 1

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """A V of half as many devices, unfolded: its chunks are the two stages of a device (the README's DualPipeV)."""
        half, near = micro_batches // 2, min(stage, stages + 1 - stage)
        second = stage != near
        return tuple(
            evolve(each, micro_batch=each.micro_batch + half * (each.chunk != second), chunk=0)
            for each in in_a_v(near, stages // 2, half)
        )
