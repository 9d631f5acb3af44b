"""Stages that recompute their first blocks alone: what plans, explanations, errors and tables say of them."""

import json
from functools import cache
from typing import Any

import pytest
from attrs import evolve

import nest
from nest.documents.first_plan import ORDER, Plan
from nest.errors import InputError, InputErrors
from nest.formulate.fixed_plan import decided_instance
from nest.hooks.kinds import InvalidResult
from nest.hooks.planning import Proposal
from nest.hooks.registry import registry
from nest.hooks.results import sound_proposal
from nest.instance import Instance, Solution
from nest.io import structure
from nest.plan.document import solution_of
from nest.plan.legality import permission_violations
from nest.report.framework_words import layout_difference, layout_text
from nest.spec import Decisions, PlanDocument, Problem
from nest.whatif.starts import decisions_of
from tests.test_any_problem import MEASURED

PROBLEM: dict[str, Any] = {
    "nest": 1,
    "model": {"transformer": {"layers": 8, "hidden": 4096, "ffn": 16384, "heads": 32, "vocab": 32000}},
    "training": {
        "global_batch": 16,
        "sequence_length": 4096,
        "micro_batch": [1],
        "memory_risk": 0.25,
        "schedule": "1f1b",
    },
    "cluster": {
        "device": "h100-sxm",
        "levels": [
            {"name": "node", "fanout": 2, "bandwidth": 4e11, "latency": 3e-6},
            {"name": "rack", "fanout": 2, "bandwidth": 5e10, "latency": 6e-6},
        ],
    },
    "strategies": {"tp": [1], "cp": [1], "sp": [1]},
}


def problem(gigabytes: int = 21, fixed: dict[str, Any] | None = None, **search: Any) -> dict[str, Any]:
    """Two stages of four blocks; 22 GiB force the recomputation of two, 21 of three, 19 of all, in one number."""
    asked = {**PROBLEM, "cluster": {**PROBLEM["cluster"], "memory": f"{gigabytes} GiB"}}
    bound = {"fixed": {"pp": 2, **fixed}} if fixed is not None else {"constraints": ["zero == 1", "pp == 2"]}
    return {**asked, **bound, "search": {"within": 0, "target": "megatron", **search}}


@cache
def solved(gigabytes: int = 21, **search: Any) -> PlanDocument:
    return nest.solve(problem(gigabytes, **search))


def names(plan: PlanDocument) -> list[str]:
    return [stage.recompute_name for stage in plan.stages]


def numbers(plan: PlanDocument) -> tuple[Instance, Solution]:
    instance = decided_instance(structure(plan.problem, Problem), plan, registry())
    return instance, solution_of(instance, plan)


@pytest.mark.longer
def test_other_plans_of_a_document_keep_their_parts() -> None:
    plan = nest.solve({**problem(22), "search": {"target": "megatron", "within": 0.07}})
    assert plan.fastest is not None
    assert plan.status == "near-optimal"
    told = json.loads(json.dumps(plan.to_dict()))
    assert nest.check(told).ok
    assert {stage.recompute_layers for stage in plan.fastest.decisions.stages} == {2}
    for stage in told["fastest"]["decisions"]["stages"]:
        stage["recompute_layers"] = 3
    assert any(each.startswith("fastest.batch_time") for each in nest.check(told).disagreements)


@pytest.mark.longer
def test_the_runner_up_keeps_its_parts() -> None:
    plan = nest.solve({**problem(20, target="none"), "constraints": ["zero == 1"]})
    assert plan.runner_up is not None
    decisions = structure(plan.runner_up["decisions"], Decisions)
    assert {stage.recompute_layers for stage in decisions.stages} == {3}
    assert nest.check(plan).ok


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("megatron", "full recomputation (block, 3 layers per stage)"),
        ("none", "full recomputation of the first 3 blocks per stage (full in the first block on 1 of 2 stages)"),
    ],
)
def test_layouts_say_it_in_the_words_of_the_framework(target: str, text: str) -> None:
    assert text in layout_text(solved(target=target))


