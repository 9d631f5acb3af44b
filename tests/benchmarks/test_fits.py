"""Stated probabilities to fit against the plans that ran."""

import pytest

from benchmarks.fidelity.fits import calibration, fits, lines
from nest.instance import EstimateError
from nest_calibrate.memory import Verdict


def test_parts_say_how_many_ran_and_how_sure_that_is() -> None:
    found = calibration([0.1, 0.3, 0.5, 0.9, 1.0], [False, True, True, True, False])
    assert [(part.plans, part.said, part.ran) for part in found.parts] == [
        (2, pytest.approx(0.2), 0.5),
        (1, 0.5, 1.0),
        (2, pytest.approx(0.95), 0.5),
    ]
    assert found.parts[0].error == pytest.approx((0.09 + 0.21) ** 0.5 / 2)
    assert found.brier == pytest.approx((0.01 + 0.49 + 0.25 + 0.01 + 1) / 5)
    assert (found.refused, found.promised) == (1, 1)


def test_a_family_is_predicted_without_its_own_runs() -> None:
    """Family `odd` needs twice its estimate; the others say that estimates hold, so its runs are promised."""
    seen = [Verdict("a", estimate, 100.0, estimate < 100, None, "mine") for estimate in (70.0, 80.0, 120.0, 130.0) * 9]
    odd = [Verdict("a", 60.0, 100.0, False, None, "mine")] * 30
    found = fits([*seen, *odd], ["usual"] * len(seen) + ["odd"] * len(odd), EstimateError(1.0, 0.26))
    assert found.left_out.promised == len(odd)
    assert found.left_out.parts[-1].said > 0.9
    assert found.stacks["mine"].median > 1.1
    assert (found.ran, found.failed, found.families) == (18, 48, 2)
    assert any("mine: median" in line for line in lines(found))
