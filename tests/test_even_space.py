"""An answer that is the best of a part of the plans names it."""

from typing import Any

import pytest

import nest
from nest.solve.dp import units
from tests.measured import profile


def irregular() -> dict[str, Any]:
    """Eight layers that all differ, on four devices, in two chunks a stage."""
    times = [2.6, 2.4, 1.6, 1.1, 1.8, 1.5, 2.5, 1.3]
    return {
        "nest": 1,
        "profile": profile(times, [2 * each for each in times], state={}, sent=1.0),
        "training": {"global_batch": 4, "schedule": ["interleaved"]},
        "cluster": {"memory": 1.0, "levels": [{"fanout": 2, "bandwidth": 1e9, "latency": 0.0}]},
    }


def test_the_best_of_all_sizes_has_no_space() -> None:
    plan = nest.solve(irregular())
    assert plan.status == "optimal"
    assert plan.space is None
    assert len({len(chunk) for stage in plan.stages for chunk in stage.chunks or ()}) > 1


def test_the_best_of_even_chunks_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = nest.solve(irregular()).batch_time
    monkeypatch.setattr(units, "MOST_PATTERNS", 1)
    plan = nest.solve(irregular())
    assert plan.space == "plans whose chunks hold as many transformer blocks each"
    assert len({len(chunk) for stage in plan.stages for chunk in stage.chunks or ()}) == 1
    assert whole is not None
    assert plan.batch_time is not None
    assert plan.batch_time > whole
