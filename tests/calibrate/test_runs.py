"""Runs priced together are what the planner says of each alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from nest.calibrate.runs import Runs
from nest.errors import InputError
from nest.formulate.ledger import ledger
from nest.hooks.registry import registry
from nest.plan import evaluate
from nest.spec import DeviceSpec
from tests.calibrate.synthetic import SPREAD, drawn, on, problem, read, seconds


def runs(*problems: Mapping[str, Any]) -> Runs:
    known = registry()
    return Runs([ledger(read(each), known) for each in problems], known.cost_models()["roofline"])


def devices(of: Runs) -> dict[str, DeviceSpec]:
    return {each.pricing.device.name: each.pricing.device for each in of.ledgers}


@pytest.fixture(scope="module")
def spread() -> Runs:
    """All the plans at once, as a fit has them."""
    return runs(*SPREAD.values())


def test_with_the_devices_they_came_with_they_are_the_plans_own_times(spread: Runs) -> None:
    own = [evaluate(each.instance, each.solution).batch_time for each in spread.ledgers]
    assert dict(zip(SPREAD, spread.predict(devices(spread)), strict=True)) == pytest.approx(
        dict(zip(SPREAD, own, strict=True)), rel=1e-12
    )


@pytest.mark.parametrize("seed", range(3))
def test_with_other_coefficients_they_are_what_the_planner_says_then(spread: Runs, seed: int) -> None:
    other = {name: drawn(seed, device) for name, device in devices(spread).items()}
    found = dict(zip(SPREAD, spread.predict(other), strict=True))
    names = [each.pricing.device.name for each in spread.ledgers]
    said = {
        plan: seconds(on(written, other[name]))
        for (plan, written), name in zip(SPREAD.items(), names, strict=True)
    }
    assert found == pytest.approx(said, rel=1e-12)
