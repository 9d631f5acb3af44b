"""Labels of times: round, exact enough to be told apart, never over each other."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nest_page.records import Drawing
from nest_page.svg import Scale, clock, time_axis
from page_tests.drawn_paths import elements


@pytest.mark.parametrize(
    ("value", "step", "longest", "told"),
    [
        (31.42, 0.02, 62.0, "31.42 s"),
        (0.05, 0.05, 0.6, "50 ms"),
        (100.0, 20.0, 900.0, "100 s"),
        (0.0, 0.0, 0.0, "0 ns"),
        (2.5e-6, 5e-7, 4e-6, "2.5 us"),
    ],
)
def test_times_have_the_digits_their_steps_need(value: float, step: float, longest: float, told: str) -> None:
    assert clock(value, step, longest) == told


@given(
    st.lists(st.tuples(st.floats(0.0, 1e3), st.floats(1e-6, 1e3), st.floats(5.0, 400.0)), min_size=1, max_size=5),
    st.floats(20.0, 60.0),
)
def test_labels_keep_apart_and_stand_at_their_times(windows: list[tuple[float, float, float]], gutter: float) -> None:
    scales, x, time = [], 70.0, 0.0
    for pause, length, width in windows:
        assume(time + pause + length > time + pause)
        scales.append(Scale(time + pause, time + pause + length, x, x + width))
        time, x = time + pause + length, x + width + gutter
    drawing = Drawing(1040, 100, time_axis(scales, time, 10, 80), "", "")
    labels = [(float(each.get("x", "")), each.text or "") for each in elements(drawing).iter("text")]
    for (left, one), (right, other) in pairwise(labels):
        assert right - left >= 6.7 * (len(one) + len(other)) / 2
    for at, told in labels:
        (scale,) = [each for each in scales if each.start - 0.1 <= at <= each.end + 0.1]
        number, unit = told.split()
        size = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
        digits = len(number.partition(".")[2])
        assert scale(float(number) * size) == pytest.approx(
            at, abs=0.1 + abs(scale(0.51 * size / 10**digits) - scale(0))
        )
