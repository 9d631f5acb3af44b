"""Measured operators as operators the cost model prices."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy
from attrs import evolve

from nest.catalogue import devices
from nest.errors import InputError
from nest.graph import Operator, Parameter, Tensor
from nest.hooks.protocols import CostModel, OperatorCost
from nest.instance import Array
from nest.public.planning import matrix_peak
from nest.spec import DeviceSpec, Training, ranges
from nest.spec.measurements import OperatorMeasurement
from nest_calibrate.devices import NOISE
from nest_calibrate.lines import Doubt, Line, doubt_contradictions, no_doubt, operator_lines, read_lines, timed
from nest_calibrate.plausible import Figure, refuse_impossible

PRODUCT, ATTENTION, LAUNCH = "matmul", "attention", "launch"
"""Kinds that are priced by their sizes, and the one that tells what the host needs; others move bytes."""

OPERAND_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "mxfp8": 1.0, "nvfp4": 0.5}
"""Bytes per element of a product's operands by precision, as the formats' names say."""


def _result_bytes(precision: str) -> float:
    """Bytes per element of what operators write: narrow formats are those of operands only."""
    return max(OPERAND_BYTES[precision], 2.0)


class OperatorTimes:
    """Operators measured on one device, whose times are predicted together."""

    def __init__(self, measurements: Sequence[OperatorMeasurement], device: str, costs: CostModel) -> None:
        self._device = device
        self._costs = costs
        self._rows = [(each, _operator(each), _training(each)) for each in measurements]

    def predict(self, devices: Mapping[str, DeviceSpec]) -> Array:
        """Seconds of each, on devices by name. Shape `(measurements,)`."""
        times = devices[self._device]
        # What is measured is the kernel: operands were converted before.
        device = evolve(times, calibration=evolve(times.calibration, cast=0.0))
        return numpy.array(
            [_seconds(each, self._costs.price(operator, device, training)) for each, operator, training in self._rows]
        )

    def at_peak(self, device: DeviceSpec) -> Array:
        """Least seconds of each: its FLOP at the peak of `device`, 0 of what has none. Shape `(measurements,)`."""
        return numpy.array([_at_peak(*row, device) for row in self._rows])


def operator_figures(
    lines: Sequence[Line[OperatorMeasurement]], device: DeviceSpec, costs: CostModel
) -> Iterator[Figure]:
    """The times of operators beside those that `costs` predicts on `device`, and those at its peak."""
    times = OperatorTimes([line.measurement for line in lines], device.name, costs)
    # A short kernel takes as long as the host needs to start it; of that alone published figures say nothing.
    host = ranges()["host_launch"]
    predicted, least = times.predict({device.name: device}).tolist(), times.at_peak(device).tolist()
    floor = f"at the matrix peak of {device.name}"
    for line, usual, fastest in zip(lines, predicted, least, strict=True):
        seconds = line.measurement.seconds
        yield Figure(line.place, "seconds", seconds, usual or host.prior, host.high, fastest, floor, noise=NOISE)


def checked_operators(path: Path, device: str, costs: CostModel, doubt: Doubt = no_doubt) -> list[OperatorMeasurement]:
    """The operators in a file of measurements, whose times can be on `device` as the catalogue calls it.

    A device that the catalogue does not know says nothing, nor do backward passes of products, which are two products.
    `doubt` is told of contradictory and of repeated lines.

    Raises:
        InputError: the file cannot be read, or some times cannot be; all of those are told, each with its line.
    """
    lines, known = operator_lines(read_lines([path], doubt)), devices().get(device)
    if known is not None:
        refuse_impossible(operator_figures([each for each in lines if _is_whole(each.measurement)], known, costs))
    doubt_contradictions(timed(lines), NOISE, doubt)
    return [line.measurement for line in lines]


def _is_whole(measured: OperatorMeasurement) -> bool:
    return (measured.kind, measured.direction) != (PRODUCT, "backward")


def _at_peak(measured: OperatorMeasurement, operator: Operator, training: Training, device: DeviceSpec) -> float:
    flops = operator.backward_flops if measured.direction == "backward" else operator.flops
    return flops / matrix_peak(device, training.precision) if flops else 0.0


def _seconds(measured: OperatorMeasurement, cost: OperatorCost) -> float:
    if measured.kind == LAUNCH:
        return cost.host
    if measured.kind == ATTENTION and measured.direction == "backward":
        return cost.backward
    return cost.forward


def _training(measured: OperatorMeasurement) -> Training:
    return Training(global_batch=1, precision=measured.precision)


def _operator(measured: OperatorMeasurement) -> Operator:
    """The operator that was measured; a backward pass of a product is two products, and tells neither apart."""
    if measured.kind == PRODUCT:
        if measured.direction == "backward":
            raise InputError("direction of matmul is backward; measure its two products as forward ones.")
        return _product(measured)
    if measured.kind == ATTENTION:
        return _attention(measured)
    moved = Tensor("moved", (("bytes", max(int(measured.bytes or 1), 1)),), itemsize=1.0)
    return Operator("layer/measured", "layer", "elementwise", space=moved.shape, inputs=(moved,))


def _product(measured: OperatorMeasurement) -> Operator:
    batch = (("batch", measured.size("batch")),)
    rows, columns = ("rows", measured.size("rows")), ("columns", measured.size("columns"))
    contracted = ("contracted", measured.size("contracted"))
    itemsize = OPERAND_BYTES[measured.precision]
    left, right = (
        Tensor(name, (*batch, side, contracted), itemsize) for name, side in (("left", rows), ("right", columns))
    )
    result = Tensor("result", (*batch, rows, columns), _result_bytes(measured.precision))
    learned = measured.size("batch") == 1
    return Operator(
        "layer/measured",
        "layer",
        "matmul",
        space=(*batch, rows, columns, contracted),
        flops_per_point=2.0,
        inputs=(left,) if learned else (left, right),
        outputs=(result,),
        parameters=(Parameter("weight", (columns, contracted)),) if learned else (),
        contracted=("contracted",),
    )


def _attention(measured: OperatorMeasurement) -> Operator:
    """One kernel that never stores the scores, as `nest.models` builds it (FlashAttention-2, arXiv 2307.08691)."""
    batch, heads = ("batch", measured.size("batch")), ("heads", measured.size("heads"))
    sequence, head = measured.size("sequence"), measured.size("head")
    keys, channels = measured.size("keys", sequence), measured.size("value", head)
    seen = (keys + 1) / 2 if measured.shape.get("causal", False) else keys
    shared = ("kv_heads", measured.size("kv_heads"))
    itemsize = _result_bytes(measured.precision)
    query = Tensor("query", (batch, ("sequence", sequence), heads, ("head", head)), itemsize)
    key = Tensor("key", (batch, ("keys", keys), shared, ("head", head)), itemsize)
    value = Tensor("value", (batch, ("keys", keys), shared, ("value", channels)), itemsize)
    return Operator(
        "layer/measured",
        "layer",
        "attention",
        space=(batch, heads, ("sequence", sequence), ("keys", keys), ("head", head)),
        flops_per_point=2.0 * (head + channels) / head * seen / keys,
        backward_flops_ratio=(3 * head + 2 * channels) / (head + channels),
        inputs=(query, key, value),
        outputs=(Tensor("context", (batch, ("sequence", sequence), heads, ("value", channels)), itemsize),),
        contracted=("keys",),
    )
