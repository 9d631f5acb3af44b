"""One option per layer at the least total cost of options and of differences between neighbours.

The integer program of Alpa's intra-operator pass (arXiv 2201.12023, section 4.2, equation 1).
"""

from collections.abc import Sequence
from math import fsum, inf

from attrs import frozen

from nest.instance import Array
from nest.solve.effort import Deadline
from nest_cpsat.solver import Effort

TICKS = 2**30  # Ticks of the costliest choice of all layers, well below `scaling.LARGEST_COEFFICIENT` for each.
EFFORT = 10.0  # CP-SAT's deterministic seconds; then the best choice so far is taken.


@frozen(eq=False)
class Resharding:
    """A tensor between two layers.

    Attributes:
        producer: layer that makes it.
        consumer: layer that reads it.
        costs: seconds if the options of the layers differ, by the producer's option. Shape `(options,)`.
    """

    producer: int
    consumer: int
    costs: Array


def cheapest_shardings(costs: Array, edges: Sequence[Resharding]) -> tuple[int, ...]:
    """Choose an option for each layer; `costs` are finite seconds of shape `(layers, options)`."""
    layers, options = int(costs.shape[0]), int(costs.shape[1])
    if options == 1:
        return (0,) * layers
    from ortools.sat.python import cp_model

    whole = fsum(costs.max(axis=1).tolist()) + fsum(float(edge.costs.max()) for edge in edges)
    scale = TICKS / whole if whole > 0 else 0.0
    model = cp_model.CpModel()
    chosen = [[model.new_bool_var("") for _ in range(options)] for _ in range(layers)]
    terms, weights = [], []
    for layer, row in enumerate(chosen):
        model.add_exactly_one(row)
        terms += row
        weights += [round(float(cost) * scale) for cost in costs[layer]]
    for edge in edges:
        for option, cost in enumerate(edge.costs):
            differs = model.new_bool_var("")
            here, there = chosen[edge.producer][option], chosen[edge.consumer][option]
            model.add_bool_or([here.Not(), there, differs])
            terms.append(differs)
            weights.append(round(float(cost) * scale))
    model.minimize(cp_model.LinearExpr.weighted_sum(terms, weights))
    # Each layer's cheapest option is close to the answer, and CP-SAT starts from it.
    cheapest = costs.argmin(axis=1)
    for row, place in zip(chosen, cheapest, strict=True):
        model.add_hint(row[int(place)], True)
    solver, status = Effort(1, 0, Deadline(inf)).ask_once(model, EFFORT)
    if status not in ("OPTIMAL", "FEASIBLE"):
        return tuple(int(place) for place in cheapest)
    return tuple(next(index for index, each in enumerate(row) if solver.boolean_value(each)) for row in chosen)
