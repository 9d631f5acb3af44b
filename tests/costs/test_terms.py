"""What each coefficient does to the roofline: nothing when off, by hand at its half point, never below the roof."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st

from nest.costs.roofline import padding
from nest.graph import Operator, Parameter, Tensor
from nest.hooks.protocols import OperatorCost
from nest.hooks.registry import registry
from nest.spec import Coefficients, DeviceSpec, MatrixPeaks, Training, ranges

FAST_MEMORY = DeviceSpec("fast memory", memory=1.0, memory_bandwidth=1e30, peak=MatrixPeaks(bf16=1e12, fp8=2e12))
SLOW_MEMORY = evolve(FAST_MEMORY, name="slow memory", memory_bandwidth=1e6)
SIZES = st.integers(1, 9000)
HEADS = st.integers(1, 16)


def matmul(rows: int, columns: int, contracted: int, **rest: Any) -> Operator:
    """A product with a weight."""
    space = (("sequence", rows), ("ffn", columns), ("hidden", contracted))
    return evolve(
        Operator(
            "a/product",
            "a",
            "matmul",
            space=space,
            flops_per_point=2.0,
            inputs=(Tensor("x", (space[0], space[2])),),
            outputs=(Tensor("y", space[:2]),),
            parameters=(Parameter("weight", space[1:]),),
            contracted=("hidden",),
        ),
        **rest,
    )


def attention(keys: int = 4096, head: int = 128, heads: int = 8, kv_heads: int = 8) -> Operator:
    """One fused kernel."""
    sequence = ("sequence", keys)
    query = Tensor("q", (sequence, ("heads", heads), ("head", head)))
    key, value = (Tensor(name, (sequence, ("kv_heads", kv_heads), ("head", head))) for name in "kv")
    return Operator(
        "a/attention",
        "a",
        "attention",
        space=(("heads", heads), sequence, ("keys", keys), ("head", head)),
        flops_per_point=4.0,
        backward_flops_ratio=2.5,
        inputs=(query, key, value),
        outputs=(Tensor("context", query.shape),),
        contracted=("keys",),
    )


def price(operator: Operator, device: DeviceSpec, precision: str = "bf16", **terms: float) -> OperatorCost:
    """Its cost on the device with coefficients."""
    calibrated = evolve(device, calibration=Coefficients(**terms))
    return registry().cost_models()["roofline"].price(operator, calibrated, Training(1, precision=precision))


OPERATORS = st.one_of(
    st.builds(matmul, SIZES, SIZES, SIZES),
    st.builds(
        lambda keys, head, shared, groups: attention(keys, head, shared * groups, groups),
        SIZES,
        HEADS.map(lambda n: 16 * n),
        HEADS,
        HEADS,
    ),
    SIZES.map(lambda n: Operator("a/sum", "a", "elementwise", inputs=(Tensor("x", (("hidden", n),)),))),
)
DEVICES = st.builds(
    lambda bandwidth, share, units: evolve(
        FAST_MEMORY, memory_bandwidth=bandwidth, efficiency={"default": share}, multiprocessors=units
    ),
    st.floats(1e6, 1e13),
    st.floats(0.05, 1),
    st.none() | st.integers(1, 200),
)
TERMS = st.fixed_dictionaries({name: st.floats(each.low, each.high) for name, each in ranges().items()})


@given(OPERATORS, DEVICES)
def test_without_coefficients_it_is_the_plain_roofline(operator: Operator, device: DeviceSpec) -> None:
    device = evolve(device, multiprocessors=None)
    found = price(operator, device)
    share = device.efficiency["default"]
    moved = operator.bytes_read + operator.bytes_written + 2.0 * operator.parameter_count
    traffic, reached = moved / (device.memory_bandwidth * share), 1e12 * share
    assert found.forward == pytest.approx(max(operator.flops / reached, traffic), rel=1e-12)
    assert found.backward == pytest.approx(max(operator.backward_flops / reached, 2 * traffic), rel=1e-12)
    assert found.host == 0


@given(OPERATORS, DEVICES, TERMS, st.sampled_from(("bf16", "fp8")))
def test_no_coefficients_reach_beyond_the_nominal_roofs(
    operator: Operator, device: DeviceSpec, terms: dict[str, float], precision: str
) -> None:
    found = price(operator, device, precision, **terms)
    peak = 2e12 if precision == "fp8" and operator.parameters else 1e12
    traffic = (operator.bytes_read + operator.bytes_written) / device.memory_bandwidth
    within = 1 + 1e-12
    assert found.forward * within >= max(operator.flops / peak, traffic)
    assert found.backward * within >= max(operator.backward_flops / peak, 2 * traffic)


def test_what_is_fast_in_several_ways_still_ends_at_the_peak() -> None:
    """Shares that multiply to more than 1 are of kernels that nobody has seen."""
    whole = evolve(FAST_MEMORY, efficiency={"default": 1.0})
    product, shared = matmul(64, 512, 256), attention(heads=64, kv_heads=2)
    assert price(product, whole, sustained=1.3).forward == product.flops / 1e12
    found = price(shared, whole, shared_keys=0.4, attention_backward=1.5)
    assert (found.forward, found.backward) == (shared.flops / 1e12, shared.backward_flops / 1e12)


SLOWER = {
    "sustained": -1,
    "contracted_half": 1,
    "rows_half": 1,
    "grouped": -1,
    "attention_backward": -1,
    "sequence_half": 1,
    "shared_keys": -1,
    "cast": 1,
}
"""Whether more of a coefficient makes operators slower (1) or faster (-1)."""


@given(
    OPERATORS,
    DEVICES,
    TERMS,
    st.sampled_from(sorted(SLOWER)),
    st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    st.sampled_from(("bf16", "fp8")),
)
def test_each_coefficient_works_in_one_direction(
    operator: Operator, device: DeviceSpec, terms: dict[str, float], name: str, places: list[float], precision: str
) -> None:
    known = ranges()[name]
    less, more = (
        price(operator, device, precision, **{**terms, name: known.low + place * (known.high - known.low)})
        for place in places
    )
    if SLOWER[name] < 0:
        less, more = more, less
    assert less.forward <= more.forward * (1 + 1e-12)
    assert less.backward <= more.backward * (1 + 1e-12)


def test_at_the_half_points_products_take_twice_as_long() -> None:
    plain = price(matmul(64, 512, 256), FAST_MEMORY).forward
    assert price(matmul(64, 512, 256), FAST_MEMORY, contracted_half=256.0).forward == pytest.approx(2 * plain)
    assert price(matmul(64, 512, 256), FAST_MEMORY, rows_half=64.0).forward == pytest.approx(2 * plain)


def test_backward_each_product_has_a_depth_of_its_own_and_the_rows_of_the_batch() -> None:
    """Of dX = dY W^T the depth is 512, of dW = X^T dY it is 64: each takes half of the FLOP."""
    plain = price(matmul(64, 512, 256), FAST_MEMORY).backward
    assert price(matmul(64, 512, 256), FAST_MEMORY, contracted_half=256.0).backward == pytest.approx(
        plain * ((1 + 256 / 512) + (1 + 256 / 64)) / 2
    )
    assert price(matmul(64, 512, 256), FAST_MEMORY, rows_half=64.0).backward == pytest.approx(2 * plain)


@given(
    sizes=st.tuples(SIZES, SIZES, SIZES),
    larger=st.sampled_from((0, 1, 2)),
    more=st.integers(1, 3000),
    halves=st.tuples(st.floats(0, 1000), st.floats(0, 2000)),
    units=st.integers(1, 300),
    precision=st.sampled_from(("bf16", "fp8")),
)
@example(sizes=(16, 320, 200), larger=0, more=16, halves=(40.0, 360.0), units=132, precision="bf16")
def test_larger_products_never_take_less_time(
    sizes: tuple[int, int, int], larger: int, more: int, halves: tuple[float, float], units: int, precision: str
) -> None:
    device = evolve(FAST_MEMORY, multiprocessors=units)
    grown = (*sizes[:larger], sizes[larger] + more, *sizes[larger + 1 :])
    few, many = (
        price(matmul(*each), device, precision, rows_half=halves[0], contracted_half=halves[1])
        for each in (sizes, grown)
    )
    assert few.forward <= many.forward * (1 + 1e-12)
    assert few.backward <= many.backward * (1 + 1e-12)


def test_padding_counts_where_multiprocessors_are_known() -> None:
    many = evolve(FAST_MEMORY, multiprocessors=100)
    ratio = price(matmul(100, 300, 64), many).forward / price(matmul(100, 300, 64), FAST_MEMORY).forward
    assert ratio == pytest.approx(padding(1, 100, 300, 100))
    backward = price(matmul(100, 300, 64), many).backward / price(matmul(100, 300, 64), FAST_MEMORY).backward
    assert backward == pytest.approx((padding(1, 100, 64, 100) + padding(1, 300, 64, 100)) / 2)


def test_memory_bounds_each_product_of_the_backward_pass_by_itself() -> None:
    """One is slow for its shape, the other for what it moves."""
    product = matmul(64, 512, 256)
    moved = (product.bytes_read + product.bytes_written + 2 * 512 * 256) / 1e12
    device = evolve(FAST_MEMORY, memory_bandwidth=1e12 * moved / (1.5 * product.flops / 1e12))
    found = price(product, device, contracted_half=256.0).backward
    assert found == pytest.approx(product.flops / 1e12 * (1.5 + 5))
    assert price(product, device, contracted_half=64.0).backward == pytest.approx(product.flops / 1e12 * (1.5 + 2))


def test_attention_at_its_half_points() -> None:
    plain = price(attention(1000, 128), FAST_MEMORY)
    half = price(attention(1000, 128), FAST_MEMORY, sequence_half=1000.0)
    assert (half.forward, half.backward) == pytest.approx((2 * plain.forward, 2 * plain.backward))
    # Efficiencies are stated at 128 channels, so heads of 128 stay as they are, and those at the half point take
    # (1/2) / (128 / (128 + 64)) of that speed.
    assert price(attention(head=128), FAST_MEMORY, head_half=64.0) == price(attention(head=128), FAST_MEMORY)
    ratio = (
        price(attention(head=64), FAST_MEMORY, head_half=64.0).forward / price(attention(head=64), FAST_MEMORY).forward
    )
    assert ratio == pytest.approx((128 / 192) / (1 / 2))


def test_shared_heads_are_faster_by_a_power() -> None:
    slow = evolve(FAST_MEMORY, efficiency={"attention": 0.25})
    shared, alone = attention(heads=16, kv_heads=4), attention(heads=16, kv_heads=16)
    assert price(alone, slow, shared_keys=0.25) == price(alone, slow)
    faster, plain = price(shared, slow, shared_keys=0.25), price(shared, slow)
    assert (plain.forward / faster.forward, plain.backward / faster.backward) == pytest.approx((4**0.25,) * 2)


def test_backward_attention_has_a_speed_of_its_own() -> None:
    slow = evolve(FAST_MEMORY, efficiency={"attention": 0.5})
    found, plain = price(attention(), slow, attention_backward=0.5), price(attention(), slow)
    assert found.forward == plain.forward
    assert found.backward == pytest.approx(2 * plain.backward)


def test_narrow_products_convert_their_operands() -> None:
    product = matmul(64, 512, 256)
    plain, found = (price(product, SLOW_MEMORY, "fp8", **terms) for terms in ({}, {"cast": 1.5}))
    assert found.forward - plain.forward == pytest.approx(1.5 * 2 * 64 * 256 / 1e6)
    assert found.backward - plain.backward == pytest.approx(1.5 * 2 * 64 * 512 / 1e6)
    assert price(product, SLOW_MEMORY, "bf16", cast=1.5) == price(product, SLOW_MEMORY, "bf16")
    without = evolve(SLOW_MEMORY, peak=MatrixPeaks(bf16=1e12))
    assert price(product, without, "fp8", cast=1.5) == price(product, without, "fp8")


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_each_expert_of_a_grouped_product_takes_a_while_of_its_own(precision: str) -> None:
    """At half the speed for 3e10 FLOP, 4 experts take 4 times 3e10 FLOP longer, in each of the three products."""
    experts = (Parameter("weight", (("experts", 4), ("ffn", 512), ("hidden", 256)), "expert"),)
    grouped = matmul(64, 512, 256, parameters=experts)
    half, plain = (price(grouped, FAST_MEMORY, precision, grouped=share) for share in (0.5, 1.0))
    assert half.forward - plain.forward == pytest.approx(4 * 3e10 / 1e12)
    assert half.backward - plain.backward == pytest.approx(2 * 4 * 3e10 / 1e12)
    assert price(matmul(64, 512, 256), FAST_MEMORY, grouped=0.5) == price(matmul(64, 512, 256), FAST_MEMORY)


def test_the_rank_with_the_busiest_experts_is_waited_for() -> None:
    experts = (Parameter("weight", (("experts", 4), ("ffn", 512), ("hidden", 256)), "expert"),)
    roofline, even, uneven = registry().cost_models()["roofline"], Training(1), Training(1, expert_imbalance=1.5)
    for product, times in ((matmul(64, 512, 256, parameters=experts), 1.5), (matmul(64, 512, 256), 1.0)):
        busiest, average = (roofline.price(product, FAST_MEMORY, each) for each in (uneven, even))
        assert busiest.forward == pytest.approx(times * average.forward)
        assert busiest.backward == pytest.approx(times * average.backward)


def test_beside_a_frozen_weight_there_is_the_product_for_the_gradient_of_the_input() -> None:
    """It has 64 rows of 256 elements, each summed over 512."""
    weight = Parameter("weight", (("ffn", 512), ("hidden", 256)), frozen=True)
    product = matmul(64, 512, 256, parameters=(weight,), backward_flops_ratio=1.0)
    found = price(product, FAST_MEMORY, contracted_half=100.0)
    assert found.backward == pytest.approx(product.flops / 1e12 * (1 + 100 / 512))


def test_what_each_further_step_finds_is_added_to_what_was_found() -> None:
    """Read, read and written; the first step has nothing to add it to."""
    whole, steps = (price(evolve(attention(64), steps=count), SLOW_MEMORY) for count in (1, 4))
    assert steps.forward - whole.forward == pytest.approx(3 * 3 * attention(64).bytes_written / 1e6)
    assert steps.backward - whole.backward == pytest.approx(3 * 3 * attention(64).bytes_written / 1e6)


def test_a_sustained_share_scales_the_matrix_peaks_only() -> None:
    slow = evolve(FAST_MEMORY, efficiency={"matmul": 0.5})
    found, plain = price(matmul(64, 512, 256), slow, sustained=0.8), price(matmul(64, 512, 256), slow)
    assert found.forward == pytest.approx(plain.forward / 0.8)
    moved = Operator("a/sum", "a", "elementwise", inputs=(Tensor("x", (("hidden", 9),)),))
    assert price(moved, SLOW_MEMORY, sustained=0.8) == price(moved, SLOW_MEMORY)


def test_the_host_launches_every_operator_alike() -> None:
    assert price(matmul(64, 512, 256), FAST_MEMORY, host_launch=2e-5).host == 2e-5
    assert price(attention(), FAST_MEMORY, host_launch=2e-5).host == 2e-5


def priced(operator: Operator, device: DeviceSpec, training: dict[str, Any], **terms: float) -> OperatorCost:
    """Its cost in a training that says so."""
    calibrated = evolve(device, calibration=Coefficients(**terms))
    return registry().cost_models()["roofline"].price(operator, calibrated, Training(1, **training))


def test_a_product_in_a_narrow_format_takes_two_launches() -> None:
    # The conversion of its operands, and the product itself; attention and products in bf16 are one.
    assert price(matmul(64, 512, 256), FAST_MEMORY, "fp8", host_launch=2e-5).host == 4e-5
    assert price(attention(), FAST_MEMORY, "fp8", host_launch=2e-5).host == 2e-5
    wide_alone = evolve(FAST_MEMORY, peak=MatrixPeaks(bf16=1e12))
    assert price(matmul(64, 512, 256), wide_alone, "fp8", host_launch=2e-5).host == 2e-5


@pytest.mark.parametrize("graphs", ["layers", "iteration"])
def test_what_a_graph_launches_the_host_does_not(graphs: str) -> None:
    assert priced(matmul(64, 512, 256), FAST_MEMORY, {"graphs": graphs}, host_launch=2e-5).host == 0.0
    assert priced(matmul(64, 512, 256), FAST_MEMORY, {"graphs": "none"}, host_launch=2e-5).host == 2e-5


def test_a_grace_host_launches_slower() -> None:
    grace = evolve(FAST_MEMORY, host="grace")
    terms = {"host_launch": 2e-5, "grace_launch": 1.5}
    assert priced(matmul(64, 512, 256), FAST_MEMORY, {}, **terms).host == 2e-5
    assert priced(matmul(64, 512, 256), grace, {}, **terms).host == pytest.approx(3e-5)
    assert priced(matmul(64, 512, 256), FAST_MEMORY, {"host": "grace"}, **terms).host == pytest.approx(3e-5)
    assert priced(matmul(64, 512, 256), grace, {"host": "x86"}, **terms).host == 2e-5


def test_kernels_of_fused_attention_have_their_own_share() -> None:
    # 4 * 8 heads * 4096 tokens * 4096 keys * 128 channels = 6.87e10 FLOP at 1e12 FLOP per second.
    hopper = evolve(FAST_MEMORY, efficiency={"attention": 0.25, "attention.cudnn": 0.5})
    seconds = 4 * 8 * 4096**2 * 128 / 1e12
    expected = {None: 4.0, "flash2": 4.0, "cudnn": 2.0, "flash3": 2.0}
    for kernel, times in expected.items():
        assert priced(attention(), hopper, {"attention_kernel": kernel}).forward == pytest.approx(times * seconds)
    ampere = evolve(FAST_MEMORY, efficiency={"attention": 0.25})
    assert priced(attention(), ampere, {"attention_kernel": "cudnn"}).forward == pytest.approx(4.0 * seconds)


def test_kernels_written_for_a_device_count_for_heads_they_are_published_for() -> None:
    hopper = evolve(FAST_MEMORY, efficiency={"attention": 0.25, "attention.cudnn": 0.5})
    for head, times in ((64, 0.5), (128, 1.0), (192, 3.0), (256, 4.0)):  # of 128 channels at twice the speed
        found = priced(attention(head=head), hopper, {"attention_kernel": "cudnn"}).forward
        assert found == pytest.approx(times * priced(attention(), hopper, {"attention_kernel": "cudnn"}).forward)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_sequential_experts_are_products_of_their_own(precision: str) -> None:
    device = evolve(FAST_MEMORY, multiprocessors=132)
    terms = {"grouped": 0.5, "host_launch": 1e-5, "contracted_half": 150.0}
    experts = (Parameter("weight", (("experts", 4), ("ffn", 2048), ("hidden", 256)), "expert"),)
    four, one = matmul(4 * 768, 2048, 256, parameters=experts), matmul(768, 2048, 256)
    alone = priced(one, device, {"precision": precision}, **terms)
    sequential = priced(four, device, {"precision": precision, "expert_products": "sequential"}, **terms)
    assert (sequential.forward, sequential.host) == pytest.approx((4 * alone.forward, 4 * alone.host))
    assert priced(four, device, {"precision": precision}, **terms).host == alone.host


@pytest.mark.parametrize(
    ("training", "times"),
    [({}, 1), ({"kernels": "eager"}, 9), ({"kernels": "eager", "norms": "fused"}, 1), ({"norms": "eager"}, 9)],
)
def test_norms_of_several_kernels_go_over_memory_as_often(training: dict[str, Any], times: int) -> None:
    # 100 bf16 elements read and as many written at 1e6 bytes per second, and twice that backward.
    row = (("hidden", 100),)
    norm = Operator("a/norm", "a", "norm", inputs=(Tensor("x", row),), outputs=(Tensor("y", row),))
    found = priced(norm, SLOW_MEMORY, training, eager=9.0)
    assert found.forward == pytest.approx(times * 400 / 1e6)
    assert found.backward == pytest.approx(times * 800 / 1e6)
    sums = evolve(norm, kind="elementwise")
    assert priced(sums, SLOW_MEMORY, training, eager=9.0).forward == pytest.approx(400 / 1e6)


def test_routing_takes_launches_of_its_own() -> None:
    router = matmul(64, 8, 256, kind="router")
    assert priced(router, FAST_MEMORY, {}, host_launch=2e-5, routing_launches=40.0).host == pytest.approx(8e-4)
    assert priced(router, FAST_MEMORY, {}, host_launch=2e-5).host == 2e-5
    assert priced(matmul(64, 8, 256), FAST_MEMORY, {}, host_launch=2e-5, routing_launches=40.0).host == 2e-5
