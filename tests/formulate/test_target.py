"""`search.target`: a problem narrowed to what a framework can run."""

from typing import Any

import pytest

from nest import api
from nest.deployment import Limits, violations
from nest.errors import InputError
from nest.hooks.registry import Registry
from nest.spec import PlanDocument
from tests.made_up_targets import with_frameworks

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 6, "hidden": 512, "ffn": 1024, "heads": 8, "vocab": 1024}},
    "training": {"global_batch": 16, "sequence_length": 128, "micro_batch": [1, 2], "graphs": "iteration"},
    "cluster": {
        "device": "h100-sxm",
        "levels": [
            {"fanout": 4, "bandwidth": 4e11, "latency": 3e-6},
            {"fanout": 2, "bandwidth": 5e10, "latency": 6e-6},
        ],
    },
}


def solved(known: Registry, target: str = "toy", **changes: Any) -> PlanDocument:
    """The best plan for a target; `changes` are keys of the problem, merged into its sections."""
    problem = {**PROBLEM, "search": {"target": target}}
    for name, change in changes.items():
        problem[name] = {**problem.get(name, {}), **change} if isinstance(change, dict) else change
    return api.solve(problem, plugins=known)


@pytest.mark.longer
@pytest.mark.parametrize(
    "limits",
    [
        Limits(strategies=("tp",), zero=(0,), recompute=("none",)),
        Limits(strategies=(), rank_orders=("pp-inner",), constraints={"pp > 1": "toy is a pipeline"}),
        Limits(even_stages=True, constraints={"pp > 1": "toy is a pipeline", "uniform(recompute)": "one policy"}),
        Limits(zero=(3,), constraints={"devices == 8": "it uses all"}),
        Limits(all_devices=True, constraints={"pp == 2": "toy comes in twos"}),
    ],
)
def test_a_plan_for_a_target_is_one_that_it_can_run(limits: Limits) -> None:
    known = with_frameworks(toy=limits)
    plan = solved(known)
    assert plan.status in ("optimal", "near-optimal")
    assert violations(plan, limits, "toy") == []
    assert api.check(plan, plugins=known).ok
    assert api.verify(plan, plugins=known).status == "proved"


@pytest.mark.parametrize(
    ("limits", "changes", "told"),
    [
        (Limits(zero=(0, 1)), {"fixed": {"zero": 3}}, "fixed.zero allows 3, but search.target toy has ZeRO"),
        (
            Limits(schedules=("1f1b", "interleaved")),
            {"training": {"schedule": ["gpipe"]}},
            "training.schedule allows gpipe, but search.target toy has schedules 1f1b, interleaved only",
        ),
        (Limits(recompute=("full",)), {"search": {"recompute": ["none"]}}, "search.recompute allows none"),
        (Limits(recompute=("full",)), {"fixed": {"recompute": "none"}}, "fixed.recompute allows none"),
        (Limits(strategies=("cp",)), {"strategies": {"tp": [2, 4]}}, "strategies.tp allows 2, 4, but search.target"),
        (Limits(strategies=("cp",)), {"fixed": {"tp": 2}}, "has no strategy 'tp'"),
        (Limits(rank_orders=("dp-inner",)), {"fixed": {"rank_order": "pp-inner"}}, "fixed.rank_order allows pp-inner"),
        (Limits(), {"search": {"zero_degree": [2]}}, "search.zero_degree allows 2"),
        (Limits(), {"training": {"offload": ["optimizer"]}}, "toy cannot keep the optimizer state on the host"),
        (Limits(even_stages=True), {"fixed": {"stages": [1, 5]}}, "needs equal stages of the 6 transformer"),
        (Limits(constraints={"pp = 1": "a slip"}), {}, "the limits of exporter 'toy'"),
        (Limits(constraints={"tensor == 1": "a slip"}), {}, "there is no name called 'tensor'"),
    ],
)
def test_what_a_problem_and_its_target_contradict_each_other_in_is_told(
    limits: Limits, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError) as caught:
        solved(with_frameworks(toy=limits), **changes)
    assert told in str(caught.value)


def test_several_contradictions_are_told_at_once() -> None:
    limits = Limits(zero=(0,), schedules=("1f1b",))
    with pytest.raises(InputError) as caught:
        solved(with_frameworks(toy=limits), search={"zero": [1]}, training={"schedule": ["gpipe"]})
    assert "search.zero" in str(caught.value)
    assert "training.schedule" in str(caught.value)


def test_a_target_is_an_exporter_that_says_what_its_framework_can_run() -> None:
    known = with_frameworks(toy=Limits(), mute=None)
    with pytest.raises(InputError, match=r"search.target: exporter 'mute' states no limits .*toy"):
        solved(known, target="mute")
    with pytest.raises(InputError, match=r"no target called 'toyy'. Did you mean 'toy'\?"):
        solved(known, target="toyy")


def test_memory_that_only_the_target_lacks_is_told() -> None:
    known = with_frameworks(toy=Limits(zero=(0,), strategies=(), constraints={"pp == 1": "no pipeline"}))
    larger = {"transformer": {"layers": 6, "hidden": 2048, "ffn": 8192, "heads": 8, "vocab": 1024}}
    plan = solved(known, model=larger, cluster={"memory": "5 GiB", "reserve": 0})
    assert plan.diagnosis is not None
    assert plan.diagnosis.startswith("Memory is tightest")
    assert plan.diagnosis.endswith("the limits of toy rule it out.")


def test_evaluating_prices_what_a_target_cannot_run() -> None:
    known = with_frameworks(toy=Limits(zero=(0,)))
    plan = api.evaluate({**PROBLEM, "search": {"target": "toy"}, "fixed": {"zero": 2}}, plugins=known)
    assert {stage.zero for stage in plan.stages} == {2}
    assert api.check(plan, plugins=known).ok
    with pytest.raises(InputError, match="no target called 'other'"):
        api.evaluate({**PROBLEM, "search": {"target": "other"}}, plugins=known)
