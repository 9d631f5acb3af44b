"""Documents of plans: what a proof makes of them, and what it is asked to prove."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

import nest
from nest import api
from nest.deployment import LaunchOptions
from nest.documents.document import Proof, proved, verdict
from nest.errors import InputError
from nest.formulate.instance import formulate
from nest.hooks.registry import registry
from nest.io import structure
from nest.report.text.summary import Verdict
from nest.solve.effort import Deadline
from nest.spec import PlanDocument, Problem
from planners_tests.instances import candidate, problem


@pytest.fixture(scope="module")
def plan() -> PlanDocument:
    return api.solve(problem(1e12, candidate(2), candidate(4)))


def test_a_plan_that_is_refuted_gives_way_and_its_time_is_told(plan: PlanDocument) -> None:
    better = evolve(plan, batch_time=(plan.batch_time or 0.0) / 2)
    found = proved(plan, Verdict({"status": "refuted"}, plan.batch_time, better))
    assert found.batch_time == better.batch_time
    assert found.verification == {"status": "refuted", "refuted_batch_time": plan.batch_time}
    assert proved(plan, Verdict({"status": "proved"}, plan.batch_time)) == evolve(
        plan, verification={"status": "proved"}
    )


@pytest.mark.parametrize(
    ("status", "bound"), [("optimal", None), ("feasible", 0.5), ("near-optimal", 0.995)], ids=lambda each: str(each)
)
def test_a_simpler_plan_is_proved_by_the_bound_that_it_is_near(
    plan: PlanDocument, monkeypatch: pytest.MonkeyPatch, status: str, bound: float | None
) -> None:
    """All others claim that no plan is faster than they are."""
    claims: list[float] = []

    def prove(instance: object, claimed: float, *_: object, **__: object) -> Any:
        claims.append(claimed)
        return SimpleNamespace(better=None, summary=dict)

    monkeypatch.setattr(import_module("nest_cpsat"), "verify", prove)
    whole = structure(plan.problem, Problem)
    instance, formulation = formulate(whole, registry())
    time = plan.batch_time or 0.0
    asked = evolve(plan, status=status, lower_bound=time * (bound or 1.0))
    how = Proof(False, Deadline.of(None), 1, None, None)
    assert verdict(instance, formulation, asked, whole, registry(), how).batch_time == claims[0]
    assert claims == [asked.lower_bound if status == "near-optimal" else time]


def test_a_plan_that_does_not_fit_is_not_proved() -> None:
    small = api.evaluate(problem(1e8, candidate(2)), fix={"pp": 2})
    assert not small.fits
    with pytest.raises(InputError, match="does not fit into memory, so nest cannot prove it"):
        api.verify(small)


@pytest.mark.parametrize(("asked", "free"), [("free", True), (True, False)])
def test_a_proof_lets_blocks_lie_anywhere_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: str | bool, free: bool
) -> None:
    hows: list[Proof] = []

    def verdict(*arguments: Any) -> Verdict:
        hows.append(arguments[-1])
        return Verdict({"status": "proved"}, None)

    monkeypatch.setattr(import_module("nest.documents.document"), "verdict", verdict)
    assert api.solve(problem(1e12, candidate(2)), verify=asked).verification == {"status": "proved"}
    assert [how.free for how in hows] == [free]


def test_the_machines_of_a_call_go_before_those_of_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: list[LaunchOptions] = []

    def comparison(*arguments: Any) -> None:
        launches.extend(each for each in arguments if isinstance(each, LaunchOptions))

    monkeypatch.setattr(import_module("nest_whatif.compare"), "comparison", comparison)
    options = LaunchOptions(nodes=4, part="language-model")
    for nodes in (2, None):
        nest.compare(problem(1e12, candidate(2)), planners=[], nodes=nodes, options=options, unbeaten=False)
    assert launches == [LaunchOptions(nodes=2, part="language-model"), options]


def test_changes_of_a_problem_count_where_a_plan_is_decided() -> None:
    found = api.evaluate(problem(1e12, candidate(2)), changes={"training": {"global_batch": 32}})
    assert found.problem["training"]["global_batch"] == 32
