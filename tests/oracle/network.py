"""Section 1 of PROBLEM.md: levels, shapes of device sets, point to point, ring collectives."""

from itertools import accumulate
from math import prod
from operator import mul


class Network:
    """Devices `0..size-1` under levels, innermost first."""

    def __init__(self, cluster: dict) -> None:
        self.fanouts = [level["fanout"] for level in cluster["levels"]]
        self.bandwidths = [level["bandwidth"] for level in cluster["levels"]]
        self.latencies = [level["latency"] for level in cluster["levels"]]
        self.capacities = list(accumulate(self.fanouts, mul))
        self.size = self.capacities[-1]
        self.known_levels: dict[tuple[int, ...], int] = {}
        self.known_shapes: dict[tuple[int, ...], list[int]] = {}

    def admits(self, width: int) -> bool:
        """Whether blocks of this width can be aligned."""
        return width <= self.size and all(
            capacity % width == 0 or width % capacity == 0 for capacity in self.capacities
        )

    def level(self, devices) -> int:
        """Smallest level with all devices in one group; -1 for a single device."""
        key = tuple(devices)
        if key not in self.known_levels:
            self.known_levels[key] = self.level_of(set(devices))
        return self.known_levels[key]

    def level_of(self, devices: set[int]) -> int:
        if len(devices) == 1:
            return -1
        return next(
            level
            for level, capacity in enumerate(self.capacities)
            if len({device // capacity for device in devices}) == 1
        )

    def shape(self, devices) -> list[int]:
        """Per level, the largest number of occupied children that one group has."""
        key = tuple(devices)
        if key not in self.known_shapes:
            self.known_shapes[key] = self.shape_of(devices)
        return self.known_shapes[key]

    def shape_of(self, devices) -> list[int]:
        shape = []
        for level, capacity in enumerate(self.capacities):
            child = 1 if level == 0 else self.capacities[level - 1]
            occupied = {device // child for device in devices}
            parents = [other * child // capacity for other in occupied]
            shape.append(max(parents.count(parent) for parent in parents))
        return shape

    def point_to_point(self, size: float, level: int) -> float:
        if size == 0 or level == -1:
            return 0.0
        return self.latencies[level] + size / self.bandwidths[level]

    def ring(self, size: float, devices) -> tuple[list[float], float]:
        """Reduce-scatter or all-gather of a full buffer among several devices: hierarchical or flat ring, the cheaper.

        The flat ring runs over the devices there are, which may be fewer than the product of the shape.

        Returns: the seconds at each level, which follow one another; those of a flat ring are all at its outermost.
        And what of them are latencies.
        """
        shape, members = self.shape(devices), len(set(devices))
        latencies = [(m - 1) * latency for m, latency in zip(shape, self.latencies, strict=True)]
        hierarchical = [
            latencies[level] + (m - 1) / m * (size / prod(shape[:level])) / self.bandwidths[level]
            for level, m in enumerate(shape)
        ]
        worst = self.level(devices)
        latency = (members - 1) * self.latencies[worst]
        flat = latency + (members - 1) / members * size / min(self.bandwidths[: worst + 1])
        if sum(hierarchical) <= flat:
            return hierarchical, sum(latencies)
        return self.at(worst, flat), latency

    def at(self, level: int, seconds: float) -> list[float]:
        """So many seconds at one level, none at the others; a level of -1 is none."""
        return [seconds if each == level else 0.0 for each in range(len(self.capacities))]
