"""Robust least squares: what is put in comes out."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest_calibrate.robust_fit import Array, Prior, robust_fit

X = numpy.geomspace(1.0, 1e6, 40)


def curve(coefficients: Array) -> Array:
    """A latency and a slope."""
    return numpy.exp(coefficients[0]) + X * numpy.exp(coefficients[1])


def prior(center: float = 0.0, spread: float = 10.0, low: float = -20.0, high: float = 20.0) -> Prior:
    return Prior(*(numpy.full(2, value) for value in (center, spread, low, high)))


@given(latency=st.floats(-3, 8), slope=st.floats(-8, 3))
def test_true_coefficients_are_found_again(latency: float, slope: float) -> None:
    seen = curve(numpy.array([latency, slope]))
    found = robust_fit(lambda at: numpy.log(curve(at) / seen), prior(), 0.1, 0.05)
    assert curve(found) == pytest.approx(seen, rel=0.02)


def test_outliers_hardly_move_them() -> None:
    seen = curve(numpy.array([3.0, -4.0]))
    seen[::10] *= 20.0
    found = robust_fit(lambda at: numpy.log(curve(at) / seen), prior(), 0.1, 0.05)
    assert found == pytest.approx([3.0, -4.0], abs=0.1)


def test_without_measurements_the_prior_stays() -> None:
    assert robust_fit(lambda at: numpy.zeros(3), prior(center=1.5), 0.1, 0.05).tolist() == [1.5, 1.5]


def test_bounds_hold() -> None:
    seen = curve(numpy.array([5.0, 2.0]))
    found = robust_fit(lambda at: numpy.log(curve(at) / seen), prior(high=1.0), 0.1, 0.05, starts=4)
    assert (found <= 1.0).all()
    assert found[1] == 1.0


def test_the_same_comes_out_every_time() -> None:
    seen = numpy.minimum(curve(numpy.array([5.0, 2.0])), curve(numpy.array([7.0, 0.0])))
    once, again = (robust_fit(lambda at: numpy.log(curve(at) / seen), prior(), 0.1, 0.05, starts=5) for _ in range(2))
    assert once.tolist() == again.tolist()


def test_more_starts_are_no_worse() -> None:
    def two(at: Array) -> Array:
        return numpy.minimum(curve(at[:2]), curve(at[2:]))

    true = numpy.array([1.0, -1.0, 6.0, -5.0])
    beliefs = Prior(numpy.array([6.0, -3.0, 0.0, 0.0]), numpy.full(4, 3.0), numpy.full(4, -20.0), numpy.full(4, 20.0))

    def off(starts: int) -> float:
        found = robust_fit(lambda at: numpy.log(two(at) / two(true)), beliefs, 0.1, 0.05, starts)
        return float(numpy.abs(numpy.log(two(found) / two(true))).sum())

    assert off(12) <= off(1) + 1e-6
    assert off(12) < 0.5
