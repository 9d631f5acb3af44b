"""Plans on a network with a slower level: as priced by the oracle, or as the changed problem prices them."""

import copy
from random import Random
from typing import Any

import pytest

import nest
from nest.documents.runner_up import slower_times
from nest.formulate.instance import formulate
from nest.hooks.registry import registry
from nest.io import structure
from nest.plan.document import solution_of
from nest.report.text.summary import summary
from nest.spec import PlanDocument, Problem
from nest.tolerances import AGREEMENT, BANDWIDTH_SHORTFALL
from nest.whatif.parameters import bandwidths
from nest.whatif.solver import Solver
from nest_page.page_of_plan import PARTS
from nest_whatif.text.explanation import explanation_text
from tests.agreement.problems import random_problem
from tests.oracle.check import plan_of
from tests.oracle.price import price
from tests.test_any_problem import DESCRIBED

LEFT = 1 - BANDWIDTH_SHORTFALL
LOSES = "It wins if the bandwidth of spine is 10 % lower."


def two_devices(gradients: float) -> dict[str, Any]:
    """Two replicas, which reduce their gradients over the spine, against two stages, which send next to nothing.

    The replicas take `20 + gradients / bandwidth` seconds, the stages `25 + 0.5 / bandwidth`.
    """
    return {
        "nest": 1,
        "training": {"global_batch": 4},
        "cluster": {"memory": 1000.0, "levels": [{"name": "spine", "fanout": 2, "bandwidth": 10.0, "latency": 0}]},
        "search": {"zero": [0]},
        "profile": {
            "layers": ["a", "b"],
            "edges": [[0, 1]],
            "candidates": [
                {
                    "name": "one",
                    "width": 1,
                    "samples": 1,
                    "forward": [2, 2],
                    "backward": [3, 3],
                    "state": {
                        "dense": {
                            "ranks": [0],
                            "weights": [1, 1],
                            "gradients": [gradients / 2, gradients / 2],
                            "optimizer": [1, 1],
                            "update": [0, 0],
                        }
                    },
                    "recompute": {"none": {"extra": [0, 0], "first": [1, 1], "more": [1, 1], "peak": [0, 0]}},
                    "edge_bytes": [0.1],
                }
            ],
        },
    }


def with_slower(written: dict[str, Any], index: int) -> dict[str, Any]:
    changed = copy.deepcopy(written)
    changed["cluster"]["levels"][index]["bandwidth"] *= LEFT
    return changed


def runner_up_of(document: dict[str, Any]) -> dict[str, Any]:
    """The runner-up's decisions as a document."""
    return {**document, **document["runner_up"]["decisions"]}


def test_a_plan_that_needs_the_last_per_cents_of_a_level_says_so() -> None:
    plan = nest.solve(two_devices(46))
    assert plan.runner_up is not None
    (found,) = plan.runner_up["wins_if"]
    assert (found["level"], found["bandwidth"]) == ("spine", 0.9)
    assert found["plan_batch_time"] == pytest.approx(20 + 46 / 9)
    assert found["batch_time"] == pytest.approx(25 + 0.5 / 9)
    assert LOSES in summary(plan)
    assert LOSES in nest.report_page(plan, without=PARTS)


def test_a_plan_that_wins_without_them_says_nothing() -> None:
    plan = nest.solve(two_devices(40))
    assert plan.runner_up is not None
    assert plan.runner_up["wins_if"] == []
    assert "loses" not in summary(plan)
    assert explained(plan, "flips").count(" wins if ") == 0


def explained(plan: PlanDocument, part: str) -> str:
    return explanation_text(nest.explain(plan, only=[part]).to_dict())


def test_an_explanation_says_it_once() -> None:
    plan = nest.solve(two_devices(46))
    told = explained(plan, "flips")
    assert told.count("10 % lower") == 1
    assert "Another plan wins if the bandwidth of spine is 10 % lower." in told
    told = explained(plan, "binding")
    assert told.count("10 % lower") == 1
    assert "The runner-up (pp 2, replicas 1, micro-batch 1) wins if the bandwidth of spine is 10 % lower." in told


