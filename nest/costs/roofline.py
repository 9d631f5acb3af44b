"""The roofline: an operator takes as long as its arithmetic or its memory traffic, whichever is longer.

Williams, Waterman and Patterson, Roofline: an insightful visual performance model (CACM 52(4), 2009). Both roofs are
lowered by the device's efficiency, and the arithmetic one by the cost of the shape of a product or of attention
(docs/explanation/cost-model.md). Without a calibration, only the tiling of products is counted besides the roofs, if
the device's `multiprocessors` are known.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import ceil, prod
from typing import NamedTuple

from attrs import frozen

from nest.catalogue import Optimizer, optimizer, precision
from nest.errors import InputError
from nest.graph import Operator, Shape, has_axis
from nest.graph.operator import axis_size
from nest.hooks.protocols import OperatorCost
from nest.records import Record
from nest.spec import DeviceSpec, Training
from nest.spec.trainable import STORED

BACKWARD_TRAFFIC = 2.0
"""Backward bytes over forward bytes: the pass reads the gradients of the forward outputs and the forward inputs again,
and writes gradients of these; gradients are as large as their tensors."""

USUAL_HEAD = 128
"""Channels per head at which a device's `efficiency.attention` is stated: those of the kernels' published figures."""

USUAL_PRODUCT = 3e10
"""FLOP of an expert's product at which `grouped` is stated: about those that it is fitted to."""

KERNELS = {"cudnn": "cudnn", "flash3": "cudnn"}
"""The entry of `efficiency` below `attention` for a kernel: those written for Hopper are equally fast
(FlashAttention-3, arXiv 2407.08608, figures 5 and 6), and others have none."""

NARROW_LAUNCHES = 2.0
"""Kernels of a product whose operands are converted to a narrower format, over those of any other operator."""

SCANNED = 0.71e12, 0.65e12
"""FLOP per second of a multiprocessor in the kernels of a recurrence, forward and backward.

They reach neither roof: Hopper and Blackwell, with 2.5 times its peak, take the same time. Medians of published kernels
(benchmarks/published/README.md, kernels of recurrences); that a selective scan is as fast is an assumption.
"""

CONVERSION = {**dict.fromkeys(STORED, 0.25), "int4": 0.11}
"""Share of the memory bandwidth with which narrow weights are converted, by `training.trainable.stored`.

From the step times of LoRA with and without narrow weights: `int4` of Qwen-7B, 14B and 72B (QwenLM/Qwen, README.md,
commit 03cd81f5), others of Llama 2 7B and 13B in `nf4` (Lightning-AI/litgpt, tutorials/resource-tables.md, commit
4839345a), each on an A100. That of `int8` is an assumption.
"""


class Peak(NamedTuple):
    """The arithmetic roof of an operator on a device."""

    reached: float  # FLOP per second that large operators of its kind reach; at most `nominal`.
    nominal: float  # FLOP per second of its number format.
    wide: float  # FLOP per second of the format of everything but products with weights.
    narrow: bool  # Operands are first converted to a narrower format.


