"""Sections 3 and 4 of PROBLEM.md, schedules of several chunks: the runs of layers that the model is split into."""

from itertools import combinations, pairwise

from tests.oracle.partitions import closed_under_successors, downsets
from tests.oracle.schedules import Pipeline, Said

FEW = 4
"""A search tries up to so many chunks whether they come out even or not (docs/reference/problem.md)."""


def topological(count: int, edges) -> list[int]:
    """Layers such that producers come first; of those that could be next always the lowest."""
    order: list[int] = []
    while len(order) < count:
        waiting = {consumer for producer, consumer in edges if producer not in order}
        order.append(min(set(range(count)) - set(order) - waiting))
    return order


def dealable(problem: dict) -> list[list[int]]:
    """The blocks in order, each a list of layers: the embedding goes with the first, the head with the last."""
    names = problem["profile"]["layers"]
    blocks = [[layer] for layer in topological(len(names), problem["profile"]["edges"])]
    if len(blocks) > 1 and names[blocks[0][0]] == "embedding":
        blocks[:2] = [blocks[0] + blocks[1]]
    if len(blocks) > 1 and names[blocks[-1][0]] == "head":
        blocks[-2:] = [blocks[-2] + blocks[-1]]
    return blocks


def asks_for_even(problem: dict) -> bool:
    """No key of a problem: what a target may ask for."""
    return bool((problem.get("search") or {}).get("even"))


def with_ends(problem: dict) -> list[list[int]]:
    """Every layer a block, where embedding and head are at the ends and may count as such; else none."""
    names = problem["profile"]["layers"]
    order = topological(len(names), problem["profile"]["edges"])
    if asks_for_even(problem) or [names[order[0]], names[order[-1]]] != ["embedding", "head"]:
        return []
    return [[layer] for layer in order]


def run_of(blocks) -> tuple[int, ...]:
    return tuple(sorted(layer for block in blocks for layer in block))


def even_split(problem: dict, count: int) -> list[tuple[int, ...]] | None:
    """The layers of so many equal runs; None where there are none. Ends count as blocks where they must."""
    for blocks in (dealable(problem), with_ends(problem)):
        if blocks and len(blocks) % count == 0:
            size = len(blocks) // count
            return [run_of(blocks[first : first + size]) for first in range(0, len(blocks), size)]
    return None


def splits_into(problem: dict, count: int):
    """Every split of the model into so many runs of blocks in pipeline order, each of at least one.

    What is no transformer block, the embedding and the head, is alone only in the first run and the last. Runs are
    about as long as each other, but where somebody has decided on the stages.
    """
    decided = (problem.get("fixed") or {}).get("stages") is not None
    if asks_for_even(problem):
        every = [even_split(problem, count)]
    else:
        ends = with_ends(problem)
        blocks = ends or dealable(problem)
        inner = combinations(range(1, len(blocks)), count - 1)
        bounds = ((0, *cuts, len(blocks)) for cuts in inner)
        every = [
            [run_of(blocks[one:two]) for one, two in pairwise(each)]
            for each in bounds
            if decided or about_even([two - one for one, two in pairwise(each)], bool(ends))
        ]
    edges = problem["profile"]["edges"]
    for runs in every:
        if runs and all(closed_under_successors(downset, edges) for downset in downsets(runs)):
            yield runs


def about_even(sizes: list[int], ends: bool) -> bool:
    """Whether transformer blocks differ by one at most, but for the first run and the last, which may have fewer.

    `sizes` count the embedding and the head where these are `ends`.
    """
    if ends:
        sizes = [sizes[0] - 1, *sizes[1:-1], sizes[-1] - 1]
    return all(size >= max(sizes) - 1 for size in sizes[1:-1])


def stages_of(runs, route) -> tuple[tuple[int, ...], ...]:
    """The layers of each stage: run `j` is on stage `route[j]`, from 0."""
    return tuple(
        tuple(sorted(layer for run, stage in zip(runs, route, strict=True) if stage == each for layer in run))
        for each in range(max(route) + 1)
    )


def splits(problem: dict, pipeline: Pipeline, micro_batches: int):
    """Every split into stages of several chunks: the layers of the stages, those of the chunks, and their stages."""
    for stages in range(2, len(problem["profile"]["layers"]) // pipeline.chunks + 1):
        if pipeline.admits(stages, micro_batches):
            route = pipeline.route(stages)
            for runs in splits_into(problem, len(route)):
                yield stages_of(runs, route), runs, route


def chunk_numbers(problem: dict, said: Said) -> list[int]:
    """How many chunks a search gives each stage: those that can be even, and few of any size; or those fixed."""
    fixed = (problem.get("fixed") or {}).get("chunks", 1)
    if said.chunks is not None:
        return [said.chunks]
    if fixed > 1:
        return [fixed]
    counts = [len(dealable(problem)), len(with_ends(problem))]
    even = {number for count in counts for number in range(2, count // 2 + 1) if count % number == 0}
    few = set() if asks_for_even(problem) else set(range(2, min(FEW, max(counts) // 2) + 1))
    return sorted(even | few)
