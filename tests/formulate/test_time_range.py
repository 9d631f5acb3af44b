"""Ranges of step times: by generation, wider with experts, and off the prediction where no run is known of a device."""

from math import sqrt
from typing import Any

import pytest

import nest
from nest.catalogue import time_spread


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
def test_models_with_experts_have_a_wider_range() -> None:
    """On A100, whose dense runs lie close together."""
    assert width_and_middle("a100-sxm-80g", "mixtral-8x7b")[0] > width_and_middle("a100-sxm-80g")[0]


def test_every_generation_with_a_calibration_has_a_spread() -> None:
    known = {device.generation for device in nest.catalogue.devices().values() if device.generation}
    assert {name for name in known if time_spread(name).median == 1.0} == set(nest.catalogue.calibrations())