class Roofline:
    """Per direction the longer of arithmetic and memory traffic, and the time to launch it."""

    name = "roofline"

    def __init__(self) -> None:
        self._updated: tuple[Training | None, Optimizer | None, float] = None, None, 0.0

    def price(self, operator: Operator, device: DeviceSpec, training: Training) -> OperatorCost:
        """Return the cost of `operator` on `device`, seconds and bytes per micro-batch.

        Raises: InputError: the device has no peak for the training precision, or precision or optimizer are
            unknown.
        """
        peak = _peak(operator, device, training)
        bandwidth = device.memory_bandwidth * efficiency(device, "memory")
        read, written, trained = operator.bytes_read, operator.bytes_written, operator.trained_count
        eager = device.calibration.eager if operator.kind == "norm" and training.eager_norms else 1.0
        moved = operator.passes * (read + written) * eager + _parameter_traffic(operator, training)
        forward, backward = _seconds(operator, device, training, peak, moved / bandwidth)
        if peak.narrow:
            forward += device.calibration.cast * read / bandwidth
            backward += device.calibration.cast * written / bandwidth
        learns = trained or any(tensor.differentiable for tensor in operator.inputs)
        update = self._update(operator, device, training, bandwidth) if trained else 0.0
        if operator.steps > 1:
            # What each step finds is added to what those before it found: read, read and written.
            merged = 3.0 * (operator.steps - 1) * written / bandwidth
            forward, backward = forward + merged, backward + merged
        launching = operator.steps * device.launch_overhead
        converted = sum([p.count * precision(training.precision).weights for p in operator.parameters if p.itemsize])
        if converted:
            # A kernel in each pass reads the narrow weights and writes wide ones.
            speed = device.memory_bandwidth * CONVERSION[training.stored or ""]
            moved = (operator.weight_bytes(0.0) + converted) / speed
            forward, backward = forward + moved, backward + moved
            launching += device.launch_overhead
        return OperatorCost(
            forward + launching,
            backward + launching if learns else 0.0,
            update=update,
            transient=_gradient_bytes(operator) + converted,
            host=(operator.steps + bool(converted))
            * _launches(operator, device, training, peak)
            * training.host_launch(device),
        )

    def _update(self, operator: Operator, device: DeviceSpec, training: Training, bandwidth: float) -> float:
        """Return seconds of the optimizer's step; its bytes per parameter are cached for operators in a row."""
        known, chosen, moved = self._updated
        if known is not training:
            chosen = optimizer(training.optimizer)
            moved = chosen.update_bytes(precision(training.precision).trained(training))
            self._updated = training, chosen, moved
        assert chosen is not None
        seconds = operator.trained_count * moved / bandwidth
        if chosen.matrix_moments is not None:
            matrices = sum([p.count for p in operator.parameters if operator.trains_matrix(p)])
            seconds += 2.0 * matrices * (chosen.matrix_moments - chosen.moments) / bandwidth
            seconds += chosen.newton_schulz_steps * (_newton_schulz(operator, device, training) if matrices else 0.0)
        return seconds


def _seconds(
    operator: Operator, device: DeviceSpec, training: Training, peak: Peak, traffic: float
) -> tuple[float, float]:
    """Return seconds forward and backward, without launches and conversion.

    Args:
        peak: its arithmetic roof.
        traffic: seconds of its forward memory traffic.
    """
    if _is_fused(operator):
        reached = peak.reached * _attention_share(operator, device)
        forward = operator.flops / min(reached, peak.nominal)
        backward = operator.backward_flops / min(reached * device.calibration.attention_backward, peak.nominal)
        return max(forward, traffic), max(backward, BACKWARD_TRAFFIC * traffic)
    shape = product(operator) if operator.flops else None
    if shape is None:
        forward, backward = _speeds(operator, device, peak)
        longer = max(operator.backward_flops / backward, BACKWARD_TRAFFIC * traffic)
        return max(operator.flops / forward, traffic), longer
    switching = 0.0
    if _is_of_experts(operator):
        if training.sequential_experts:
            shape = Product(shape.count / _experts(operator), shape.rows, shape.columns, shape.contracted)
        else:
            switching = _experts(operator) * (1 / device.calibration.grouped - 1) * USUAL_PRODUCT / peak.wide
    forward = max(operator.flops / peak.reached * _slowdown(shape, shape, device, peak) + switching, traffic)
    # Beside a frozen weight there is the gradient of what comes in alone.
    frozen = operator.parameters and not operator.trained_count
    gradients = shape.backward[:1] if frozen else shape.backward
    share = operator.backward_flops / len(gradients) / peak.reached
    return forward, sum(max(share * _slowdown(each, shape, device, peak) + switching, traffic) for each in gradients)


def _slowdown(shape: Product, forward: Product, device: DeviceSpec, peak: Peak) -> float:
    """Return seconds of a product over those of its FLOP at the speed of large ones.

    Filling and draining a tile takes the time of `contracted_half` elements in the wide format, whatever the format of
    the product, and few rows leave the device waiting (docs/explanation/cost-model.md).

    Args:
        forward: the forward product, whose rows are tokens.
        peak: its arithmetic roof.
    """
    terms = device.calibration
    filling = 1 + terms.contracted_half * (peak.nominal / peak.wide) / shape.contracted
    units = device.multiprocessors
    whole = 1.0 if units is None else padding(shape.count, shape.rows, shape.columns, units)
    # Waiting adds to the rest: were it multiplied by any of it, more rows could take less time in one of the passes.
    return filling * whole + terms.rows_half / forward.rows


def _speeds(operator: Operator, device: DeviceSpec, peak: Peak) -> tuple[float, float]:
    """Return FLOP per second, forward and backward, of an operator that is no product."""
    stated = any(kind.partition(".")[0] == "scan" for kind in device.efficiency)
    units = 0 if stated else device.multiprocessors or 0
    forward, backward = [each * units if operator.kind == "scan" and units else peak.reached for each in SCANNED]
    return min(forward, peak.reached), min(backward, peak.reached)


