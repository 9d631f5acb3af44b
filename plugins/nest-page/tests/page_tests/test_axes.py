"""Ticks and coordinates."""

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from markupsafe import Markup

from nest_page.svg import Scale, boxes, element, number, text, ticks

VALUES = st.floats(0, 1e15, allow_nan=False)


@given(low=VALUES, span=st.floats(1e-9, 1e15), most=st.integers(2, 12), base=st.sampled_from([2.0, 10.0]))
def test_ticks_are_few_even_round_and_inside(low: float, span: float, most: int, base: float) -> None:
    high = low + span
    assume(high - low > 1e-6 * high)
    found = ticks(low, high, most, base)
    assert 1 <= len(found) <= most
    assert all(low - 1e-6 * span <= each <= high + 1e-6 * span for each in found)
    steps = [later - earlier for earlier, later in pairwise(found)]
    for step in steps:
        assert step == pytest.approx(steps[0], rel=1e-6)
        if base == 2:
            assert math.log2(step) == pytest.approx(round(math.log2(step)), abs=1e-6)


def test_ticks_of_nothing_are_one() -> None:
    assert ticks(3.0, 3.0) == (3.0,)


@given(low=VALUES, span=st.floats(1e-3, 1e12), share=st.floats(0, 1))
def test_a_scale_keeps_shares(low: float, span: float, share: float) -> None:
    scale = Scale(low, low + span, 10.0, 110.0)
    assert 10.0 - 1e-6 <= scale(low + share * span) <= 110.0 + 1e-6
    assert Scale(1.0, 1.0, 10.0, 110.0)(1.0) == 10.0


@given(value=st.floats(-1e5, 1e5))
def test_a_coordinate_is_a_tenth_of_a_pixel(value: float) -> None:
    assert abs(float(number(value)) - value) <= 0.05 + 1e-6
    assert number(value) not in ("-0", "")


def test_what_people_wrote_is_escaped() -> None:
    nasty = "<b>&\"'"
    assert "<b>" not in text(1, 2, nasty)
    assert "<b>" not in element("g", nasty, aria_label=nasty, class_=nasty)
    assert element("g", Markup("<b/>")) == "<g><b/></g>"
    assert boxes([(1, 2, 3, 4.25)]) == "M1 2h3v4.2h-3z"
