"""Stages that hold as many transformer blocks each (`Space.even`): one way to cut for each number of stages."""

from collections.abc import Sequence

from nest.instance import Instance
from nest.solve.dp.downsets import Downsets, cuts
from nest.solve.dp.kinds import pairs_with_kinds
from nest.solve.dp.pairs import Pairs


def allowed_cuts(instance: Instance, together: Sequence[Sequence[int]]) -> list[int]:
    """The downsets that plans may cut at, as `nest.solve.dp.downsets.cuts`; between blocks only where stages are even.

    Args:
        instance: the problem.
        together: groups of layers that no cut may part.
    """
    space, successors = instance.space, instance.graph.successors()
    if not space.even or space.partition is not None:
        return cuts(instance.graph, together, space.partition)
    groups = [sum(1 << layer for layer in set(group)) for group in together]
    found, mask = [0], 0
    for block in reversed(space.blocks):
        mask |= sum(1 << layer for layer in block)
        closed = all(mask >> reader & 1 for layer in block for reader in successors[layer])
        if closed and all(mask & group in (0, group) for group in groups):
            found.append(mask)
    return found


def stage_pairs(instance: Instance, downsets: Downsets, stages: int) -> Pairs:
    """Every stage by kinds; where plans must be even, those of the one plan of so many stages."""
    space, pairs = instance.space, pairs_with_kinds(instance, downsets)
    if not space.even:
        return pairs
    behind = downsets.members[:, [block[0] for block in space.blocks]].sum(axis=1)
    size = len(space.blocks) // stages
    held = behind[pairs.larger] - behind[pairs.smaller]
    return pairs.only((held == size) & (behind[pairs.smaller] % size == 0))


def even_counts(instance: Instance, counts: Sequence[int]) -> list[int]:
    """Those of the numbers of stages to which blocks can be dealt evenly, where they must be."""
    blocks = len(instance.space.blocks)
    return [count for count in counts if not instance.space.even or (blocks >= count and blocks % count == 0)]
