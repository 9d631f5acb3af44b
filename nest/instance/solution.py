"""Decisions and results: what solvers answer."""

from typing import Any

from attrs import field, frozen

Placement = tuple[tuple[tuple[int, ...], ...], ...]
"""For each replica and stage the devices of the block, in the order of their ranks."""


@frozen
class StageDecision:
    """One pipeline stage as decided.

    Attributes:
        layers: layer indices, ascending; of all its chunks.
        candidate: index of its candidate.
        recompute: name of its recompute mode.
        zero: ZeRO stage.
        offset: first device relative to the replica (`o_i` of PROBLEM.md section 3).
        chunks: layer indices of each of its chunks in pipeline order, ascending; none: it has one chunk, or those of
            the even split.
    """

    layers: tuple[int, ...]
    candidate: int
    recompute: str
    zero: int
    offset: int
    chunks: tuple[tuple[int, ...], ...] = ()


@frozen
class Solution:
    """A plan as decisions only; `plan/evaluate` prices it.

    Attributes:
        replicas: data-parallel degree `d`.
        rank_order: `pp-inner` or `dp-inner`.
        schedule: name of the pipeline schedule.
        stages: in pipeline order.
        chunks: model chunks of each stage (`v` of PROBLEM.md section 4).
        zero_degree: ranks over which ZeRO shards, at most; None: all that hold the same parameters.
        placement: on a network that is no hierarchy, the devices of each block; None: where offsets say.
    """

    replicas: int
    rank_order: str
    schedule: str
    stages: tuple[StageDecision, ...]
    chunks: int = 1
    zero_degree: int | None = None
    placement: Placement | None = None


@frozen
class SearchProgress:
    """How far a search is.

    Attributes:
        best: step time of the best plan so far, seconds; None when there is none yet.
        bound: no plan is faster, seconds.
        explored: share of the combinations of candidate, replicas, rank order, schedule, choices and number of stages
            that are settled, from 0 to 1.
        seconds: spent so far.
        priced: share of the candidates that are priced, from 0 to 1; the search begins when all are.
        proving: whether it is a second solver's search, for a plan that is better than one known before.
    """

    best: float | None
    bound: float
    explored: float
    seconds: float
    priced: float = 1.0
    proving: bool = False


@frozen
class Result:
    """What a solver found.

    Attributes:
        status: `optimal`, `feasible` (stopped early) or `infeasible`.
        solution: None when there is none.
        batch_time: seconds, as the solver priced the solution.
        lower_bound: no plan is faster, seconds.
        runner_up: the best solution met with other degrees, with its step time.
        diagnosis: when infeasible, what is tightest and by how much.
        statistics: what the search did, by name.
    """

    status: str
    solution: Solution | None = None
    batch_time: float | None = None
    lower_bound: float | None = None
    runner_up: tuple[Solution, float] | None = None
    diagnosis: str | None = None
    statistics: dict[str, Any] = field(factory=dict)
