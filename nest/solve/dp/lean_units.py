"""What units of stages of several chunks take and need at least, ahead of any pattern: whether stages hold them all."""

from collections.abc import Hashable, Sequence
from itertools import accumulate
from math import inf, prod
from typing import NamedTuple

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Array, Candidate
from nest.solve.dp.beside_compute import FirstBounds
from nest.solve.dp.choices import Choice
from nest.solve.dp.configurations import Configuration
from nest.solve.dp.units import Splits
from nest.tolerances import LIMIT_SLACK, SUM_ERROR

MOST_NUMBERS = 2**20
"""Numbers of units up to which plans are looked at together."""


@frozen(eq=False, repr=False)
class UnitBytes:
    """What units between the first and the last of all need at least: those of each run, then any.

    Attributes:
        count: how many there are. Shape `(runs + 1,)`, as that of runs below.
        first: bytes of the state of one and of one micro-batch. Shape `(choices, runs)`.
        more: bytes of each further one. Shape `(choices, runs)`.
        ends: the same two of the first unit of all and of the last. Shape `(2, choices, 2)`.
        peak: transient bytes, at least.
    """

    count: NDArray[numpy.int64]
    first: Array
    more: Array
    ends: Array
    peak: float

    def room(self, held: Array, spread: Array, room: float, homes: tuple[int, int]) -> Array:
        """How many units there is memory for, by choice, run and stage; infinite where none takes memory.

        Shape `(choices, runs, stages)`. They are in the chunk that holds the fewest micro-batches, but for one in each
        other.

        Args:
            held: micro-batches that every chunk of a stage holds at one moment, at least. Shape `(stages, moments)`.
            spread: micro-batches that the other chunks hold beyond these, together. Shape `(stages, moments)`.
            room: bytes of a device.
            homes: the stages that hold the first unit of all and the last.
        """
        needed = self.first[..., None, None] + (held - 1) * self.more[..., None, None]
        needed[:, -1] = needed[:, :-1].min(axis=1)
        left = room - self.peak - spread * self.more[:, -1, None, None]
        for home, first, more in zip(homes, self.ends[0].T, self.ends[1].T, strict=True):
            left[:, home] -= first[:, None] + (held[home] - 1) * more[:, None]
        left = numpy.maximum(left, 0.0)[:, None]
        with numpy.errstate(divide="ignore", invalid="ignore"):
            # Where a chunk holds less than one micro-batch, its inputs and the ends may count below zero.
            found: Array = numpy.where((needed > 0) & (held >= 1), left / needed, inf).min(axis=3)
        return found

    def fit(self, room: Array) -> bool:
        """Whether there is room for all units, as `room` has it, however long stages take."""
        return bool(_held_by(room[None], self.count)[0])


class UnitSeconds(NamedTuple):
    """What the same units take at least.

    Attributes:
        seconds: of one that computes, recomputes and communicates for ZeRO, per micro-batch. Shape `(choices, runs)`.
        ends: of the first unit of all and of the last. Shape `(choices, 2)`.
    """

    seconds: Array
    ends: Array


class LeanPlan(NamedTuple):
    """What stages of a plan have for units.

    Attributes:
        units: what these take.
        room: as `UnitBytes.room` has it. Shape `(choices, runs, stages)`.
        time: most seconds of each stage per micro-batch. Shape `(stages,)`.
        homes: the stages that hold the first unit of all and the last besides.
    """

    units: UnitSeconds
    room: Array
    time: Array
    homes: tuple[int, int]


