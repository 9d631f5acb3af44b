"""Built-in models of the times of operators and layers.

Belongs here: times of operators and layers on a device. Does not: collectives and memory.

The operators of a layer run in parallel on different engines, or one after the other.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import fsum

from nest.hooks.protocols import CostModel, LayerTimes
from nest.hooks.spec import hook


@hook
def nest_cost_models() -> list[CostModel]:
    """Return the roofline."""
    from nest.costs.roofline import Roofline

    return [Roofline()]


@hook
def nest_layer_times() -> list[LayerTimes]:
    """Return a schedule on the engines of the device, which is the default, and one operator after the other."""
    return [Scheduled(), Sequential()]


REMEMBERED = 65_536
"""Distinct layers with a remembered makespan; a problem has some thousands: layers of each kind, by candidate,
direction and recompute mode."""


class Scheduled:
    """The least makespan; with one engine the sum, as `sequential`.

    Each engine runs one operator at a time, and operators wait for their inputs
    (docs/explanation/operator-scheduling.md).
    """

    name = "scheduled"

    def seconds(
        self, durations: Sequence[float], engines: Sequence[str], precedence: Sequence[tuple[int, int]]
    ) -> float:
        """Return seconds from the first start to the last end.

        Least up to rounding if `nest_cpsat.makespan` proves it within its work limit, else those of the best
        schedule found: never more than one operator after the other.
        """
        if len(set(engines)) < 2:
            return fsum(durations)
        return _least(tuple(durations), tuple(engines), tuple(precedence))


@lru_cache(maxsize=REMEMBERED)
def _least(durations: tuple[float, ...], engines: tuple[str, ...], precedence: tuple[tuple[int, int], ...]) -> float:
    from nest_cpsat.makespan import makespan

    return makespan(durations, engines, precedence).seconds


class Sequential:
    """One operator after the other: the sum of their times, whatever the engines."""

    name = "sequential"

    def seconds(
        self, durations: Sequence[float], engines: Sequence[str], precedence: Sequence[tuple[int, int]]
    ) -> float:
        """Return seconds of all operators, rounded once: names and order change nothing."""
        return fsum(durations)
