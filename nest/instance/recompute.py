"""Partial recomputation: the first blocks in one mode, the others in a lighter one (PROBLEM.md section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy
from attrs import evolve

from nest.instance.candidate import Array, RecomputeMode

if TYPE_CHECKING:
    from nest.instance.instance import Instance, StageDecision
    from nest.instance.space import Space

Units = Sequence[tuple[int, ...]]
"""Layers of each transformer block in pipeline order."""


class Partial(NamedTuple):
    """The first `layers` blocks of each chunk of a stage in one mode, the others in a lighter one.

    Attributes:
        mode: name of the mode of the first blocks.
        layers: number of first blocks; a smaller chunk recomputes all of its blocks.
        rest: name of the mode of the others, and of layers outside blocks.
    """

    mode: str
    layers: int
    rest: str

    @property
    def name(self) -> str:
        """Name in decisions: `full:5:none`."""
        return f"{self.mode}:{self.layers}:{self.rest}"


@lru_cache(maxsize=2**14)
def partial(name: str) -> Partial | None:
    """Parse the name of a partial recompute mode; None: a pure mode.

    >>> partial("full:5:none")
    Partial(mode='full', layers=5, rest='none')
    >>> partial("selective") is None
    True
    """
    mode, *parts = name.split(":")
    if len(parts) != 2 or not parts[0].isdecimal():
        return None
    return Partial(mode, int(parts[0]), parts[1])


def modes_of(name: str) -> tuple[str, ...]:
    """Pure modes of a stage's layers, from the name of its mode.

    >>> modes_of("full:5:none"), modes_of("full")
    (('full', 'none'), ('full',))
    """
    part = partial(name)
    return (name,) if part is None else (part.mode, part.rest)


def recompute_words(name: str) -> str:
    """A recompute mode in words.

    >>> recompute_words("full:5:none"), recompute_words("full:5:selective"), recompute_words("full")
    ('full in the first 5 blocks', 'full in the first 5 blocks, then selective', 'full')
    """
    if (part := partial(name)) is None:
        return name
    count = "block" if part.layers == 1 else f"{part.layers} blocks"
    return f"{part.mode} in the first {count}{'' if part.rest == 'none' else f', then {part.rest}'}"


def recompute_values(space: Space, name: str) -> dict[str, str | int]:
    """Values of a recompute mode in constraints: `recompute` and `recompute_layers`."""
    part = partial(name)
    if part is None:
        return {"recompute": name, "recompute_layers": 0 if name == "none" else len(space.units)}
    return {"recompute": part.mode, "recompute_layers": part.layers}


def recomputed(units: Units, layers: Sequence[int], count: int) -> tuple[int, ...]:
    """Those of `layers`, of one chunk, in the first `count` blocks that it holds a part of."""
    inside = frozenset(layers)
    touched = [unit for unit in units if not inside.isdisjoint(unit)][:count]
    return tuple(layer for unit in touched for layer in unit if layer in inside)


def stage_mode(instance: Instance, stage: StageDecision, chunks: Sequence[Sequence[int]] = ()) -> RecomputeMode:
    """Recompute mode of a stage by layer; undefined for other layers.

    Args:
        chunks: layers of each of its chunks; empty: it has one.
    """
    candidate, part = instance.candidates[stage.candidate], partial(stage.recompute)
    if part is None:
        return candidate.mode(stage.recompute)
    runs = chunks or [stage.layers]
    first = numpy.zeros(len(candidate.forward), dtype=bool)
    for run in runs:
        first[list(recomputed(instance.space.units, run, part.layers))] = True
    mode, rest = candidate.mode(part.mode), candidate.mode(part.rest)
    used = [each for each, some in ((mode, first), (rest, ~first)) if some[list(stage.layers)].any()]

    def joined(one: Array | None, other: Array | None) -> Array | None:
        if one is None and other is None:
            return None
        return numpy.where(first, 0.0 if one is None else one, 0.0 if other is None else other)

    overheads = evolve(mode.overheads, buffers=joined(mode.overheads.buffers, rest.overheads.buffers))
    extra, kept, more, peak = (
        numpy.where(first, getattr(mode, row), getattr(rest, row)) for row in ("extra", "first", "more", "peak")
    )
    stashes, busy = any(each.stash_inputs for each in used), joined(mode.busy, rest.busy)
    return RecomputeMode(stage.recompute, extra, kept, more, peak, stashes, overheads, busy)
