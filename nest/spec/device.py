"""Devices and their calibration (FORMATS.md, `cluster.device`).

Every coefficient of a calibration has hard bounds, and a prior for fits without informative measurements. Left out,
each switches its term off, which leaves the plain roofline. docs/explanation/cost-model.md has the formulas.
"""

from typing import Any

from attrs import field, frozen
from attrs import fields as attributes

from nest.records import Record
from nest.spec.validators import above, all_different, at_least, between, each, every, including, not_empty, one_of
from nest.units import Bytes, BytesPerSecond, FlopPerSecond, Seconds


@frozen(eq=False, repr=False)
class Range(Record):
    """Range of a calibrated number.

    Attributes:
        low: physical minimum.
        high: physical maximum.
        prior: value without measurements.
        spread: expected deviation from the prior: standard deviation of the logarithm.
    """

    low: float
    high: float
    prior: float
    spread: float


def _coefficient(off: float, low: float, high: float, prior: float, spread: float) -> Any:
    least, most = min(low, off), max(high, off)
    return field(default=off, validator=between(least, most), metadata={"range": Range(low, high, prior, spread)})


@frozen(eq=False, repr=False)
class Coefficients(Record):
    """Terms of the cost model besides the roofs (docs/explanation/cost-model.md).

    Attributes:
        sustained: share of the matrix peaks that clocks and power of this very device allow, relative to others of its
            generation; above 1 for a faster one.
        contracted_half: contracted elements that take as long as filling and draining a tile of a matrix product: a
            product of that depth takes twice as long as its FLOP alone.
        rows_half: rows (tokens) at which a matrix product takes twice as long as its FLOP alone.
        grouped: share of a matrix product's speed that grouped products of 3e10 FLOP per expert reach.
        attention_backward: speed of the backward pass of a fused attention kernel over the forward pass.
        head_half: channels per head at which fused attention runs at half its speed.
        sequence_half: keys at which fused attention runs at half its speed.
        shared_keys: exponent by which fused attention runs faster if several query heads share a key-value head: speed
            grows by `(heads / key-value heads) ** shared_keys`.
        cast: extra passes of the operands of a product in 8 or 4 bits through memory for conversion.
        host_launch: seconds of the host to launch an operator's kernels, in each direction: a layer takes at least the
            sum over its operators.
        grace_launch: factor on that with a Grace processor.
        routing_launches: kernels launched to choose experts, to sort tokens by them and to send these, over those of
            another operator.
        eager: passes of norms over their inputs and outputs if kernels between products are not fused.
        tensor_exposed: share of a layer's collectives that `training.overlap.tensor` does not hide.
        experts_exposed: share of the experts' exchange that `training.overlap.experts` does not hide.
        dispatch_exposed: the same with `training.dispatch: per-node`, whose kernels keep fewer multiprocessors busy.
        ring_exposed: share of ring communication under attention that attention does not hide.
        data_exposed: share of data-parallel communication once per batch that `training.overlap.data` does not hide.
        gathers_exposed: share of ZeRO 2 and 3 communication in every micro-batch that it does not hide.
        synchronisation: seconds of gradients and weights once per batch over those of the collective model, if
            `training.overlap.data` hides none: ranks out of step, many small buckets, several groups on one link.
        sharded_synchronisation: factor on that with a sharded optimizer state (ZeRO 1 and up): frameworks then exchange
            parameters one by one, or gradients in single precision.
    """

    sustained: float = _coefficient(1.0, 0.7, 1.3, 1.0, 0.08)
    contracted_half: float = _coefficient(0.0, 1.0, 2000.0, 150.0, 1.2)
    rows_half: float = _coefficient(0.0, 1.0, 1000.0, 50.0, 1.0)
    grouped: float = _coefficient(1.0, 0.2, 1.0, 0.75, 0.3)
    attention_backward: float = _coefficient(1.0, 0.3, 1.5, 0.75, 0.1)
    head_half: float = _coefficient(0.0, 1.0, 128.0, 10.0, 0.7)
    sequence_half: float = _coefficient(0.0, 1.0, 2048.0, 100.0, 1.0)
    shared_keys: float = _coefficient(0.0, 0.01, 0.4, 0.1, 0.1)
    cast: float = _coefficient(0.0, 0.1, 8.0, 2.0, 0.5)
    host_launch: float = _coefficient(0.0, 1e-6, 3e-4, 3e-5, 0.7)
    grace_launch: float = _coefficient(1.0, 1.0, 4.0, 1.5, 0.3)
    routing_launches: float = _coefficient(1.0, 1.0, 200.0, 40.0, 0.5)
    eager: float = _coefficient(1.0, 1.0, 20.0, 9.0, 0.3)
    tensor_exposed: float = _coefficient(0.0, 0.01, 1.0, 0.2, 0.7)
    experts_exposed: float = _coefficient(0.0, 0.01, 1.0, 0.55, 0.4)
    dispatch_exposed: float = _coefficient(0.0, 0.01, 1.0, 0.2, 0.7)
    ring_exposed: float = _coefficient(0.0, 0.01, 1.0, 0.1, 0.7)
    data_exposed: float = _coefficient(0.0, 0.005, 1.0, 0.35, 0.5)
    gathers_exposed: float = _coefficient(0.0, 0.005, 1.0, 0.1, 0.5)
    synchronisation: float = _coefficient(1.0, 0.5, 6.0, 1.3, 0.6)
    sharded_synchronisation: float = _coefficient(1.0, 0.5, 6.0, 1.2, 0.6)


