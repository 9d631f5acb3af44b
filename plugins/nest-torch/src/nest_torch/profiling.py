"""Experiments on the device at hand, within a budget of time, as measurements."""

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter

import torch
from attrs import frozen

from nest.spec.measurements import OperatorMeasurement
from nest.units import Bytes, Seconds
from nest_torch.experiments import Experiment
from nest_torch.machine import FORMATS, Machine
from nest_torch.operators import Unavailable, in_turn
from nest_torch.timing import FEWEST_REPEATS, Timing, measure

UNTYPED = {"copy": "fp32", "update": "fp32", "launch": "fp32"}
"""The precision said of kinds that run in the same whatever is asked for."""

IN_TURN, MOST_SETS = 2.0**26, 512
"""Bytes of operands that runs on a CPU take in turn, beyond the caches of its cores, and sets of them at most."""


@frozen
class Effort:
    """Time and repeats to spend.

    Attributes:
        repeats: how often to time each experiment.
        seconds: for all experiments together.
        cold: whether caches hold none of the operands.
    """

    repeats: int
    seconds: float
    cold: bool


@frozen
class Skipped:
    """An experiment that was not measured.

    Attributes:
        told: the experiment.
        reason: why not.
    """

    told: str
    reason: str


def plan(experiments: Sequence[Experiment], precisions: Sequence[str]) -> tuple[tuple[Experiment, str], ...]:
    """Each experiment in each precision; those to which it makes no difference once."""
    rows: dict[str, tuple[Experiment, str]] = {}
    for experiment in experiments:
        for precision in precisions:
            said = UNTYPED.get(experiment.kind, precision)
            rows.setdefault(f"{experiment} {said}", (experiment, said))
    return tuple(rows.values())


def lacking(
    rows: Sequence[tuple[Experiment, str]], known: Sequence[OperatorMeasurement], cold: bool
) -> tuple[tuple[Experiment, str], ...]:
    """Those of `rows` that no measurement is of."""
    done = {_key(each.kind, each.shape, each.direction, each.precision, each.cold, each.bytes) for each in known}
    return tuple(
        (each, precision)
        for each, precision in rows
        if _key(each.kind, each.shape, each.direction, precision, cold and each.kind != "launch", each.bytes)
        not in done
    )


def _key(
    kind: str, shape: Mapping[str, int | bool], direction: str, precision: str, cold: bool, moved: float | None
) -> tuple[object, ...]:
    """Key of an experiment; the bytes of all but copies follow from their shapes."""
    return kind, tuple(sorted(shape.items())), direction, precision, cold, moved if kind == "copy" else None


def profile(
    rows: Sequence[tuple[Experiment, str]], machine: Machine, effort: Effort, told: Callable[[int, str], None]
) -> Iterator[OperatorMeasurement | Skipped]:
    """Measure `rows` in their order, until the time is up.

    Args:
        rows: experiments with their precisions.
        machine: the device.
        effort: how much is spent. An experiment gets its share of what time is left, and `FEWEST_REPEATS` in any case.
        told: called before each with its number, from 0, and what it is.
    """
    begin = perf_counter()
    torch.manual_seed(0)
    for index, (experiment, precision) in enumerate(rows):
        left = effort.seconds - (perf_counter() - begin)
        if left <= 0:
            yield Skipped(f"{len(rows) - index} of {len(rows)} experiments", "the time was up; --seconds gives more")
            return
        told(index, f"{title(experiment)} {precision}")
        itemsize = int(getattr(torch, FORMATS[precision]).itemsize)
        if experiment.held(itemsize) > machine.memory:
            yield Skipped(f"{title(experiment)} {precision}", "it does not fit the memory")
            continue
        try:
            timing = _timed(experiment, precision, machine, effort, left / (len(rows) - index))
        except Unavailable as error:
            yield Skipped(f"{title(experiment)} {precision}", str(error))
            continue
        finally:
            if machine.cuda:
                torch.cuda.empty_cache()
        yield _measurement(experiment, precision, machine, effort, timing)


def title(experiment: Experiment) -> str:
    """An experiment in a line."""
    sizes = [f"{name} {str(size).lower()}" for name, size in experiment.shape.items()]
    sizes += [f"{experiment.bytes:.0f} bytes"] if experiment.bytes is not None else []
    return " ".join([experiment.kind, *(["backward"] if experiment.direction == "backward" else []), *sizes])


def _timed(experiment: Experiment, precision: str, machine: Machine, effort: Effort, seconds: float) -> Timing:
    by_host = experiment.kind == "launch"
    repeats = max(effort.repeats, FEWEST_REPEATS)
    with in_turn(experiment, machine, precision, _sets(experiment, precision, machine, effort)) as run:
        return measure(run, machine.stopwatch, repeats, seconds, cold=effort.cold and not by_host, by_host=by_host)


def _sets(experiment: Experiment, precision: str, machine: Machine, effort: Effort) -> int:
    """Sets of operands that runs take in turn: what a run finds in caches of a core it has put there itself."""
    held = experiment.held(int(getattr(torch, FORMATS[precision]).itemsize))
    if machine.cuda or effort.cold or experiment.kind == "launch":
        return 1
    return max(1, min(MOST_SETS, int(IN_TURN // max(held, 1.0))))


def _measurement(
    experiment: Experiment, precision: str, machine: Machine, effort: Effort, timing: Timing
) -> OperatorMeasurement:
    moved = experiment.moved(int(getattr(torch, FORMATS[precision]).itemsize))
    return OperatorMeasurement(
        nest=1,
        measurement="operator",
        kind=experiment.kind,
        precision=precision,
        seconds=Seconds(timing.seconds),
        shape=dict(experiment.shape),
        direction=experiment.direction,
        bytes=None if moved is None else Bytes(moved),
        spread=timing.spread,
        repeats=timing.repeats,
        cold=effort.cold and experiment.kind != "launch",
        device=machine.name,
        date=datetime.datetime.now().date().isoformat(),
        versions=machine.versions,
    )
