"""Times of calls: warmed up, repeated, with median and spread."""

from collections.abc import Callable, Sequence
from math import ceil
from statistics import median, quantiles
from time import perf_counter
from typing import Any, Protocol

import torch
from attrs import define, field, frozen

LEAST_REPEAT = 1e-3
"""Seconds one repeat takes at least, by running several times: far above the resolution of clocks and events (0.5 us,
CUDA runtime manual, `cudaEventElapsedTime`)."""

MOST_RUNS = 2000
"""Runs in one repeat, at most; queues of a device hold about a thousand before the host has to wait."""

WARM_UP = 0.02
"""Seconds of running before anything counts: libraries choose kernels, allocators grow, clocks rise."""

FEWEST_REPEATS = 3
"""Repeats without which there is neither median nor spread."""

FLUSHED = 256 * 2**20
"""Bytes written to empty caches; the largest last-level caches have 50 MiB (H100) to 256 MiB (MI300X's)."""

CYCLES = 2e9
"""Cycles a second of a GPU, about: it waits while the host fills its queue, for which any figure of this order does."""

Run = Callable[[], Any]


@frozen
class Timing:
    """Measurements of one operator.

    Attributes:
        seconds: of one run, the median over the repeats.
        spread: distance between the quartiles of the repeats, over the median.
        repeats: how many there are.
    """

    seconds: float
    spread: float
    repeats: int

    @classmethod
    def of(cls, times: Sequence[float]) -> "Timing":
        """The median and the spread of `times`, in seconds; at least one."""
        middle = median(times)
        if len(times) < 2:
            return cls(middle, 0.0, len(times))
        first, _, third = quantiles(times, n=4, method="inclusive")
        return cls(middle, (third - first) / middle if middle else 0.0, len(times))


class Stopwatch(Protocol):
    """Times runs on one device."""

    def repeat(self, run: Run, runs: int, cold: bool) -> float:
        """Seconds of one of `runs` runs in a row on the device, as if they had been waiting for it.

        Args:
            run: what to time.
            runs: how often in a row; 1 when `cold`.
            cold: empty the caches beforehand.
        """

    def host_repeat(self, run: Run, runs: int) -> float:
        """Seconds of one of `runs` runs in a row as the host sees them, all done at the end."""


@define
class HostStopwatch:
    """A processor's: what it runs is done when the call returns."""

    _flushed: Any = field(default=None, init=False)

    def repeat(self, run: Run, runs: int, cold: bool) -> float:
        """Seconds of one of `runs` runs in a row."""
        if cold:
            if self._flushed is None:
                self._flushed = torch.empty(FLUSHED, dtype=torch.uint8)
            self._flushed.fill_(1)
        return self.host_repeat(run, runs)

    def host_repeat(self, run: Run, runs: int) -> float:
        """The same; nothing waits in a queue."""
        start = perf_counter()
        for _ in range(runs):
            run()
        return (perf_counter() - start) / runs


@define
class CudaStopwatch:
    """A GPU's: events in its queue, which is filled while the device waits, so that the host is not what is timed."""

    _device: Any
    _flushed: Any = field(default=None, init=False)

    def repeat(self, run: Run, runs: int, cold: bool) -> float:
        """Seconds of one of `runs` runs in a row on the device."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(self._device)
        if cold:
            if self._flushed is None:
                self._flushed = torch.empty(FLUSHED, dtype=torch.uint8, device=self._device)
            self._flushed.fill_(1)
        self._wait(runs)
        begin.record()
        for _ in range(runs):
            run()
        end.record()
        torch.cuda.synchronize(self._device)
        return float(begin.elapsed_time(end)) / 1e3 / runs

    def host_repeat(self, run: Run, runs: int) -> float:
        """Seconds of one of `runs` runs in a row as the host sees them, queue empty before and after."""
        torch.cuda.synchronize(self._device)
        start = perf_counter()
        for _ in range(runs):
            run()
        torch.cuda.synchronize(self._device)
        return (perf_counter() - start) / runs

    def _wait(self, runs: int) -> None:
        """Keep the device busy while the host enqueues `runs` runs, some 20 us each."""
        sleep = getattr(torch.cuda, "_sleep", None)
        if sleep is not None:
            sleep(int(min(20e-6 * runs + 100e-6, 0.05) * CYCLES))


def measure(
    run: Run, stopwatch: Stopwatch, repeats: int, seconds: float, *, cold: bool = False, by_host: bool = False
) -> Timing:
    """Time `run`.

    Args:
        run: starts one run.
        stopwatch: of the device it runs on.
        repeats: how often to time it.
        seconds: time to spend, after which no further repeat is begun once there are `FEWEST_REPEATS`.
        cold: whether caches hold none of its operands.
        by_host: whether the time the host takes counts.
    """

    def repeat(runs: int) -> float:
        return stopwatch.host_repeat(run, runs) if by_host else stopwatch.repeat(run, runs, cold)

    begin = perf_counter()
    once = stopwatch.host_repeat(run, 1)
    while perf_counter() - begin < min(WARM_UP, seconds):
        once = min(once, stopwatch.host_repeat(run, 1))
    runs = 1 if cold else max(1, min(MOST_RUNS, ceil(LEAST_REPEAT / max(once, LEAST_REPEAT / MOST_RUNS))))
    times = [repeat(runs)]
    while len(times) < repeats:
        if len(times) >= FEWEST_REPEATS and perf_counter() - begin > seconds:
            break
        times.append(repeat(runs))
    return Timing.of(times)
