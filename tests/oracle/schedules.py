"""Section 4 of PROBLEM.md: what each schedule says, in a table of its own, and how that is read."""

from collections.abc import Callable
from dataclasses import dataclass


def always(stages: int, micro_batches: int, chunks: int) -> bool:
    return True


@dataclass(frozen=True)
class Said:
    """What a schedule says.

    Attributes:
        weights: of micro-batches, stages and chunks: `(A, B)` or `(A, Bf, Bb, Bw)`.
        held: of a stage from 1, stages, micro-batches and chunks: micro-batches in flight, a number for all chunks, one
            for each, or several such rows.
        chunks: of each stage; None: any number from 2.
        placement: `round`, `v`, or of stages and chunks the stage, from 1, of each chunk in pipeline order.
        copies: of the parameters that a device holds.
        admits: of stages, micro-batches and chunks.
        order: of a stage from 1, stages, micro-batches and chunks: the passes of its device in turn, or None. `f0` is
            a forward pass of its first chunk, `b0` a whole backward pass, `i0` and `w0` its two parts; two that run
            together are a pair. Each runs the next micro-batch of its chunk.
        staggered: whether optimizer steps do not wait for those of other stages.
    """

    weights: Callable
    held: Callable
    chunks: int | None = 1
    placement: str | Callable = "round"
    copies: int = 1
    admits: Callable = always
    order: Callable | None = None
    staggered: bool = False


def zero_bubble(m: int, s: int, v: int) -> tuple[float, ...]:
    """ZB-H1 (arXiv 2401.10241, table 2): a bubble of `(s - 1) (f + b - w)`, `(s - M) w` more where `M < s`."""
    k = (s - 1) / s
    return m, k, k, -(s - 1 - max(s - m, 0)) / s


def zero_bubble_h2(m: int, s: int, v: int) -> tuple[float, ...]:
    """ZB-H2: a bubble of `(s - 1) (b - w)`, where `w = f` that of the paper; fewer `w` with few micro-batches."""
    f = s - 1 if m <= s else max(2 * s - 1 - m, 0)
    return m, f / s, (s - 1) / s, -min(s - 1, m - 1) / s


def zb_v(m: int, s: int, v: int) -> tuple[float, ...]:
    """ZB-V (arXiv 2405.15362): a bubble of `(s - 1) (b - w)`, with few micro-batches the way down and up the V."""
    filled = 0 if m <= s else min(m - s, s - 1)
    return m, (s - m) / s if m < s else 0.0, (s - 1) / s, -filled / s


def bubble_of_dualpipe(chunks: float, s: int) -> tuple[float, float, float]:
    """`(PP / 2 - 1) (f + 2 b - w)` for `PP` chunks, each a share of a stage (deepseek-ai/DualPipe, README)."""
    k = chunks / s
    return k, 2 * k, -k


def most(passes, chunks: int) -> list[tuple[int, ...]]:
    """What the chunks of a stage hold after each forward pass: `f0` begins, `b1` or `w1` ends one in chunk 1."""
    now, seen = [0] * chunks, set()
    for each in flat(passes):
        if each[0] != "i":
            now[int(each[1:])] += 1 if each[0] == "f" else -1
        seen.add(tuple(now))
    return sorted(seen)


def flat(order) -> list[str]:
    """The passes of an order, those that run together one by one."""
    return [name for each in order for name in ([each] if isinstance(each, str) else each)]


def held_in(order) -> Callable:
    """What the chunks of a stage hold in an order."""
    return lambda i, s, m, v: most(order(i, s, m, v), v)


def in_turns(s: int, m: int, v: int, ahead: int, late: int | None = None) -> list[str]:
    """Rounds of `s` micro-batches through each chunk in turn, forward and backward; some forward passes ahead.

    Backward passes are whole, or split with the gradients of weights so many passes behind those of inputs. The
    skeleton of PyTorch's `_get_1f1b_rank_ops` and of Megatron-LM's `forward_backward_pipelining_with_interleaving`.
    """
    places = [chunk for first in range(0, m, s) for chunk in range(v) for _ in range(min(s, m - first))]
    forward, back = [f"f{chunk}" for chunk in places], [v - 1 - chunk for chunk in places]
    passes = forward[:ahead]
    for done, chunk in enumerate(back):
        passes += forward[ahead + done : ahead + done + 1]
        passes.append(f"b{chunk}" if late is None else f"i{chunk}")
        if late is not None and done >= late:
            passes.append(f"w{back[done - late]}")
    return passes + [f"w{chunk}" for chunk in back[len(back) - min(late or 0, len(back)) :]]


