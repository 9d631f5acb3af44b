"""Usual divisions of a model's blocks among stages."""

from collections.abc import Sequence
from itertools import pairwise

from nest.errors import InputError
from nest.instance import Instance

Runs = tuple[tuple[int, ...], ...]


def near_even(instance: Instance, count: int) -> Runs:
    """Divide blocks over so many stages or chunks in order; the embedding joins the first, the head the last.

    If blocks do not divide, earlier ones take one more, as in torchtitan. With too few blocks, embedding and head count
    as blocks of their own.

    Raises:
        InputError: there are too few of both.
    """
    blocks = _blocks_of_one_stage(instance)
    if instance.space.by_products and count <= len(blocks):
        return _shares_of_products(instance, blocks, count)
    if count > len(blocks) and count <= len(instance.space.blocks_and_ends):
        blocks = list(instance.space.blocks_and_ends)
    if count > len(blocks):
        raise InputError(f"fixed.pp is {count}, but there are only {len(blocks)} transformer blocks; use fewer stages.")
    return shares(blocks, count)


def _shares_of_products(instance: Instance, blocks: Sequence[tuple[int, ...]], count: int) -> Runs:
    """Layers of each stage: one is full once it has its share of the parameters behind the embedding.

    Source: `build_model` of src/nanotron/models/base.py, huggingface/nanotron, commit 2411b022.
    """
    weights = [
        sum(own) for own in zip(*(group.weights.tolist() for group in instance.candidates[0].state), strict=True)
    ]
    ends = instance.space.blocks_and_ends
    embedding = ends[0] if ends and set(ends[0]) < set(blocks[0]) else ()
    shares = [sum(weights[layer] for layer in block if layer not in embedding) for block in blocks]
    runs: list[tuple[int, ...]] = [()] * count
    stage, done = 0, 0.0
    for index, (block, share) in enumerate(zip(blocks, shares, strict=True)):
        runs[stage] += block
        done += share
        full = done * count > sum(shares) * (stage + 1) or len(blocks) - index == count - stage
        stage = min(stage + full, count - 1)
    return tuple(runs)


def shares(blocks: Sequence[tuple[int, ...]], count: int) -> Runs:
    """Layers of each of so many runs of blocks; earlier runs take one more if they do not divide."""
    size, longer = divmod(len(blocks), count)
    starts = [index * size + min(index, longer) for index in range(count + 1)]
    return tuple(tuple(layer for block in blocks[one:two] for layer in block) for one, two in pairwise(starts))


def _blocks_of_one_stage(instance: Instance) -> list[tuple[int, ...]]:
    """Blocks in order, merged where no cut is possible."""
    blocks: list[tuple[int, ...]] = []
    for block in instance.space.blocks:
        if blocks and any(
            set(group) & set(blocks[-1]) and set(group) & set(block) for group in instance.space.together
        ):
            blocks[-1] += block
        else:
            blocks.append(block)
    return blocks