def test_one_block_is_one() -> None:
    plan = nest.evaluate(problem(40, {"recompute": "full", "recompute_layers": 1, "recompute_rest": "selective"}))
    assert "full recomputation (block, 1 layer per stage), selective of the others" in layout_text(plan)
    other = nest.evaluate(problem(40, {"recompute": "full", "recompute_layers": 2, "recompute_rest": "selective"}))
    assert layout_difference(plan, other) == ["full recomputation (block, 2 layers per stage), selective of the others"]


@pytest.mark.longer
@pytest.mark.parametrize(
    ("gigabytes", "target", "found"),
    [
        (19, "megatron", {"fewer": ["full:3:none"]}),
        (40, "megatron", {"more": ["full:1:none"]}),
        (21, "none", {"more": ["full", "full:2:none"], "fewer": ["full:2:none", "none"]}),
        (19, "torchtitan", {}),
    ],
)
def test_whole_plans_and_unlike_stages_too(gigabytes: int, target: str, found: dict[str, Any]) -> None:
    told = nest.explain(solved(gigabytes, target=target), only=["binding"]).to_dict()["binding"]
    steps = [each for each in told if each["name"] == "recomputation"]
    assert {way: each[way]["recompute"] for each in steps for way in ("more", "fewer") if way in each} == found


def test_plans_with_other_parts_are_other_plans() -> None:
    plan = solved()
    other = evolve(plan, stages=tuple(evolve(stage, recompute_layers=2) for stage in plan.stages))
    assert decisions_of(plan) != decisions_of(other)


def test_the_key_puts_parts_between_selective_and_full() -> None:
    (entry,) = (each for each in ORDER if each.name == "recompute")
    instance, solution = numbers(solved(21, target="none"))

    def with_modes(*modes: str) -> Solution:
        stages = zip(solution.stages, modes, strict=True)
        return evolve(solution, stages=tuple(evolve(stage, recompute=mode) for stage, mode in stages))

    every = {
        ("none", "none"): 0,
        ("selective", "none"): 1,
        ("selective:2:none", "none"): 1,
        ("full:1:none", "selective"): 2,
        ("full:3:selective", "none"): 2,
        ("full", "full:1:none"): 3,
    }
    for modes, amount in every.items():
        assert entry.amount(Plan(instance, with_modes(*modes))) == amount
        for most in range(4):
            refused = permission_violations(entry.at_most(instance, most), with_modes(*modes))
            assert bool(refused) == (amount > most), (modes, most)


@pytest.mark.parametrize(
    ("search", "told"),
    [
        ({}, ()),
        ({"recompute_layers": False}, ("recompute_layers is 3, but search.recompute_layers allows whole stages only",)),
        ({"recompute": ["full"]}, ("recompute is none, but search.recompute allows full only",)),
    ],
)
def test_parts_outside_the_lists_are_told(search: dict[str, Any], told: tuple[str, ...]) -> None:
    plan = nest.evaluate(problem(40, {"recompute": "full", "recompute_layers": 3}, **search))
    assert plan.outside == told
    assert nest.check(plan).ok


@pytest.mark.parametrize(
    ("fixed", "told"),
    [
        ({"recompute_layers": 0}, "fixed.recompute_layers is 0; it must be a whole number of at least 1."),
        ({"recompute_layers": 1.5}, "fixed.recompute_layers is 1.5; it must be a whole number of at least 1."),
        ({"recompute": "none", "recompute_layers": 3}, "no recompute mode is lighter than 'none'; leave it out."),
        ({"recompute_layers": 3, "recompute_rest": "full"}, "lighter than 'full' is none or selective."),
        ({"recompute_layers": 3, "recompute_rest": "most"}, "fixed.recompute_rest is 'most'"),
        ({"recompute": "full", "recompute_rest": "none"}, "needs fixed.recompute_layers; add it, or leave both out."),
        ({"recompute": "full:3:none"}, "there is no recompute mode called 'full:3:none'"),
    ],
)
def test_what_cannot_be_fixed_is_told(fixed: dict[str, Any], told: str) -> None:
    for verb in (nest.solve, nest.evaluate):
        with pytest.raises(InputError, match=r"fixed\.recompute") as error:
            verb(problem(40, fixed))
        assert told in str(error.value)


