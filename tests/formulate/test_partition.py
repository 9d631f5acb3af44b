"""Where plans are cut: `fixed.stages` and `search.granularity`."""

from itertools import pairwise
from typing import Any

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nest
from nest.errors import InputError
from nest.formulate.partition import branched_regions, check_order, partition
from nest.instance import LayerGraph
from tests.small_instances import downsets_of

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
        ((1, 2), None, "add up to 3, but the model has 4 transformer blocks"),
        ((5, -1), None, "add up"),
        ((0, 0, 4), None, r"fixed.stages\[1\] has no layer"),
        ((2, 2), 3, r"lists 2 stages, but fixed.pp is 3"),
        ((), None, "is empty"),
        ((2, ("c",)), None, "mixes"),
        ((("embedding", "a", "b", "c"), ("d", "heed")), None, r"fixed.stages\[1\].*'head'"),
        ((("embedding", "a", "b"), ("b", "c", "d", "head")), None, "'b' is listed twice"),
        ((("embedding", "a"), ("c", "d", "head")), None, "leaves out these layers: b"),
        ((LAYERS, ()), None, r"fixed.stages\[1\] has no layer"),
    ],
)
def test_what_is_no_partition_is_refused(
    stages: tuple[int | tuple[str, ...], ...], pipeline: int | None, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        partition(stages, pipeline, CHAIN, BLOCKS)


def test_stages_that_read_from_later_ones_are_refused() -> None:
    stages = partition((("embedding", "b"), ("a", "c", "d", "head")), None, CHAIN, BLOCKS)
    with pytest.raises(InputError, match="'b' in stage 0 reads from 'a' in the later stage 1"):
        check_order(stages, CHAIN)


def graph_of(count: int, edges: list[tuple[int, int]]) -> LayerGraph:
    readers: dict[int, list[int]] = {}
    for producer, consumer in edges:
        readers.setdefault(producer, []).append(consumer)
    tensors = tuple((producer, tuple(sorted(set(each)))) for producer, each in readers.items())
    return LayerGraph(tuple(f"l{index}" for index in range(count)), tensors)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(1, 9))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    names = draw(st.permutations(range(count)))
    return count, [(names[a], names[b]) for a, b in chosen]


@given(graphs())
def test_exactly_the_layers_comparable_with_all_stand_alone(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = drawn
    whole: networkx.DiGraph[int] = networkx.DiGraph(edges)
    whole.add_nodes_from(range(count))
    alone = {
        layer
        for layer in range(count)
        if len(networkx.ancestors(whole, layer)) + len(networkx.descendants(whole, layer)) == count - 1
    }
    graph = graph_of(count, edges)
    regions = branched_regions(graph)
    assert sorted(layer for region in regions for layer in region) == sorted(set(range(count)) - alone)
    downsets = downsets_of(graph, regions)
    assert downsets.count == len(alone) + len(regions) + 1
    for smaller, larger in pairwise(downsets.members):
        assert not (smaller & ~larger).any()


def profile(edges: list[list[int]], layers: int) -> dict[str, Any]:
    zeros = [0.0] * layers
    return {
        "nest": 1,
        "training": {"global_batch": 4},
        "cluster": {"levels": [{"fanout": 4, "bandwidth": "1 GB/s"}], "memory": "1 GB"},
        "profile": {
            "layers": [f"l{index}" for index in range(layers)],
            "edges": edges,
            "candidates": [
                {
                    "name": "c",
                    "width": 1,
                    "samples": 1,
                    "forward": [1.0] * layers,
                    "backward": [2.0] * layers,
                    "state": {},
                    "recompute": {"none": {"extra": zeros, "first": zeros, "more": zeros, "peak": zeros}},
                    "edge_bytes": [1.0] * len(edges),
                }
            ],
        },
    }


def test_profiles_are_cut_where_asked() -> None:
    diamond = profile([[0, 1], [0, 2], [1, 3], [2, 3]], 4)
    fixed = {"replicas": 1, "pp": 4}
    for granularity in ("layer", "operator"):
        plan = nest.solve({**diamond, "search": {"granularity": granularity}, "fixed": fixed})
        assert [len(stage.layers) for stage in plan.stages] == [1, 1, 1, 1]
    assert nest.solve({**diamond, "search": {"granularity": "block"}, "fixed": fixed}).status == "infeasible"
    coarse = nest.solve({**diamond, "search": {"granularity": "block"}, "fixed": {"replicas": 1, "pp": 3}})
    assert [stage.layers for stage in coarse.stages] == [("l0",), ("l1", "l2"), ("l3",)]
    assert nest.check(coarse.to_dict()).ok
    evaluated = nest.evaluate({**diamond, "search": {"granularity": "block"}, "fixed": {"replicas": 1, "pp": 3}})
    assert [stage.layers for stage in evaluated.stages] == [stage.layers for stage in coarse.stages]


def test_stages_that_part_a_region_are_refused() -> None:
    diamond = profile([[0, 1], [0, 2], [1, 3], [2, 3]], 4)
    stages = [["l0", "l1"], ["l2", "l3"]]
    assert nest.solve({**diamond, "fixed": {"stages": stages}}).status == "optimal"
    with pytest.raises(InputError, match=r"'l1' is in stage 0 and 'l2' in stage 1, but .*granularity block"):
        nest.solve({**diamond, "search": {"granularity": "block"}, "fixed": {"stages": stages}})


@pytest.mark.parametrize(
    ("training", "tied", "expected"),
    [
        ({}, False, [3, 3]),
        # A block has 4 x 64 x 64 + 3 x 64 x 256 = 65,536 parameters, the head 1,024 x 64 as many.
        ({"stage_split": "products"}, False, [4, 2]),
        ({"stage_split": "products"}, True, [4, 2]),
        ({"stage_split": "products"}, False, [3, 2, 1]),
        ({"stage_split": "products"}, False, [1, 1, 1, 1, 1, 1]),
        ({"stack": "nanotron"}, False, [4, 2]),
    ],
)
def test_stages_may_share_products_evenly(training: dict[str, Any], tied: bool, expected: list[int]) -> None:
    widths = {"layers": 6, "hidden": 64, "ffn": 256, "heads": 4, "kv_heads": 4, "vocab": 1024, "gated_mlp": True}
    plan = nest.evaluate(
        {
            "nest": 1,
            "model": {"transformer": {**widths, "tied_embeddings": tied}},
            "training": {"global_batch": 8, "sequence_length": 64, **training},
            "cluster": {"device": "h100-sxm", "levels": [{"fanout": 8, "bandwidth": "450 GB/s"}]},
            "fixed": {"pp": len(expected), "dp": 1},
        }
    )
    assert [sum(layer not in ("embedding", "head") for layer in stage.layers) for stage in plan.stages] == expected