def ranges() -> dict[str, Range]:
    """Range of each coefficient, by name, in the order of `Coefficients`."""
    return {each.name: each.metadata["range"] for each in attributes(Coefficients)}


HOSTS = ("x86", "grace")
"""Processors that launch kernels: x86, and NVIDIA's Grace."""

MATRIX = "matrix"
VECTOR = "vector"
COMMUNICATION = "communication"
ENGINES = (MATRIX, VECTOR, COMMUNICATION)
"""Possible engines of a device: for matrix products, for element-wise operators, for collectives."""

ENGINE_RULE = every(not_empty, each(one_of(ENGINES)), all_different, including(MATRIX))
"""Rule for the engines of a device."""


@frozen(eq=False, repr=False)
class MatrixPeaks(Record):
    """Dense matrix peak of a device by precision, FLOP per second; None: unsupported.

    Unsupported narrow formats run at the peak of the next wider one.
    """

    fp32: FlopPerSecond | None = field(default=None, validator=above(0))
    fp16: FlopPerSecond | None = field(default=None, validator=above(0))
    bf16: FlopPerSecond | None = field(default=None, validator=above(0))
    fp8: FlopPerSecond | None = field(default=None, validator=above(0))
    mxfp8: FlopPerSecond | None = field(default=None, validator=above(0))
    nvfp4: FlopPerSecond | None = field(default=None, validator=above(0))


@frozen(eq=False, repr=False)
class MemoryOverheads(Record):
    """Device memory without tensors that tools such as `nvidia-smi` count as used.

    docs/explanation/memory.md ("Memory without tensors") has the origin of the catalogue's figures.

    Attributes:
        context: bytes of the driver's context and of the libraries' code.
        communicator: bytes of buffers that the communication library keeps for each group of ranks a device is in.
        fragmentation: share of the memory for activations of micro-batches in flight, beyond the first, that the
            allocator cannot use; at most 0.9.
    """

    context: Bytes = field(default=Bytes(0.0), validator=at_least(0))
    communicator: Bytes = field(default=Bytes(0.0), validator=at_least(0))
    fragmentation: float = field(default=0.0, validator=between(0, 0.9))


@frozen(eq=False, repr=False)
class DeviceSpec(Record):
    """An accelerator.

    Attributes:
        name: as in `nest devices`.
        memory: bytes of device memory.
        memory_bandwidth: bytes per second.
        peak: dense matrix peaks.
        efficiency: share of the roofline reached, by kind of operator; `default` serves other kinds.
        launch_overhead: seconds per operator, added once per direction.
        engines: parallel engines, each with one operator at a time: `matrix` and, if separate, `vector` and
            `communication`.
        sources: of each figure.
        host_bandwidth: nominal bytes per second between the device and its host's memory, in each direction; `host` of
            `efficiency` is the share reached. None: unknown.
        host_memory_bandwidth: bytes per second of the host's memory, divided among its devices; None: unknown.
        multiprocessors: units that work on one tile of a matrix product each; None: unknown, and products take the time
            of their FLOP for any tiling.
        generation: devices of one generation are calibrated together; empty: the device alone.
        calibration: terms of the cost model besides the roofs.
        memory_overheads: memory without tensors; default: none.
        devices_per_host: devices of one machine, if it only comes in machines of one size that are no level of the
            network; None: unknown.
        stack: name of its usual software stack (`nest stacks`); None: unknown.
        host: processor of its machine that launches kernels.
        vendor: devices of two vendors share no process group (NCCL, RCCL); empty: unknown.
    """

    name: str
    memory: Bytes = field(validator=above(0))
    memory_bandwidth: BytesPerSecond = field(validator=above(0))
    peak: MatrixPeaks
    efficiency: dict[str, float] = field(factory=dict)
    launch_overhead: Seconds = field(default=Seconds(0.0), validator=at_least(0))
    sources: tuple[str, ...] = ()
    engines: tuple[str, ...] = field(default=(MATRIX,), validator=ENGINE_RULE)
    host_bandwidth: BytesPerSecond | None = field(default=None, validator=above(0))
    host_memory_bandwidth: BytesPerSecond | None = field(default=None, validator=above(0))
    multiprocessors: int | None = field(default=None, validator=at_least(1))
    generation: str = ""
    calibration: Coefficients = field(factory=Coefficients)
    memory_overheads: MemoryOverheads = MemoryOverheads()
    devices_per_host: int | None = field(default=None, validator=at_least(1))
    stack: str | None = None
    vendor: str = ""
    host: str = field(default=HOSTS[0], validator=one_of(HOSTS))
