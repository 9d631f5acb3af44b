"""What a step costs: the devices of every pool used, and every byte that leaves its zone."""

from itertools import pairwise
from typing import Any

import pytest

import nest
from nest.errors import InputError
from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.io import structure
from nest.plan.document import solution_of
from nest.plan.evaluate import evaluate
from nest.report.plan_summary import sent_between_pools
from nest.spec import Problem
from tests.pooled_problems import two_pools

EGRESS = 2e9
"""Of a gigabyte, so that these small tensors cost something."""


def priced(**between: Any) -> dict[str, Any]:
    """Both pools at a price; plans must use both."""
    problem = two_pools(constraints=["pp >= 3", "devices >= 7"], search={"zero": [0]})
    for pool, price, zone in zip(problem["cluster"]["pools"], (3.0, 2.0), ("north", "south"), strict=True):
        pool |= {"price": price, "zone": zone}
    problem["cluster"]["between"][0] |= between
    return problem


def test_every_device_sends_its_bytes_over_every_boundary_between_pools() -> None:
    """Each tensor of the chain has 5 bytes; one goes forward and its gradient back, once for each micro-batch."""
    problem = priced(egress=EGRESS)
    plan = nest.solve(problem)
    instance = build_instance(structure(problem, Problem), registry())
    sent = sent_between_pools(instance, solution_of(instance, plan), plan.micro_batches or 0)
    ends = [(one, two) for one, two in pairwise(plan.stages) if one.pool != two.pool]
    assert ends
    runs = (plan.micro_batches or 0) * (plan.data_parallel or 0)
    assert sent == {frozenset(("fast", "slow")): sum(5.0 * (a.devices[1] + b.devices[1]) for a, b in ends) * runs}
    forward = [stage.bytes_out for stage in evaluate(instance, solution_of(instance, plan)).stages]
    assert forward[:-1] == [5.0] * (len(plan.stages) - 1)


def test_within_a_zone_nothing_is_paid() -> None:
    problem = priced(egress=EGRESS)
    problem["cluster"]["pools"][1]["zone"] = "north"
    with pytest.raises(InputError, match=r"cluster\.between\[0\]\.egress is paid between zones"):
        nest.solve(problem)
