"""Which degrees strategies offer."""

from collections.abc import Callable

import pytest

from nest.graph import Block, Operator, OperatorGraph, Tensor
from nest.hooks.protocols import Strategy, StrategyContext
from nest.hooks.registry import registry
from nest.instance import Cluster, Level
from nest.spec import Training

Build = Callable[..., OperatorGraph]


@pytest.fixture
def tp() -> Strategy:
    return registry().strategies()["tp"]


@pytest.fixture
def sp() -> Strategy:
    return registry().strategies()["sp"]


def on(*fanouts: int) -> StrategyContext:
    levels = tuple(Level(f"l{index}", fanout, 1e11, 1e-6) for index, fanout in enumerate(fanouts))
    return StrategyContext(Cluster(levels, memory=80e9), Training(global_batch=8))


def test_tensor_degrees_divide_the_heads_and_suit_the_cluster(build: Build, tp: Strategy) -> None:
    block = Block(build("gpt"), 1)
    assert list(tp.degrees(block, on(48))) == [1, 2, 3, 4, 6, 12]
    assert list(tp.degrees(block, on(8, 4))) == [1, 2, 4]
    assert list(tp.degrees(block, on(2))) == [1, 2]
    # Inner groups of 3: a block is one, or some whole ones that fill 12.
    assert list(tp.degrees(block, on(3, 4))) == [1, 3, 6, 12]


def test_key_value_heads_are_split_while_they_last_and_shared_then(build: Build, tp: Strategy) -> None:
    block = Block(build("llama"), 1)
    assert list(tp.degrees(block, on(48))) == [1, 2, 4, 6, 12]
    share = tp.apply(block, 12, on(48))
    sizes = {size for o in share.graph.operators for t in o.outputs for axis, size in t.shape if axis == "kv_heads"}
    assert sizes == {1}


def test_widths_of_experts_count(build: Build, tp: Strategy) -> None:
    block = Block(build("experts"), 1)
    # 12 heads, 4 key-value heads; inner widths 384, 48 and 24.
    assert list(tp.degrees(block, on(48))) == [1, 2, 4, 12]


def test_a_wider_block_leaves_less_room(build: Build, tp: Strategy) -> None:
    block = Block(build("gpt"), 1).with_axis("other", 4)
    assert list(tp.degrees(block, on(16))) == [1, 2, 4]


def test_a_graph_without_split_axes_is_left_alone(tp: Strategy, sp: Strategy) -> None:
    norm = Operator("a/norm", "a", "norm", inputs=(Tensor("x", (("sequence", 8), ("hidden", 4))),))
    block = Block(OperatorGraph((norm,), ("a",)), 1)
    assert tuple(tp.degrees(block, on(8))) == (1,)
    assert tuple(sp.degrees(block, on(8))) == (1,)


def test_the_vocabulary_is_padded(build: Build, tp: Strategy) -> None:
    share = tp.apply(Block(build("gpt"), 1), 12, on(48))
    assert -(-1000 // 12) in {s for o in share.graph.operators for axis, s in o.space if axis == "vocab"}


def test_sequence_degrees_follow_tensor_parallelism(build: Build, tp: Strategy, sp: Strategy) -> None:
    split = tp.apply(Block(build("gpt"), 1), 4, on(16))
    assert tuple(sp.degrees(split, on(16))) == (1, 4)
    assert tuple(sp.degrees(tp.apply(Block(build("gpt", tokens=62), 1), 4, on(16)), on(16))) == (1,)


def test_sequence_parallelism_takes_no_devices(build: Build, tp: Strategy, sp: Strategy) -> None:
    split = tp.apply(Block(build("gpt"), 1), 4, on(16))
    both = sp.apply(split, 4, on(16))
    assert both.width == split.width == 4
    assert both.degrees == (("tp", 4), ("sp", 4))
    assert both.ranks("tp") == (0, 1, 2, 3)
    assert both.replica_ranks("dense") == (0,)


def test_context_degrees_leave_every_rank_two_pieces(build: Build) -> None:
    """One of the front and one of the back, so that a causal mask gives all the same work."""
    cp = registry().strategies()["cp"]
    assert list(cp.degrees(Block(build("gpt", tokens=12), 1), on(48))) == [1, 2, 3, 6]


def test_ranks_with_the_same_tokens_divide_experts_as_all_else_or_repeat_them(build: Build, tp: Strategy) -> None:
    narrow = build("experts").map_shapes(
        lambda shape: tuple((axis, 6 if axis == "expert_ffn" else size) for axis, size in shape)
    )
    etp = registry().strategies()["etp"]
    for degree, expected in ((2, (1, 2)), (4, (1,))):
        assert tuple(etp.degrees(tp.apply(Block(narrow, 1), degree, on(16)), on(16))) == expected
