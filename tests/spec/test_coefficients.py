"""Coefficients of devices stay within what they can be."""

import math

import pytest

from nest.errors import FieldErrors
from nest.spec import Coefficients, ranges


@pytest.mark.parametrize("name", ranges())
def test_both_ends_of_a_range_are_allowed_and_nothing_beyond(name: str) -> None:
    known = ranges()[name]
    for value in (known.low, known.high):
        assert getattr(Coefficients(**{name: value}), name) == value
    for value in (known.high * 1.001, -1e-9, math.inf, math.nan):
        with pytest.raises(FieldErrors, match=f"{name} must be"):
            Coefficients(**{name: value})


@pytest.mark.parametrize("name", ranges())
def test_what_is_expected_lies_in_between(name: str) -> None:
    known = ranges()[name]
    assert 0 < known.low < known.prior < known.high or known.prior == known.low
    assert known.spread > 0


def test_left_out_they_switch_their_terms_off() -> None:
    """A factor of 1, or 0 of what is added."""
    factors = {"sustained", "grouped", "attention_backward", "synchronisation", "sharded_synchronisation"}
    factors |= {"grace_launch", "routing_launches", "eager"}
    plain = Coefficients()
    assert {name: getattr(plain, name) for name in ranges()} == {name: float(name in factors) for name in ranges()}
