"""`fixed.stages`: layers by name or by counts of blocks."""

import pytest

from nest.errors import InputError
from nest.formulate.partition import partition
from nest.instance import LayerGraph

LAYERS = ("embedding", "a", "b", "c", "d", "head")
CHAIN = LayerGraph(LAYERS, tuple((i, (i + 1,)) for i in range(5)))
BLOCKS = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ((4,), ((0, 1, 2, 3, 4, 5),)),
        ((1, 3), ((0, 1), (2, 3, 4, 5))),
        ((0, 4), ((0,), (1, 2, 3, 4, 5))),
        ((2, 2, 0), ((0, 1, 2), (3, 4), (5,))),
        ((("embedding", "a"), ("c", "b"), ("d", "head")), ((0, 1), (2, 3), (4, 5))),
    ],
)
def test_stages(stages: tuple[int | tuple[str, ...], ...], expected: tuple[tuple[int, ...], ...]) -> None:
    assert partition(stages, None, CHAIN, BLOCKS) == expected


def test_without_blocks_every_layer_counts() -> None:
    assert partition((2, 4), 2, CHAIN, ()) == ((0, 1), (2, 3, 4, 5))


@pytest.mark.parametrize(
    ("stages", "pipeline", "told"),
    [
        ((1, 2), None, "add up to 4 transformer blocks, not 3"),
        ((5, -1), None, "add up"),
        ((0, 0, 4), None, r"fixed.stages\[1\] has no layer"),
        ((2, 2), 3, r"lists 2 stages, but fixed.pp is 3"),
        ((), None, "is empty"),
        ((2, ("c",)), None, "mixes"),
        ((("embedding", "a", "b", "c"), ("d", "heed")), None, r"fixed.stages\[1\].*'head'"),
        ((("embedding", "a", "b"), ("b", "c", "d", "head")), None, "'b' is listed twice"),
        ((("embedding", "a"), ("c", "d", "head")), None, "leaves out these layers: b"),
        ((LAYERS, ()), None, r"fixed.stages\[1\] has no layer"),
        ((("embedding", "b"), ("a", "c", "d", "head")), None, "'b' in stage 0 reads from 'a' in the later stage 1"),
    ],
)
def test_what_is_no_partition_is_refused(
    stages: tuple[int | tuple[str, ...], ...], pipeline: int | None, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        partition(stages, pipeline, CHAIN, BLOCKS)