def _attention_share(operator: Operator, device: DeviceSpec) -> float:
    """Return the speed of fused attention, relative to long sequences, `USUAL_HEAD` channels and no shared keys."""
    terms = device.calibration
    head, keys = axis_size(operator.space, "head"), axis_size(operator.space, "keys")
    channels = head / (head + terms.head_half) * (USUAL_HEAD + terms.head_half) / USUAL_HEAD
    heads = axis_size(operator.inputs[0].shape, "heads")
    keys_of = operator.inputs[1].shape
    sharing = heads / axis_size(keys_of, "kv_heads") if has_axis(keys_of, "kv_heads") else 1.0
    return float(channels * keys / (keys + terms.sequence_half) * max(sharing, 1.0) ** terms.shared_keys)


def _launches(operator: Operator, device: DeviceSpec, training: Training, peak: Peak) -> float:
    if operator.kind == "router":
        return device.calibration.routing_launches
    experts = _experts(operator) if training.sequential_experts else 1
    return experts * (NARROW_LAUNCHES if peak.narrow else 1.0)


def _is_of_experts(operator: Operator) -> bool:
    """Return whether it multiplies by a weight with one matrix per expert."""
    return any(parameter.group == "expert" for parameter in operator.parameters)


def _experts(operator: Operator) -> int:
    """Return the matrices of a weight with one per expert; 1 for other weights."""
    weight = max(operator.parameters, key=lambda parameter: parameter.count, default=None)
    return 1 if weight is None else prod(size for axis, size in weight.shape if not has_axis(operator.space, axis))


def _is_fused(operator: Operator) -> bool:
    """Return whether one kernel does all of attention: it reads queries, keys and values, and stores no scores."""
    return operator.kind == "attention" and len(operator.inputs) > 2


def efficiency(device: DeviceSpec, kind: str, number_format: str = "") -> float:
    """Return the share of a roof reached: the first listed of `kind.format`, `kind`, `default`."""
    known = device.efficiency
    return known.get(f"{kind}.{number_format}", known.get(kind, known.get("default", 1.0)))


def _peak(operator: Operator, device: DeviceSpec, training: Training) -> Peak:
    """Return the arithmetic roof of an operator: the peak of the first of its formats that the device has."""
    formats = precision(training.precision)
    wide_format, wide = _first_peak(formats.other, device, training)
    chosen, nominal = _first_peak(formats.formats_of(operator), device, training)
    # Products of an attention that stores its scores are matrix products.
    kind = "matmul" if operator.kind == "attention" and not _is_fused(operator) else operator.kind
    # What they reach backward is published for heads of up to `USUAL_HEAD` channels alone.
    usual = kind == "attention" and axis_size(operator.space, "head") <= USUAL_HEAD
    detail = KERNELS.get(training.attention_kernel or "", chosen) if usual else chosen
    share = efficiency(device, kind, detail) * device.calibration.sustained
    if _is_of_experts(operator):
        # The rank with the busiest experts is waited for.
        share /= training.expert_imbalance or 1.0
    return Peak(nominal * min(share, 1.0), nominal, wide, chosen != wide_format)


def _first_peak(formats: Iterable[str], device: DeviceSpec, training: Training) -> tuple[str, float]:
    for number_format in formats:
        peak: float | None = getattr(device.peak, number_format)
        if peak is not None:
            return number_format, peak
    raise InputError(
        f"training.precision is {training.precision}, but device {device.name!r} has no matrix peak for it "
        "or for a wider format; choose another precision or give the device's `peak`."
    )


def _parameter_traffic(operator: Operator, training: Training) -> float:
    """Return bytes of parameters read: all of them, or, in a look-up, the rows of the outputs."""
    held = operator.parameter_count * precision(training.precision).weights  # Narrow ones are converted first.
    return min(held, operator.bytes_written) if operator.kind == "embedding" else held


