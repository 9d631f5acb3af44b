"""What a whole training takes: steps, time, device hours and cost, with the range of the step time."""

from typing import Any

import pytest

from nest import api
from nest.errors import InputError
from tests.formulate.test_implied_target import PROBLEM


def planned(training: dict[str, Any], cluster: dict[str, Any] | None = None, **sections: Any) -> Any:
    asked = {
        **PROBLEM,
        "training": {**PROBLEM["training"], **training},
        "cluster": {**PROBLEM["cluster"], **(cluster or {})},
        **sections,
    }
    return api.evaluate(asked, fix={"replicas": 2})


@pytest.mark.longer
def test_it_takes_whole_steps_on_the_devices_used() -> None:
    plan = planned({"tokens": 16 * 512 * 10 + 1}, {"price": 3.0})
    found = plan.summary["training"]
    assert found["steps"] == 11
    assert found["time"] == pytest.approx(11 * plan.batch_time)
    assert found["device_hours"] == pytest.approx(11 * plan.batch_time * 2 / 3600)  # Of four devices it uses two.
    assert found["cost"] == pytest.approx(3 * found["device_hours"])
    for end in ("low", "high"):
        assert found[end] == pytest.approx(11 * getattr(plan.batch_time_range, end))
        assert found[f"cost_{end}"] / found["cost"] == pytest.approx(found[end] / found["time"])
    assert api.check(plan).ok


@pytest.mark.longer
def test_keys_may_be_changed_without_a_change_of_the_file() -> None:
    plan = api.evaluate(PROBLEM, fix={"replicas": 2}, changes={"training": {"tokens": 8192}})
    assert plan.summary["training"]["steps"] == 1
    assert plan.problem["training"]["global_batch"] == 16
    assert "tokens" not in PROBLEM["training"]


@pytest.mark.parametrize("tokens", [0, -1, 10**19])
def test_impossible_numbers_of_tokens_are_refused(tokens: int) -> None:
    with pytest.raises(InputError, match=r"training\.tokens"):
        planned({"tokens": tokens})


def test_a_profile_needs_the_length_of_its_samples() -> None:
    asked = {"nest": 1, "profile": "p.json", "cluster": {"levels": [{"fanout": 1, "bandwidth": 1.0}]}}
    with pytest.raises(InputError, match=r"training\.sequence_length is missing; training\.tokens needs it"):
        api.solve({**asked, "training": {"global_batch": 1, "tokens": 100}})
