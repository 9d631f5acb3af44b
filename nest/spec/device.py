"""Devices and their calibration (FORMATS.md, `cluster.device`).

Every coefficient of a calibration has bounds it never leaves, and a prior to which a fit returns where measurements say
nothing. Left out, each has the value that switches its term off, and the cost model is the plain roofline.
docs/explanation/cost-model.md has the formulas.
"""

from typing import Any

from attrs import field, frozen
from attrs import fields as attributes

from nest.records import Record
from nest.spec.validators import above, all_different, at_least, between, each, every, including, not_empty, one_of
from nest.units import Bytes, BytesPerSecond, FlopPerSecond, Seconds


@frozen(eq=False, repr=False)
class Range(Record):
    """What a calibration may make of a number.

    Attributes:
        low: the least it can physically be.
        high: the most.
        prior: what it is taken to be where nothing was measured.
        spread: how far from the prior it may be expected to lie: the standard deviation of its logarithm.
    """

    low: float
    high: float
    prior: float
    spread: float


def _coefficient(off: float, low: float, high: float, prior: float, spread: float) -> Any:
    """A coefficient that is `off` when left out."""
    least, most = min(low, off), max(high, off)
    return field(default=off, validator=between(least, most), metadata={"range": Range(low, high, prior, spread)})


@frozen(eq=False, repr=False)
class Coefficients(Record):
    """Terms of the cost model beside the roofs (docs/explanation/cost-model.md).

    Attributes:
        sustained: share of the matrix peaks that clocks and power of this very device allow, relative to others of its
            generation; above 1 for one that runs faster.
        contracted_half: contracted elements that take as long as filling and draining a tile of a matrix product: a
            product of that depth takes twice as long as its FLOP alone.
        rows_half: rows (tokens) at which a matrix product takes twice as long as its FLOP alone.
        grouped: share of a matrix product's speed that products with one matrix per expert reach.
        attention_backward: speed of the backward pass of a fused attention kernel over that of the forward pass.
        head_half: channels per head at which fused attention runs at half its speed.
        sequence_half: keys at which it does.
        shared_keys: exponent by which fused attention runs faster where several query heads share a key-value head:
            speed grows by `(heads / key-value heads) ** shared_keys`.
        cast: times the operands of a product in 8 or 4 bits pass through memory once more to be converted.
        host_launch: seconds the host takes to launch an operator's kernels, in each direction: a layer takes no less
            than its operators together.
        grace_launch: the same over that, where the host is a Grace processor.
        routing_launches: kernels launched to choose experts, to sort tokens by them and to send these, over those of
            another operator.
        eager: times that norms go over what they read and write where kernels between products are not fused.
        tensor_exposed: share of a layer's collectives that `training.overlap.tensor` does not hide.
        experts_exposed: share of what experts exchange that `training.overlap.experts` does not hide.
        dispatch_exposed: the same with `training.dispatch: per-node`, whose kernels keep fewer multiprocessors busy.
        ring_exposed: share of what rings under attention send that attention does not hide.
        data_exposed: share of what data parallelism sends once per batch that `training.overlap.data` does not hide.
        gathers_exposed: share of what ZeRO 2 and 3 send in every micro-batch that it does not hide.
        synchronisation: seconds that gradients and weights take once per batch, where `training.overlap.data` hides
            none, over those of the collective model: ranks out of step, many small buckets, several groups on one link.
        sharded_synchronisation: what it is multiplied by where the optimizer's state is sharded (ZeRO 1 and up):
            frameworks then exchange parameters one by one, or gradients in single precision.
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
    """The range of each coefficient, by name, in the order of `Coefficients`."""
    return {each.name: each.metadata["range"] for each in attributes(Coefficients)}


HOSTS = ("x86", "grace")
"""Processors that launch kernels: of the x86 family, and NVIDIA's Grace."""

MATRIX, VECTOR, COMMUNICATION = "matrix", "vector", "communication"
ENGINES = (MATRIX, VECTOR, COMMUNICATION)
"""Engines a device may have: for matrix products, for what is element by element, for collectives."""

ENGINE_RULE = every(not_empty, each(one_of(ENGINES)), all_different, including(MATRIX))
"""What engines of a device must be."""


@frozen(eq=False, repr=False)
class MatrixPeaks(Record):
    """Dense matrix peak of a device by precision, FLOP per second; None: the device does not offer it.

    Narrow formats a device lacks run at the peak of the next wider one it has.
    """

    fp32: FlopPerSecond | None = field(default=None, validator=above(0))
    fp16: FlopPerSecond | None = field(default=None, validator=above(0))
    bf16: FlopPerSecond | None = field(default=None, validator=above(0))
    fp8: FlopPerSecond | None = field(default=None, validator=above(0))
    mxfp8: FlopPerSecond | None = field(default=None, validator=above(0))
    nvfp4: FlopPerSecond | None = field(default=None, validator=above(0))


@frozen(eq=False, repr=False)
class MemoryOverheads(Record):
    """Device memory that holds no tensor, though tools such as `nvidia-smi` count it as used.

    docs/explanation/memory.md ("Memory without tensors") says where the catalogue's figures come from.

    Attributes:
        context: bytes of the driver's context and of the code that libraries load.
        communicator: bytes of buffers that the communication library keeps for each group of ranks a device is in.
        fragmentation: share of the memory held for the activations of micro-batches in flight, beyond the first, in
            which no tensor lies, because the allocator cannot use it; at most 0.9.
    """

    context: Bytes = field(default=Bytes(0.0), validator=at_least(0))
    communicator: Bytes = field(default=Bytes(0.0), validator=at_least(0))
    fragmentation: float = field(default=0.0, validator=between(0, 0.9))


@frozen(eq=False, repr=False)
class DeviceSpec(Record):
    """An accelerator.

    Attributes:
        name: as `nest devices` lists it.
        memory: bytes of device memory.
        memory_bandwidth: bytes per second.
        peak: dense matrix peaks.
        efficiency: share of the roofline reached, by kind of operator; `default` serves kinds not named.
        launch_overhead: seconds per operator, added once per direction.
        engines: what runs at the same time, each one operator at a time: `matrix`, and where the device has engines of
            their own for them `vector` and `communication`.
        sources: where each figure was read.
        host_bandwidth: nominal bytes per second between the device and its host's memory, in each direction; `host` of
            `efficiency` is the share reached. None: not known.
        host_memory_bandwidth: bytes per second of the host's memory, shared out to its devices; None: not known.
        multiprocessors: units that work on one tile of a matrix product each; None: not known, and products take what
            their FLOP take however they divide into tiles.
        generation: devices of one generation are calibrated together; empty: the device alone.
        calibration: terms of the cost model beside the roofs.
        memory_overheads: memory that holds no tensor; left out, there is none.
        devices_per_host: how many are built into one machine, where it comes in machines of one size that are no level
            of the network; None: it does not say.
        stack: name of the software stack that usually trains on it (`nest stacks`); None: nobody says.
        host: the processor beside it that launches kernels.
        vendor: whose it is: devices of two vendors share no process group (NCCL, RCCL); empty: nobody says.
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
