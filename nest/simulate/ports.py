"""Busy ports: what they carry, and what waits for them, read from PROBLEM.md section 4 ("Ports") once more."""

from collections.abc import Iterable, Mapping

from nest.instance import Candidate, Instance, RecomputeMode
from nest.plan.certificate import UNITS
from nest.simulate.records import WAIT, Piece, Ports
from nest.simulate.sharding import Sharding

Passes = Mapping[tuple[str, int], tuple[Piece, ...]]
"""By kind of pass and chunk, the pieces a pass consists of, in order."""


def ports_of(
    candidate: Candidate,
    mode: RecomputeMode,
    layers: list[int],
    messages: Iterable[tuple[int, float]],
    shared: Sharding,
) -> Ports | None:
    """What the ports of a stage's devices carry; None: its candidate does not say.

    Args:
        candidate: of the stage.
        mode: its recompute mode.
        layers: of the stage.
        messages: that it receives in a micro-batch: levels of the boundaries, -1 for none, and seconds.
        shared: its communication of data parallelism.
    """
    if candidate.busy is None:
        return None
    often = [float(row[layers].sum()) for row in candidate.busy]
    for level, seconds in enumerate(shared.often_ports):
        often[level] += seconds
        often[level] += 0.0 if mode.busy is None else float(mode.busy[level][layers].sum())
    for level, seconds in messages:
        if level >= 0:
            often[level] += seconds
    return Ports(tuple(often), shared.once_ports)


def held_up(passes: Passes, ports: Ports) -> dict[tuple[str, int], tuple[Piece, ...]]:
    """Passes that wait for the busiest port, each in proportion to its length, so that equal ones stay equal.

    Args:
        passes: of a stage; forward and backward ones together are one micro-batch.
        ports: what they carry.
    """
    alone = time_of(passes)
    wait = max(ports.often) - alone
    if wait <= 0:
        return dict(passes)
    lengths = {each: _seconds(pieces) if alone else float(UNITS[each[0]]) for each, pieces in passes.items()}
    whole = sum(length for (kind, _), length in lengths.items() if kind in ("forward", "backward"))
    waits = {each: wait * (length / whole) for each, length in lengths.items()}
    return {each: (*pieces, *([Piece(WAIT, waits[each])] if waits[each] else [])) for each, pieces in passes.items()}


def time_of(passes: Passes) -> float:
    """Seconds of a micro-batch (`t_i`)."""
    return sum(_seconds(pieces) for (kind, _), pieces in passes.items() if kind in ("forward", "backward"))


def shown_once(instance: Instance, shared: Sharding, ports: Ports, time: float, micro_batches: int) -> float:
    """The share of what a stage sends once per batch that shows: at least what ports leave too little free for.

    It hides in what every micro-batch, which takes `time`, leaves of the fullest port that it uses.
    """
    sent = shared.reduce + shared.refresh
    free = [time - often for often, once in zip(ports.often, ports.once, strict=True) if once > 0]
    if instance.space.exposed >= 1 or not free:
        return shared.shown
    return max(shared.shown, (sent - micro_batches * min(free)) / sent)


def _seconds(pieces: Iterable[Piece]) -> float:
    return sum(piece.seconds for piece in pieces)
