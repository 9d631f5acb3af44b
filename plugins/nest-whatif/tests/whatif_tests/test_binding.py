"""What a plan runs into: the figures are the plan's."""

import pytest

from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.plan.document import solution_of
from nest.plan.evaluate import evaluate
from nest.report.plan_summary import needed_memory
from nest_whatif.binding import binding
from tests.whatif.small import solved


@pytest.mark.longer
def test_figures_are_those_of_the_plan() -> None:
    several = 0
    for plan, _, _ in solved(range(12)):
        found = {each.name: each.figures for each in binding(plan, registry())}
        memory, slowest = found["memory"], found["slowest stage"]
        fullest = plan.stages[memory["stage"] - 1]
        assert memory["upper"] == needed_memory(plan)
        assert sum(memory["parts"].values()) == pytest.approx(fullest.memory)
        assert memory["free"] == pytest.approx(plan.summary["memory_capacity"] - memory["upper"])
        assert memory["stage"] in memory["stages"]
        assert slowest["time"] == max(stage.time for stage in plan.stages)
        assert sum(slowest["shares"].values()) == pytest.approx(1)
        assert 0 <= slowest["uneven_share"] < 1
        batch = found["batch"]
        dealt = batch["replicas"] * batch["micro_batches"] * batch["samples"]
        assert dealt == batch["global_batch"] + batch["padding"]
        assert found["devices"]["used"] <= found["devices"]["of"]
        assert ("idle" in found) == ("boundaries" in found) == (len(plan.stages) > 1)
        several += len(plan.stages) > 1
    assert several


def test_an_infeasible_plan_runs_into_what_its_diagnosis_says() -> None:
    for plan, _, _ in solved(range(12), feasible=False):
        assert binding(plan, registry()) == ()


@pytest.mark.longer
@pytest.mark.parametrize("kind", ["plain", "chunked"])
def test_stages_of_equal_length_save_what_the_schedule_says(kind: str) -> None:
    schedules = set()
    for plan, problem, _ in solved(range(30), kind):
        if len(plan.stages) == 1 or plan.batch_time is None:
            continue
        (slowest,) = (each.figures for each in binding(plan, registry()) if each.name == "slowest stage")
        instance = build_instance(problem, registry())
        priced = evaluate(instance, solution_of(instance, plan))
        times, weights = [stage.time for stage in priced.stages], priced.weights
        filling = sum(stage.weighed(weights) for stage in priced.stages)
        equal = weights.slowest * sum(times) / len(times) + filling + priced.sync
        assert slowest["uneven_share"] == pytest.approx((priced.closed_form - equal) / plan.batch_time)
        schedules.add(plan.schedule)
    assert len(schedules) > 2
