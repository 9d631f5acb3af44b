"""What plans priced from a table say of it: which share was measured, at which sizes, and what was computed."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

import nest_measured
from nest import api
from nest.graph import Operator
from nest.hooks.protocols import MeasuredOperator
from nest.hooks.registry import registry
from nest_measured.model import Measured
from nest_measured.sizes import sizes_of
from small_models import DEFAULT, DEVICE, MODELS, PROBLEM, TRAINING, graph, row

Use = Callable[..., None]

PLUGINS = registry(extra=[nest_measured])
OPERATORS = graph(MODELS["llama"]).operators


def seconds(operators: tuple[Operator, ...] = OPERATORS) -> float:
    """What the cost model says of operators, both passes."""
    costs = [Measured().price(each, DEVICE, TRAINING) for each in operators]
    return sum(cost.forward + cost.backward for cost in costs)


def covered() -> dict[str, Any]:
    """What the best plan says: one device, so that no operator is split."""
    found: dict[str, Any] = api.solve(PROBLEM, plugins=PLUGINS).summary["coverage"]
    return found


@pytest.mark.longer
def test_all_that_was_measured_at_its_sizes_is_covered(use: Use) -> None:
    use([row(each, 2.0) for each in OPERATORS])
    assert covered() == {
        "measured": pytest.approx(1.0),
        "at_its_sizes": pytest.approx(1.0),
        "nearest": [],
        "more": 0,
        "computed": [],
    }


def test_a_share_is_of_what_operators_compute(use: Use) -> None:
    some = tuple(each for each in OPERATORS if each.kind in ("attention", "norm"))
    use([row(each, 2.0) for each in some])
    found = covered()
    assert found["measured"] == found["at_its_sizes"] == pytest.approx(seconds(some) / seconds())
    assert found["nearest"] == []
    rest = {each["kind"]: each["share"] for each in found["computed"]}
    assert set(rest) == {each.kind for each in OPERATORS} - {"attention", "norm"}
    matmuls = tuple(each for each in OPERATORS if each.kind == "matmul")
    assert rest["matmul"] == pytest.approx(seconds(matmuls) / seconds())
    assert found["measured"] + sum(rest.values()) == pytest.approx(1.0)
    assert list(rest.values()) == sorted(rest.values(), reverse=True)


TWO = {**PROBLEM, "cluster": {**PROBLEM["cluster"], "levels": [{"fanout": 2, "bandwidth": "100 GB/s"}]}}


@pytest.mark.longer
@pytest.mark.parametrize(
    ("more", "fixed"),
    [
        ({}, {"pp": 2}),
        ({}, {"pp": 1, "dp": 2, "recompute": "full"}),
        ({"search": {"granularity": "operator"}}, {"pp": 2}),
    ],
    ids=["stages", "run again", "cut between operators"],
)
def test_the_share_is_the_same_wherever_layers_run(use: Use, more: dict[str, Any], fixed: dict[str, Any]) -> None:
    use([row(each, 2.0) for each in OPERATORS if each.kind in ("attention", "norm")])
    plan = api.evaluate({**TWO, **more}, fix=fixed, plugins=PLUGINS)
    assert plan.summary["coverage"]["measured"] == pytest.approx(covered()["measured"])


@pytest.mark.longer
def test_operators_that_are_split_are_looked_up_as_ranks_run_them(use: Use) -> None:
    """Half the heads were not measured, and lie outside what was."""
    use([row(each, 2.0) for each in OPERATORS if each.kind == "attention"])
    found = api.evaluate(TWO, fix={"tp": 2}, plugins=PLUGINS).summary["coverage"]
    assert found["measured"] == 0.0
    assert "attention" in {each["kind"] for each in found["computed"]}


def test_a_backward_pass_that_was_not_measured_is_not_covered(use: Use) -> None:
    use([{key: value for key, value in row(each, 2.0).items() if key != "backward"} for each in OPERATORS])
    found = covered()
    forward = sum(Measured().price(each, DEVICE, TRAINING).forward for each in OPERATORS)
    assert found["measured"] == pytest.approx(forward / seconds())


@pytest.mark.longer
def test_a_table_that_covers_nothing_says_so_and_other_costs_say_nothing(use: Use) -> None:
    use([{"kind": "softmax", "sizes": {"bytes": 7}, "forward": 1e-3}])
    assert covered()["measured"] == 0.0
    assert "coverage" not in api.solve({**PROBLEM, "costs": None}, plugins=PLUGINS).summary


@pytest.mark.longer
def test_a_check_sees_another_coverage(use: Use) -> None:
    use([row(each, 1.0) for each in OPERATORS])
    plan = api.solve(PROBLEM, plugins=PLUGINS)
    assert api.check(plan, plugins=PLUGINS).ok
    # What is computed takes as long: only the share that was measured differs.
    use([row(each, 1.0) for each in OPERATORS if each.kind != "norm"])
    report = api.check(plan, plugins=PLUGINS)
    assert any("coverage" in each for each in report.disagreements)


def test_the_price_says_what_it_was_measured_at(use: Use) -> None:
    (norm, *_) = [each for each in OPERATORS if each.kind == "norm"]
    use([row(norm, 2.0)])
    sizes = tuple((sizes_of(norm) or {}).items())
    assert Measured().price(norm, DEVICE, TRAINING).measured == MeasuredOperator(sizes, sizes)
    assert DEFAULT.price(norm, DEVICE, TRAINING).measured is None
    assert Measured().price(evolve(norm, kind="strange"), DEVICE, TRAINING).measured is None