def in_time(count: NDArray[numpy.int64], plans: Sequence[LeanPlan]) -> list[bool]:
    """Whether the stages of plans hold all units; `count` as `UnitBytes` has it."""
    if not plans:
        return []
    shape = tuple(map(max, zip(*(each.room.shape for each in plans), strict=True)))
    most, found = max(MOST_NUMBERS // prod(shape), 1), list[bool]()
    for start in range(0, len(plans), most):
        some = plans[start : start + most]
        # Stages and choices that a plan has fewer than others hold no units.
        room, time = numpy.zeros((len(some), *shape)), numpy.zeros((len(some), *shape[::2]))
        seconds = numpy.zeros((len(some), *shape[:2]))
        for place, each in enumerate(some):
            choices, _, stages = each.room.shape
            room[place, :choices, :, :stages], seconds[place, :choices] = each.room, each.units.seconds
            time[place, :choices, :stages] = each.time * (1 + LIMIT_SLACK)
            for home, end in zip(each.homes, each.units.ends.T, strict=True):
                time[place, :choices, home] -= end
        with numpy.errstate(divide="ignore", invalid="ignore"):
            fast = numpy.maximum(time, 0.0)[:, :, None] / seconds[..., None]
        numpy.copyto(fast, inf, where=seconds[..., None] <= 0)
        found += _held_by(numpy.minimum(room, fast), count).tolist()
    return found


def _held_by(room: Array, count: NDArray[numpy.int64]) -> NDArray[numpy.bool_]:
    """Whether stages with so much room hold all units. Shapes `(plans, choices, runs, stages)` and `(plans,)`."""
    each = numpy.floor(room * (1 + LIMIT_SLACK))
    held: NDArray[numpy.bool_] = (each.max(axis=1).sum(axis=2) >= count).all(axis=1)
    return held


@frozen(eq=False, repr=False)
class UnitLayers:
    """The layers of one unit of each run between the first and the last of all, then of these two.

    Attributes:
        count: units of each run, then of all, without the ends. Shape `(runs + 1,)`.
        layers: of these units, one after the other.
        starts: where each unit begins among them. Shape `(runs + 2,)`.
    """

    count: NDArray[numpy.int64]
    layers: list[int]
    starts: list[int]

    @classmethod
    def of(cls, splits: Splits) -> "UnitLayers":
        """Those of a model."""
        units = splits.units
        inner = [[unit for unit in run.units if unit not in (units[0], units[-1])] for run in splits.runs]
        runs = [each for each in inner if each]
        shown = [*(each[0] for each in runs), units[0], units[-1]]
        starts = [0, *accumulate(map(len, shown[:-1]))]
        return cls(numpy.array([*map(len, runs), len(units) - 2]), [layer for unit in shown for layer in unit], starts)

    def sums(self, row: Array) -> Array:
        """What a number of each layer adds up to in these units. Shape `(runs + 2,)`."""
        found: Array = numpy.add.reduceat(row[self.layers], self.starts)
        return found

    def peak(self, row: Array) -> float:
        """The most of any layer of a unit, of the run where that is least."""
        return float(numpy.maximum.reduceat(row[self.layers], self.starts)[:-2].min())


def unit_seconds(layers: UnitLayers, bounds: FirstBounds, configuration: Configuration) -> UnitSeconds:
    """What units take with each choice of a configuration; `bounds` of the instance."""
    space, choices = bounds.instance.space, configuration.choices
    candidate = bounds.instance.candidates[configuration.candidate]
    alone = layers.sums(candidate.forward + candidate.backward)
    working = {name: alone + layers.sums(candidate.mode(name).extra) for name in configuration.modes}
    often = {
        zero: layers.sums(bounds.often(configuration, zero)) * (1 - SUM_ERROR)
        for zero in {each.zero for each in choices}
    }

    def seconds(choice: Choice) -> Array:
        """What hides under work shows at least a share, and what is longer than all work.

        Of the two one is taken for all units: both add up over those of a stage.
        """
        work, sent = working[choice.recompute], often[choice.zero]
        shown_seconds = work + space.often_exposed * sent
        return sent if space.hiding and sent.sum() > shown_seconds.sum() else shown_seconds

    every = numpy.array([seconds(each) for each in choices])
    return UnitSeconds(_with_any(every[:, :-2]), every[:, -2:])


def _with_any(rows: Array) -> Array:
    """With a run more, of which a unit needs what one of some run does at least."""
    return numpy.concatenate([rows, rows.min(axis=-1, keepdims=True)], axis=-1)


@frozen(eq=False, repr=False)
class UnitRows:
    """Bytes of the units of `UnitLayers`, of candidates that need as many; told apart by identity.

    Arrays of shape `(runs + 2,)`, by recompute mode but for `groups`.

    Attributes:
        count: as of `UnitLayers`.
        groups: of their parameter groups the ranks that hold the same, with bytes of weights, gradients and optimizer
            before ZeRO.
        first: bytes of one micro-batch.
        more: bytes of each further one.
        peak: transient bytes, at least.
    """

    count: NDArray[numpy.int64]
    groups: list[tuple[int, Array, Array, Array]]
    first: dict[str, Array]
    more: dict[str, Array]
    peak: dict[str, float]

    @classmethod
    def of(cls, layers: UnitLayers, candidate: Candidate) -> "UnitRows":
        """Those of a candidate."""
        sums, modes = layers.sums, candidate.recompute
        return cls(
            layers.count,
            [
                (len(each.ranks), sums(each.weights), sums(each.gradients), sums(each.optimizer))
                for each in candidate.state
            ],
            {mode.name: sums(mode.first) for mode in modes},
            {mode.name: sums(mode.more) for mode in modes},
            {mode.name: layers.peak(mode.peak) for mode in modes},
        )

    @property
    def decided(self) -> Hashable:
        """What tells apart rows of the same layers."""
        groups = [(ranks, *(row.tobytes() for row in rows)) for ranks, *rows in self.groups]
        modes = [(name, first.tobytes(), self.more[name].tobytes()) for name, first in self.first.items()]
        return *groups, *modes, *self.peak.values()

    def of_configuration(self, configuration: Configuration) -> UnitBytes:
        """Those of a configuration, for each of its choices."""
        size, choices = len(self.count) + 1, configuration.choices
        state = {zero: configuration.state(self.groups, size, zero) for zero in {each.zero for each in choices}}
        figures = [(state[each.zero] + self.first[each.recompute], self.more[each.recompute]) for each in choices]
        every = numpy.array(figures).swapaxes(0, 1)
        first, more = _with_any(every[..., :-2])
        peak = min(self.peak[name] for name in configuration.modes)
        return UnitBytes(self.count, first, more, every[..., -2:], peak)