def _newton_schulz(operator: Operator, device: DeviceSpec, training: Training) -> float:
    """Return seconds of a Newton-Schulz step on an operator's matrices, each as the rank holds it.

    On `a` by `b`, `a <= b`, it multiplies `X X^T`, the square of that, and a polynomial of both by `X`, in bf16 where
    the device has it (emerging-optimizers 0.3.0, muon_utils.py, `newton_schulz_step`). Keys and values are two matrices
    (megatron-core 0.19.2, emerging_optimizers.py, `_get_qkv_split_shapes`).
    """
    shape = product(operator)
    assert shape is not None
    pair = {"branch", "kv_heads", "head"} <= {axis for axis, _ in operator.space}
    parts = axis_size(operator.space, "branch") if pair else 1
    short, long = sorted((shape.columns / parts, shape.contracted))
    number_format, peak = _first_peak(("bf16", *precision(training.precision).other), device, training)
    share = min(efficiency(device, "matmul", number_format) * device.calibration.sustained, 1.0)
    return shape.count * parts * (4.0 * short**2 * long + 2.0 * short**3) / (peak * share)


def _gradient_bytes(operator: Operator) -> float:
    """Return bytes of the activation gradients of outputs and inputs while the operator runs backward."""
    return sum([tensor.bytes for tensor in (*operator.inputs, *operator.outputs) if tensor.differentiable])


TILES = ((128, 256), (256, 128), (128, 128), (64, 128))
"""Rows and columns of one multiprocessor's result at a time: sizes of CUTLASS and cuBLAS for large products (NVIDIA,
Matrix Multiplication Background User's Guide, section 4.1)."""

FED = 1.0 / 3.0
"""Slow-down of a tile per operand byte it loads beyond those of the largest: a tile of `a` by `b` loads `1/a + 1/b`
elements per multiplication. An assumption: it decides only between tiles that fill a device badly."""

NARROWEST = min(1 / a + 1 / b for a, b in TILES)


@frozen(eq=False, repr=False)
class Product(Record):
    """A batch of equal matrix products `(rows, contracted) @ (contracted, columns)`."""

    count: float  # Products in the batch.
    rows: float  # Of the left operand, which comes with the data.
    columns: float  # Of the right one.
    contracted: float  # Elements summed over.

    @property
    def backward(self) -> tuple[Product, Product]:
        """Return the products for the gradients of the left and of the right operand."""
        return (
            Product(self.count, self.rows, self.contracted, self.columns),
            Product(self.count, self.columns, self.contracted, self.rows),
        )


def product(operator: Operator) -> Product | None:
    """Return the matrix product of an operator; None: nothing contracted, or no second operand.

    Axes of both operands that are not contracted count products. A weight with one matrix per expert makes one product
    per expert, on an even share of the rows; an attention that stores its scores one per sample and head.
    """
    contracted, space = set(operator.contracted), operator.space
    if not contracted:
        return None
    if operator.kind == "attention":
        return _product(space, contracted, {"sequence"}, {"batch", "heads"}, 1)
    operands = [tensor.shape for tensor in operator.inputs[:2]]
    if operator.parameters:
        operands = [*operands[:1], max(operator.parameters, key=lambda parameter: parameter.count).shape]
    if len(operands) < 2:
        return None
    left, right = ({axis for axis, _ in shape} for shape in operands)
    experts = _experts(operator)
    shared = (left & right) - contracted
    rows = {axis for axis, _ in space} - right - contracted
    return _product(space, contracted, rows, shared, experts)


def _product(space: Shape, contracted: set[str], rows: set[str], counted: set[str], experts: int) -> Product:
    """Return the product over `space`; its axes without a named role are columns."""

    def size(axes: set[str]) -> int:
        return prod(size for axis, size in space if axis in axes)

    return Product(
        count=size(counted) * experts,
        rows=max(size(rows) / experts, 1.0),
        columns=size({axis for axis, _ in space} - contracted - rows - counted),
        contracted=size(contracted),
    )


@lru_cache(maxsize=65_536)
def padding(count: float, rows: float, columns: float, multiprocessors: int) -> float:
    """Return the slowdown of products by whole tiles in whole waves: at least 1.

    A result is computed in tiles, as many at a time as there are multiprocessors; if sizes do not divide, the last ones
    of a row, a column and the whole do surplus work (NVIDIA, Matrix Multiplication Background User's Guide, sections
    4.2 and 4.3: tile and wave quantisation). The library is assumed to choose the best of `TILES`.
    """
    return min(_padded(count, rows, columns, tile, multiprocessors) for tile in TILES)


def _padded(count: float, rows: float, columns: float, tile: tuple[int, int], multiprocessors: int) -> float:
    high, wide = tile
    tiles = count * ceil(rows / high) * ceil(columns / wide)
    work = ceil(tiles / multiprocessors) * multiprocessors * high * wide
    feeding = 1 + FED * ((1 / high + 1 / wide) / NARROWEST - 1)
    return work * feeding / (count * rows * columns)
