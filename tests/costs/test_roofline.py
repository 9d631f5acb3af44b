"""The roofline, by hand and as properties."""

import pytest
from attrs import evolve

from nest.catalogue import device
from nest.errors import InputError
from nest.graph import Operator, Parameter, Tensor
from nest.hooks.protocols import CostModel
from nest.hooks.registry import registry
from nest.spec import DeviceSpec, MatrixPeaks, Training

ROWS = (("batch", 1), ("sequence", 10))
READ = Tensor("read", (*ROWS, ("hidden", 100)))
WRITTEN = Tensor("written", (*ROWS, ("ffn", 50)))
PRODUCT = Operator(
    name="layer/product",
    layer="layer",
    kind="matmul",
    space=(*ROWS, ("ffn", 50), ("hidden", 100)),
    flops_per_point=2.0,
    inputs=(READ,),
    outputs=(WRITTEN,),
    parameters=(Parameter("weight", (("ffn", 50), ("hidden", 100))),),
    contracted=("hidden",),
)
MOVED = 2 * (1000 + 500 + 5000)
SLOW_MATH = DeviceSpec("slow math", memory=1.0, memory_bandwidth=1e15, peak=MatrixPeaks(bf16=1e3, fp32=1.0))
SLOW_MEMORY = DeviceSpec("slow memory", memory=1.0, memory_bandwidth=1e3, peak=MatrixPeaks(bf16=1e15))
TRAINING = Training(global_batch=1)


@pytest.fixture(scope="module")
def roofline() -> CostModel:
    return registry().cost_models()["roofline"]


def test_arithmetic_bounds_where_it_is_slower(roofline: CostModel) -> None:
    cost = roofline.price(PRODUCT, SLOW_MATH, TRAINING)
    assert cost.forward == pytest.approx(2 * 10 * 50 * 100 / 1e3)
    assert cost.backward == pytest.approx(2 * cost.forward)


def test_memory_bounds_where_it_is_slower(roofline: CostModel) -> None:
    cost = roofline.price(PRODUCT, SLOW_MEMORY, TRAINING)
    assert cost.forward == pytest.approx(MOVED / 1e3)
    assert cost.backward == pytest.approx(2 * MOVED / 1e3)
    # Adam in bf16: 12 bytes of state read and written, 4 of gradients read, 2 of weights written.
    assert cost.update == pytest.approx(5000 * (2 * 12 + 4 + 2) / 1e3)
    assert cost.transient == 2 * (1000 + 500)


def test_muon_orthogonalises_matrices_and_leaves_the_rest_to_adam(roofline: CostModel) -> None:
    """Per Newton-Schulz step on 50 x 100, whichever side is longer: `X X^T`, its square, and their product with `X`."""
    muon, experts = evolve(TRAINING, optimizer="muon"), (("experts", 3),)
    flops = 5 * (2 * 50**2 * 100 + 2 * 50**3 + 2 * 50**2 * 100)
    assert roofline.price(PRODUCT, SLOW_MATH, muon).update == pytest.approx(flops / 1e3)
    (weight,) = PRODUCT.parameters
    several = evolve(PRODUCT, parameters=(evolve(weight, shape=(*experts, *weight.shape), group="expert"),))
    assert roofline.price(several, SLOW_MATH, muon).update == pytest.approx(3 * flops / 1e3)
    # One moment of matrices, two of biases and of what is no product.
    biased = evolve(PRODUCT, parameters=(weight, Parameter("bias", (("ffn", 50),))))
    moved = 5000 * (2 * 8 + 4 + 2) + 50 * (2 * 12 + 4 + 2)
    assert roofline.price(biased, SLOW_MEMORY, muon).update == pytest.approx(moved / 1e3)
    for other in (evolve(PRODUCT, kind="norm", contracted=()), evolve(PRODUCT, space=(("vocab", 50), ("hidden", 100)))):
        adam = roofline.price(other, SLOW_MEMORY, TRAINING).update
        assert roofline.price(other, SLOW_MEMORY, muon).update == pytest.approx(adam)


def test_muon_steps_on_keys_and_values_apart_and_on_both_branches_of_a_network_at_once(roofline: CostModel) -> None:
    """`_get_qkv_split_shapes` of megatron-core 0.19.2 splits `linear_qkv`, and no other product."""
    muon = evolve(TRAINING, optimizer="muon")
    for columns, matrices, width in (
        ((("branch", 2), ("kv_heads", 3), ("head", 10)), 2, 30),
        ((("branch", 2), ("ffn", 30)), 1, 60),
        ((("branch", 2), ("kv_heads", 3), ("state", 10)), 1, 60),
    ):
        weight, read = Parameter("weight", (*columns, ("hidden", 100))), (*ROWS, *columns, ("hidden", 100))
        flops = matrices * 5 * (4 * width**2 * 100 + 2 * width**3)
        priced = roofline.price(evolve(PRODUCT, space=read, parameters=(weight,)), SLOW_MATH, muon)
        assert priced.update == pytest.approx(flops / 1e3)


