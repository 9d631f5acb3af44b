"""How much of a plan's operator times was measured, and at which sizes."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from nest.formulate.operator_costs import PricedOperator
from nest.formulate.price import Formulation
from nest.formulate.pricing import priced_layers
from nest.hooks.protocols import MeasuredOperator
from nest.instance import Solution

MOST_SIZES = 20
"""Most sizes that are told one by one with those of the measurement nearest to them."""


def coverage(formulation: Formulation, solution: Solution) -> dict[str, Any] | None:
    """The share of what operators compute that was measured; None: they compute nothing.

    The share is of the seconds of all layers of all stages, forward and backward once each: without collectives,
    optimizer steps and what runs again. A backward pass that follows a measured forward one in proportion counts as
    computed.

    Returns:
        `measured`, the share that was measured; `at_its_sizes`, what was at the operator's own sizes; `nearest`, what
        was taken from measurements at other sizes, the largest first: `kind`, `sizes`, `measured_at` and `share`, and
        `more`, how many are left out there; `computed`, the rest by `kind` with its `share`. All shares are of all.
    """
    exact, whole = 0.0, 0.0
    nearest: dict[tuple[str, MeasuredOperator], float] = defaultdict(float)
    computed: dict[str, float] = defaultdict(float)
    for count, row in _operators(formulation, solution):
        cost, kind = row.cost, row.operator.kind
        known, seconds = cost.measured, count * (cost.forward + cost.backward)
        taken = 0.0 if known is None else count * (cost.forward + (cost.backward if known.backward else 0.0))
        whole += seconds
        computed[kind] += seconds - taken
        if known is not None and known.sizes == known.measured_at:
            exact += taken
        elif known is not None:
            nearest[kind, known] += taken
    if not whole:
        return None
    largest = sorted(nearest.items(), key=lambda each: (-each[1], each[0][0], each[0][1].sizes))
    told = [
        {
            "kind": kind,
            "sizes": dict(known.sizes),
            "measured_at": dict(known.measured_at),
            "share": seconds / whole,
        }
        for (kind, known), seconds in largest[:MOST_SIZES]
    ]
    rest = sorted(computed.items(), key=lambda each: (-each[1], each[0]))
    return {
        "measured": (exact + sum(nearest.values())) / whole,
        "at_its_sizes": exact / whole,
        "nearest": told,
        "more": len(largest) - len(told),
        "computed": [{"kind": kind, "share": seconds / whole} for kind, seconds in rest if seconds > 0],
    }


def _operators(formulation: Formulation, solution: Solution) -> Iterator[tuple[int, PricedOperator]]:
    """The operators that compute in all stages, each with how many layers of the stage have it."""
    assert formulation.classes is not None
    for stage in solution.stages:
        pricing = formulation.pricing_of(stage.candidate)
        assert pricing is not None
        counts = Counter(formulation.classes.class_of[layer] for layer in stage.layers)
        layers = priced_layers(formulation.sharded[stage.candidate], formulation.classes, pricing)
        parts = [rows for layer, _ in layers for rows in layer.parts]
        for index, rows in enumerate(parts):
            if counts[index]:
                yield from ((counts[index], row) for row in rows if row.operator.collective is None)
