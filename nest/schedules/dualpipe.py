"""DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1; deepseek-ai/DualPipe) and its half, DualPipeV.

DualPipe runs pipelines from both ends at once: half of the micro-batches begin at the first device, half at the last,
and each device holds two stages: `i` and `s + 1 - i`. The two of a device overlap forward and backward passes like the
two chunks of DualPipeV. The bubble is `(s / 2 - 1) (f + 2 b - w)` (the README's `(PP / 2 - 1) (F&B + B - 3 W)`, whose
`B` is a whole backward pass and whose `F&B` takes as long as both).

DualPipeV (PyTorch's `ScheduleDualPipeV`) is DualPipe cut in half, two chunks a stage in a V. Forward and backward
passes of different chunks overlap, and gradients of weights fill both ends. With `s` stages its bubble is `(s - 1) (f +
2 b - w) / 2` (the README's formula, whose `PP` are the `2 s` chunks). Both are exact if `f = b >= w`.
"""

from attrs import evolve

from nest.hooks.protocols import Pass, numbered
from nest.instance.schedule import BACKWARD, FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS, Moment, Step, moments_of_rounds


class DualPipe:
    """Every device holds the parameters of two stages."""

    name = "dualpipe"
    copies = 2

    def admits(self, stages: int, micro_batches: int, chunks: int) -> bool:
        """Return whether both are even, and `M >= 2 s` (asserted by dualpipe.py)."""
        return not stages % 2 and not micro_batches % 2 and micro_batches >= 2 * stages

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float, float, float]:
        """Return `A = M`, `Bf = k`, `Bb = 2 k`, `Bw = -k` with `k = (s / 2 - 1) / s`, see the module."""
        share = (stages / 2 - 1) / stages
        return float(micro_batches), share, 2 * share, -share

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
        """Return `s + 1`, on every device for both its stages together (the README's `PP + 1`)."""
        return stages + 1

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """Return an unfolded V of half as many devices, its chunks a device's two stages (the README's DualPipeV)."""
        half, near = micro_batches // 2, min(stage, stages + 1 - stage)
        second = stage != near
        return tuple(
            evolve(each, micro_batch=each.micro_batch + half * (each.chunk != second), chunk=0)
            for each in in_a_v(near, stages // 2, half)
        )


class DualPipeV:
    """Stage `i` has chunks `i` and `2 s + 1 - i`, and runs one forward while the other runs backward."""

    name = "dualpipe-v"
    fills = True
    chunks = 2
    placement = "v"

    def admits(self, stages: int, micro_batches: int, chunks: int) -> bool:
        """Return whether `M >= 2 s`: as many micro-batches as chunks, as both frameworks require."""
        return micro_batches >= 2 * stages

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float, float, float]:
        """Return `A = M`, `Bf = k`, `Bb = 2 k`, `Bw = -k` with `k = (s - 1) / (2 s)`, see the module."""
        share = (stages - 1) / (2 * stages)
        return float(micro_batches), share, 2 * share, -share

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> tuple[Moment, ...]:
        """Return the moments of its order: at most `2 s + 1` chunks (the README's `PP + 1`)."""
        return moments_of_rounds(self, stage, stages, micro_batches)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """Return forward passes down and up the V, then forward and backward ones in pairs, then backward: `in_a_v`."""
        return in_a_v(stage, stages, micro_batches)


def in_a_v(stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
    """Return the passes of stage `stage` (from 1) of a V of `stages`, which runs two chunks.

    While there are too few backward passes, and without forward ones to overlap with, backward passes run in parts,
    whose gradients of weights wait until a stage would.
    """
    down, up = (FORWARD, 0), (FORWARD, 1)
    back, first_back = (BACKWARD, 1), (BACKWARD, 0)
    left = stages - stage
    turns = micro_batches - 2 * stages + stage
    ends = [1, 0] * stage
    late = ends[stage:] + [0] * left  # Chunks whose backward passes run in parts at the end, in this order.
    pairs = [(down, back), (up, first_back)] * turns
    parts = [(INPUT_GRADIENTS, 1), (WEIGHT_GRADIENTS, 1), up]
    steps: list[Step | tuple[Step, Step]] = [*[down] * (2 * left), *[down, up] * stage, *parts * left]
    # The turn of the V does not overlap the first pair, so that the bubble is smaller.
    steps += pairs if left else [down, back, *pairs[1:]]
    for _ in range(left):
        steps += [back, (up, first_back)]
    steps += [(BACKWARD, chunk) for chunk in ends[:stage]] + [(INPUT_GRADIENTS, chunk) for chunk in ends[stage:]]
    for chunk in late[:left]:
        steps += [(WEIGHT_GRADIENTS, chunk), (INPUT_GRADIENTS, 0)]
    return numbered([*steps, *((WEIGHT_GRADIENTS, chunk) for chunk in late[left:])])
