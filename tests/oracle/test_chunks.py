"""Sections 3 and 4 of PROBLEM.md: which runs of transformer blocks the chunks of a searched plan may be."""

import pytest

from tests.oracle.chunks import about_even, splits_into


def sizes(layers: list[str], count: int, **asked) -> list[list[int]]:
    """The layers of each run, of every split of a chain."""
    profile = {"layers": layers, "edges": [[layer, layer + 1] for layer in range(len(layers) - 1)]}
    return [list(map(len, runs)) for runs in splits_into({"profile": profile, **asked}, count)]


@pytest.mark.parametrize(
    ("blocks", "even"),
    [
        ([2, 2, 2, 2], True),
        ([2, 3, 2, 3], True),
        ([1, 3, 2, 1], True),
        ([3, 2, 2, 2], True),
        ([3, 1, 2, 2], False),
        ([2, 2, 2, 4], False),
        ([2, 3, 1, 2], False),
        ([4, 3, 3, 1], True),
    ],
)
def test_chunks_differ_by_one_block_but_the_ends_may_hold_fewer(blocks, even):
    assert about_even(blocks, ends=False) == even
    assert about_even([blocks[0] + 1, *blocks[1:-1], blocks[-1] + 1], ends=True) == even


def test_blocks_are_layers_where_nothing_is_an_end():
    found = sizes([f"layer {layer}" for layer in range(7)], 4)
    assert found == [[1, 2, 2, 2], [1, 2, 3, 1], [1, 3, 2, 1], [2, 1, 2, 2], [2, 2, 1, 2], [2, 2, 2, 1]]


def test_embedding_and_head_are_no_blocks_and_may_be_alone():
    layers = ["embedding", "one", "two", "three", "four", "head"]
    # Not [1, 3, 1, 1] and [1, 1, 3, 1]: of the chunks between the ends one would hold three blocks, the other one.
    few_first = [[1, 1, 1, 3], [1, 1, 2, 2], [1, 2, 1, 2], [1, 2, 2, 1]]
    assert sizes(layers, 4) == [*few_first, [2, 1, 1, 2], [2, 1, 2, 1], [2, 2, 1, 1], [3, 1, 1, 1]]


def test_stages_that_somebody_has_decided_are_as_uneven_as_they_like():
    layers = [f"layer {layer}" for layer in range(6)]
    fixed = {"stages": [["layer 0", "layer 2"], ["layer 1", "layer 3", "layer 4", "layer 5"]]}
    assert [1, 1, 1, 3] not in sizes(layers, 4)
    assert [1, 1, 1, 3] in sizes(layers, 4, fixed=fixed)
