"""Timing: how times are taken and summed up, with a stopwatch that is told what to say."""

from statistics import median

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `pip install torch` lets these tests run")

from nest_torch.timing import (  # noqa: E402
    FEWEST_REPEATS,
    LEAST_REPEAT,
    MOST_RUNS,
    CudaStopwatch,
    HostStopwatch,
    Run,
    Timing,
    measure,
)


@define
class Told:
    """Says that every run takes `seconds`, and remembers what it was asked."""

    seconds: float
    runs: list[int] = field(factory=list)
    cold: list[bool] = field(factory=list)
    by_host: int = 0

    def repeat(self, run: Run, runs: int, cold: bool) -> float:
        run()
        self.runs.append(runs)
        self.cold.append(cold)
        return self.seconds

    def host_repeat(self, run: Run, runs: int) -> float:
        run()
        self.by_host += 1
        return self.seconds


@given(st.lists(st.floats(1e-7, 1e3), min_size=1, max_size=40))
def test_the_median_and_the_quartiles_are_told(times: list[float]) -> None:
    timing = Timing.of(times)
    assert timing.seconds == median(times)
    assert timing.repeats == len(times)
    assert 0 <= timing.spread * timing.seconds <= max(times) - min(times) + 1e-12


def test_equal_times_have_no_spread() -> None:
    assert Timing.of([2.0, 2.0, 2.0, 2.0]) == Timing(2.0, 0.0, 4)


@pytest.mark.parametrize(
    ("seconds", "runs"), [(1.0, 1), (LEAST_REPEAT / 10, 10), (1e-9, MOST_RUNS)], ids=["long", "short", "tiny"]
)
def test_short_runs_are_timed_many_at_once(seconds: float, runs: int) -> None:
    told = Told(seconds)
    timing = measure(lambda: None, told, repeats=7, seconds=60.0)
    assert timing == Timing(seconds, 0.0, 7)
    assert told.runs == [runs] * 7


def test_cold_runs_are_timed_one_by_one() -> None:
    told = Told(1e-6)
    measure(lambda: None, told, repeats=5, seconds=60.0, cold=True)
    assert told.runs == [1] * 5
    assert told.cold == [True] * 5


def test_launches_are_timed_by_the_host() -> None:
    told = Told(1e-6)
    measure(lambda: None, told, repeats=5, seconds=60.0, by_host=True)
    assert told.runs == []
    assert told.by_host > 5


def test_without_time_there_are_the_fewest_repeats() -> None:
    assert measure(lambda: None, Told(1.0), repeats=1000, seconds=0.0).repeats == FEWEST_REPEATS


def test_the_host_counts_every_run() -> None:
    done: list[int] = []
    watch = HostStopwatch()
    assert watch.repeat(lambda: done.append(1), 13, cold=True) > 0
    assert len(done) == 13


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_is_timed_on_its_own_clock() -> None:
    """A product of 16 times the work takes longer, and enqueueing it does not count."""
    watch = CudaStopwatch(torch.device("cuda"))
    small, large = (torch.randn(size, size, device="cuda") for size in (1024, 4096))
    times = [measure(lambda m=matrix: m @ m, watch, 9, 5.0).seconds for matrix in (small, large)]  # type: ignore[misc]
    assert times[0] < times[1]
    assert watch.repeat(lambda: small @ small, 1, cold=True) > 0
