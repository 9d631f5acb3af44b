"""The conformance kit's view of limits: each fault is found, and sound ones pass."""

from typing import Any

import pytest

from nest.deployment import Limits
from nest.errors import InputError
from nest.hooks.registry import registry
from nest_testing.exporter import check_exporter
from tests.made_up_targets import Framework

SOUND, WITHIN = "its limits are ones that a search can keep", "it exports what is within its limits"


def failed(exporter: Any) -> dict[str, str]:
    return {finding.check: finding.told for finding in check_exporter(exporter) if not finding.passed}


@pytest.mark.longer
@pytest.mark.parametrize(
    "limits",
    [
        None,
        Limits(),
        Limits(strategies=()),
        Limits(strategies=("tp", "mine"), constraints={"mine == 1 or pp == 1": "toy has no mine beside a pipeline"}),
        Limits(zero=(0,), schedules=("1f1b",), rank_orders=("pp-inner",), offload=("optimizer",)),
    ],
)
def test_sound_limits_pass(limits: Limits | None) -> None:
    assert failed(Framework("toy", limits)) == {}


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (Limits(zero=(0, 4)), "zero has 4"),
        (Limits(rank_orders=("tp-inner",)), "rank_orders has 'tp-inner'"),
        (Limits(offload=("weights",)), "offload has 'weights'"),
        (Limits(schedules=()), "schedules is empty"),
        (Limits(recompute=("none", "full"), partial_recompute=(("full", "selective"),)), "has 'selective', which"),
        (Limits(constraints={"pp = 1": "a slip"}), "not an expression"),
        (Limits(constraints={"tensor == 1": "a slip"}), "reads 'tensor'"),
        (Limits(constraints={"pp == 1": ""}), "a clause that follows"),
        (Limits(constraints={"pp == 1": "Toy has no pipeline."}), "a clause that follows"),
        ({"zero": (0,)}, "is no nest.deployment.Limits"),
    ],
)
def test_faults_of_limits_are_found(limits: Any, told: str) -> None:
    assert told in failed(Framework("toy", limits))[SOUND]


@pytest.mark.longer
def test_limits_that_change_are_found() -> None:
    class Wavering(Framework):
        def __init__(self) -> None:
            super().__init__("toy", None)
            self.asked = 0

        def limits(self, problem: Any) -> Limits:
            self.asked += 1
            return Limits(zero=(0,) if self.asked % 2 else (0, 1))

    assert "different limits" in failed(Wavering())[SOUND]


@pytest.mark.longer
def test_a_plan_within_the_limits_must_be_exported() -> None:
    class Picky(Framework):
        def export(self, plan: Any) -> dict[str, str]:
            if len(plan.stages) > 1:
                raise InputError("toy has no pipeline.")
            return {"toy.txt": ""}

    assert "toy has no pipeline" in failed(Picky("toy", Limits()))[WITHIN]
    limited = Picky("toy", Limits(constraints={"pp == 1": "toy has no pipeline"}))
    assert set(failed(limited)) <= {"some plan is exported"}


@pytest.mark.longer
@pytest.mark.parametrize("name", sorted(registry().exporters()))
def test_limits_of_registered_exporters_are_sound(name: str) -> None:
    told = failed(registry().exporters()[name])
    assert SOUND not in told
    assert WITHIN not in told, told
