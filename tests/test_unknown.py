"""Facts of the software that a problem leaves open: ranges over both values, and the plans to measure."""

from functools import cache
from typing import Any

import pytest

import nest
from nest.catalogue import stacks
from nest.errors import InputError
from nest.formulate.problem import self_contained
from nest.hooks.registry import registry
from nest.io import structure
from nest.report.text.first_screen import first_screen
from nest.spec import PlanDocument, Problem
from nest.units import format_seconds


def problem(**training: Any) -> dict[str, Any]:
    return {
        "nest": 1,
        "model": "gpt2",
        "training": {"global_batch": 16, "sequence_length": 1024, **training},
        "cluster": {"device": "h100-sxm", "levels": [{"name": "node", "fanout": 8, "link": "nvlink4"}]},
    }


@cache
def solved() -> PlanDocument:
    return nest.solve(problem())


def test_a_range_spans_the_step_times_under_both_values() -> None:
    plan = nest.evaluate(problem())
    hidden, shown = (nest.evaluate(problem(overlap={"data": each}, unknown={})) for each in (True, False))
    assert {fact.key: fact.batch_time for fact in plan.unknown} == {"overlap.data": pytest.approx(shown.batch_time)}
    for span in (plan.batch_time_range, hidden.batch_time_range, shown.batch_time_range):
        assert span is not None
    assert plan.batch_time == hidden.batch_time
    assert plan.batch_time_range.low == pytest.approx(hidden.batch_time_range.low)  # type: ignore[union-attr]
    assert plan.batch_time_range.high == pytest.approx(shown.batch_time_range.high)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "settled",
    [
        problem(overlap={"data": True}),
        problem(stack="megatron-core"),
        problem(unknown={}),
        problem() | {"search": {"target": "megatron"}},
    ],
    ids=["key", "stack", "nothing-unknown", "target"],
)
def test_what_the_problem_or_a_named_release_says_is_known(settled: dict[str, Any]) -> None:
    assert nest.evaluate(settled).unknown == ()


@pytest.mark.parametrize(
    ("training", "data", "unknown"),
    [
        ({"overlap": {"tensor": False}}, False, {"overlap.data": True}),
        ({"overlap": {"tensor": True}}, True, {"overlap.data": False}),
        ({"overlap": {"tensor": False}, "stack": "megatron-core"}, True, None),
    ],
)
def test_one_overlap_off_means_a_launch_without_flags(training: dict[str, Any], data: bool, unknown: Any) -> None:
    taken = self_contained(
        structure(problem(attention_kernel="flash2", **training), Problem), None, registry()
    ).training
    assert (taken.overlap.data, taken.unknown) == (data, unknown)


def test_facts_that_hardly_matter_are_left_out() -> None:
    assert set(stacks()["megatron-core"].unknown) > {fact.key for fact in solved().unknown} == {"overlap.data"}


def test_own_doubts_are_priced() -> None:
    plan = nest.evaluate(problem(stack="none", graphs="none", unknown={"graphs": "layers"}))
    other = nest.evaluate(problem(stack="none", graphs="layers"))
    assert [(fact.taken, fact.other, fact.batch_time) for fact in plan.unknown] == [
        ("none", "layers", pytest.approx(other.batch_time))
    ]
    assert "training.graphs" in first_screen(plan)


@pytest.mark.parametrize(
    ("doubt", "told"), [({"overlap.air": True}, "stacks fill in no key 'overlap.air'"), ({"graphs": "all"}, "graphs")]
)
def test_doubts_of_nothing_are_refused(doubt: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        nest.evaluate(problem(unknown=doubt))


@pytest.mark.longer
def test_the_search_is_about_the_values_that_were_taken() -> None:
    plan, known = solved(), nest.solve(problem(unknown={}))
    assert (plan.batch_time, plan.lower_bound, plan.stages) == (known.batch_time, known.lower_bound, known.stages)
    assert nest.check(plan).ok


def test_other_plans_to_measure_differ_in_layout() -> None:
    plan = solved()
    assert plan.runner_up is not None
    assert plan.to_measure == ("plan", "runner_up")
    assert plan.unknown[0].others["runner_up"] > plan.runner_up["batch_time"]
    text = first_screen(plan)
    assert 'measure    2 plans too close to call: this plan and "runner-up"' in text
    fact = plan.unknown[0]
    times = [format_seconds(each) for each in (plan.batch_time or 0.0, fact.batch_time)]
    assert f"unknown    training.overlap.data: {times[0]} if true, {times[1]} if false" in text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda plan: plan["unknown"][0].update(batch_time=0.03), "batch_time_range.high"),
        (lambda plan: plan["unknown"][0]["others"].update(runner_up=0.03), "step times for overlap.data"),
        (lambda plan: plan.update(to_measure=["plan", "safer"]), "to_measure"),
        (lambda plan: plan["batch_time_range"].update(high=0.035), "batch_time_range.high"),
    ],
    ids=["time", "other-time", "to-measure", "range"],
)
def test_a_check_prices_other_values_again(change: Any, told: str) -> None:
    plan = solved().to_dict()
    change(plan)
    assert any(told in each for each in nest.check(plan).disagreements)
