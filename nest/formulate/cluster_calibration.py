"""What runs of one's own tell of a cluster (`cluster.calibration`): how much longer all takes, and how sure that is."""

from pathlib import Path

from attrs import asdict, evolve

from nest.catalogue import estimate_error, time_spread
from nest.errors import InputError
from nest.files import read, there_is
from nest.instance import Cluster, EstimateError, Level
from nest.spec import ClusterCalibration, ClusterSpec, DeviceSpec, MatrixPeaks, Problem, ranges
from nest.units import BytesPerSecond, FlopPerSecond, Seconds


def cluster_calibration(cluster: ClusterSpec, base: Path | None = None) -> ClusterCalibration | None:
    """What `cluster.calibration` says, its file read; None: nothing.

    Args:
        cluster: the section as written.
        base: folder that relative paths start from; None: the working directory.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    written = cluster.calibration
    if not isinstance(written, str):
        return written
    path = (base or Path()) / written
    if there_is(path) != "file":
        raise InputError(
            f"cluster.calibration: there is no file {str(path)!r:.200}; `nest calibrate cluster RUNS --output FILE` "
            "writes one."
        )
    return read(path, ClusterCalibration)


def time_scale(cluster: ClusterSpec, base: Path | None = None) -> float:
    """How many times as long all takes as is predicted without a calibration; arguments as of `cluster_calibration`."""
    known = cluster_calibration(cluster, base)
    return 1.0 if known is None else known.time


def as_measured(
    cluster: Cluster, device: DeviceSpec | None, problem: Problem, base: Path | None = None
) -> tuple[Cluster, DeviceSpec | None]:
    """The cluster with the errors of what is estimated, and it and its device as slow as its calibration says.

    Every time is then so many times as long: all roofs are as much lower, all latencies as much higher, while peaks
    that utilisation is told of stay those of the device.

    Args:
        cluster: in numbers.
        device: its device; None: a profile needs none.
        problem: as written.
        base: folder that relative paths start from; None: the working directory.

    Raises:
        InputError: a profile, whose times are measured, has a calibration; or its file cannot be read.
    """
    known = cluster_calibration(problem.cluster, base)
    if problem.model is None:
        if known is not None:
            raise InputError(
                "cluster.calibration corrects what nest predicts of a model, but the times of a profile are measured; "
                "leave it out."
            )
        return cluster, device
    memory = estimate_error()
    if known is None:
        usual = time_spread("" if device is None else device.generation)
        return evolve(cluster, error=memory, time_error=usual.stranger), device
    measured = evolve(
        cluster,
        levels=tuple(_slower_level(level, known.time) for level in cluster.levels),
        error=EstimateError(known.memory or memory.median, known.memory_spread or memory.spread),
        time_error=EstimateError(1.0, known.time_spread),
    )
    return measured, None if device is None else _slower_device(device, known.time)


def _slower_level(level: Level, factor: float) -> Level:
    lines = tuple(
        evolve(line, base=line.base * factor, step=line.step * factor, bandwidth=line.bandwidth / factor)
        for line in level.lines
    )
    return evolve(level, bandwidth=level.bandwidth / factor, latency=level.latency * factor, lines=lines)


def _slower_device(device: DeviceSpec, factor: float) -> DeviceSpec:
    peaks = {name: peak and FlopPerSecond(peak / factor) for name, peak in asdict(device.peak).items()}
    launch = min(device.calibration.host_launch * factor, ranges()["host_launch"].high)
    return evolve(
        device,
        peak=MatrixPeaks(**peaks),
        memory_bandwidth=BytesPerSecond(device.memory_bandwidth / factor),
        host_bandwidth=device.host_bandwidth and BytesPerSecond(device.host_bandwidth / factor),
        host_memory_bandwidth=device.host_memory_bandwidth and BytesPerSecond(device.host_memory_bandwidth / factor),
        launch_overhead=Seconds(device.launch_overhead * factor),
        calibration=evolve(device.calibration, host_launch=launch),
    )