def test_muon_takes_no_step_on_a_weight_whose_product_is_unknown(roofline: CostModel) -> None:
    bare = evolve(PRODUCT, inputs=())
    assert not bare.trains_matrix(bare.parameters[0])
    adam, muon = (roofline.price(bare, SLOW_MEMORY, evolve(TRAINING, optimizer=each)) for each in ("adam", "muon"))
    assert muon.update == adam.update > 0


def test_a_kernel_that_passes_over_its_tensors_again_moves_them_again(roofline: CostModel) -> None:
    bare = evolve(PRODUCT, parameters=())
    once, thrice = (roofline.price(evolve(bare, passes=count), SLOW_MEMORY, TRAINING) for count in (1, 3))
    assert (thrice.forward, thrice.backward) == pytest.approx((3 * once.forward, 3 * once.backward))


def test_efficiency_and_overhead_are_applied(roofline: CostModel) -> None:
    lossy = evolve(SLOW_MATH, efficiency={"matmul": 0.5}, launch_overhead=3.0)
    assert roofline.price(PRODUCT, lossy, TRAINING).forward == pytest.approx(200.0 + 3.0)
    slow = evolve(SLOW_MEMORY, efficiency={"memory": 0.5, "matmul": 0.1})
    assert roofline.price(PRODUCT, slow, TRAINING).forward == pytest.approx(MOVED / 500)


def test_a_recurrence_is_as_fast_as_published_kernels_on_so_many_multiprocessors(roofline: CostModel) -> None:
    scan = evolve(PRODUCT, kind="scan", contracted=(), parameters=())
    fast = evolve(SLOW_MEMORY, memory_bandwidth=1e30, multiprocessors=100)
    cases = (
        ({}, (71e12, 65e12)),
        ({"efficiency": {"scan": 0.5}}, (5e14, 5e14)),
        ({"multiprocessors": 1}, (71e10, 65e10)),
    )
    for changed, speeds in (*cases, ({"multiprocessors": None}, (1e15, 1e15))):
        cost = roofline.price(scan, evolve(fast, **changed), TRAINING)
        assert (1e5 / cost.forward, 2e5 / cost.backward) == pytest.approx(speeds)


def test_the_closest_share_counts(roofline: CostModel) -> None:
    half, quarter, wide, narrow = {"default": 0.5}, {"matmul": 0.25}, {"matmul.bf16": 0.125}, {"matmul.fp8": 0.125}
    cases = ({}, 1.0), (half, 0.5), (half | quarter, 0.25), (quarter | wide, 0.125), (quarter | narrow, 0.25)
    for shares, expected in cases:
        cost = roofline.price(PRODUCT, evolve(SLOW_MATH, efficiency=shares), TRAINING)
        assert cost.forward == pytest.approx(100.0 / expected)


def formats(operator: Operator, precision: str, **peaks: float) -> float:
    fast = DeviceSpec("fast memory", memory=1.0, memory_bandwidth=1e30, peak=MatrixPeaks(**peaks))
    cost = registry().cost_models()["roofline"].price(operator, fast, Training(1, precision=precision))
    return operator.flops / cost.forward


def test_narrow_formats_serve_products_with_weights_only() -> None:
    peaks = {"fp32": 1.0, "bf16": 2.0, "fp8": 4.0}
    core = evolve(PRODUCT, kind="attention", parameters=())
    head = evolve(PRODUCT, space=(*ROWS, ("vocab", 50), ("hidden", 100)))
    assert [formats(each, "fp8", **peaks) for each in (PRODUCT, core, head)] == [4.0, 2.0, 2.0]
    assert [formats(PRODUCT, each, **peaks) for each in ("bf16", "fp32")] == [2.0, 1.0]


def test_a_missing_format_falls_back_to_the_next_wider() -> None:
    assert formats(PRODUCT, "nvfp4", bf16=2.0, fp8=4.0) == 4.0
    assert formats(PRODUCT, "mxfp8", bf16=2.0) == 2.0
    assert formats(PRODUCT, "bf16", fp32=1.0, fp16=8.0) == 1.0


def test_a_device_without_any_suitable_format_is_refused(roofline: CostModel) -> None:
    with pytest.raises(InputError, match=r"tpu-v4.*no matrix peak.*fp16|fp16.*tpu-v4"):
        roofline.price(PRODUCT, device("tpu-v4"), Training(1, precision="fp16"))


def test_a_look_up_reads_the_rows_it_needs(roofline: CostModel) -> None:
    tokens = Tensor("tokens", ROWS, 8.0, differentiable=False)
    table = Parameter("weight", (("vocab", 10**6), ("hidden", 100)))
    look_up = Operator(
        "a/b", "a", "embedding", space=READ.shape, inputs=(tokens,), outputs=(READ,), parameters=(table,)
    )
    cost = roofline.price(look_up, SLOW_MEMORY, TRAINING)
    assert cost.forward == pytest.approx((80 + 2000 + 2000) / 1e3)


def test_what_has_no_gradient_has_no_backward_pass(roofline: CostModel) -> None:
    mask = Operator("a/mask", "a", "elementwise", inputs=(evolve(READ, differentiable=False),), outputs=(WRITTEN,))
    assert roofline.price(mask, SLOW_MEMORY, TRAINING).backward == 0