@pytest.mark.parametrize(
    ("search", "fixed", "told"),
    [
        (
            {"target": "deepspeed"},
            {},
            "deepspeed cannot use 'full' for some blocks of a stage; leave it out, or choose",
        ),
        ({"target": "megatron"}, {"recompute_rest": "selective"}, "a stage and 'selective' for the others; leave it"),
        ({"recompute_layers": False}, {}, "search.recompute_layers allows all blocks only; change one of them."),
    ],
)
def test_what_a_search_cannot_have_is_told(search: dict[str, Any], fixed: dict[str, Any], told: str) -> None:
    with pytest.raises(InputErrors, match=r"fixed\.recompute_layers") as error:
        nest.solve(problem(40, {"recompute_layers": 3, **fixed}, **search))
    assert told in str(error.value)


@pytest.mark.parametrize("count", [8, 100])
def test_as_many_blocks_as_there_are_is_all_of_them(count: int) -> None:
    for verb in (nest.solve, nest.evaluate):
        assert names(verb(problem(40, {"recompute_layers": count}))) == ["full", "full"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"recompute_layers": 0}, "stages[0].recompute_layers is 0; it must be at least 1."),
        ({"recompute_rest": None}, "stages[0]: recompute_layers and recompute_rest go together; give both or none."),
        ({"recompute_layers": None}, "stages[0]: recompute_layers and recompute_rest go together; give both or none."),
        ({"recompute_rest": "most"}, "stages[0].recompute_rest is 'most', which candidate"),
        ({"recompute_layers": "3"}, "recompute_layers"),
    ],
)
def test_plan_files_with_half_a_part_are_refused(change: dict[str, Any], told: str) -> None:
    plan = json.loads(json.dumps(solved().to_dict()))
    plan["stages"][0].update(change)
    with pytest.raises(InputError) as error:
        raise InputError("; ".join(nest.check(plan).disagreements))
    assert told in str(error.value)


def test_modes_of_profiles_are_not_called_like_parts() -> None:
    asked = json.loads(json.dumps(MEASURED))
    for candidate in asked["profile"]["candidates"]:
        candidate["recompute"]["full:2:none"] = next(iter(candidate["recompute"].values()))
    with pytest.raises(InputErrors, match=r"recompute\.full:2:none: nest reserves this form of name"):
        nest.solve(asked)


def test_layers_that_a_part_cannot_run_are_told() -> None:
    arrays = {"extra": [1.0] * 3, "more": [1.0] * 3, "peak": [0.0] * 3}
    candidate = {
        "name": "one",
        "width": 1,
        "samples": 1,
        "state": {},
        "edge_bytes": [1.0] * 2,
        "forward": [1.0] * 3,
        "backward": [1.0] * 3,
        "recompute": {"none": {**arrays, "first": [1.0, 1.0, None]}, "full": {**arrays, "first": [1.0] * 3}},
    }
    asked = {
        "nest": 1,
        "profile": {"layers": ["a", "b", "c"], "edges": [[0, 1], [1, 2]], "candidates": [candidate]},
        "training": {"global_batch": 2},
        "cluster": {"memory": 100, "levels": [{"fanout": 2, "bandwidth": 1, "latency": 0}]},
        "fixed": {"recompute": "full", "recompute_layers": 1, "pp": 1},
    }
    plan = nest.solve(asked)
    assert plan.diagnosis is not None
    assert "layers of one stage have no recompute mode in common" in plan.diagnosis
    assert names(nest.solve({**asked, "fixed": {"recompute_layers": 2, "pp": 2}})) == ["full:2:none"] * 2
    with pytest.raises(InputError, match=r"layer 'c' cannot run with recompute mode 'full in the first block'"):
        nest.evaluate(asked)


def test_planners_may_propose_parts() -> None:
    instance, solution = numbers(solved())
    assert sound_proposal(Proposal(solution), instance).solution == solution
    for name in ("full:3:most", "most:3:none", "full:three:none"):
        stages = tuple(evolve(stage, recompute=name) for stage in solution.stages)
        with pytest.raises(InvalidResult, match="which its candidate lacks"):
            sound_proposal(Proposal(evolve(solution, stages=stages)), instance)
