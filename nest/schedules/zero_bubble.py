"""Zero-bubble schedules: backward passes in two parts, of which the later one fills the bubble.

Qi et al. 2023, "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, sections 2 and 3 and table 2. A backward pass is
split into the gradients of inputs (B), which the previous stage waits for, and those of weights (W), which nobody waits
for.

With fewer micro-batches than the schedule wants in flight there are not enough W passes to fill the bubble. The
critical path remains: `s - 1` forward passes to the last stage, `M` forward and B passes there, `s - 1` B passes back
to the first and its last W pass, `(M + s - 1) (f + b) + w` in all.

Memory counts whole micro-batches, although less is kept between B and W than before B: never too little.
"""

from collections.abc import Sequence

from attrs import evolve, field, frozen, validators

from nest.hooks.protocols import Pass, numbered
from nest.instance.schedule import FORWARD, INPUT_GRADIENTS, WEIGHT_GRADIENTS, Moment, moments_of_rounds
from nest.records import Record
from nest.schedules.interleaved import in_rounds
from nest.schedules.one_forward_one_backward import in_turn


def with_late_weights(places: Sequence[tuple[int, int]], chunks: int, ahead: int, late: int) -> tuple[Pass, ...]:
    """Return `ahead` forward passes, then backward and forward in turn; weights `late` passes behind inputs.

    Args:
        places: chunks and micro-batches in forward order; backward, chunks are the other way.
        chunks: of the stage.
        ahead: forward passes before the first backward one.
        late: gradients of inputs before the first ones of weights, besides theirs.
    """
    forward = [Pass("forward", index, chunk) for chunk, index in places]
    weights = [Pass("weight-gradients", index, chunks - 1 - chunk) for chunk, index in places]
    backward = [
        [Pass("input-gradients", index, chunks - 1 - chunk), *weights[max(done - late, 0) : max(done - late + 1, 0)]]
        for done, (chunk, index) in enumerate(places)
    ]
    return (*in_turn(forward, backward, ahead), *weights[max(len(places) - late, 0) :])


class ZeroBubble:
    """ZB-H1 (arXiv 2401.10241, section 2.1): the memory of one forward, one backward, about a third of its bubble."""

    name = "zero-bubble"

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float, float, float]:
        """Return `A = M`, `Bf = Bb = (s - 1) / s`, `Bw = -(min(M, s) - 1) / s`.

        The bubble is `(s - 1) (f + b - w)` (the paper's table 2, its `T_F + T_B - T_W`), more with `M < s`, see the
        module. Exact if `w <= f` and `w <= b`.
        """
        share = (stages - 1) / stages
        return float(micro_batches), share, share, -(min(micro_batches, stages) - 1) / stages

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
        """Return `min(M, s)` on every stage, as on the first one (arXiv 2401.10241, section 2.1 and table 2)."""
        return min(micro_batches, stages)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """Return one forward, one backward, with weights delayed by one more micro-batch per stage (section 2.1)."""
        places = [(0, index) for index in range(micro_batches)]
        return with_late_weights(places, 1, stages - stage + 1, stage - 1)


class ZeroBubbleH2:
    """ZB-H2 (arXiv 2401.10241, section 2.2): no bubble, for about twice the memory.

    Stages begin and end a batch one after the other, so the bubble vanishes only if optimizer steps do not wait for
    those of other stages (the paper's section 4).
    """

    name = "zero-bubble-h2"
    staggered = True

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float, float, float]:
        """Return `A = M`, `Bb = (s - 1) / s`, `Bw = -Bb`, `Bf = 0`, with few micro-batches more.

        With `M < 2 s - 1` `Bf` is more, with `M < s` also `Bw`. The paper's bubble is `(s - 1) (T_F + T_B - 2 T_W)`.
        Weights must not make up for more than gradients of inputs add, so `f` stands for one of the two `w`: exact if
        `w = f` and `w <= b`.
        """
        ahead = min(max(micro_batches - stages, 0), stages - 1)
        share = (stages - 1) / stages
        return float(micro_batches), share - ahead / stages, share, -(min(micro_batches, stages) - 1) / stages

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
        """Return `min(M, 2 s - 1)` on every stage (arXiv 2401.10241, section 2.2 and table 2)."""
        return min(micro_batches, 2 * stages - 1)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """Return twice as many forward passes ahead, and weights delayed by two micro-batches more on each stage."""
        places = [(0, index) for index in range(micro_batches)]
        return with_late_weights(places, 1, 2 * (stages - stage) + 1, 2 * (stage - 1))


