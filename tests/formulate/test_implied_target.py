"""The target of a problem that names none: the framework of its stack, unless that cannot run what is named."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

import nest
from nest import api
from nest.formulate.problem import whole_problem
from nest.formulate.risk import RISK, WITHIN
from nest.formulate.target import Target, reasons, with_target
from nest.hooks import hook
from nest.hooks.registry import Registry, registry
from nest.spec import PlanDocument
from nest.tolerances import AGREEMENT
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


@pytest.mark.longer
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


def test_it_steps_aside_for_a_strategy_of_a_plug_in() -> None:
    known = registry(extra=[Foo()])
    found = chosen(PROBLEM, known)
    assert found is not None
    assert found.name is None
    assert "cannot run the strategy 'foo' of " in found.why
    off = chosen({**PROBLEM, "strategies": {"foo": [1]}}, known)
    assert off is not None
    assert off.name == "megatron"


@pytest.mark.longer
def test_what_is_written_counts() -> None:
    assert chosen({**PROBLEM, "search": {"target": "none"}}) is None
    assert chosen({**PROBLEM, "search": {"target": "torchtitan"}}) is None
    free, aimed = (nest.solve({**PROBLEM, "search": {"target": each}}) for each in ("none", "megatron"))
    assert free.problem["search"]["target"] == "none"
    assert (free.batch_time or 0.0) <= (aimed.batch_time or 0.0)


@pytest.mark.longer
def test_schedules_that_nobody_names_are_all_that_the_framework_has() -> None:
    assert nest.solve(PROBLEM).problem["training"]["schedule"] == ["1f1b", "interleaved"]
    named = {**PROBLEM, "training": {**PROBLEM["training"], "schedule": "1f1b"}}
    assert nest.solve(named).problem["training"]["schedule"] == ["1f1b"]


TRAINING: dict[str, Any] = PROBLEM["training"]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("stack", [None, "megatron-core", "megatron-bridge", "megatron-lm"])
def test_a_stack_never_rules_out_its_own_framework(stack: str | None, precision: str) -> None:
    told = {**TRAINING, "precision": precision} | ({} if stack is None else {"stack": stack})
    whole, written = whole_problem({**PROBLEM, "training": told}, registry())
    aimed, found = with_target(whole, written, registry())
    assert found is not None
    assert found.name == ("megatron-bridge" if whole.training.stack == "megatron-bridge" else "megatron")
    assert aimed.training.schedule == ("1f1b", "interleaved")


@pytest.mark.parametrize("stack", ["deepspeed", "fsdp", "maxtext", "nanotron", "transformers"])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_other_stacks_rule_their_framework_out_for_what_is_named_only(stack: str, precision: str) -> None:
    found = chosen({**PROBLEM, "training": {**TRAINING, "stack": stack, "precision": precision}})
    assert found is not None
    assert found.name is not None or "training.precision is 'fp16'" in found.why


OWN = {"name": "own", "memory": "80 GB", "memory_bandwidth": "3 TB/s", "peak": {"bf16": "1 PFLOP/s"}}


@pytest.mark.longer
@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": {"device": OWN, "levels": PROBLEM["cluster"]["levels"]}},  # It has no usual stack.
        {"training": {**PROBLEM["training"], "stack": "none"}},
        {"training": {**PROBLEM["training"], "stack": "deepspeed"}, "search": {"target": "none"}},
        {"search": {"target": "none"}},
    ],
)
def test_where_no_target_says_so_interleaving_is_searched_and_one_line_says_what_is_left_out(
    changes: dict[str, Any],
) -> None:
    told: list[str] = []
    plan = api.solve({**PROBLEM, **changes}, message=told.append)
    assert plan.problem["search"]["target"] == "none"
    assert plan.problem["training"]["schedule"] == ["1f1b", "interleaved"]
    line = "Searching the schedules 1f1b and interleaved; list others in training.schedule."
    assert [each for each in told if "the schedules" in each] == [line]


OTHERWISE = "bridge-26.04.01-deepseek-v3-b200-mxfp8-256-gbs4096"
"""A row that recomputes `mlp_up` and `mlp_activated`, where Megatron Core's module `mlp` runs `mlp_down` again, too."""

GROUPS = ("megatron_bridge", "megatron_bridge_moe")


def recipes(folder: Path, groups: Collection[str] = GROUPS) -> dict[str, dict[str, Any]]:
    """The problems of published recipes of Megatron-Bridge, each once, by the name of a row."""
    files = sorted((folder / "fidelity").glob("measured*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    once = {json.dumps(row["problem"], sort_keys=True): row for row in rows if row["group"] in groups}
    assert once
    return {row["id"]: row["problem"] for row in once.values()}


def undecided(recipe: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in recipe.items() if key != "fixed"}


@pytest.mark.longer
def test_published_recipes_of_megatron_bridge_have_its_target(shared: Path) -> None:
    for name, recipe in recipes(shared).items():
        for asked in (undecided(recipe), recipe):
            found = chosen(asked)
            assert found is not None
            wanted = None if name == OTHERWISE and "fixed" in asked else "megatron-bridge"
            assert found.name == wanted, (name, found.why)


@pytest.mark.longer
def test_published_recipes_of_megatron_bridge_are_plans_that_it_runs(shared: Path) -> None:
    for name, recipe in recipes(shared).items():
        plan = nest.evaluate({**recipe, "search": {"target": "megatron-bridge"}})
        refusals = reasons(plan, registry(), ["megatron-bridge"])["megatron-bridge"]
        assert bool(refusals) == bool(plan.outside) == (name == OTHERWISE), (name, refusals, plan.outside)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_no_published_recipe_of_megatron_bridge_that_is_likely_to_fit_is_faster_than_the_first_plan(
    shared: Path, group: str
) -> None:
    best: dict[str, PlanDocument] = {}
    for name, recipe in recipes(shared, [group]).items():
        plan = nest.evaluate({**recipe, "search": {"target": "megatron-bridge"}})
        if (plan.fit_probability or 0.0) < 1 - RISK:
            continue
        asked = json.dumps(undecided(recipe))
        found = best[asked] = best.get(asked) or nest.solve(undecided(recipe))
        assert found.runs_on is not None
        assert "megatron-bridge" in found.runs_on, name
        assert found.batch_time is not None
        assert found.lower_bound is not None
        assert plan.batch_time is not None
        assert found.lower_bound <= plan.batch_time * (1 + AGREEMENT), name
        assert found.batch_time <= plan.batch_time * (1 + WITHIN), name
    assert best


def test_what_is_decided_is_priced_whoever_can_run_it() -> None:
    plan = nest.evaluate(PROBLEM, fix={"zero": 3, "pp": 2})
    assert plan.problem["search"]["target"] == "none"
    assert plan.runs_on is not None
    assert "megatron" not in plan.runs_on


def test_a_profile_has_no_target() -> None:
    plan = nest.solve("examples/measured-layers/problem.yaml")
    assert "target" not in plan.problem["search"]
