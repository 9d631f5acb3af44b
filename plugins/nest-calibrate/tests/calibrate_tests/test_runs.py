"""Runs priced together are what the planner says of each alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from calibrate_tests.synthetic import SPREAD, drawn, on, problem, read, seconds
from nest.catalogue import published_devices
from nest.errors import InputError
from nest.formulate.cost_breakdown import breakdown
from nest.formulate.problem import self_contained
from nest.hooks.registry import registry
from nest.plan.evaluate import evaluate
from nest.spec import DeviceSpec
from nest.spec.device import ENGINES
from nest_calibrate.runs import Runs


def runs(*problems: Mapping[str, Any]) -> Runs:
    known = registry()
    whole = [self_contained(read(each), None, known) for each in problems]
    return Runs([breakdown(each, known) for each in whole], known.cost_models()["roofline"])


def devices(of: Runs) -> dict[str, DeviceSpec]:
    return {each.pricing.device.name: each.pricing.device for each in of.breakdowns}


@pytest.fixture(scope="module")
def spread() -> Runs:
    """All the plans at once, as a fit has them."""
    return runs(*SPREAD.values())


@pytest.mark.longer
def test_with_the_devices_they_came_with_they_are_the_plans_own_times(spread: Runs) -> None:
    own = [evaluate(each.instance, each.solution).batch_time for each in spread.breakdowns]
    assert dict(zip(SPREAD, spread.predict(devices(spread)), strict=True)) == pytest.approx(
        dict(zip(SPREAD, own, strict=True)), rel=1e-12
    )


@pytest.mark.longer
@pytest.mark.parametrize("seed", range(3))
def test_with_other_coefficients_they_are_what_the_planner_says_then(spread: Runs, seed: int) -> None:
    other = {name: drawn(seed, device) for name, device in devices(spread).items()}
    found = dict(zip(SPREAD, spread.predict(other), strict=True))
    names = [each.pricing.device.name for each in spread.breakdowns]
    said = {
        plan: seconds(on(written, other[name])) for (plan, written), name in zip(SPREAD.items(), names, strict=True)
    }
    exact = {name: taken for name, taken in said.items() if not name.startswith("interleaved")}  # Those are replayed.
    assert {name: found[name] for name in exact} == pytest.approx(exact, rel=1e-12)
    assert found == pytest.approx(said, rel=5e-3)


@pytest.mark.slow
def test_published_runs_are_priced_as_the_planner_prices_them(shared: Path) -> None:
    """All as plans of their own, some of them through the planner's front door, too."""
    lines = (shared / "fidelity" / "measured.jsonl").read_text().splitlines()
    problems = [json.loads(line)["problem"] for line in lines]
    found = runs(*problems)
    predicted = found.predict(devices(found))
    own = [evaluate(each.instance, each.solution).batch_time for each in found.breakdowns]
    assert predicted == pytest.approx(own, rel=1e-12)
    for index in range(0, len(problems), 20):
        assert predicted[index] == pytest.approx(seconds(problems[index]), rel=1e-12)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (problem(recompute="offload", dp=32, training={"offload": ["activations"]}), "does not support mode 'offload'"),
        ({**problem(dp=32), "search": {"granularity": "operator"}}, "calibration needs whole layers"),
        (on(problem(dp=32), evolve(drawn(0, published_devices()["h100-sxm"]), engines=ENGINES)), "several engines"),
    ],
)
def test_what_cannot_be_taken_apart_is_told(written: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        runs(written)
