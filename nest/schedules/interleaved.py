"""Interleaved one forward, one backward: Megatron-LM's virtual pipeline stages (arXiv 2104.04473, section 2.2)."""

from functools import lru_cache
from typing import Any

import numpy
from attrs import evolve, field, frozen, validators
from numpy.typing import NDArray

from nest.hooks.protocols import Pass
from nest.instance.schedule import Moment, fullest
from nest.records import Record
from nest.schedules.one_forward_one_backward import in_turn


@frozen(eq=False, repr=False)
class Interleaved(Record):
    """Each stage runs `v` chunks of layers in turn, so that the pipeline fills in a `v`-th of the time."""

    chunks: int = field(default=2, validator=validators.ge(2))  # Of each stage (`v`), 2 or more.
    name = "interleaved"
    fills = True

    def with_chunks(self, chunks: int) -> "Interleaved":
        """Return the same with `chunks` chunks for each stage."""
        return evolve(self, chunks=chunks)

    def admits(self, stages: int, micro_batches: int, chunks: int) -> bool:
        """Return whether `M` is a multiple of `s`: rounds of `s` micro-batches."""
        return not micro_batches % stages

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        """Return `A = M - 1/v`, `B = 1/v` (PROBLEM.md section 4), a bubble of `(s - 1) t / v` (paper, section 2.2)."""
        return micro_batches - 1 / self.chunks, 1 / self.chunks

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> tuple[Moment, ...]:
        """Return its order's moments: up to `min(M v, 2 (s - i) + (v - 1) s + 1)` chunks (PROBLEM.md section 4).

        That is Megatron-LM's warm-up of `2 (s - i) + (v - 1) s` chunks and the one that runs.
        """
        return _moments(stage, stages, min(micro_batches, 4 * stages), self.chunks)

    def least_held(self, stages: int, micro_batches: int) -> tuple[int, ...]:
        """Return `min(2 (s - i) + 1, s)`: the last chunk begins last, after the warm-up, and ends first."""
        return tuple(min(2 * behind + 1, stages) for behind in range(stages - 1, -1, -1))

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        """Return rounds of `s` micro-batches: each chunk runs one before the next chunk (the paper's section 2.2).

        Chunks run backward in the reverse order. A stage begins with the forward passes counted by `in_flight`.
        """
        forward, backward = _passes(stages, micro_batches, self.chunks)
        return in_turn(forward, backward, _ahead(stage, stages, self.chunks))


@lru_cache(maxsize=4)
def _passes(stages: int, micro_batches: int, chunks: int) -> tuple[list[Pass], list[list[Pass]]]:
    places = in_rounds(stages, micro_batches, chunks)
    forward = [Pass("forward", index, chunk) for chunk, index in places]
    return forward, [[Pass("backward", index, chunks - 1 - chunk)] for chunk, index in places]


def _ahead(stage: int, stages: int, chunks: int) -> int:
    """Return the forward passes before the first backward one."""
    return 2 * (stages - stage) + (chunks - 1) * stages + 1


@lru_cache(maxsize=2**13)
def _moments(stage: int, stages: int, micro_batches: int, chunks: int) -> tuple[Moment, ...]:
    """Return the fullest moments of a stage's order, all of which occur in four rounds.

    After the first backward pass each whole round repeats the one before.
    """
    forward = _chunks_in_rounds(stages, micro_batches, chunks)
    ahead = _ahead(stage, stages, chunks)
    passes = slice(0, None if micro_batches % stages else ahead + stages * chunks)
    return _in_turn(forward[passes], chunks - 1 - forward[passes], ahead, chunks)


@lru_cache(maxsize=2**8)
def _chunks_in_rounds(stages: int, micro_batches: int, chunks: int) -> NDArray[Any]:
    return numpy.array([chunk for chunk, _ in in_rounds(stages, micro_batches, chunks)])


def in_rounds(stages: int, micro_batches: int, chunks: int) -> list[tuple[int, int]]:
    """Return chunks and micro-batches in forward order: rounds of `s`, chunk after chunk."""
    rounds = [range(first, min(first + stages, micro_batches)) for first in range(0, micro_batches, stages)]
    return [(chunk, index) for indices in rounds for chunk in range(chunks) for index in indices]


def _in_turn(forward: NDArray[Any], backward: NDArray[Any], ahead: int, chunks: int) -> tuple[Moment, ...]:
    """Return `moments_of_order` of `ahead` forward passes, then a backward and a forward pass in turn.

    Args:
        forward: the chunks of forward passes. Shape `(passes,)`.
        backward: the chunks of whole backward passes. Shape `(passes,)`.
        ahead: forward passes before the first backward one.
        chunks: of the stage.
    """
    begun, ended = (numpy.cumsum(each[:, None] == numpy.arange(chunks), axis=0) for each in (forward, backward))
    done = max(len(forward) - ahead, 0)
    # Forward passes follow each other up to the last ahead of all backward ones: it is the fullest of these.
    first = begun[min(ahead, len(forward)) - 1 :][: done + 1]
    return fullest(first - numpy.concatenate([numpy.zeros((1, chunks), dtype=ended.dtype), ended[:done]]))
