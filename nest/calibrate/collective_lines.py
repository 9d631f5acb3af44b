"""Measured collectives among measurements of nest's own format."""

from collections.abc import Iterator
from pathlib import Path

from nest.calibrate.measurement import Measurement
from nest.calibrate.nccl_tables import known_link, link_of
from nest.instance.cluster import PHASES
from nest.spec import CollectiveMeasurement, read_measurements


def read_lines(path: Path, link: str | None = None) -> Iterator[Measurement]:
    """The collectives in a file of measurements; other measurements, and messages, are left out.

    Args:
        path: JSON lines (docs/reference/measurements.md).
        link: of the catalogue, for lines that name neither a link nor, on one machine, a device that is known.

    Raises:
        InputError: a line is no measurement, or its link is not told.
    """
    for row in read_measurements(path):
        if isinstance(row, CollectiveMeasurement) and row.kind in PHASES:
            yield _measurement(path, row, link)


def _measurement(path: Path, row: CollectiveMeasurement, link: str | None) -> Measurement:
    table = row.source or path.name
    of_devices = link_of(row.device or "")
    if row.nodes == 1:
        found = known_link(row.link or of_devices, link, path)
        return Measurement(table, row.kind, row.bytes, (row.members,), row.seconds, (found,), (row.bandwidth,))
    inside = known_link(row.inside or of_devices, None, path, "inside the machines", "inside")
    between = known_link(row.link, link, path, "between the machines")
    shape = (row.members // row.nodes, row.nodes)
    return Measurement(table, row.kind, row.bytes, shape, row.seconds, (inside, between), (None, row.bandwidth))
