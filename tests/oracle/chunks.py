"""Section 4 of PROBLEM.md, `interleaved`: what deals several chunks to each stage, and which layers they hold."""

from tests.oracle.partitions import closed_under_successors, downsets

CHUNKED = "interleaved"
"""The schedule that deals chunks."""


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


def with_ends(problem: dict) -> list[list[int]]:
    """Every layer a block, where embedding and head are at the ends and may count as such; else none."""
    names = problem["profile"]["layers"]
    order = topological(len(names), problem["profile"]["edges"])
    if (problem.get("search") or {}).get("even") or [names[order[0]], names[order[-1]]] != ["embedding", "head"]:
        return []
    return [[layer] for layer in order]


def dealt(problem: dict, stages: int, chunks: int):
    """The layers of the chunks in pipeline order, as tuples; None where there is no even split of the blocks."""
    if stages < 2 or chunks < 2:
        return None
    blocks = dealable(problem)
    if len(blocks) % (stages * chunks):
        blocks = with_ends(problem)
    if not blocks or len(blocks) % (stages * chunks):
        return None
    size = len(blocks) // (stages * chunks)
    found = [
        tuple(sorted(layer for block in blocks[i * size : (i + 1) * size] for layer in block))
        for i in range(stages * chunks)
    ]
    edges = problem["profile"]["edges"]
    return found if all(closed_under_successors(downset, edges) for downset in downsets(found)) else None


def stages_of(dealt_chunks, stages: int) -> tuple[tuple[int, ...], ...]:
    """The layers of each stage: chunk `j` of `0..s*v-1` is on stage `j mod s`."""
    return tuple(
        tuple(sorted(layer for chunk in dealt_chunks[stage::stages] for layer in chunk)) for stage in range(stages)
    )


def even_splits(problem: dict, chunks: int, micro_batches: int):
    """Every split into stages of so many chunks: the layers of the stages and those of the chunks."""
    for stages in range(2, len(problem["profile"]["layers"]) // chunks + 1):
        found = dealt(problem, stages, chunks)
        if found is not None and micro_batches % stages == 0:
            yield stages_of(found, stages), found
