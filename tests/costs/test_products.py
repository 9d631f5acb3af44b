"""Matrix products: whole tiles, whole waves, and the same FLOP however an operator is looked at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.catalogue import library_models
from nest.costs.roofline import TILES, Product, padding, product
from nest.formulate.model import load_model
from nest.graph import Operator, Parameter, Tensor
from nest.hooks.registry import registry
from nest.spec import Training

SIZES = st.integers(1, 20_000)
COUNTS = st.integers(1, 300)
MULTIPROCESSORS = st.integers(1, 200)
HIGH, WIDE = TILES[0]
TOKENS = 512
"""As many as every model of the library takes."""


@given(COUNTS, SIZES, SIZES, MULTIPROCESSORS)
def test_whole_tiles_never_take_less_than_their_flop(count: int, rows: int, columns: int, units: int) -> None:
    assert padding(count, rows, columns, units) >= 1


@given(COUNTS, st.integers(1, 50), st.integers(1, 50), MULTIPROCESSORS)
def test_nothing_is_lost_where_tiles_and_waves_divide(count: int, high: int, wide: int, units: int) -> None:
    assert padding(count * units, high * HIGH, wide * WIDE, units) == pytest.approx(1, rel=1e-12)


@given(COUNTS, SIZES, SIZES, MULTIPROCESSORS, st.integers(1, 500), st.sampled_from(("count", "rows", "columns")))
def test_more_of_anything_takes_no_less_time(
    count: int, rows: int, columns: int, units: int, added: int, larger: str
) -> None:
    def seconds(count: int, rows: int, columns: int) -> float:
        return count * rows * columns * padding(count, rows, columns, units)

    sizes = {"count": count, "rows": rows, "columns": columns}
    assert seconds(**{**sizes, larger: sizes[larger] + added}) >= seconds(**sizes) * (1 - 1e-12)


@given(SIZES, st.integers(1, 60), MULTIPROCESSORS)
def test_a_tile_that_is_not_full_takes_as_long_as_a_full_one(rows: int, wide: int, units: int) -> None:
    """No library picks narrower tiles than the lowest of `TILES`, so up to its height rows cost the same."""
    lowest = min(high for high, _ in TILES)
    last = rows - rows % lowest + lowest
    full, partly = (padding(1, each, wide * WIDE, units) * each for each in (last, max(last - lowest + 1, 1)))
    assert partly == pytest.approx(full, rel=1e-12)


@given(st.tuples(*[st.integers(1, 1000)] * 4))
def test_the_backward_pass_has_two_products_of_the_same_flop(sizes: tuple[int, int, int, int]) -> None:
    def points(each: Product) -> float:
        return each.count * each.rows * each.columns * each.contracted

    forward = Product(*map(float, sizes))
    left, right = forward.backward
    assert points(left) == points(right) == points(forward)
    # dX = dY W^T has the rows of X and its width; dW = X^T dY sums over the rows.
    assert (left.rows, left.columns, left.contracted) == (forward.rows, forward.contracted, forward.columns)
    assert (right.rows, right.columns, right.contracted) == (forward.columns, forward.contracted, forward.rows)


def test_half_a_wave_more_costs_a_wave() -> None:
    """By hand: 108 multiprocessors, 109 tiles: the second wave computes one (NVIDIA's guide, section 4.3)."""
    assert padding(109, HIGH, WIDE, 108) <= 2 * 108 / 109
    assert padding(109, HIGH, WIDE, 108) > 1.5


@pytest.mark.longer
@pytest.mark.parametrize("attention", ["flash", "unfused"])
@pytest.mark.parametrize("name", sorted(library_models()))
def test_products_have_the_flop_of_their_operators(name: str, attention: str) -> None:
    """Experts, latent projections, tied and vocabulary products, scores and their sums: of every model there is."""
    training = Training(1, sequence_length=TOKENS, attention=attention)
    graph = load_model(name, training, registry())
    seen = set()
    for operator in graph.operators:
        shape = product(operator)
        # One kernel finds scores and what follows, and those alone that are looked at.
        fused = operator.kind == "attention" and (len(operator.inputs) > 2 or attention == "flash")
        if shape is None or not operator.flops or fused:
            continue
        seen.add(operator.kind)
        assert 2 * shape.count * shape.rows * shape.columns * shape.contracted == pytest.approx(operator.flops), (
            operator.name
        )
        assert operator.backward_flops == pytest.approx(2 * operator.flops) or operator.kind == "attention"
    assert "matmul" in seen
    assert ("attention" in seen) or attention == "flash"


def test_an_expert_works_on_its_share_of_the_rows() -> None:
    rows = (("batch", 2), ("sequence", 600), ("top_k", 2))
    weight = Parameter("weight", (("experts", 8), ("ffn", 50), ("hidden", 100)), "expert")
    operator = Operator(
        "a/b",
        "a",
        "matmul",
        space=(*rows, ("ffn", 50), ("hidden", 100)),
        flops_per_point=2.0,
        inputs=(Tensor("x", (*rows, ("hidden", 100))),),
        parameters=(weight, Parameter("bias", (("experts", 8), ("ffn", 50)), "expert")),
        contracted=("hidden",),
    )
    assert product(operator) == Product(count=8, rows=300, columns=50, contracted=100)


def test_scores_are_a_product_per_sample_and_head() -> None:
    query = Tensor("q", (("batch", 2), ("sequence", 10), ("heads", 4), ("head", 8)))
    key = Tensor("k", (("batch", 2), ("sequence", 10), ("kv_heads", 2), ("head", 8)))
    space = (("batch", 2), ("heads", 4), ("sequence", 10), ("head", 8), ("keys", 30))
    scores = Operator("a/b", "a", "attention", space=space, inputs=(query, key), contracted=("head",))
    assert product(scores) == Product(count=8, rows=10, columns=30, contracted=8)


def test_what_contracts_nothing_is_no_product() -> None:
    summed = Tensor("x", (("sequence", 3),))
    assert product(Operator("a/b", "a", "elementwise", space=summed.shape, inputs=(summed, summed))) is None
    assert (
        product(Operator("a/b", "a", "matmul", space=summed.shape, inputs=(summed,), contracted=("sequence",))) is None
    )
