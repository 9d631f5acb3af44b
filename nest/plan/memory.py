"""What the memory of a stage is made of."""

from attrs import frozen

from nest.instance import RecomputeMode


@frozen
class MemoryParts:
    """What a stage's memory is made of, bytes; the parts add up to it.

    Attributes:
        weights: parameters.
        gradients: of the parameters.
        optimizer: its state.
        activations: of all micro-batches in flight.
        transient: what lives only while a layer runs, communication apart.
        communication: buffers of communication.
        framework: what driver and libraries hold.
        fragmentation: memory held for activations in which no tensor lies.
        reserve: kept free.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    transient: float
    communication: float
    framework: float
    fragmentation: float
    reserve: float


def memory_parts(
    mode: RecomputeMode,
    layers: list[int],
    state: tuple[float, float, float],
    kept: float,
    further: float,
    gathered: float,
    reserve: float,
) -> MemoryParts:
    """What a stage's memory is made of.

    Args:
        mode: its recompute mode.
        layers: its layers.
        state: bytes of weights, gradients and optimizer.
        kept: bytes kept for all micro-batches in flight.
        further: of these, what layers keep for all but one.
        gathered: bytes of weights that ZeRO 3 holds whole for the layers at work.
        reserve: bytes kept free.
    """
    overheads = mode.overheads
    largest = max(layers, key=lambda layer: float(mode.peak[layer]))
    communication = 0.0 if overheads.buffers is None else float(overheads.buffers[largest])
    unused = further * overheads.fragmentation
    return MemoryParts(
        *state,
        activations=kept - unused,
        transient=max(float(mode.peak[largest]) - communication - overheads.framework, 0.0),
        communication=communication + gathered,
        framework=overheads.framework,
        fragmentation=unused,
        reserve=reserve,
    )
