"""Least times and needs of units of stages of several chunks, before any pattern: do the stages hold all units?"""

from collections.abc import Hashable
from itertools import accumulate
from math import inf

import numpy
from attrs import frozen
from numpy.typing import NDArray

from nest.instance import Array, Instance
from nest.solve.dp.beside_compute import FirstBounds
from nest.solve.dp.choices import Choice
from nest.solve.dp.configurations import Configuration, bounding_choices, bounding_mode
from nest.solve.dp.units import Splits
from nest.tolerances import LIMIT_SLACK, SUM_ERROR


@frozen(eq=False, repr=False)
class LeanUnits:
    """Least times and needs of units other than the first and last: those of each run, then any."""

    count: NDArray[numpy.int64]  # Number of units. Shape `(runs + 1,)`, as for runs below.
    # Per micro-batch of compute, recomputation and ZeRO communication of one unit. Shape `(choices, runs)`.
    seconds: Array
    first: Array  # Bytes of its state and of one micro-batch. Shape `(choices, runs)`.
    more: Array  # Bytes of each further one. Shape `(choices, runs)`.
    ends: Array  # The same three of the first and last unit. Shape `(3, choices, 2)`.
    peak: float  # Lower bound on transient bytes.
    # Mixed choices, each with two rows behind all choices: all units in the lighter mode, and in the other.
    mixes: tuple[tuple[int, int, int], ...] = ()

    @property
    def needed(self) -> tuple[Hashable, ...]:
        """Key of `room`."""
        arrays = (self.count, self.first, self.more, self.ends[1:])
        return *(each.tobytes() for each in arrays), self.peak, self.mixes

    def room(self, held: Array, spread: Array, room: float, homes: tuple[int, int]) -> Array:
        """Units that fit memory; infinite if none takes memory. Shape `(choices, runs, stages)`.

        All but one of each other chunk are in the chunk with the fewest micro-batches.

        Args:
            held: least micro-batches of each chunk of a stage at one moment. Shape `(stages, moments)`.
            spread: total excess of the other chunks. Shape `(stages, moments)`.
            room: bytes of a device.
            homes: stages of the first and last unit.
        """
        needed = self.first[..., None, None] + (held - 1) * self.more[..., None, None]
        needed[:, -1] = needed[:, :-1].min(axis=1)
        left = room - self.peak - spread * self.more[:, -1, None, None]
        for home, first, more in zip(homes, self.ends[1].T, self.ends[2].T, strict=True):
            left[:, home] -= first[:, None] + (held[home] - 1) * more[:, None]
        for mix, *both in self.mixes:
            left[both] = left[mix]
        left = numpy.maximum(left, 0.0)[:, None]
        with numpy.errstate(divide="ignore", invalid="ignore"):
            # Where a chunk holds less than one micro-batch, its inputs and the ends may count below zero.
            every = numpy.where((needed > 0) & (held >= 1), left / needed, inf)
        found: Array = every.min(axis=3)
        for _, light, heavy in self.mixes:
            # Two numbers bound a mix at one moment.
            place = every[light].argmin(axis=2)[..., None]
            found[heavy] = numpy.take_along_axis(every[heavy], place, axis=2)[..., 0]
        return found

    def hold(self, room: Array, time: Array, homes: NDArray[numpy.int64]) -> NDArray[numpy.bool_]:
        """Mask of plans whose stages hold all units. Shape `(plans,)`.

        Args:
            room: from `room`, by plan. Shape `(plans, choices, runs, stages)`.
            time: most seconds of each stage per micro-batch. Shape `(plans, stages)`.
            homes: stages of the first and last unit. Shape `(plans, 2)`.
        """
        seconds, plans = self.seconds[..., None], numpy.arange(len(time))
        left = numpy.repeat(time[:, None] * (1 + LIMIT_SLACK), len(self.seconds), axis=1)
        for home, end in zip(homes.T, self.ends[0].T, strict=True):
            left[plans, :, home] -= end
        with numpy.errstate(divide="ignore", invalid="ignore"):
            fast = numpy.where(seconds > 0, numpy.maximum(left, 0.0)[:, :, None] / seconds, inf)
        every = numpy.minimum(room, fast)
        for mix, light, heavy in self.mixes:
            own = self._mixed(room[:, light], room[:, heavy], light, heavy, left[:, mix, None])
            every[:, mix] = numpy.fmin(every[:, mix], own)
        choices = len(self.seconds) - 2 * len(self.mixes)
        each = numpy.floor(every[:, :choices] * (1 + LIMIT_SLACK))
        held: NDArray[numpy.bool_] = (each.max(axis=1).sum(axis=2) >= self.count).all(axis=1)
        return held

    def _mixed(self, roomy: Array, full: Array, light: int, heavy: int, time: Array) -> Array:
        """Units that stages hold with this room in either mode; infinite: any. Shape `(plans, runs, stages)`.

        Each unit beyond the room of the lighter mode takes memory that others must spare.
        """
        least, longer = self.seconds[light, :, None], (self.seconds[heavy] - self.seconds[light])[:, None]
        with numpy.errstate(divide="ignore", invalid="ignore"):
            spared = numpy.where(numpy.isinf(full), 1.0, full / (full - roomy))
            found = (numpy.maximum(time, 0.0) + longer * spared * roomy) / (least + longer * spared)
        bounded = (full > roomy) & (longer > 0)
        if len(self.count) > 2:  # Of any units no two numbers belong together.
            bounded[:, -1] = False
        units: Array = numpy.where(bounded, found, inf)
        return units


