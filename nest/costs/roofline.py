"""The roofline: an operator takes as long as its arithmetic or its memory traffic, whichever is longer.

Williams, Waterman and Patterson, Roofline: an insightful visual performance model (CACM 52(4), 2009), with
both roofs lowered by the share a device is known to reach. docs/explanation/cost-model.md tells what is
counted.
"""

from nest.catalogue import optimizer, precision
from nest.errors import InputError
from nest.graph import Operator, has_axis
from nest.hooks.protocols import OperatorCost
from nest.spec import DeviceSpec, Training

BACKWARD_TRAFFIC = 2.0
"""Backward bytes over forward bytes: the pass reads the gradients of what the forward pass wrote and
again what that read, and writes gradients of it; gradients are as large as what they belong to."""


class Roofline:
    """Per direction `max(flops / (peak*efficiency), bytes / (bandwidth*efficiency)) + launch_overhead`."""

    name = "roofline"

    def price(self, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost:
        """Cost of `operator` on `device`, seconds and bytes per micro-batch.

        Raises: InputError: the device has no peak for the training precision, or precision or optimizer are
            unknown.
        """
        peak = _peak(operator, device, training)
        bandwidth = device.memory_bandwidth * efficiency(device, "memory")
        moved = operator.bytes_read + operator.bytes_written + _parameter_traffic(operator, training)
        forward = max(operator.flops / peak, moved / bandwidth) + device.launch_overhead
        backward = 0.0
        if operator.parameters or any(tensor.differentiable for tensor in operator.inputs):
            moved *= BACKWARD_TRAFFIC
            backward = max(operator.backward_flops / peak, moved / bandwidth) + device.launch_overhead
        update = 0.0
        if operator.parameters:
            state = optimizer(training.optimizer).update_bytes(precision(training.precision).trained(training))
            update = operator.parameter_count * state / bandwidth
        return OperatorCost(forward, backward, update=update, transient=_gradient_bytes(operator))


def efficiency(device: DeviceSpec, kind: str, number_format: str = "") -> float:
    """Share of a roof operators of `kind` reach: of `kind.format`, `kind` and `default` the first listed."""
    known = device.efficiency
    return known.get(f"{kind}.{number_format}", known.get(kind, known.get("default", 1.0)))


def _peak(operator: Operator, device: DeviceSpec, training: Training) -> float:
    """FLOP per second this operator can reach: the peak of the first format of the precision the device has.

    Products with weights run in the narrow format; the vocabulary projection and all else do not (Transformer
    Engine converts linear layers inside blocks only).
    """
    formats = precision(training.precision)
    narrow = operator.kind == "matmul" and operator.parameters and not _has_vocabulary(operator)
    for number_format in formats.products if narrow else formats.other:
        peak: float | None = getattr(device.peak, number_format)
        if peak is not None:
            return peak * efficiency(device, operator.kind, number_format)
    raise InputError(
        f"training.precision is {training.precision}, but device {device.name!r} has no matrix peak for it "
        "or for a wider format; choose another precision or give the device's `peak`."
    )


def _has_vocabulary(operator: Operator) -> bool:
    return has_axis(operator.space, "vocab")


def _parameter_traffic(operator: Operator, training: Training) -> float:
    """Bytes of parameters read: all of them, or, in a look-up, the rows that make the outputs."""
    held = operator.parameter_count * precision(training.precision).weights
    return min(held, operator.bytes_written) if operator.kind == "embedding" else held


def _gradient_bytes(operator: Operator) -> float:
    """Bytes of the activation gradients alive while the operator runs backward: of its outputs and inputs."""
    return sum(tensor.bytes for tensor in (*operator.inputs, *operator.outputs) if tensor.differentiable)
