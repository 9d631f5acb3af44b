"""Bandwidth and latency between every two devices of a network (PROBLEM.md section 1, "arbitrary network")."""

import numpy
from attrs import field, frozen
from numpy.typing import NDArray

Floats = NDArray[numpy.float64]
Hops = NDArray[numpy.int16]


@frozen(eq=False)
class Pairs:
    """Bandwidth and latency between every two devices: symmetric matrices of devices by devices, read-only.

    Attributes:
        names: devices in the order of rows and columns.
        bandwidth: bytes per second and direction; infinite on the diagonal.
        latency: seconds from end to end; 0 on the diagonal.
        hops: links on the path; None: unknown (measured).
    """

    names: tuple[str, ...]
    bandwidth: Floats = field()
    latency: Floats = field()
    hops: Hops | None = None

    def __attrs_post_init__(self) -> None:
        for matrix in (self.bandwidth, self.latency, self.hops):
            if matrix is None:
                continue
            if matrix.shape != (len(self.names), len(self.names)):
                raise ValueError(f"matrices must be {len(self.names)} by {len(self.names)}, one is {matrix.shape}")
            matrix.setflags(write=False)

    @property
    def size(self) -> int:
        """Number of devices."""
        return len(self.names)

    def seconds(self, message: float) -> Floats:
        """Seconds of a message of `message` bytes between every two devices (PROBLEM.md section 1, point to point)."""
        seconds: Floats = message / self.bandwidth
        seconds += self.latency
        return seconds

    def reordered(self, order: NDArray[numpy.int64]) -> "Pairs":
        """Same pairs with device `order[i]` in row and column `i`."""
        if (order == numpy.arange(self.size)).all():
            return self
        rows = numpy.ix_(order, order)
        hops = None if self.hops is None else self.hops[rows]
        names = tuple(self.names[index] for index in order)
        return Pairs(names, self.bandwidth[rows], self.latency[rows], hops)