def one_forward_one_backward(i: int, s: int, m: int, v: int) -> list[str]:
    """PipeDream-Flush (arXiv 2006.09503, section 3.2): a forward pass ahead for each stage behind."""
    return in_turns(s, m, 1, s - i)


def all_forward_all_backward(i: int, s: int, m: int, v: int) -> list[str]:
    """GPipe (arXiv 1811.06965, figure 2c)."""
    return ["f0"] * m + ["b0"] * m


def one_forward_one_input(i: int, s: int, m: int, v: int) -> list[str]:
    """ZB-H1 (arXiv 2401.10241, section 2.1): 1F1B, gradients of weights one more micro-batch late on each stage."""
    return in_turns(s, m, 1, s - i, i - 1)


def twice_ahead(i: int, s: int, m: int, v: int) -> list[str]:
    """ZB-H2 (arXiv 2401.10241, section 2.2): twice as many forward passes ahead, and weights twice as late."""
    return in_turns(s, m, 1, 2 * (s - i), 2 * (i - 1))


def interleaved(i: int, s: int, m: int, v: int) -> list[str]:
    """Megatron-LM warms up with `2 (s - i) + (v - 1) s` chunks, and then runs one forward, one backward."""
    return in_turns(s, m, v, 2 * (s - i) + (v - 1) * s)


def interleaved_zero_bubble(i: int, s: int, m: int, v: int) -> list[str]:
    """PyTorch's `ScheduleInterleavedZeroBubble`: one chunk less ahead a stage, weights late by one chunk a stage."""
    return in_turns(s, m, v, s - i + (v - 1) * s, i - 1)


def order_of_zb_v(i: int, s: int, m: int, v: int) -> list[str]:
    """PyTorch's `ScheduleZBVZeroBubble._calculate_single_rank_operations`, step by step."""
    rank, wanted = i - 1, max(2 * s - 1, m)
    passes = ["f0"] * (2 * (s - rank) - 1) + ["f1", "f0"] * rank + ["f1", "i1", "w1"] * (s - rank)
    while passes.count("f1") < passes.count("f0") or passes.count("f0") < wanted:
        passes += ["f0"] * (passes.count("f0") < wanted) + ["i0", "w0", "f1", "i1", "w1"]
    passes += ["i0", "i1"] * rank + ["i0", "w0"] * (s - rank)
    for chunk in "10":
        passes += [f"w{chunk}"] * (passes.count(f"i{chunk}") - passes.count(f"w{chunk}"))
    count: dict[str, int] = {}
    for name in passes:
        count[name] = count.get(name, 0) + 1
        if count[name] <= m:  # Micro-batches that there are not are left out.
            yield name


def order_of_dualpipe_v(i: int, s: int, m: int, v: int) -> list:
    """PyTorch's `ScheduleDualPipeV._calculate_single_rank_operations`, step by step; pairs run together."""
    left, late = s - i, []
    passes = ["f0"] * (2 * left) + ["f0", "f1"] * i + ["i1", "w1", "f1"] * left
    pairs = [("f0", "b1"), ("f1", "b0")] * (m - 2 * s + i)
    passes += pairs if left else [*pairs[0], *pairs[1:]]  # The last stage does not overlap its first pair.
    passes += ["b1", ("f1", "b0")] * left
    for number, chunk in enumerate("10" * i):
        passes.append(f"b{chunk}" if number < i else f"i{chunk}")
        late += [] if number < i else [f"w{chunk}"]
    for _ in range(left):
        passes += [late.pop(0), "i0"]
        late.append("w0")
    return passes + late


