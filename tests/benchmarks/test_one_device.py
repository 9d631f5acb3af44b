"""What was measured of a small Llama on one device, beside what nest says of it today."""

import json
import statistics
from pathlib import Path

import pytest

from benchmarks.one_device.__main__ import main, rows_of
from benchmarks.one_device.settings import ramps
from nest.spec import read_measurements

SEEN = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "2026-11-27" / "one_device" / "seen.jsonl"


@pytest.fixture(scope="module")
def rows():
    return rows_of([json.loads(line) for line in SEEN.read_text(encoding="utf-8").splitlines()])[1]


@pytest.mark.longer
def test_what_ran_is_said_to_fit_and_what_did_not_is_refused(rows) -> None:
    assert [row.plan["fits"] for row in rows] == [row.seconds is not None for row in rows]
    assert {row.seconds is None for row in rows} == {True, False}


@pytest.mark.longer
def test_memory_is_within_a_twentieth_on_average_of_what_the_device_held(rows) -> None:
    assert statistics.mean(abs(row.estimate / row.used - 1) for row in rows if row.used) < 0.05


@pytest.mark.longer
def test_settings_that_need_more_are_said_to(rows) -> None:
    ran = [
        row for row in rows if row.used and row.setting.allocator == "expandable" and row.setting.precision == "bf16"
    ]
    for one in ran:
        for other in ran:
            if one.used > 1.1 * other.used:
                assert one.estimate > other.estimate


@pytest.mark.longer
def test_every_setting_was_among_those_that_are_run(rows) -> None:
    known = {setting for ramp in ramps() for setting in ramp}
    assert {row.setting for row in rows} <= known


@pytest.mark.longer
def test_the_runs_are_measurements(rows, tmp_path, capsys) -> None:
    assert main([str(SEEN), "--output", str(tmp_path)]) == 0
    assert len(tuple(read_measurements(tmp_path / "runs.jsonl"))) == len(rows)
    assert (tmp_path / "one_device.md").read_text() == capsys.readouterr().out
