"""Plans of equal stages, from which rules of thumb and random searches start."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from attrs import frozen

from nest.instance import Candidate, Instance, Schedule, Solution, StageDecision, chunks_of, route
from nest.spec.constraints import Value

Units = tuple[tuple[int, ...], ...]
"""Groups of layers that no cut parts, in an order in which any cut between two of them is allowed."""

Chunks = tuple[tuple[int, ...], ...]
"""The layers of each chunk of a stage, in pipeline order, ascending."""

Stages = tuple[Chunks, ...]


def units(instance: Instance) -> Units:
    """Units that stages are cut between: transformer blocks if there are any, else layers.

    Layers that must share a stage are one unit, with all layers between them in the order.
    """
    space = instance.space
    order = instance.graph.topological_order()
    place = {layer: index for index, layer in enumerate(order)}
    names = {name: index for index, name in enumerate(instance.graph.layers)}
    groups = [*space.together, *([names[name] for name in each.same_stage] for each in space.constraints)]
    blocks = [each for each in space.blocks if each]
    if sorted(layer for block in blocks for layer in block) == sorted(order):
        groups += blocks
    spans = sorted(
        (min(places), max(places)) for places in ([place[layer] for layer in each] for each in groups if each)
    )
    result: list[tuple[int, ...]] = []
    start = 0
    while start < len(order):
        end = start
        for first, last in spans:
            if first <= end:
                end = max(end, last) if last >= start else end
        result.append(tuple(order[start : end + 1]))
        start = end + 1
    return tuple(result)


def even_cuts(count: int, stages: int) -> tuple[int, ...]:
    """Start of each stage but the first for `count` units divided evenly, earlier stages taking one more."""
    size, longer = divmod(count, stages)
    return tuple(index * size + min(index, longer) for index in range(1, stages))


def partition(pieces: Units, cuts: Sequence[int]) -> Stages:
    """The layers of stages of one chunk each."""
    return tuple((run,) for run in _runs(pieces, cuts))


def _runs(pieces: Units, cuts: Sequence[int]) -> Chunks:
    """The layers of each run of units between two cuts, ascending."""
    ends = (0, *cuts, len(pieces))
    return tuple(
        tuple(sorted(layer for unit in pieces[first:last] for layer in unit)) for first, last in pairwise(ends)
    )


def dealt(instance: Instance, schedule: Schedule, stages: int) -> Stages | None:
    """The chunks of each stage, of as many transformer blocks as can be (PROBLEM.md section 4).

    Embedding and head are counted as blocks where chunks come out even only so. Where chunks differ, earlier ones have
    one more; None: there are too few blocks, or chunks must not differ.
    """
    space, count = instance.space, stages * chunks_of(schedule)
    even = (each for each in (space.blocks, space.blocks_and_ends) if each and len(each) % count == 0)
    pieces = next(even, () if space.even else space.blocks)
    if len(pieces) < count or stages < 2:
        return None
    runs, homes = _runs(pieces, even_cuts(len(pieces), count)), route(schedule, stages)
    return tuple(tuple(run for run, home in zip(runs, homes, strict=True) if home == stage) for stage in range(stages))


def replica_counts(instance: Instance, candidate: Candidate, stages: int) -> Iterator[int]:
    """Numbers of replicas among which the batch can be divided and that leave room for so many stages, most first."""
    for replicas in range(instance.cluster.size // (candidate.width * stages), 0, -1):
        if instance.micro_batches(candidate, replicas) is not None:
            yield replicas


def modes(instance: Instance, candidate: Candidate) -> tuple[str, ...]:
    """Recompute modes that may be used, those that cost least time first."""
    allowed = instance.space.recompute
    allowed_modes = [mode for mode in candidate.recompute if allowed is None or mode.name in allowed]
    names = tuple(mode.name for mode in sorted(allowed_modes, key=lambda mode: float(mode.extra.sum())))
    return names or instance.space.partial  # What is fixed may be a part of each stage.


def requested_counts(instance: Instance) -> tuple[int, ...]:
    """Candidates that no constraint on degrees, width or micro-batch alone refuses; all where each is refused."""
    names = {name for each in instance.candidates for name in each.degrees}
    own = {*names, "width", "micro_batch"}
    constraints = [each for each in instance.space.constraints if each.names() and each.names() <= own]
    every = tuple(range(len(instance.candidates)))

    def allowed(index: int) -> bool:
        values = _decided(instance, instance.candidates[index])
        return all(each.holds(values) for each in constraints)

    return tuple(filter(allowed, every)) or every


def _decided(instance: Instance, candidate: Candidate) -> dict[str, Value]:
    """Names in constraints that a candidate decides."""
    degrees = {**{name: 1 for each in instance.candidates for name in each.degrees}, **candidate.degrees}
    return {**degrees, "width": candidate.width, "micro_batch": candidate.micro_batch or candidate.samples}


def permitted(instance: Instance, candidate: Candidate, replicas: int, stages: int) -> bool:
    """Return whether no constraint refuses plans of such a shape, whatever else they decide."""
    constraints = instance.space.constraints
    fixed = instance.space.partition
    if fixed is not None and len(fixed) != stages:
        return False
    if not constraints:
        return True
    values = _decided(instance, candidate)
    values |= {"pp": stages, "replicas": replicas, "devices": stages * replicas * candidate.width}
    micro_batches = instance.micro_batches(candidate, replicas)
    if micro_batches is not None:
        values["micro_batches"] = micro_batches
    return all(each.holds(values) for each in constraints if each.names() and each.names() <= values.keys())


@frozen
class Choices:
    """Decisions shared by all stages.

    Attributes:
        candidate: index of their candidate.
        replicas: data-parallel degree.
        rank_order: how replicas and stages lie.
        schedule: the pipeline schedule.
        recompute: name of the recompute mode.
        zero: ZeRO stage.
        zero_degree: ranks over which ZeRO shards at most; None: all.
    """

    candidate: int
    replicas: int
    rank_order: str
    schedule: Schedule
    recompute: str
    zero: int
    zero_degree: int | None = None

    def solution(self, instance: Instance, stages: Stages) -> Solution:
        """The plan of stages with these chunks, side by side without gaps."""
        width = instance.candidates[self.candidate].width
        return Solution(
            self.replicas,
            self.rank_order,
            self.schedule.name,
            tuple(
                StageDecision(
                    tuple(sorted(layer for chunk in chunks for layer in chunk)),
                    self.candidate,
                    self.recompute,
                    self.zero,
                    place * width,
                    chunks if len(chunks) > 1 else (),
                )
                for place, chunks in enumerate(stages)
            ),
            chunks_of(self.schedule),
            self.zero_degree,
        )
