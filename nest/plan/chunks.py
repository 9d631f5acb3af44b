"""How a schedule of several chunks deals layers to stages (PROBLEM.md section 4, `interleaved`)."""

from nest.instance import Instance, Solution


def even_chunks(instance: Instance, stages: int, chunks: int) -> tuple[tuple[int, ...], ...]:
    """The layers of each of `stages * chunks` chunks in pipeline order; chunk `j` is of stage `j mod stages`.

    Raises:
        ValueError: the blocks cannot be dealt evenly.
    """
    blocks = _dealable(instance, stages * chunks)
    if not blocks:
        raise ValueError(f"{len(instance.space.blocks)} blocks cannot be dealt to {stages} stages of {chunks} chunks")
    size = len(blocks) // (stages * chunks)
    return tuple(
        tuple(sorted(layer for block in blocks[first : first + size] for layer in block))
        for first in range(0, len(blocks), size)
    )


def _dealable(instance: Instance, parts: int) -> tuple[tuple[int, ...], ...]:
    """The blocks that make so many equal parts, embedding and head counted only where they must be; none: nothing."""
    for blocks in (instance.space.blocks, instance.space.blocks_and_ends):
        if not len(blocks) % parts:
            return blocks
    return ()


def dealing_faults(instance: Instance, stages: int, chunks: int, micro_batches: int | None) -> list[str]:
    """Why no plan deals `chunks` chunks to each of `stages` stages, in words.

    Args:
        instance: the problem.
        stages: `s`.
        chunks: `v`, 2 or more.
        micro_batches: `M`; None: not known.
    """
    blocks, found = len(instance.space.blocks), []
    if stages < 2:
        found.append(f"a schedule of {chunks} chunks needs at least 2 stages")
    if micro_batches is not None and micro_batches % stages:
        found.append(
            f"with {chunks} chunks for each of {stages} stages the micro-batches must be a multiple of {stages}, "
            f"but there are {micro_batches}"
        )
    if not _dealable(instance, stages * chunks):
        found.append(
            f"{blocks} transformer blocks cannot be dealt evenly to {stages * chunks} chunks, "
            f"{chunks} for each of {stages} stages"
        )
    return found


def chunk_faults(instance: Instance, solution: Solution, micro_batches: int | None) -> list[str]:
    """What keeps the stages of a plan of several chunks from being the even split there is, in words."""
    stages, chunks = len(solution.stages), solution.chunks
    found = dealing_faults(instance, stages, chunks, micro_batches)
    if found:
        return found
    dealt = even_chunks(instance, stages, chunks)
    names = instance.graph.layers
    for index, stage in enumerate(solution.stages):
        if sorted(stage.layers) != sorted(layer for chunk in dealt[index::stages] for layer in chunk):
            found.append(f"stage {index + 1} does not hold the layers of its {chunks} chunks of the even split")
    home = {layer: index for index, chunk in enumerate(dealt) for layer in chunk}
    for producer, consumers in instance.graph.tensors:
        for consumer in consumers:
            if home[producer] > home[consumer]:
                found.append(f"layer {names[consumer]!r} is in an earlier chunk than {names[producer]!r}")
    for group in instance.space.together:
        if len({home[layer] for layer in group}) > 1:
            found.append(f"layers from {names[group[0]]!r} to {names[group[-1]]!r}, kept together, are in two chunks")
    return found
