"""Ranges of step times: by generation, wider with experts, and off the prediction where no run is known of a device."""

from math import sqrt
from typing import Any

import pytest

import nest
from nest.catalogue import time_spread
from nest.report.text.first_screen import first_screen


def problem(device: Any, model: str = "llama-3.1-8b") -> dict[str, Any]:
    return {
        "nest": 1,
        "model": model,
        "cluster": {"device": device, "levels": [{"name": "node", "fanout": 8, "link": "nvlink4"}]},
        "training": {"global_batch": 64, "sequence_length": 1024, "unknown": {}},
        "fixed": {"dp": 8, "tp": 1, "pp": 1, "micro_batch": 1},
    }


def width_and_middle(device: Any, model: str = "llama-3.1-8b") -> tuple[float, float]:
    plan = nest.evaluate(problem(device, model))
    span = plan.batch_time_range
    assert span is not None
    assert plan.batch_time is not None
    return span.high / span.low, sqrt(span.low * span.high) / plan.batch_time


@pytest.mark.longer
def test_devices_without_runs_have_a_wide_range_of_longer_times() -> None:
    width, middle = width_and_middle("h100-sxm")
    assert middle == pytest.approx(1.0)
    wide, off = width_and_middle("mi300x")
    assert off == pytest.approx(time_spread().median)
    assert off > 1.1
    assert wide > width
    assert "device not calibrated" in first_screen(nest.evaluate(problem("mi300x")))
    assert "calibrated" not in first_screen(nest.evaluate(problem("h100-sxm")))


@pytest.mark.longer
def test_own_coefficients_calibrate_a_device() -> None:
    figures = {"name": "own", "memory": "80 GB", "memory_bandwidth": "3 TB/s", "peak": {"bf16": "900 TFLOPS"}}
    assert width_and_middle(figures)[1] == pytest.approx(time_spread().median)
    width, middle = width_and_middle({**figures, "calibration": {"sustained": 0.9}})
    assert middle == pytest.approx(1.0)
    assert width == pytest.approx(max(width_and_middle(each)[0] for each in ("a100-sxm-80g", "h100-sxm", "b200-sxm")))


def test_models_with_experts_have_a_wider_range() -> None:
    """On A100, whose dense runs lie close together."""
    assert width_and_middle("a100-sxm-80g", "mixtral-8x7b")[0] > width_and_middle("a100-sxm-80g")[0]


def test_every_generation_with_a_calibration_has_a_spread() -> None:
    known = {device.generation for device in nest.catalogue.devices().values() if device.generation}
    assert {name for name in known if time_spread(name).median == 1.0} == set(nest.catalogue.calibrations())
