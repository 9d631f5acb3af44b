"""Alpa's integer program, against every choice there is."""

from itertools import product

import numpy
import pytest
from hypothesis import given, settings, strategies

from nest_cpsat.sharding import Resharding, cheapest_shardings

costs = strategies.floats(0.0, 5.0, allow_nan=False)


@settings(max_examples=6, deadline=None)
@given(strategies.data())
def test_no_choice_is_cheaper(data):
    layers, options = data.draw(strategies.integers(1, 4)), data.draw(strategies.integers(1, 3))
    own = numpy.array(data.draw(strategies.lists(costs, min_size=layers * options, max_size=layers * options)))
    own = own.reshape(layers, options)
    pairs = [(a, b) for a in range(layers) for b in range(a + 1, layers)]
    drawn = data.draw(strategies.lists(strategies.sampled_from(pairs), max_size=4)) if pairs else []
    edges = [
        Resharding(a, b, numpy.array(data.draw(strategies.lists(costs, min_size=options, max_size=options))))
        for a, b in drawn
    ]

    def cost(chosen: tuple[int, ...]) -> float:
        whole = sum(own[layer, option] for layer, option in enumerate(chosen))
        return whole + sum(
            edge.costs[chosen[edge.producer]] for edge in edges if chosen[edge.producer] != chosen[edge.consumer]
        )

    best = min(cost(chosen) for chosen in product(range(options), repeat=layers))
    assert cost(cheapest_shardings(own, edges)) == pytest.approx(best, rel=1e-6, abs=1e-6)


def test_a_layer_follows_its_neighbours_where_laying_tensors_out_anew_costs_more():
    own = numpy.array([[1.0, 5.0], [2.0, 1.9], [1.0, 5.0]])
    near = [Resharding(0, 1, numpy.array([0.5, 0.5])), Resharding(1, 2, numpy.array([0.5, 0.5]))]
    assert cheapest_shardings(own, near) == (0, 0, 0)
    assert cheapest_shardings(own, []) == (0, 1, 0)
