"""Factors of plans from runs of their cluster: the more alike, the more a run counts."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest.catalogue import TimeSpread
from nest_calibrate.likeness import USUAL, Shape, factors, shape

SPREAD = TimeSpread(between=0.12, within=0.09, apart=0.1)
DEVIATION = 0.15

SHAPES = st.builds(
    lambda share, size: Shape((share, 1 - share), (size,)), st.floats(0, 1), st.sampled_from([0.0, 1.0, 3.0])
)


def test_shares_and_sizes_of_a_plan() -> None:
    found = shape({"sync": 1.0, "compute": 3.0}, {"tp": 8, "sp": 8, "ep": 2}, 4096)
    assert found == Shape((0.75, 0.25), (3.0, 0.0, 1.0, 12.0))


@given(near=SHAPES, far=SHAPES, off=st.floats(-0.2, 0.2))
def test_a_run_tells_most_of_plans_like_it(near: Shape, far: Shape, off: float) -> None:
    centers, deviations = factors([off], [near], [near, far], SPREAD)
    assert abs(centers[1]) <= abs(centers[0]) + 1e-12
    assert 0 <= centers[0] * off <= off**2
    assert deviations[0] <= deviations[1] + 1e-12 <= DEVIATION + 1e-9


@given(seen=st.lists(st.tuples(SHAPES, st.floats(-1e-3, 1e-3)), min_size=1, max_size=4), plan=SHAPES)
def test_small_factors_are_those_of_conditioned_normal_variables(seen: list[tuple[Shape, float]], plan: Shape) -> None:
    """Near the center, Student's t is a normal variable of `(degrees + 1) / degrees` times the precision."""
    shapes, off = [each for each, _ in seen], numpy.array([each for _, each in seen])
    (center,), (deviation,) = factors(off.tolist(), shapes, [plan], SPREAD)
    among = USUAL.between(shapes, shapes)
    wider = 30 / (30 + len(seen))
    to_plan = USUAL.between([plan], shapes)[0]
    expected = to_plan * wider @ numpy.linalg.solve(among * wider + USUAL.scatter * 2 / 3 * numpy.eye(len(seen)), off)
    assert center == pytest.approx(expected, rel=1e-2, abs=1e-7)
    left = to_plan @ numpy.linalg.solve(among + USUAL.scatter * 2 / 3 * numpy.eye(len(seen)), to_plan)
    assert deviation == pytest.approx(DEVIATION * (1 - left) ** 0.5, rel=1e-3)


def test_wild_runs_too_have_factors_where_the_posterior_is_level() -> None:
    """There the slopes of the densities of runs and of factors cancel, however many rounds it takes."""
    random = numpy.random.default_rng(0)
    for count in random.integers(2, 9, 40):
        sizes = random.integers(0, 4, count).astype(float).tolist()
        shapes = [Shape((share, 1 - share), (size,)) for share, size in zip(random.random(count), sizes, strict=True)]
        logarithms = random.normal(0, 0.75, count)
        at = factors(logarithms.tolist(), shapes, shapes, SPREAD)[0] / DEVIATION
        off, pulls = logarithms / DEVIATION - at, numpy.linalg.solve(USUAL.between(shapes, shapes), at)
        slopes = 3 * off / (2 * USUAL.scatter + off**2)
        assert slopes == pytest.approx((30 + count) * pulls / (30 + at @ pulls), abs=1e-4)


def test_one_run_far_off_is_an_outlier_and_three_that_agree_are_believed() -> None:
    plan = Shape((1.0,), (0.0,))
    once, thrice = (factors(off, [plan] * len(off), [plan], SPREAD)[0][0] for off in ([1.0], [1.0, 1.02, 1.04]))
    assert once < 0.2
    assert thrice > 0.9
    few, more = (factors(off, [plan] * len(off), [plan], SPREAD)[0][0] for off in ([0.1, 0.12], [0.1, 0.12, 0.9]))
    assert more - few < 0.03
