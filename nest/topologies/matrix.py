"""Measured bandwidth and latency between every two devices, such as nccl-tests or osu_bw report pair by pair."""

from collections.abc import Sequence

import numpy
from numpy.typing import NDArray

from nest.errors import InputError
from nest.instance.pairs import Pairs
from nest.network.graph import check_size
from nest.spec import MatrixSpec
from nest.topologies.parametric import ParametricNetwork


def _matrix(source: MatrixSpec) -> Pairs:
    """The pairs: of both directions the lower bandwidth and the higher latency."""
    count = len(source.bandwidth)
    check_size(count, count, 0)
    if count < 2:
        raise InputError("the matrix has one device; a network joins at least two.")
    names = source.names or tuple(str(index) for index in range(count))
    repeated = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if repeated is not None:
        raise InputError(f"the matrix has several devices called {repeated!r:.60}; give each a name of its own.")
    bandwidth = _filled(source.bandwidth, "bandwidth", numpy.inf)
    if isinstance(source.latency, tuple):
        latency = _filled(source.latency, "latency", 0.0)
    else:
        latency = numpy.full((count, count), float(source.latency))
        numpy.fill_diagonal(latency, 0.0)
    _check(bandwidth, "bandwidth", "above 0", bandwidth > 0)
    _check(latency, "latency", "at least 0", latency >= 0)
    return Pairs(names, numpy.minimum(bandwidth, bandwidth.T), numpy.maximum(latency, latency.T))


def _filled(rows: Sequence[Sequence[float | None]], name: str, itself: float) -> NDArray[numpy.float64]:
    """`rows` as an array; the diagonal, which says nothing, is `itself`."""
    found = numpy.array(rows, dtype=numpy.float64)  # What is missing becomes NaN.
    numpy.fill_diagonal(found, itself)
    _check(found, name, "given", ~numpy.isnan(found))
    return found


def _check(matrix: NDArray[numpy.float64], name: str, must: str, good: NDArray[numpy.bool_]) -> None:
    if not good.all():
        row, column = numpy.argwhere(~good)[0].tolist()
        told = "is missing" if numpy.isnan(matrix[row, column]) else f"is {matrix[row, column]:g}"
        raise InputError(f"matrix.{name}[{row}][{column}] {told}; between two devices it must be {must}.")


importer = ParametricNetwork("matrix", MatrixSpec, _matrix)
