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
    """

    weights: Callable
    held: Callable
    chunks: int | None = 1
    placement: str | Callable = "round"
    copies: int = 1
    admits: Callable = always


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
    """What the chunks of a stage hold after each forward pass: `f0` begins, `w1` ends a micro-batch in chunk 1."""
    now, seen = [0] * chunks, set()
    for each in passes:
        now[int(each[1:])] += 1 if each[0] == "f" else -1
        seen.add(tuple(now))
    return sorted(seen)


def in_turns(i: int, s: int, m: int, v: int, ahead: int, late: int) -> list[tuple[int, ...]]:
    """Rounds of `s` micro-batches through each chunk in turn; some forward passes ahead, weight gradients late."""
    places = [chunk for first in range(0, m, s) for chunk in range(v) for _ in range(min(s, m - first))]
    passes = []
    for number, chunk in enumerate(places):
        done = number - ahead - late  # Of the backward passes, the last one that has ended by now.
        passes += [f"w{v - 1 - places[done]}"] if done >= 0 else []
        passes.append(f"f{chunk}")
    return most(passes, v)


def held_by_interleaved(i: int, s: int, m: int, v: int) -> list[tuple[int, ...]]:
    """Megatron-LM warms up with `2 (s - i) + (v - 1) s` chunks, and then runs one forward, one backward."""
    return in_turns(i, s, m, v, 2 * (s - i) + (v - 1) * s + 1, 0)


def held_by_interleaved_zero_bubble(i: int, s: int, m: int, v: int) -> list[tuple[int, ...]]:
    return in_turns(i, s, m, v, v * s - i + 1, i - 1)


def held_by_zb_v(i: int, s: int, m: int, v: int) -> list[tuple[int, ...]]:
    """PyTorch's `ScheduleZBVZeroBubble._calculate_single_rank_operations`, step by step."""
    rank, wanted, passes = i - 1, max(2 * s - 1, m), []
    count = dict.fromkeys(("f0", "f1", "w0", "w1"), 0)

    def run(*names: str) -> None:
        for name in names:
            if count[name] < m:  # Micro-batches that there are not are left out.
                passes.append(name)
            count[name] += 1

    run(*["f0"] * (2 * (s - rank) - 1))
    run(*["f1", "f0"] * rank)
    run(*["f1", "w1"] * (s - rank))
    while count["f1"] < count["f0"] or count["f0"] < wanted:
        run(*["f0"] * (count["f0"] < wanted), "w0", "f1", "w1")
    return most(passes, 2)


def held_by_dualpipe_v(i: int, s: int, m: int, v: int) -> list[tuple[int, ...]]:
    """PyTorch's `ScheduleDualPipeV._calculate_single_rank_operations`, as far as there are forward passes."""
    rank = i - 1
    passes = ["f0"] * (2 * (s - rank - 1)) + ["f0", "f1"] * (rank + 1) + ["w1", "f1"] * (s - rank - 1)
    passes += ["f0", "w1", "f1", "w0"] * (m - 2 * s + rank + 1) + ["w1", "f1", "w0"] * (s - rank - 1)
    return most(passes, 2)


def in_turn_of_stages(s: int, m: int, v: int) -> bool:
    return m % s == 0


TABLE = {
    "nest": Said(lambda m, s, v: (m + s - 1, 0), lambda i, s, m, v: min(m, s - i + 1)),
    "1f1b": Said(lambda m, s, v: (m - 1, 1), lambda i, s, m, v: min(m, s - i + 1)),
    "gpipe": Said(lambda m, s, v: (m - 1, 1), lambda i, s, m, v: m),
    "zero-bubble": Said(zero_bubble, lambda i, s, m, v: min(m, s)),
    "zero-bubble-h2": Said(zero_bubble_h2, lambda i, s, m, v: min(m, 2 * s - 1)),
    "interleaved": Said(lambda m, s, v: (m - 1 / v, 1 / v), held_by_interleaved, chunks=None, admits=in_turn_of_stages),
    "interleaved-zero-bubble": Said(
        lambda m, s, v: (m, (s - 1) / (s * v), (s - 1) / (s * v), -(s - 1) / (s * v)),
        held_by_interleaved_zero_bubble,
        chunks=None,
        admits=in_turn_of_stages,
    ),
    "zb-v": Said(zb_v, held_by_zb_v, chunks=2, placement="v"),
    "dualpipe": Said(
        lambda m, s, v: (m, *bubble_of_dualpipe(s / 2 - 1, s)),
        lambda i, s, m, v: s + 1,
        copies=2,
        admits=lambda s, m, v: s % 2 == 0 and m % 2 == 0 and m >= 2 * s,
    ),
    "dualpipe-v": Said(
        lambda m, s, v: (m, *bubble_of_dualpipe((2 * s / 2 - 1) / 2, s)),
        held_by_dualpipe_v,
        chunks=2,
        placement="v",
        admits=lambda s, m, v: m >= 2 * s,
    ),
}


@dataclass(frozen=True)
class Pipeline:
    """A schedule with so many chunks on each stage."""

    name: str
    said: Said
    chunks: int

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
