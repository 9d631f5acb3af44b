"""Measured operators are priced as the operators of models are."""

from typing import Any

import pytest
from attrs import evolve

from calibrate_tests.synthetic import DENSE
from nest.catalogue import devices
from nest.errors import InputError
from nest.formulate.model import load_model
from nest.graph import Operator
from nest.hooks.registry import registry
from nest.spec import Coefficients, DeviceSpec, Training, TransformerSpec
from nest.spec.measurements import OperatorMeasurement
from nest_calibrate.operator_times import OperatorTimes

COSTS = registry().cost_models()["roofline"]
H100 = evolve(
    devices()["h100-sxm"],
    launch_overhead=0.0,  # type: ignore[arg-type]
    calibration=evolve(devices()["h100-sxm"].calibration, cast=0.0),
)
SLOW_MEMORY = evolve(H100, memory_bandwidth=1e6, efficiency={}, calibration=Coefficients())  # type: ignore[arg-type]
SEQUENCE = 2048


def measured(kind: str, shape: dict[str, Any], precision: str = "bf16", **rest: Any) -> OperatorMeasurement:
    return OperatorMeasurement(1, "operator", kind, precision, 1.0, shape, **rest)


def seconds(measurement: OperatorMeasurement, device: DeviceSpec = H100) -> float:
    (found,) = OperatorTimes([measurement], device.name, COSTS).predict({device.name: device})
    return float(found)


def of_model(name: str, precision: str = "bf16") -> tuple[Operator, Training]:
    training = Training(1, sequence_length=SEQUENCE, precision=precision)
    graph = load_model(TransformerSpec(**DENSE), training, registry())  # type: ignore[arg-type]
    return next(each for each in graph.operators if each.name.endswith(f"/{name}")), training


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_a_product_takes_what_it_takes_in_a_model(precision: str) -> None:
    operator, training = of_model("mlp_down", precision)
    shape = {"batch": 1, "rows": SEQUENCE, "columns": DENSE["hidden"], "contracted": DENSE["ffn"]}
    assert seconds(measured("matmul", shape, precision)) == pytest.approx(
        COSTS.price(operator, H100, training).forward, rel=1e-12
    )


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_attention_takes_what_it_takes_in_a_model(direction: str) -> None:
    operator, training = of_model("attention")
    sizes = {"batch": 1, "heads": 16, "kv_heads": 4, "head": 128, "sequence": SEQUENCE, "causal": True}
    cost = COSTS.price(operator, H100, training)
    assert seconds(measured("attention", sizes, direction=direction)) == pytest.approx(
        getattr(cost, direction), rel=1e-12
    )
    # Without a mask twice the pairs of tokens count, but for the diagonal.
    whole = seconds(measured("attention", {**sizes, "causal": False}, direction=direction))
    assert whole == pytest.approx(getattr(cost, direction) * 2 * SEQUENCE / (SEQUENCE + 1), rel=1e-12)


@pytest.mark.parametrize(
    ("precision", "operand", "weight", "result"),
    [("bf16", 2, 2, 2), ("fp32", 4, 4, 4), ("fp8", 1, 2, 2)],  # in 8 bits two copies of the weights are kept
)
def test_operands_are_as_wide_as_their_format(precision: str, operand: float, weight: float, result: float) -> None:
    single = {"batch": 1, "rows": 10, "columns": 20, "contracted": 30}
    moved = operand * 300 + weight * 600 + result * 200
    assert seconds(measured("matmul", single, precision), SLOW_MEMORY) == pytest.approx(moved / 1e6)
    many = 5 * (operand * (300 + 600) + result * 200)
    assert seconds(measured("matmul", {**single, "batch": 5}, precision), SLOW_MEMORY) == pytest.approx(many / 1e6)


def test_a_batch_of_products_has_their_flop() -> None:
    plain = evolve(H100, multiprocessors=None, calibration=Coefficients(), efficiency={}, memory_bandwidth=1e30)  # type: ignore[arg-type]
    shape = {"batch": 8, "rows": 256, "columns": 512, "contracted": 128}
    assert plain.peak.bf16 is not None
    assert seconds(measured("matmul", shape), plain) == pytest.approx(2 * 8 * 256 * 512 * 128 / plain.peak.bf16)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("kind", ["norm", "elementwise", "softmax", "embedding", "activation"])
def test_what_memory_bounds_takes_what_it_moves_whichever_way(kind: str, direction: str) -> None:
    moved = measured(kind, {"rows": 8, "width": 16}, bytes=5e6, direction=direction)
    assert seconds(moved, SLOW_MEMORY) == pytest.approx(5.0)


def test_launching_takes_the_host_alone() -> None:
    slow = evolve(H100, launch_overhead=1.0, calibration=Coefficients(host_launch=3e-5))  # type: ignore[arg-type]
    assert seconds(measured("launch", {}), slow) == 3e-5


def test_what_is_measured_was_converted_before() -> None:
    shape = {"batch": 1, "rows": 10, "columns": 20, "contracted": 30}
    converting = evolve(SLOW_MEMORY, calibration=Coefficients(cast=3.0))
    assert seconds(measured("matmul", shape, "fp8"), converting) == seconds(
        measured("matmul", shape, "fp8"), SLOW_MEMORY
    )


def test_the_backward_pass_of_a_product_is_two() -> None:
    shape = {"batch": 1, "rows": 10, "columns": 20, "contracted": 30}
    with pytest.raises(InputError, match="measure its two products as forward ones"):
        seconds(measured("matmul", shape, direction="backward"))
