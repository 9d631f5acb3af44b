"""The kit finds nothing to object to; waves are priced and replayed, and wait less where micro-batches are few."""

from pathlib import Path
from typing import Any

import pytest

import nest
import nest_hanayo
from nest.hooks.registry import Registry, registry
from nest.testing import assert_conforms


def known() -> Registry:
    return registry(extra=[nest_hanayo])


def problem(micro_batches: int, *schedules: str) -> dict[str, Any]:
    return {
        "nest": 1,
        "model": {"transformer": {"layers": 16, "hidden": 1024, "ffn": 4096, "heads": 16, "vocab": 1000}},
        "training": {
            "global_batch": micro_batches,
            "sequence_length": 1024,
            "micro_batch": [1],
            "schedule": list(schedules),
        },
        "cluster": {"device": "a100-sxm-80g", "levels": [{"fanout": 4, "link": "nvlink3"}]},
        "search": {"target": "none"},
        "fixed": {"pp": 4, "replicas": 1},
    }


@pytest.mark.longer
def test_it_conforms() -> None:
    assert_conforms(nest_hanayo.Hanayo())


def test_it_has_fewer_than_60_lines() -> None:
    assert nest_hanayo.__file__ is not None
    lines = Path(nest_hanayo.__file__).read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) < 60


@pytest.mark.parametrize(("chunks", "bubble"), [(2, 13 / 6), (4, 5 / 4)])
def test_waves_wait_for_less_than_one_forward_one_backward(chunks: int, bubble: float) -> None:
    """Whose four stages wait for 3 micro-batches; see the README."""
    schedule = nest_hanayo.Hanayo(chunks)
    slowest, total = schedule.weights(4, 4)
    assert slowest + 4 * total == pytest.approx(4 + bubble)
    held = [max(map(sum, schedule.in_flight(stage, 4, 4))) / chunks for stage in (1, 2, 3, 4)]
    assert max(held) == 4


@pytest.mark.longer
def test_its_plans_are_replayed_in_its_order() -> None:
    plan = nest.evaluate(problem(4, "hanayo"), fix={"pp": 4, "replicas": 1, "chunks": 4}, plugins=known())
    found = nest.simulate(plan, plugins=known())
    assert found.places.route == (0, 1, 2, 3, 3, 2, 1, 0) * 2
    assert max(found.closed_form, found.batch_time) == pytest.approx(plan.batch_time)
    assert abs(found.batch_time - found.closed_form) < 0.1 * found.closed_form


@pytest.mark.longer
def test_it_is_chosen_where_there_are_few_micro_batches() -> None:
    """The search has it among others, decides its chunks, and CP-SAT agrees; many micro-batches it does not admit."""
    few = nest.solve(problem(4, "1f1b", "hanayo"), verify=True, plugins=known())
    usual = nest.solve(problem(4, "1f1b"), plugins=known())
    assert (few.status, few.schedule) == ("optimal", "hanayo")
    assert few.verification is not None
    assert few.verification["status"] == "proved"
    assert few.batch_time is not None
    assert usual.batch_time is not None
    assert few.batch_time < 0.85 * usual.batch_time
    assert len(few.stages[0].chunks) > 1
    assert nest.check(few, plugins=known()).ok
    assert nest.solve(problem(32, "1f1b", "hanayo"), plugins=known()).schedule == "1f1b"