@frozen(eq=False, repr=False)
class UnitRows:
    """Compute and memory of units of a candidate: one of each run between the ends, then the ends.

    Arrays have shape `(runs + 2,)`, by recompute mode except `groups`.
    """

    candidate: int  # Index.
    count: NDArray[numpy.int64]  # Units of each run, then of all, without the ends. Shape `(runs + 1,)`.
    places: tuple[list[int], list[int]]  # Layers of these units in sequence, and the start of each unit among them.
    # By parameter group, ranks with equal parameters, and bytes of weights, gradients and optimizer before ZeRO.
    groups: list[tuple[int, Array, Array, Array]]
    working: dict[str, Array]  # Seconds per micro-batch of compute and recomputation.
    first: dict[str, Array]  # Bytes of one micro-batch.
    more: dict[str, Array]  # Bytes of each further one.
    peak: dict[str, float]  # Lower bound on transient bytes.

    @classmethod
    def of(cls, instance: Instance, splits: Splits, index: int) -> "UnitRows":
        """Rows of a candidate of an instance."""
        candidate, units = instance.candidates[index], splits.units
        inner = [[unit for unit in run.units if unit not in (units[0], units[-1])] for run in splits.runs]
        runs = [each for each in inner if each]
        shown = [*(each[0] for each in runs), units[0], units[-1]]
        places = [layer for unit in shown for layer in unit], [0, *accumulate(map(len, shown[:-1]))]

        names = dict.fromkeys(
            map(bounding_mode, (*(mode.name for mode in candidate.recompute), *instance.recompute_names(index)))
        )
        modes, state, kinds = [candidate.mode(name) for name in names], candidate.state, ("extra", "first", "more")
        rows = [candidate.forward + candidate.backward]
        rows += [getattr(mode, kind) for kind in kinds for mode in modes]
        rows += [row for each in state for row in (each.weights, each.gradients, each.optimizer)]
        summed = iter(_of_units(numpy.array(rows), places))
        alone = next(summed)
        extra, first, more = ({name: next(summed) for name in names} for _ in kinds)
        return cls(
            index,
            numpy.array([*map(len, runs), len(units) - 2]),
            places,
            [(len(each.ranks), next(summed), next(summed), next(summed)) for each in state],
            {name: alone + row for name, row in extra.items()},
            first,
            more,
            {
                name: min(float(mode.peak[list(each[0])].max()) for each in runs)
                for name, mode in zip(names, modes, strict=True)
            },
        )

    def lean(self, bounds: FirstBounds, configuration: Configuration) -> LeanUnits:
        """Lean units of a configuration for each of its choices."""
        space, size = bounds.instance.space, len(self.count) + 1
        choices = list(bounding_choices(configuration.choices))
        zeros = {each.zero for each in choices}
        state = {zero: configuration.state(self.groups, size, zero) for zero in zeros}
        often = {zero: _of_units(bounds.often(configuration, zero), self.places) * (1 - SUM_ERROR) for zero in zeros}

        def seconds(choice: Choice, *, whole: bool) -> Array:
            """Exposed seconds: at least a share, and the excess over all work.

            One of the two is used for all units: both sum over a stage's units (`whole`).
            """
            work, sent = self.working[choice.recompute], often[choice.zero]
            shown_seconds = work + space.often_exposed * sent
            longer = whole and space.hiding and sent.sum() > shown_seconds.sum()
            return sent if longer else shown_seconds

        mixes, own = [], len(choices)
        for index, each in enumerate(choices[:]):
            if len(each.modes) > 1:
                mixes.append((index, len(choices), len(choices) + 1))
                choices += [each._replace(recompute=name) for name in each.modes[::-1]]
        figures = [
            (seconds(each, whole=place < own), state[each.zero] + self.first[each.recompute], self.more[each.recompute])
            for place, each in enumerate(choices)
        ]
        every = numpy.array(figures).swapaxes(0, 1)
        between, ends = every[..., :-2], every[..., -2:]
        with_any = numpy.concatenate([between, between.min(axis=2, keepdims=True)], axis=2)
        peak = min(self.peak[name] for name in configuration.modes)
        return LeanUnits(self.count, with_any[0], with_any[1], with_any[2], ends, peak, tuple(mixes))


def _of_units(rows: Array, places: tuple[list[int], list[int]]) -> Array:
    found: Array = numpy.add.reduceat(rows[..., places[0]], places[1], axis=-1)
    return found
