"""What of a plan is beyond a framework's limits, in sentences."""

from typing import Any

import pytest
from attrs import evolve

from nest import api
from nest.deployment import Limits, deployment, violations
from nest.deployment.limits import degrees_of
from nest.errors import InputError
from nest.spec import PlanDocument

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 5, "hidden": 64, "ffn": 128, "heads": 4, "vocab": 256}},
    "training": {"global_batch": 8, "sequence_length": 32},
    "cluster": {"device": "h100-sxm", "levels": [{"fanout": 8, "bandwidth": 4e11, "latency": 3e-6}]},
    "fixed": {"tp": 2, "pp": 2, "zero": 1, "rank_order": "pp-inner"},
}


@pytest.fixture(scope="module")
def plan() -> PlanDocument:
    """Two stages of 3 and 2 blocks."""
    return api.evaluate(PROBLEM)


def stages(plan: PlanDocument, *changes: dict[str, Any]) -> PlanDocument:
    """The plan with other decisions on its stages, in turn."""
    changed = tuple(evolve(stage, **change) for stage, change in zip(plan.stages, changes, strict=True))
    return evolve(plan, stages=changed)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (Limits(), []),
        (Limits(strategies=("tp", "sp"), schedules=("1f1b",), zero=(1,), rank_orders=("pp-inner",)), []),
        (Limits(strategies=()), ["'tp' has degree 2, but toy has none"]),
        (Limits(strategies=("cp", "ep")), ["'tp' has degree 2, but toy has 'cp', 'ep' only"]),
        (Limits(schedules=("gpipe",)), ["the pipeline schedule is '1f1b', but toy has 'gpipe' only"]),
        (Limits(zero=(0, 3)), ["ZeRO stage 1 is used, but toy has 0, 3 only"]),
        (Limits(recompute=("full",)), ["recompute mode 'none' is used, but toy has 'full' only"]),
        (Limits(rank_orders=("dp-inner",)), ["the rank order is 'pp-inner', but toy has 'dp-inner' only"]),
        (
            Limits(even_stages=True),
            ["the stages hold 3, 2 transformer blocks, but toy needs equally many transformer blocks per stage"],
        ),
        (Limits(constraints={"pp == 1": "toy has no pipeline"}), ["pp is 2, but toy has no pipeline (`pp == 1`)"]),
        (
            Limits(constraints={"zero == 0 or pp * tp < 4": "toy shards alone"}),
            ["pp is 2, tp is 2, zero is 1, but toy shards alone (`zero == 0 or pp * tp < 4`)"],
        ),
        (Limits(constraints={"uniform(zero)": "it must", "devices == 8": "all of them", "etp == 1": "of course"}), []),
        (
            Limits(constraints={'same_stage("embedding", "head")': "toy ties them"}),
            ["layers embedding, head are on several stages, but toy ties them"],
        ),
        (Limits(constraints={'same_stage("embedding", "layers.0")': "", 'same_stage("x", "head")': ""}), []),
    ],
)
def test_each_limit_has_its_sentence(plan: PlanDocument, limits: Limits, told: list[str]) -> None:
    assert violations(plan, limits, "toy") == told


def test_choices_of_single_stages_count(plan: PlanDocument) -> None:
    uneven = stages(plan, {"recompute": "none", "zero": 1}, {"recompute": "full", "zero": 3})
    rules = {"uniform(recompute)": "toy has one policy", "uniform(zero)": "toy shards alike"}
    assert violations(uneven, Limits(constraints=rules), "toy") == [
        "stages differ in their recompute mode (none, full), but toy has one policy",
        "stages differ in their ZeRO stage (1, 3), but toy shards alike",
    ]
    limits = Limits(recompute=("none",), zero=(0, 1), constraints={"zero < 3 or recompute == 'none'": "it breaks"})
    assert violations(uneven, limits, "toy") == [
        "ZeRO stage 3 is used, but toy has 0, 1 only",
        "recompute mode 'full' is used, but toy has 'none' only",
        "recompute is full, zero is 3, but it breaks (`zero < 3 or recompute == 'none'`)",
    ]


def test_what_the_host_keeps_is_a_limit_of_its_own(plan: PlanDocument) -> None:
    kept = stages(plan, {"recompute": "offload"}, {"recompute": "offload"})
    assert violations(kept, Limits(recompute=("none",), offload=("activations",)), "toy") == []
    assert violations(kept, Limits(), "toy") == ["the plan offloads activations, which toy does not support"]
    training = {**plan.problem["training"], "offload": ["optimizer"]}
    state = evolve(plan, problem={**plan.problem, "training": training})
    assert violations(state, Limits(offload=("optimizer",)), "toy") == []
    (told,) = violations(state, Limits(offload=("activations",)), "toy")
    assert told.startswith("training.offload keeps the optimizer state on the host")


@pytest.mark.parametrize(("written", "frozen"), [(None, False), ("all", False), (["all"], False), (["head"], True)])
def test_a_part_that_is_frozen_is_a_limit_and_all_of_the_model_is_none(
    plan: PlanDocument, written: object, frozen: bool
) -> None:
    training = {**plan.problem["training"], "trainable": written}
    found = evolve(plan, problem={**plan.problem, "training": training})
    assert [text.partition(" (")[0] for text in violations(found, Limits(), "toy")] == (
        ["part of the model is frozen"] * frozen
    )
    assert violations(found, Limits(trainable=True), "toy") == []


def test_shard_groups_matter_where_zero_shards(plan: PlanDocument) -> None:
    smaller = evolve(plan, zero_degree=1)
    assert violations(smaller, Limits(zero_degrees=True), "toy") == []
    (told,) = violations(smaller, Limits(), "toy")
    assert told.startswith("ZeRO shards over 1 ranks (zero_degree), but toy")
    assert violations(stages(smaller, {"zero": 0}, {"zero": 0}), Limits(), "toy") == []
    shape = deployment(plan)
    every = shape.data_parallel * shape.cp
    assert every > 1
    assert violations(evolve(plan, zero_degree=every), Limits(), "toy") == []
    assert violations(evolve(plan, zero_degree=every - 1), Limits(), "toy") != []


def test_stages_that_are_split_differently_are_read_by_their_own_degrees(plan: PlanDocument) -> None:
    mixed = stages(plan, {}, {"candidate": "tp1-my-way4-mb1", "devices": (2, 4)})
    assert degrees_of(mixed, mixed.stages[1]) == {"tp": 1, "my-way": 4}
    assert violations(mixed, Limits(strategies=("tp",), mixed=True), "toy") == [
        "'my-way' has degree 4, but toy has 'tp' only"
    ]
    (told,) = violations(mixed, Limits(), "toy")
    assert told.startswith("stages differ in their parallelism (tp2")
    assert violations(mixed, Limits(mixed=True, constraints={"width == 2": "it is"}), "toy") == [
        "width is 4, but it is (`width == 2`)"
    ]


def test_an_infeasible_plan_and_odd_limits_are_refused(plan: PlanDocument) -> None:
    with pytest.raises(InputError, match="nothing to export"):
        violations(evolve(plan, status="infeasible", candidate=None, stages=()), Limits(), "toy")
    with pytest.raises(InputError, match="not an expression"):
        violations(plan, Limits(constraints={"pp = 2": "a slip"}), "toy")
