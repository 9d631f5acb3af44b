"""Section 3 of PROBLEM.md: partitions of the layers by nested downsets, and what crosses their cuts."""

from itertools import chain, combinations


def subsets(items):
    """Every non-empty subset, as a sorted tuple."""
    ordered = sorted(items)
    return chain.from_iterable(combinations(ordered, count) for count in range(1, len(ordered) + 1))


def closed_under_successors(layers: set[int], edges) -> bool:
    return all(consumer in layers for producer, consumer in edges if producer in layers)


def partitions(count: int, edges):
    """Every way to cut layers `0..count-1` into stages, each stage a sorted tuple."""

    def cut(remaining: frozenset[int]):
        if not remaining:
            yield ()
        for stage in subsets(remaining):
            rest = remaining - set(stage)
            if closed_under_successors(rest, edges):
                for others in cut(rest):
                    yield (stage, *others)

    return list(cut(frozenset(range(count))))


def cut_bytes(downset, edges, edge_bytes) -> float:
    """Bytes of the tensors produced outside the downset and consumed in it.

    The edges that leave one layer carry one tensor; where their sizes differ, the largest that crosses
    counts.
    """
    crossing: dict[int, float] = {}
    for (producer, consumer), size in zip(edges, edge_bytes, strict=True):
        if producer not in downset and consumer in downset:
            crossing[producer] = max(size, crossing.get(producer, 0.0))
    return sum(crossing.values())


def downsets(partition) -> list[frozenset[int]]:
    """`D_1, ..., D_s, D_{s+1}`: the layers of each stage and those behind it."""
    return [frozenset(chain.from_iterable(partition[i:])) for i in range(len(partition) + 1)]
