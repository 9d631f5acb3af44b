"""Lower bounds on plans by number of devices, from compute alone."""

from collections.abc import Mapping
from itertools import product

import numpy
from attrs import frozen

from nest.instance import Array, Instance
from nest.solve.dp.compute_bounds import ComputeBounds
from nest.solve.dp.configurations import replica_size
from nest.solve.dp.listing import Admitted, batches_of, numbers_of_stages
from nest.solve.dp.rules import Exclusions
from nest.solve.dp.units import Splits


@frozen(eq=False, repr=False)
class Floor:
    """Lower bound on plans with blocks of one width.

    Attributes:
        devices: ascending, shape `(numbers,)`.
        seconds: lower bound with at most so many devices, shape `(numbers,)`.
    """

    devices: Array
    seconds: Array

    def at(self, devices: int) -> float:
        """Lower bound (s) on plans of at most so many devices; infinite if there is none."""
        place = int(self.devices.searchsorted(devices, side="right"))
        return float(self.seconds[place - 1]) if place else numpy.inf


def floors(instance: Instance) -> Mapping[int, Floor]:
    """Lower bounds for each width of blocks, for plans of one candidate of any width, admissible or not."""
    bounds, parts = ComputeBounds(instance), dict[int, list[tuple[Array, Array]]]()
    exclusions, most, chunked = Exclusions(), len(instance.graph.layers), Splits(instance).counts
    admitted = Admitted(exclusions)
    for index, candidate in enumerate(instance.candidates):
        every = batches_of(instance, candidate, exclusions)
        for schedule, (replicas, batches) in product(instance.space.schedules, every):
            slots = replica_size(instance.cluster, candidate.width, replicas) // candidate.width
            counts = numbers_of_stages(instance, schedule, batches, slots, most, admitted, chunked)
            if counts:
                devices = numpy.array(counts, dtype=numpy.float64) * (candidate.width * replicas)
                seconds = bounds.of(index, schedule, batches, counts)
                parts.setdefault(candidate.width, []).append((devices, seconds))
    return {width: _floor(of_width) for width, of_width in sorted(parts.items())}


def _floor(parts: list[tuple[Array, Array]]) -> Floor:
    devices, seconds = (numpy.concatenate(rows) for rows in zip(*parts, strict=True))
    order = devices.argsort(kind="stable")
    return Floor(devices[order], numpy.minimum.accumulate(seconds[order]))