@pytest.mark.parametrize(
    "change", [{"level": "node"}, {"bandwidth": 0.8}, {"batch_time": 25.0}, {"plan_batch_time": 26}]
)
def test_what_is_changed_is_noticed(change: dict[str, Any]) -> None:
    plan = nest.solve(two_devices(46)).to_dict()
    plan["runner_up"]["wins_if"][0].update(change)
    assert any("runner_up.wins_if[0]" in each for each in nest.check(plan).disagreements)


def test_what_is_left_out_or_added_is_noticed() -> None:
    loses, wins = (nest.solve(two_devices(gradients)).to_dict() for gradients in (46, 40))
    wins["runner_up"]["wins_if"] = loses["runner_up"]["wins_if"]
    loses["runner_up"]["wins_if"] = []
    assert not nest.check(loses).ok
    assert not nest.check(wins).ok


SEEDS = {"plain": (8, 24, 183, *range(6)), "mixed": (1, 5, 17, 19, *range(6, 9)), "chunked": (88, 152, *range(6))}
"""With those few in which another plan wins."""


@pytest.mark.longer
@pytest.mark.parametrize("kind", sorted(SEEDS))
def test_the_oracle_finds_the_same_levels(kind: str) -> None:
    compared = 0
    for seed in SEEDS[kind]:
        document = nest.solve(random_problem(Random(seed), kind)).to_dict()
        if document["runner_up"] is None:
            continue
        mine, theirs = plan_of(document), plan_of(runner_up_of(document))
        expected = []
        for index, level in enumerate(document["problem"]["cluster"]["levels"]):
            changed = with_slower(document["problem"], index)
            own, other = (price(changed, plan)["batch_time"] for plan in (mine, theirs))
            if other < own * (1 - AGREEMENT):
                name = level.get("name") or f"level {index}"
                expected.append((name, pytest.approx(other, rel=AGREEMENT), pytest.approx(own, rel=AGREEMENT)))
        stated = document["runner_up"]["wins_if"]
        assert [(each["level"], each["batch_time"], each["plan_batch_time"]) for each in stated] == expected
        compared += 1
    assert compared >= 3


LINKED = [
    {"name": "node", "fanout": 2, "bandwidth": "450 GB/s", "link": "nvlink"},
    {"name": "rack", "fanout": 4, "bandwidth": "5 GB/s", "link": "infiniband-hdr"},
]
WIDTHS_DIFFER = {"search": {"mixed": True}, "constraints": ["devices == 8", "pp == 3", "replicas == 1"]}
MODELS: dict[str, dict[str, Any]] = {
    "by formula": {"strategies": {"tp": [2, 4], "cp": [1], "ep": [1, 2]}},
    "by lines": {"cluster": {**DESCRIBED["cluster"], "levels": LINKED}, "strategies": {"tp": [4], "cp": [1]}},
    "hidden under attention": {"strategies": {"tp": [1], "cp": [2], "sp": [1]}},
    "mixed": {
        "cluster": {**DESCRIBED["cluster"], "levels": LINKED},
        "strategies": {"tp": [2, 4], "cp": [1], "ep": [1], "etp": [1]},
        **WIDTHS_DIFFER,
    },
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_all_of_a_model_that_depends_on_the_network_is_priced_anew(name: str) -> None:
    plan = nest.solve({**DESCRIBED, "fixed": {}, "constraints": [], **MODELS[name]})
    assert (len({stage.candidate for stage in plan.stages}) > 1) == (name == "mixed")
    known, problem = registry(), structure(plan.problem, Problem)
    instance, formulation = formulate(problem, known)
    found = slower_times(instance, formulation, solution_of(instance, plan))
    changed = [
        Solver(known).time_on(each.changed(problem, each.value * LEFT), plan)
        for each in bandwidths(problem.cluster, known)
    ]
    assert list(found) == pytest.approx(changed, rel=AGREEMENT)
    assert max(found) > (plan.batch_time or 0.0) * (1 + AGREEMENT)
