"""What the memory of a stage is made of."""

from nest.instance import RecomputeMode
from nest.spec import MemoryBreakdown


def memory_parts(
    mode: RecomputeMode,
    layers: list[int],
    state: tuple[float, float, float],
    kept: float,
    further: float,
    gathered: float,
    reserve: float,
) -> MemoryBreakdown:
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
    return MemoryBreakdown(
        *state,
        activations=kept - unused,
        transient=max(float(mode.peak[largest]) - communication - overheads.framework, 0.0),
        communication=communication + gathered,
        framework=overheads.framework,
        fragmentation=unused,
        reserve=reserve,
    )
