"""What no plan of so many devices beats, from compute alone, for all numbers of devices at once."""

from collections.abc import Mapping

import numpy
from attrs import frozen

from nest.instance import Array, Instance
from nest.solve.dp.compute_bounds import ComputeBounds
from nest.solve.dp.listing import computed
from nest.solve.dp.units import Splits


@frozen(eq=False, repr=False)
class Floor:
    """What plans of blocks of one width take at least.

    Attributes:
        devices: that plans use, ascending, shape `(numbers,)`.
        seconds: that no plan of so many devices or fewer beats, shape `(numbers,)`.
    """

    devices: Array
    seconds: Array

    def at(self, devices: int) -> float:
        """Seconds that no plan of at most so many devices beats; infinite where there is none."""
        place = int(self.devices.searchsorted(devices, side="right"))
        return float(self.seconds[place - 1]) if place else numpy.inf


def floors(instance: Instance) -> Mapping[int, Floor]:
    """The floor of each width of blocks, of plans of one candidate.

    Candidates may have any widths: whether the cluster admits them is not asked.
    """
    bounds, parts = ComputeBounds(instance), dict[int, list[tuple[Array, Array]]]()
    for index, schedule, replicas, batches, counts in computed(
        instance, len(instance.graph.layers), Splits(instance).counts
    ):
        width = instance.candidates[index].width
        devices = numpy.array(counts, dtype=numpy.float64) * (width * replicas)
        parts.setdefault(width, []).append((devices, bounds.of(index, schedule, batches, counts)))
    return {width: _floor(of_width) for width, of_width in sorted(parts.items())}


def _floor(parts: list[tuple[Array, Array]]) -> Floor:
    devices, seconds = (numpy.concatenate(rows) for rows in zip(*parts, strict=True))
    order = devices.argsort(kind="stable")
    return Floor(devices[order], numpy.minimum.accumulate(seconds[order]))
