"""Zero-bubble schedules: backward passes in two parts, of which the later one fills the bubble.

Qi et al. 2023, "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, sections 2 and 3 and table 2. A backward pass is
split into the gradients of inputs (B), which the stage in front waits for, and those of weights (W), which nobody does.

ASSUMPTION: forward, B and W passes take equally long, a third of a stage's time each, as in the paper's figures 2 and
3. Schedules here see a stage's whole time only. The paper's bubble of `(s - 1) (T_F + T_B - T_W)` is then `(s - 1) t /
3`, and its `(s - 1) (T_F + T_B - 2 T_W)` none. With fewer micro-batches than the schedule wants in flight there are not
enough W passes to fill the bubble. What is left is the critical path: `s - 1` forward passes to the last stage, `M`
forward and B passes there, `s - 1` B passes back to the first and its last W pass, `(2 M + 2 s - 1) t / 3` in all.

Memory counts whole micro-batches, although what is kept between B and W is less than before B: never too little.
"""

from nest.hooks.protocols import Pass
from nest.schedules.one_forward_one_backward import in_turn


def _weights(least_total: float, micro_batches: int, stages: int) -> tuple[float, float]:
    """`(A, B)` with `least_total` as `B`, or more where the critical path is longer."""
    total = max(least_total, (2 * stages - 1 - micro_batches) / (3 * max(stages - 1, 1)))
    return micro_batches - total, total


def _order(micro_batches: int, ahead: int, late: int) -> tuple[Pass, ...]:
    """`ahead` forward passes, then backward and forward in turn; weights `late` micro-batches behind inputs."""
    forward = [Pass("forward", index) for index in range(micro_batches)]
    weights = [Pass("weight-gradients", index) for index in range(micro_batches)]
    backward = [
        [Pass("input-gradients", index), *weights[max(index - late, 0) : max(index - late + 1, 0)]]
        for index in range(micro_batches)
    ]
    return (*in_turn(forward, backward, ahead), *weights[max(micro_batches - late, 0) :])


class ZeroBubble:
    """ZB-H1 (arXiv 2401.10241, section 2.1): the memory of one forward, one backward, a third of its bubble."""

    name = "zero-bubble"

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        """`A = M - 1/3`, `B = 1/3`; `B` is more with `M < s`, see the module."""
        return _weights(1 / 3, micro_batches, stages)

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
        """`min(M, s)` on every stage (arXiv 2401.10241, section 2.1 and table 2).

        The schedule keeps all stages at as many micro-batches in flight as the first one has.
        """
        return min(micro_batches, stages)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """One forward, one backward, with weights put off by one micro-batch more on each stage (section 2.1)."""
        return _order(micro_batches, stages - stage + 1, stage - 1)


class ZeroBubbleH2:
    """ZB-H2 (arXiv 2401.10241, section 2.2): no bubble, for about twice the memory.

    Stages begin and end a batch one after the other, so none waits only where optimizer steps do not wait for those of
    other stages (the paper's section 4).
    """

    name = "zero-bubble-h2"
    staggered = True

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        """`A = M`, `B = 0`; `B` is more with `M < 2 s - 1`, see the module."""
        return _weights(0.0, micro_batches, stages)

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
        """`min(M, 2 s - 1)` on every stage (arXiv 2401.10241, section 2.2 and table 2)."""
        return min(micro_batches, 2 * stages - 1)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """Twice as many forward passes ahead, and weights put off by two micro-batches more on each stage."""
        return _order(micro_batches, 2 * (stages - stage) + 1, 2 * (stage - 1))
