"""Memory and time of stages: the figures are the plan's, and parts add up."""

from math import fsum

import pytest
from attrs import asdict

from nest import api
from nest.formulate.fixed_plan import decided_formulation
from nest.formulate.problem import self_contained
from nest.hooks.registry import registry
from nest.io import structure
from nest.spec import MemoryBreakdown, PlanDocument, Problem
from nest_page.page_of_plan import subject
from nest_page.stage_bars import MEMORY_CAUSES, memory_figure, time_causes
from page_tests.plans import decided, problem, quick, solved
from page_tests.reading import Page
from tests.simulate.uniform_plans import SCHEDULES, uniform_plan


@pytest.mark.longer
@pytest.mark.parametrize("plan", [solved, decided])
def test_memory_is_the_plans_part_by_part(plan: object) -> None:
    found: PlanDocument = plan()  # type: ignore[operator]
    table = Page(quick(found)).table("Memory of one device of each stage")
    assert table.values("memory") == [stage.memory for stage in found.stages]
    assert table.values("upper estimate") == [stage.upper_memory for stage in found.stages]
    capacity = found.summary["memory_capacity"]
    assert table.values("of capacity") == [(stage.upper_memory or 0.0) / capacity for stage in found.stages]
    for index, stage in enumerate(found.stages):
        assert stage.memory_breakdown is not None
        told = asdict(stage.memory_breakdown)
        shown = {name: table.column(MEMORY_CAUSES[name])[index].value for name in told if told[name] > 0}
        assert shown == {name: size for name, size in told.items() if size > 0}
        assert fsum(told.values()) == pytest.approx(stage.memory, rel=1e-12)


def test_the_share_of_the_capacity_is_of_what_has_to_fit() -> None:
    written = problem()
    written["training"]["memory_margin"] = 0.2
    plan = api.evaluate(written, fix={"tp": 2, "pp": 4, "dp": 2})
    table = memory_figure(subject(plan, registry())).table
    capacity = plan.summary["memory_capacity"]
    assert [row[-1].value for row in table.rows] == [(stage.upper_memory or 0.0) / capacity for stage in plan.stages]
    assert all((stage.upper_memory or 0.0) > stage.memory for stage in plan.stages)


def test_every_part_of_memory_has_a_name() -> None:
    assert list(MEMORY_CAUSES) == [attribute.name for attribute in MemoryBreakdown.__attrs_attrs__]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_time_of_a_stage_adds_up_to_the_batch(schedule: str, seed: int) -> None:
    plan = uniform_plan(seed, schedule)
    known = registry()
    for causes in time_causes(subject(plan, known)):
        assert fsum(causes.values()) == pytest.approx(plan.batch_time, rel=1e-12)
        assert min(causes.values()) >= 0


def test_the_bubble_is_as_long_on_every_stage_and_the_rest_is_waiting() -> None:
    plan = api.evaluate(problem(), fix={"tp": 2, "pp": 4, "dp": 2, "stages": [1, 1, 1, 5]})
    causes = time_causes(subject(plan, registry()))
    assert len({round(each["bubble"] / plan.batch_time, 9) for each in causes}) == 1
    assert min(each["waiting"] for each in causes[:3]) > 0.1 * plan.batch_time > causes[3]["waiting"]


@pytest.mark.longer
def test_collectives_are_what_a_network_that_costs_nothing_saves() -> None:
    plan = decided()
    known = registry()
    whole = self_contained(structure(plan.problem, Problem), None, known)
    instance, _ = decided_formulation(whole, plan, known)
    candidate = instance.candidates[0]
    assert candidate.collectives is not None
    alone = candidate.forward + candidate.backward - candidate.collectives
    assert (candidate.collectives >= 0).all()
    assert (candidate.collectives > 0).any()  # tp 2 reduces in every block.
    fast = [{**level, "bandwidth": 1e29, "latency": 0} for level in problem()["cluster"]["levels"]]
    free = api.evaluate(
        problem(cluster={"device": "h100-sxm", "levels": fast}),
        fix={"tp": 2, "pp": 4, "dp": 2, "zero": 2, "recompute": "full"},
    )
    for stage, other in zip(plan.stages, free.stages, strict=True):
        places = [instance.graph.layers.index(name) for name in stage.layers]
        mode = candidate.mode(stage.recompute)
        computed = float(alone[places].sum())
        # What is left beside compute on a network that takes no time is recomputation without its collectives.
        assert computed <= other.time * (1 + 1e-9)
        assert other.time <= (computed + float(mode.extra[places].sum())) * (1 + 1e-9)


@pytest.mark.longer
def test_measured_layers_keep_their_collectives() -> None:
    plan = uniform_plan(1, "1f1b")
    text = quick(plan)
    table = Page(text).table("Step time by cause")
    assert "collectives" not in table.header
    assert "Layers were measured whole" in text