@frozen(eq=False, repr=False)
class InterleavedZeroBubble(Record):
    """Interleaved ZB-H1 (PyTorch's `ScheduleInterleavedZeroBubble`): each stage runs `v` chunks of layers in turn.

    The bubble of ZB-H1, `(s - 1) (f + b - w)`, is `v` times smaller, like chunks. Exact if `w <= f` and `w <= b`.
    """

    chunks: int = field(default=2, validator=validators.ge(2))  # Of each stage (`v`), 2 or more.
    name = "interleaved-zero-bubble"
    fills = True

    def with_chunks(self, chunks: int) -> "InterleavedZeroBubble":
        """Return the same with `chunks` chunks for each stage."""
        return evolve(self, chunks=chunks)

    def admits(self, stages: int, micro_batches: int, chunks: int) -> bool:
        """Return whether `M` is a multiple of `s`: rounds of `s` micro-batches."""
        return not micro_batches % stages

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float, float, float]:
        """Return `A = M`, `Bf = Bb = k`, `Bw = -k` with `k = (s - 1) / (s v)`, see the class."""
        share = (stages - 1) / (stages * self.chunks)
        return float(micro_batches), share, share, -share

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> tuple[Moment, ...]:
        """Return the moments of its order: at most `v s` chunks, as much as `s` micro-batches, on every stage."""
        return moments_of_rounds(self, stage, stages, micro_batches)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """Return rounds of `s` micro-batches, weights delayed by one chunk more on each stage."""
        places = in_rounds(stages, micro_batches, self.chunks)
        return with_late_weights(places, self.chunks, self.chunks * stages - stage + 1, stage - 1)


class ZBV:
    """ZB-V (arXiv 2401.10241, section 6; arXiv 2405.15362, V-ZB): two chunks a stage in a V, and no bubble.

    Stage `i` has chunks `i` and `2 s + 1 - i`, so a micro-batch ends where it began. The order is PyTorch's
    (`ScheduleZBVZeroBubble`). Stages begin and end a batch one after the other, as in ZB-H2, so the bubble vanishes
    only if optimizer steps do not wait for those of other stages (arXiv 2401.10241, section 4).

    The bubble is `(s - 1) (b - w)`, exact if `w <= f <= b`, and none if the three parts take equally long (section 6).
    With `M < 2 s - 1` micro-batches there are not enough gradients of weights to fill it, and with `M < s` the way down
    the V and up again is longer than the work; these weights were found from replays of the order.
    """

    name = "zb-v"
    fills = True
    chunks = 2
    placement = "v"
    staggered = True

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float, float, float]:
        """Return `A = M`, `Bb = (s - 1) / s`, `Bw = -Bb`; few micro-batches have more `Bf` and `Bw`, see the class."""
        ahead = min(max(micro_batches - stages, 0), stages - 1)
        forward = max(stages - micro_batches, 0) / stages
        return float(micro_batches), forward, (stages - 1) / stages, -ahead / stages

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> tuple[Moment, ...]:
        """Return its order's moments: up to `2 s` chunks, as `s` micro-batches (arXiv 2405.15362, table 1)."""
        return moments_of_rounds(self, stage, stages, micro_batches)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """Return forward passes down and up the V, then each chunk forward and backward in turn, weights at the end.

        It is the order of at least `2 s - 1` micro-batches without the missing ones.
        """
        down, up = ((FORWARD, chunk) for chunk in (0, 1))
        first, last = ([(INPUT_GRADIENTS, chunk), (WEIGHT_GRADIENTS, chunk)] for chunk in (0, 1))
        before, left = stage - 1, stages - stage
        turns = max(micro_batches, 2 * stages - 1) - 2 * stages + stage
        steps = [down] * (2 * left + 1) + [up, down] * before + [up, *last] * (left + 1)
        steps += [down, *first, up, *last] * turns + [*first, up, *last] * left
        steps += [first[0], last[0]] * before + first * (left + 1) + [last[1]] * before + [first[1]] * before
        return tuple(each for each in numbered(steps) if each.micro_batch < micro_batches)
