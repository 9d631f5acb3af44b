"""The target of a problem that names none: the framework of its stack, unless that cannot run what is named."""

from typing import Any

import pytest

import nest
from nest import api
from nest.formulate.problem import whole_problem
from nest.formulate.target import Target, with_target
from nest.hooks import hook
from nest.hooks.registry import Registry, registry
from nest.io import structure
from nest.spec import Problem
from tests.hooks.test_plugin_errors import Strategy

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 4, "hidden": 512, "ffn": 2048, "heads": 8, "vocab": 1024}},
    "training": {"global_batch": 16, "sequence_length": 512},
    "cluster": {"device": "h100-sxm", "levels": [{"fanout": 4, "link": "nvlink4"}]},
}
TPU = {"device": "tpu-v5p", "levels": [{"fanout": 4, "bandwidth": "100 GB/s"}]}


class Foo:
    """A plug-in with a strategy that takes part unless it is told not to."""

    @hook
    def nest_strategies(self) -> list[Any]:
        return [Strategy()]


def chosen(problem: dict[str, Any], known: Registry | None = None) -> Target | None:
    known = known or registry()
    whole, written = whole_problem(problem, known)
    return with_target(whole, written, known)[1]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "megatron"),
        ({"cluster": TPU}, "maxtext"),
        ({"cluster": "dgx-h100-superpod-64"}, "megatron"),  # Of another size than the catalogue's.
        ({"training": {**PROBLEM["training"], "stack": "fsdp"}}, "torchtitan"),
        ({"training": {**PROBLEM["training"], "stack": "deepspeed"}}, "deepspeed"),
        ({"training": {**PROBLEM["training"], "stack": "none"}}, None),
        ({"training": {**PROBLEM["training"], "stack": "nanotron"}}, "nanotron"),
        ({"training": {**PROBLEM["training"], "precision": "fp16"}}, "megatron"),
        (
            {
                "cluster": {**PROBLEM["cluster"], "device": "b200-sxm"},
                "training": {**PROBLEM["training"], "precision": "mxfp8"},
            },
            "megatron-bridge",
        ),
    ],
)
def test_it_is_the_framework_of_the_stack(changes: dict[str, Any], name: str | None) -> None:
    found = chosen({**PROBLEM, **changes})
    assert (None if found is None else found.name) == name
    plan = nest.solve({**PROBLEM, **changes})
    assert plan.problem["search"]["target"] == (name or "none")
    assert plan.runs_on is not None
    assert name is None or name in plan.runs_on
    assert nest.check(plan.to_dict()).ok


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"training": {**PROBLEM["training"], "schedule": ["1f1b", "gpipe"]}}, "gpipe (training.schedule)"),
        ({"fixed": {"schedule": "nest"}}, "nest (training.schedule)"),
        ({"search": {"mixed": True}}, "stages that are split differently (search.mixed)"),
        ({"search": {"granularity": "operator"}}, "stages that part a layer (search.granularity)"),
        ({"cluster": TPU, "search": {"zero": [2]}}, "2 (search.zero)"),
    ],
)
def test_it_steps_aside_for_what_the_problem_names(changes: dict[str, Any], why: str) -> None:
    found = chosen({**PROBLEM, **changes})
    assert found is not None
    assert found.name is None
    assert found.why.endswith(f"cannot run {why}")
    assert nest.solve({**PROBLEM, **changes}).problem["search"]["target"] == "none"


def test_it_steps_aside_for_a_strategy_of_a_plug_in() -> None:
    known = registry(extra=[Foo()])
    found = chosen(PROBLEM, known)
    assert found is not None
    assert found.name is None
    assert "cannot run the strategy 'foo' of " in found.why
    off = chosen({**PROBLEM, "strategies": {"foo": [1]}}, known)
    assert off is not None
    assert off.name == "megatron"


def test_what_is_written_counts() -> None:
    assert chosen({**PROBLEM, "search": {"target": "none"}}) is None
    assert chosen({**PROBLEM, "search": {"target": "torchtitan"}}) is None
    free, aimed = (nest.solve({**PROBLEM, "search": {"target": each}}) for each in ("none", "megatron"))
    assert free.problem["search"]["target"] == "none"
    assert (free.batch_time or 0.0) <= (aimed.batch_time or 0.0)


def test_schedules_that_nobody_names_are_all_that_the_framework_has() -> None:
    assert nest.solve(PROBLEM).problem["training"]["schedule"] == ["1f1b", "interleaved"]
    named = {**PROBLEM, "training": {**PROBLEM["training"], "schedule": "1f1b"}}
    assert nest.solve(named).problem["training"]["schedule"] == ["1f1b"]


def test_what_is_decided_is_priced_whoever_can_run_it() -> None:
    plan = nest.evaluate(PROBLEM, fix={"zero": 3, "pp": 2})
    assert plan.problem["search"]["target"] == "none"
    assert plan.runs_on is not None
    assert "megatron" not in plan.runs_on


def test_a_framework_s_plan_is_never_faster_than_the_best_of_all() -> None:
    deep = {**PROBLEM, "model": {"transformer": {**PROBLEM["model"]["transformer"], "layers": 16}}, "fixed": {"pp": 4}}
    aimed, free = nest.solve(deep), nest.solve({**deep, "search": {"target": "none"}})
    assert free.problem["training"]["schedule"] == aimed.problem["training"]["schedule"]
    assert (free.batch_time or 0.0) <= (aimed.batch_time or 0.0)


def test_a_decided_schedule_of_the_framework_is_not_outside_the_space() -> None:
    asked = {**PROBLEM, "fixed": {"pp": 2, "schedule": "interleaved", "chunks": 2}}
    for plan in (nest.solve(asked), nest.evaluate(asked)):
        assert plan.schedule == "interleaved"
        assert plan.outside == ()


def test_a_list_that_says_what_is_usual_names_nothing() -> None:
    tpu = {**PROBLEM, "cluster": TPU}
    for same in (structure(tpu, Problem), {**tpu, "search": {"zero": [0, 1, 2, 3]}}):
        assert nest.solve(same).problem["search"]["target"] == "maxtext"


def test_a_profile_has_no_target() -> None:
    plan = nest.solve("examples/measured-layers/problem.yaml")
    assert "target" not in plan.problem["search"]


def test_people_are_told_in_a_sentence() -> None:
    told: list[str] = []
    api.solve(PROBLEM, message=told.append)
    api.solve({**PROBLEM, "search": {"mixed": True}}, message=told.append)
    api.solve({**PROBLEM, "search": {"target": "none"}}, message=told.append)
    assert [each for each in told if each.startswith("target")] == [
        "target: megatron, that of megatron-core: what it can run is searched; `search.target: none` searches all, and "
        "`nest explain` says what the limits cost.",
        "target: none; megatron cannot run stages that are split differently (search.mixed).",
    ]
