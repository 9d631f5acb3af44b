"""What the ports of a stage's devices carry (PROBLEM.md section 4, Ports)."""

from collections.abc import Iterable

from nest.instance import Array, Candidate, Instance, RecomputeMode


def message(instance: Instance, level: int, size: float) -> float:
    """Seconds of a message of `size` bytes over a level (PROBLEM.md section 1)."""
    return instance.cluster.levels[level].latency + size / instance.cluster.levels[level].bandwidth


def often_by_level(
    candidate: Candidate,
    mode: RecomputeMode,
    layers: list[int],
    sharding: Array,
    messages: Iterable[tuple[int, float]],
) -> tuple[float, ...]:
    """Seconds per micro-batch that a stage keeps a device's port at each level occupied (`b_i`), hidden or not.

    `sharding` is what ZeRO sends, by level, shape `(levels,)`; `messages` are levels of boundaries and the seconds of
    what the stage receives over them.
    """
    assert candidate.busy is not None
    busy = candidate.busy[:, layers].sum(axis=1) + sharding
    if mode.busy is not None:
        busy = busy + mode.busy[:, layers].sum(axis=1)
    for level, seconds in messages:
        if level >= 0:
            busy[level] += seconds
    return tuple(busy.tolist())


def exposed_by_ports(
    instance: Instance, once: float, once_ports: Array, ports: tuple[float, ...], time: float, micro_batches: int
) -> float:
    """Seconds of what is sent once per batch that are exposed because ports leave too little free; 0: none overlaps.

    It overlaps with what is left of `time`, in all micro-batches, at the fullest of the levels it uses.
    """
    free = [time - busy for busy, used in zip(ports, once_ports > 0, strict=True) if used]
    if instance.space.exposed >= 1 or not free:
        return 0.0
    return once - micro_batches * min(free)
