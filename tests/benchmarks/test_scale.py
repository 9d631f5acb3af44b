"""The parts of the scale benchmark that measure nothing: limits, checks, slopes, tables, the list."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scale.checks import equal_to, within
from benchmarks.scale.growth import slope
from benchmarks.scale.measure import Limit
from benchmarks.scale.processes import run
from benchmarks.scale.suite import suite


@given(st.floats(-2, 3), st.floats(1e-3, 10), st.lists(st.integers(1, 10**6), min_size=2, unique=True))
def test_the_slope_of_a_power_law_is_its_power(power: float, factor: float, sizes: list[int]) -> None:
    assert slope([(size, factor * size**power) for size in sizes]) == pytest.approx(power, abs=1e-6)


def test_a_limit_is_broken_above_it_only() -> None:
    limit = Limit(planning=1, process=2, memory=3e8)
    assert limit.told() == "planning 1 s, process 2 s, 300 MB"
    assert limit.broken(1.0, 2.0, 3e8) == []
    assert limit.broken(None, None, 0) == []
    assert len(limit.broken(1.1, 2.1, 3.1e8)) == 3
    assert Limit().broken(1e9, 1e9, 1e12) == []


def test_absent_data_is_skipped_with_a_line(tmp_path: Path) -> None:
    measures, skipped = suite(tmp_path)
    assert len(skipped) == 4
    assert all(str(tmp_path) in told for told in skipped)
    assert {each.name.partition("-")[0] for each in measures} == {"joint", "scale", "growth", "towers"}


def test_a_gap_is_within_what_it_may_be() -> None:
    answer = {"status": "feasible", "batch_time": 1.04, "lower_bound": 1.0}
    assert within(0.05)([answer]).right
    assert not within(0.03)([answer]).right
    assert not within(0.05)([{"status": "infeasible"}]).right


def test_optima_are_equal_to_a_billionth_and_infeasible_is_none() -> None:
    answers = [{"status": "optimal", "batch_time": 1.0 + 5e-10}, {"status": "infeasible"}]
    assert equal_to([1.0, None])(answers).right
    assert equal_to([1.0, 1.0])(answers).told.startswith("1 of 2 ")
    assert not equal_to([1.0 + 5e-9, None])(answers).right
    assert not equal_to([None, None])(answers).right


def test_a_process_that_takes_too_long_is_stopped() -> None:
    assert run(["-c", "while True: pass"], 0.2).stopped
    ended = run(["-c", "import sys; print('out'); sys.exit(3)"], 60)
    assert (ended.stopped, ended.code, ended.output) == (False, 3, "out\n")
    assert ended.memory > 1e6
