"""Which chunk each layer is in where blocks are dealt out evenly (PROBLEM.md section 4), written for CP-SAT alone."""

import numpy

from nest.instance import Instance
from nest.solve.cpsat.cuts import Integers


def even_stages(instance: Instance, stages: int) -> Integers:
    """The stage of each layer where all hold as many blocks (`Space.even`); `stages` divides the blocks."""
    blocks = instance.space.blocks
    stage = numpy.full(len(instance.graph.layers), -1, dtype=numpy.int64)
    for number, block in enumerate(blocks):
        stage[list(block)] = number * stages // len(blocks)
    return stage


def even_chunks(instance: Instance, stages: int, chunks: int) -> Integers | None:
    """The chunk of each layer, of `0..stages * chunks - 1`; None where there is no even split or it is not allowed.

    Chunk `j` runs on stage `j mod stages`.
    """
    space, graph = instance.space, instance.graph
    # Embedding and head count as blocks only where the others alone do not come out even.
    blocks = space.blocks if len(space.blocks) % (stages * chunks) == 0 else space.blocks_and_ends
    if stages < 2 or not blocks or len(blocks) % (stages * chunks):
        return None
    chunk = numpy.full(len(graph.layers), -1, dtype=numpy.int64)
    for number, block in enumerate(blocks):
        chunk[list(block)] = number * stages * chunks // len(blocks)
    stage = chunk % stages
    if any(chunk[consumer] < chunk[producer] for producer, consumers in graph.tensors for consumer in consumers):
        return None
    if any(len(set(chunk[list(group)].tolist())) > 1 for group in space.together):
        return None
    index = {name: layer for layer, name in enumerate(graph.layers)}
    for constraint in space.constraints:
        if len({int(stage[index[name]]) for name in constraint.same_stage}) > 1:
            return None
    if space.partition is not None:
        given = numpy.full(len(graph.layers), -1, dtype=numpy.int64)
        for number, layers in enumerate(space.partition):
            given[list(layers)] = number
        if len(space.partition) != stages or (given != stage).any():
            return None
    return chunk