def order_of_dualpipe(i: int, s: int, m: int, v: int) -> list:
    """deepseek-ai/DualPipe, `dualpipe.py`: from both ends as far as the middle, where a V of half as many would turn.

    `0` are passes of the device's own stage, `1` those of the stage that is mirrored.
    """
    order = order_of_dualpipe_v(min(i, s + 1 - i), s // 2, m // 2, 2)
    if i <= s // 2:
        return order
    turned = str.maketrans("01", "10")
    return [
        each.translate(turned) if isinstance(each, str) else tuple(e.translate(turned) for e in each) for each in order
    ]


def in_turn_of_stages(s: int, m: int, v: int) -> bool:
    return m % s == 0


TABLE = {
    "nest": Said(lambda m, s, v: (m + s - 1, 0), lambda i, s, m, v: min(m, s - i + 1), order=one_forward_one_backward),
    "1f1b": Said(lambda m, s, v: (m - 1, 1), lambda i, s, m, v: min(m, s - i + 1), order=one_forward_one_backward),
    "gpipe": Said(lambda m, s, v: (m - 1, 1), lambda i, s, m, v: m, order=all_forward_all_backward),
    "zero-bubble": Said(zero_bubble, lambda i, s, m, v: min(m, s), order=one_forward_one_input),
    "zero-bubble-h2": Said(zero_bubble_h2, lambda i, s, m, v: min(m, 2 * s - 1), order=twice_ahead, staggered=True),
    "interleaved": Said(
        lambda m, s, v: (m - 1 / v, 1 / v),
        held_in(interleaved),
        chunks=None,
        admits=in_turn_of_stages,
        order=interleaved,
    ),
    "interleaved-zero-bubble": Said(
        lambda m, s, v: (m, (s - 1) / (s * v), (s - 1) / (s * v), -(s - 1) / (s * v)),
        held_in(interleaved_zero_bubble),
        chunks=None,
        admits=in_turn_of_stages,
        order=interleaved_zero_bubble,
    ),
    "zb-v": Said(zb_v, held_in(order_of_zb_v), chunks=2, placement="v", order=order_of_zb_v, staggered=True),
    "dualpipe": Said(
        lambda m, s, v: (m, *bubble_of_dualpipe(s / 2 - 1, s)),
        lambda i, s, m, v: s + 1,
        copies=2,
        admits=lambda s, m, v: s % 2 == 0 and m % 2 == 0 and m >= 2 * s,
        order=order_of_dualpipe,
    ),
    "dualpipe-v": Said(
        lambda m, s, v: (m, *bubble_of_dualpipe((2 * s / 2 - 1) / 2, s)),
        held_in(order_of_dualpipe_v),
        chunks=2,
        placement="v",
        admits=lambda s, m, v: m >= 2 * s,
        order=order_of_dualpipe_v,
    ),
}


@dataclass(frozen=True)
class Pipeline:
    """A schedule with so many chunks on each stage."""

    name: str
    said: Said
    chunks: int

    @property
    def order(self) -> Callable | None:
        return getattr(self.said, "order", None)

    @property
    def staggered(self) -> bool:
        return getattr(self.said, "staggered", False)

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float, float, float]:
        """`(A, Bf, Bb, Bw)`."""
        first, *others = self.said.weights(micro_batches, stages, self.chunks)
        return first, *(others * 3 if len(others) == 1 else others)

    def pair(self, micro_batches: int, stages: int) -> tuple[float, float]:
        """`(A, B)` of one that does not weigh the parts of a stage apart."""
        first, forward, inputs, gradients = self.weights(micro_batches, stages)
        assert forward == inputs == gradients
        return first, forward

    def moments(self, stage: int, stages: int, micro_batches: int) -> tuple[tuple[float, ...], ...]:
        """What each chunk holds at every moment that may be the fullest."""
        held = self.said.held(stage, stages, micro_batches, self.chunks)
        if not isinstance(held, list | tuple):
            return ((held,) * self.chunks,)
        return tuple(map(tuple, held)) if isinstance(held[0], list | tuple) else (tuple(held),)

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> float:
        """Micro-batches in flight, those of a chunk as their share."""
        return max(sum(row) / self.chunks for row in self.moments(stage, stages, micro_batches))

    def route(self, stages: int) -> tuple[int, ...]:
        """The stage, from 0, of each chunk in pipeline order."""
        if callable(self.said.placement):
            return tuple(stage - 1 for stage in self.said.placement(stages, self.chunks))
        turns = [list(range(stages)) for _ in range(self.chunks)]
        if self.said.placement == "v":
            turns = [turn[::-1] if number % 2 else turn for number, turn in enumerate(turns)]
        return tuple(stage for turn in turns for stage in turn)

    def admits(self, stages: int, micro_batches: int) -> bool:
        return (self.chunks == 1 or stages > 1) and self.said.admits(stages, micro_batches, self.chunks)


def said_by(problem: dict, name: str) -> Said:
    """What a schedule says; `schedules` of a problem, which its file has not, are those of plug-ins."""
    return (problem.get("schedules") or {}).get(name) or TABLE[name]


def pipeline_of(problem: dict, name: str, chunks: int = 1) -> Pipeline:
    return Pipeline(name, said_by(problem, name), chunks)
