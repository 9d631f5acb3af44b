"""Memory beside what operators keep and work on: buffers between blocks, libraries, what the allocator cannot use."""

from attrs import evolve, frozen

from nest.formulate.priced import PricedLayer
from nest.graph import Block
from nest.instance import Cluster
from nest.spec import DeviceSpec, Training

BOUNDARY_BUFFERS = 2
"""Tensors on their way at a stage's boundaries while a layer is at work: what arrives for the next micro-batch, and
what leaves of the last one (Megatron-LM's 1F1B receives into a fresh buffer while it still holds what it sends)."""

GATHERED_LAYERS = 2
"""Layers whose weights ZeRO 3 holds whole at once: the one at work and the one that is prefetched (PyTorch FSDP's
`forward_prefetch` and `BACKWARD_PRE`, arXiv 2304.11277, section 3.3.2)."""


@frozen
class Beside:
    """What a candidate's layers need beside what their operators keep and work on.

    Attributes:
        fragmentation: share of the memory held for further micro-batches in flight in which no tensor lies.
        framework: bytes of the driver and of libraries.
        buffers: bytes that communication between blocks fills and empties.
        gathered: bytes of weights and gradients that a stage with ZeRO 3 holds whole.
    """

    fragmentation: float = 0.0
    framework: float = 0.0
    buffers: float = 0.0
    gathered: float = 0.0


def beside(
    block: Block,
    layers: tuple[PricedLayer, ...],
    weights: float,
    gradients: float,
    cluster: Cluster,
    device: DeviceSpec,
    training: Training,
) -> Beside:
    """What the layers of `block` need besides.

    PROBLEM.md section 4 knows no bytes that depend on the number of stages or of replicas. So where the cluster has
    room for several blocks, every stage has buffers at its boundaries and is in the groups of ranks that several stages
    and several replicas make, whatever the plan decides: never too little, and the same for a plan that is searched and
    one that is given. What a stage with ZeRO 3 gathers is told apart.

    Args:
        block: the candidate's.
        layers: one of each kind.
        weights: bytes per parameter.
        gradients: bytes of a parameter's gradient.
        cluster: devices and network.
        device: the accelerator.
        training: what the software is said to need, in place of the device's overheads.
    """
    blocks = cluster.size // block.width
    several = blocks > 1
    said = {key: getattr(training, key) for key in ("context", "communicator", "fragmentation")}
    overheads = evolve(device.memory_overheads, **{key: value for key, value in said.items() if value is not None})
    crossing = max((item.tensor.bytes for item in block.graph.layer_tensors), default=0.0)
    buffers = BOUNDARY_BUFFERS * crossing if several else 0.0
    largest = max((sum(row.operator.parameter_count for row in layer.rows) for layer in layers), default=0)
    gathered = largest * (GATHERED_LAYERS * weights + gradients) if several else 0.0
    # Fewer than four blocks are stages or replicas, but not both.
    groups = len(_axes(block)) + several + (blocks >= 4)
    framework = overheads.context + groups * overheads.communicator
    return Beside(overheads.fragmentation, framework, buffers, gathered)


def _axes(block: Block) -> set[str]:
    """The axes of `block` over whose ranks its operators communicate."""
    return {
        call.axis
        for operator in block.graph.operators
        if operator.collective is not None
        for call in (*operator.collective.forward, *operator.collective.backward)
        if block.degree(call.axis) > 1
    }
