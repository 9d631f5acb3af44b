"""What the benchmark found, as one value: errors by group, peers, memory and ranking."""

from collections.abc import Callable, Mapping, Sequence

import numpy
from attrs import frozen

import nest
from benchmarks.fidelity.predictions import Array, Table
from benchmarks.fidelity.ranking import Agreement, TaskSet, agreement, task_sets
from benchmarks.fidelity.statistics import Errors, errors
from nest.io import unstructure
from nest_calibrate.generations import MeasuredRun

COLUMNS = ("catalogue", "validated", "constant")
"""Predictions of `Table` whose errors are told side by side."""

KINDS: Mapping[str, Callable[[MeasuredRun], str]] = {
    "group": lambda each: each.run.group or "runs",
    "tier": lambda each: each.run.tier or "-",
    "device": lambda each: each.breakdown.pricing.device.name,
    "precision": lambda each: each.run.problem.training.precision,
}
"""By what errors are told apart."""


@frozen
class ErrorRow:
    """Errors of step times of some runs.

    Attributes:
        kind: by what they were told apart; `all` for all.
        name: which these are.
        count: runs.
        columns: errors by prediction; None where none was made.
    """

    kind: str
    name: str
    count: int
    columns: Mapping[str, Errors | None]


@frozen
class PeerRow:
    """A peer's errors beside ours, of the same runs.

    Attributes:
        group: who published the runs.
        tool: the peer.
        peer: its errors.
        columns: ours by prediction.
    """

    group: str
    tool: str
    peer: Errors
    columns: Mapping[str, Errors | None]


@frozen
class Peak:
    """The fullest stage of one run, bytes.

    Attributes:
        group: who published it.
        predicted: as estimated.
        measured: its peak.
        upper: what is compared with a device's memory.
    """

    group: str
    predicted: float
    measured: float
    upper: float


@frozen
class MemoryRow:
    """Errors of peaks of memory.

    Attributes:
        group: who published them; `all` for all.
        errors: of the estimate.
        above: peaks that the upper estimate does not reach.
    """

    group: str
    errors: Errors
    above: int


@frozen
class Figures:
    """All of it.

    Attributes:
        priced: runs.
        refused: runs that cannot be priced, by reason.
        errors: of step times.
        peers: beside ours.
        memory: errors of peaks.
        ranking: how well plans for one task are put in order, by group and all.
    """

    priced: int
    refused: Mapping[str, int]
    errors: tuple[ErrorRow, ...]
    peers: tuple[PeerRow, ...]
    memory: tuple[MemoryRow, ...]
    ranking: Mapping[str, Agreement]


def figures(table: Table, found: Sequence[Peak], refused: Mapping[str, int]) -> Figures:
    """What the predictions of `table` and the peaks `found` amount to."""
    return Figures(
        priced=len(table.runs),
        refused=dict(refused),
        errors=error_rows(table),
        peers=peer_rows(table),
        memory=memory_rows(found),
        ranking=ranking(task_sets([each.run for each in table.runs]), table.validated, table.measured),
    )


def error_rows(table: Table) -> tuple[ErrorRow, ...]:
    """Errors by group, tier, device and precision, and of all."""
    rows = []
    for kind, named in KINDS.items():
        names = [named(each) for each in table.runs]
        rows += [_row(table, kind, name, numpy.array([each == name for each in names])) for name in sorted(set(names))]
    return (*rows, _row(table, "all", "all", numpy.full(len(table.runs), True)))


def _row(table: Table, kind: str, name: str, chosen: numpy.typing.NDArray[numpy.bool_]) -> ErrorRow:
    columns = {each: errors(getattr(table, each)[chosen], table.measured[chosen]) for each in COLUMNS}
    return ErrorRow(kind, name, int(chosen.sum()), columns)


def peer_rows(table: Table) -> tuple[PeerRow, ...]:
    """Peers' own predictions, by group and tool, with ours of the same runs."""
    told = [(each.run.group or "runs", str(each.run.peer.get("tool", ""))) for each in table.runs]
    rows = []
    for group, tool in sorted({key for key, value in zip(told, table.peer, strict=True) if not numpy.isnan(value)}):
        chosen = numpy.array([key == (group, tool) for key in told]) & ~numpy.isnan(table.peer)
        its = errors(table.peer[chosen], table.measured[chosen])
        assert its is not None
        rows.append(PeerRow(group, tool, its, _row(table, "group", group, chosen).columns))
    return tuple(rows)


def peaks_of(runs: Sequence[MeasuredRun]) -> list[Peak]:
    """Predicted and measured peaks of the runs that have one."""
    found = []
    for each in runs:
        measured = each.run.measured.peak_memory
        if measured is not None:
            fullest = max(nest.evaluate(unstructure(each.run.problem)).stages, key=lambda stage: stage.memory)
            upper = fullest.memory if fullest.upper_memory is None else fullest.upper_memory
            found.append(Peak(each.run.group or "runs", fullest.memory, measured, upper))
    return found


def memory_rows(found: Sequence[Peak]) -> tuple[MemoryRow, ...]:
    """Errors of peaks by group, in the order of names, and of all."""
    groups = {name: [each for each in found if each.group == name] for name in sorted({each.group for each in found})}
    rows = []
    for name, members in [*groups.items(), ("all", list(found))]:
        predicted, measured = (
            numpy.array([getattr(each, side) for each in members]) for side in ("predicted", "measured")
        )
        off = errors(predicted, measured)
        if off is not None:
            rows.append(MemoryRow(name, off, sum(each.measured > each.upper for each in members)))
    return tuple(rows)


def ranking(sets: Sequence[TaskSet], predicted: Array, measured: Array) -> dict[str, Agreement]:
    """Agreement by group, in the order of names, and of all; nothing where there are no sets."""
    chosen = {name: [each for each in sets if each.group == name] for name in sorted({each.group for each in sets})}
    chosen["all"] = list(sets)
    found = {name: agreement(each, predicted, measured) for name, each in chosen.items()}
    return {name: each for name, each in found.items() if each is not None}
