"""What stages recompute and send at least where all of them together must have memory for the model.

Ahead of stages each layer is taken with the choice that costs it least (`nest.solve.dp.beside_compute`), as if there
were room for any. Where replicas are many and stages few, ZeRO 3 is all that fits, and its communication decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy

from nest.instance import Array
from nest.tolerances import SUM_ERROR

if TYPE_CHECKING:
    from nest.solve.dp.beside_compute import FirstBounds
    from nest.solve.dp.configurations import Configuration


def least_in_memory(bounds: FirstBounds, configuration: Configuration, room: float) -> Array:
    """Seconds per micro-batch that all stages take at least beside compute, for each of the numbers of stages.

    Each layer has one of the choices, and all layers together take no more memory than all stages have. Of that linear
    program every price of memory gives a bound: each layer takes what costs it least with its memory at that price,
    less the price of all there is (Everett, Operations Research 11(3), 1963). The prices are those at which
    all layers together would change their choice.

    Args:
        bounds: of the instance.
        configuration: what is decided; its stages have one chunk, and a micro-batch or more in flight.
        room: bytes of a stage, rounding allowed for.
    """
    seconds, bytes_held = _choices(bounds, configuration)
    available = room * numpy.array(configuration.stage_counts, dtype=numpy.float64)
    least = numpy.full(len(available), seconds.min(axis=0).sum() * (1 - SUM_ERROR))
    for price in _prices(seconds.sum(axis=1), bytes_held.sum(axis=1)):
        spent = float((seconds + price * bytes_held).min(axis=0).sum())
        numpy.maximum(least, spent * (1 - SUM_ERROR) - price * available, out=least)
    return least


def _choices(bounds: FirstBounds, configuration: Configuration) -> tuple[Array, Array]:
    """Seconds beside compute, and bytes with one micro-batch in flight, of each layer. Shape `(choices, layers)`."""
    candidate, exposed = bounds.instance.candidates[configuration.candidate], bounds.instance.space.often_exposed
    layers, state = (
        len(candidate.forward),
        [(group, group.weights, group.gradients, group.optimizer) for group in candidate.state],
    )
    zeros = {each.zero for each in configuration.choices}
    held = {zero: configuration.state(state, layers, zero) for zero in zeros}
    sent = {zero: exposed * bounds.often(configuration, zero) for zero in zeros}
    modes = {name: candidate.mode(name) for name in configuration.modes}
    seconds = numpy.array([modes[each.recompute].extra + sent[each.zero] for each in configuration.choices])
    bytes_held = numpy.array([modes[each.recompute].first + held[each.zero] for each in configuration.choices])
    # A layer that cannot run in a mode takes endless memory there.
    seconds[numpy.isinf(bytes_held)] = numpy.inf
    return seconds, bytes_held


def _prices(seconds: Array, bytes_held: Array) -> Iterator[float]:
    """Seconds per byte at which the choice that costs least changes: the slopes of the lower hull."""
    hull: list[tuple[float, float]] = []
    for held, taken in sorted(zip(bytes_held.tolist(), seconds.tolist(), strict=True)):
        if held == numpy.inf or (hull and taken >= hull[-1][1]):
            continue
        while len(hull) > 1 and _above(hull[-2], hull[-1], (held, taken)):
            hull.pop()
        hull.append((held, taken))
    for (less, slower), (more, faster) in pairwise(hull):
        yield (slower - faster) / (more - less)


def _above(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    """Whether the line between two points passes below the one in the middle."""
    (left, high), (place, value), (right, low) = first, middle, last
    return (value - high) * (right - left) >= (low - high) * (place - left)
