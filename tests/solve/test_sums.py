"""Sums over stages are right to the last digits of their own terms, whatever else stands in the row."""

from fractions import Fraction

import numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nest.instance import Array, LayerGraph
from nest.solve.dp.sums import grid_parts, sums_of
from tests.small_instances import downsets_of
from tests.solve.test_downsets import graphs

NUMBER = st.just(0.0) | st.builds(lambda digits, power: digits * 10.0**power, st.floats(1, 10), st.integers(-320, 30))
"""Up to the largest that an instance may hold (`nest.units.LARGEST`), down to denormal ones."""


@given(graphs(), st.data())
def test_right_to_the_terms_of_the_stage(graph: LayerGraph, data: st.DataObject) -> None:
    downsets = downsets_of(graph)
    layers = downsets.members.shape[1]
    number = NUMBER | st.just(numpy.inf)
    rows = [numpy.array(data.draw(st.lists(number, min_size=layers, max_size=layers))) for _ in range(3)]
    for row, sums in zip(rows, sums_of(rows, downsets), strict=True):
        found = sums.over(downsets.pairs)
        for place, (larger, smaller) in enumerate(
            zip(downsets.pairs.larger.tolist(), downsets.pairs.smaller.tolist(), strict=True)
        ):
            terms = [float(row[layer]) for layer in downsets.between(larger, smaller)]
            if numpy.inf in terms:
                assert found[place] == numpy.inf
            else:
                exact = sum(map(Fraction, terms), Fraction(0))
                assert abs(Fraction(float(found[place])) - exact) <= exact * len(sums.parts) / 2**53
            if smaller == 0:
                assert sums.whole[larger] == found[place]


@given(arrays(numpy.float64, st.tuples(st.integers(1, 4), st.integers(1, 8)), elements=NUMBER))
def test_parts_are_the_row(rows: Array) -> None:
    totals = [[Fraction(0)] * rows.shape[1] for _ in rows]
    for which, part in grid_parts(rows):
        for row, values in zip(which, part, strict=True):
            exact = [Fraction(float(value)) for value in values]
            assert all(value >= 0 for value in exact)
            assert float(sum(exact)) == sum(exact)
            totals[row] = [total + value for total, value in zip(totals[row], exact, strict=True)]
    assert totals == [[Fraction(float(value)) for value in row] for row in rows]
