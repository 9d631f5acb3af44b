"""Figures of a cluster that are too small, or times too long, to be anything but numbers whose unit was left out."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_type_hints

import attrs

from nest.errors import InputErrors, Steps, dotted
from nest.spec.problem import Problem
from nest.units import Bytes, BytesPerSecond, FlopPerSecond, Seconds

LEAST: Mapping[object, tuple[float, str, str]] = {
    BytesPerSecond: (1e6, "bytes per second", "GB/s"),
    Bytes: (1e6, "bytes", "MiB"),
    FlopPerSecond: (1e6, "FLOP per second", "TFLOP/s"),
}
"""What is less is no accelerator's, but for 0; what the number is in, and the unit that people leave out."""

USUAL = 1e4
"""No figure in the unit that people leave out is as large."""

LONGEST = 1.0
"""Seconds; no link's latency and no kernel's launch takes as long."""


def refuse_missing_units(problem: Problem) -> None:
    """Refuse bandwidths, memories, speeds and latencies of a problem with a model that lack their unit.

    A profile's are left alone: its numbers mean what they mean to each other.

    Raises:
        InputErrors: every such number, with its place and the likely meaning.
    """
    if problem.model is not None:
        found = [*_missing(problem.training, ("training",)), *_missing(problem.cluster, ("cluster",))]
        if found:
            raise InputErrors(found)


def _missing(record: Any, steps: Steps) -> Iterator[str]:
    hints = get_type_hints(type(record))
    for name in attrs.fields_dict(type(record)):
        value = getattr(record, name)
        for kind in (hints[name], *get_args(hints[name])):
            if (kind in LEAST or kind is Seconds) and isinstance(value, (int, float)):
                yield from _told(value, kind, dotted((*steps, name)))
        for index, item in enumerate(value) if isinstance(value, tuple) else ():
            if attrs.has(type(item)):
                yield from _missing(item, (*steps, name, index))
        if attrs.has(type(value)):
            tag = getattr(value, "WRITTEN_UNDER", None)
            yield from _missing(value, (*steps, name) if tag is None else (*steps, name, tag))


def _told(value: float, kind: object, place: str) -> Iterator[str]:
    if kind is Seconds:
        if value >= LONGEST:
            yield f"{place}: {value:g} is {value:g} seconds; did you mean {value:g} us?"
        return
    least, unit, meant = LEAST[kind]
    if 0 < value < least:
        meant = "GiB" if place.endswith(("memory", "reserve")) else meant
        hint = f"did you mean {value:g} {meant}?" if value < USUAL else f"give its unit, as in 80 {meant}."
        yield f"{place}: {value:g} is {value:g} {unit}; {hint}"
