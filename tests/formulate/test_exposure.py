"""How much of data-parallel communication shows: what the problem says, then what the device's calibration does."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from nest.formulate.stack import Exposure, data_parallel_exposure
from nest.spec import ClusterSpec, Coefficients, LevelSpec, Overlap, Problem, Training
from tests.bare_devices import bare

DEVICE = evolve(
    bare("h100-sxm"),
    calibration=Coefficients(data_exposed=0.25, gathers_exposed=0.4, synchronisation=3.0, sharded_synchronisation=1.5),
)
HIDDEN = {"overlap": Overlap(data=True)}


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, Exposure(1.0, False, 3.0, 1.5)),
        (HIDDEN, Exposure(0.25, True, 1.0, 1.0, 0.4)),
        ({"synchronisation": 2.0}, Exposure(1.0, False, 2.0, 1.0)),
        ({"sharded_synchronisation": 2.0}, Exposure(1.0, False, 3.0, 2.0)),
        ({**HIDDEN, "synchronisation": 2.0, "sharded_synchronisation": 4.0}, Exposure(0.25, True, 2.0, 4.0, 0.4)),
        ({"exposed": 0.5}, Exposure(0.5, False, 1.0, 1.0)),
        ({**HIDDEN, "exposed": 0.5}, Exposure(0.5, False, 1.0, 1.0)),
        ({**HIDDEN, "exposed": 0.5, "hiding": True}, Exposure(0.5, True, 1.0, 1.0)),
        ({**HIDDEN, "hiding": False}, Exposure(0.25, False, 1.0, 1.0, 0.4)),
        ({"hiding": True}, Exposure(1.0, True, 3.0, 1.5)),
    ],
)
def test_the_problem_comes_first_then_the_device(
    problem: Callable[..., Problem], training: dict[str, Any], expected: Exposure
) -> None:
    assert data_parallel_exposure(problem(training=training), DEVICE) == expected


def test_a_device_without_a_calibration_hides_all_that_fits(problem: Callable[..., Problem]) -> None:
    assert data_parallel_exposure(problem(), bare("tpu-v4")) == Exposure(1.0, False, 1.0, 1.0)
    assert data_parallel_exposure(problem(training=HIDDEN), bare("tpu-v4")) == Exposure(0.0, True, 1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, Exposure(1.0, False, 1.0, 1.0)),
        (HIDDEN, Exposure(0.0, False, 1.0, 1.0)),
        ({"synchronisation": 2.0}, Exposure(1.0, False, 2.0, 1.0)),
    ],
)
def test_a_profile_keeps_the_constants_of_the_statement(training: dict[str, Any], expected: Exposure) -> None:
    levels = (LevelSpec(fanout=4, bandwidth=1e9),)  # type: ignore[arg-type]
    profiled = Problem(nest=1, profile="own.json", training=Training(8, **training), cluster=ClusterSpec(levels))
    assert data_parallel_exposure(profiled, DEVICE) == expected
    assert data_parallel_exposure(profiled, None) == expected
