"""ZB-V (arXiv 2401.10241, section 6; arXiv 2405.15362, V-ZB): two chunks a stage in a V, and no bubble.

The order is PyTorch's (`ScheduleZBVZeroBubble`). Stages begin and end a batch one after the other, as in ZB-H2, so that
none waits only where optimizer steps do not wait for those of other stages (arXiv 2401.10241, section 4).

The bubble is `(s - 1) (b - w)`, exact where `w <= f <= b`, and none where the three parts take equally long (section
6). With `M < 2 s - 1` micro-batches there are not enough gradients of weights to fill it, and with `M < s` the way down
the V and up again is longer than the work; these weights were found from replays of the order.
"""

from nest.hooks.protocols import Pass, numbered
from nest.instance.schedule import FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS, Moment, moments_of_rounds


class ZBV:
    """Stage `i` has chunks `i` and `2 s + 1 - i`, so that a micro-batch ends where it began."""

    name = "zb-v"
    fills = True
    chunks = 2
    placement = "v"
    staggered = True

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float, float, float]:
        """`A = M`, `Bb = (s - 1) / s`, `Bw = -Bb`; with few micro-batches `Bf` and `Bw` are more, see the module."""
        ahead = min(max(micro_batches - stages, 0), stages - 1)
        forward = max(stages - micro_batches, 0) / stages
        return float(micro_batches), forward, (stages - 1) / stages, -ahead / stages

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> tuple[Moment, ...]:
        """As its order has them: `2 s` chunks at most, as much as `s` micro-batches (arXiv 2405.15362, table 1)."""
        return moments_of_rounds(self, stage, stages, micro_batches)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """Forward down and up the V, then each chunk forward and backward in turn; weights fill the end.

        As of `2 s - 1` micro-batches at least, of which those that there are not are left out.
        """
        down, up = ((FORWARD, chunk) for chunk in (0, 1))
        first, last = ([(INPUT_GRADIENTS, chunk), (WEIGHT_GRADIENTS, chunk)] for chunk in (0, 1))
        before, left = stage - 1, stages - stage
        turns = max(micro_batches, 2 * stages - 1) - 2 * stages + stage
        steps = [down] * (2 * left + 1) + [up, down] * before + [up, *last] * (left + 1)
        steps += [down, *first, up, *last] * turns + [*first, up, *last] * left
        steps += [first[0], last[0]] * before + first * (left + 1) + [last[1]] * before + [first[1]] * before
        return tuple(each for each in numbered(steps) if each.micro_batch < micro_batches)
