"""What a plan runs into: the figures are the plan's."""

import pytest

from nest.hooks.registry import registry
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
