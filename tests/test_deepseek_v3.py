"""DeepSeek-V3 as it was trained on 2,048 H800 (examples/deepseek-v3-2048-h800.yaml)."""

from pathlib import Path
from typing import Any

import pytest

import nest
from nest.io import read_mapping

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "deepseek-v3-2048-h800.yaml"

PUBLISHED = 180e3
"""H800 hours for 1e12 tokens: 3.7 days on 2,048 (arXiv 2412.19437, section 1)."""


def problem(**training: Any) -> dict[str, Any]:
    """What the example says, with other keys of `training`."""
    written: dict[str, Any] = dict(read_mapping(EXAMPLE).mapping)
    return {**written, "training": {**written["training"], **training}}


def device_hours(**training: Any) -> float:
    """For 1e12 tokens."""
    summary = nest.evaluate(problem(**training)).summary
    assert summary is not None
    return float(summary["training"]["device_hours"])


def test_its_training_is_priced_within_15_percent_of_what_was_published() -> None:
    assert device_hours() == pytest.approx(PUBLISHED, rel=0.15)
    days = PUBLISHED / 2048 / 24
    assert days == pytest.approx(3.7, abs=0.05)


@pytest.mark.longer
def test_what_its_authors_did_is_what_it_takes() -> None:
    """Without narrow products, the overlap of experts' exchange or its dispatch the price is far from what it took."""
    overlap = problem()["training"]["overlap"]
    for without in ({"precision": "bf16"}, {"overlap": {**overlap, "experts": False}}, {"dispatch": "all-to-all"}):
        assert device_hours(**without) > 1.2 * device_hours()
