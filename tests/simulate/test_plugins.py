"""Schedules of plug-ins: replayed by their order, refused without one, disabled with one that cannot be run."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

from nest import api
from nest.api import evaluate
from nest.errors import InputError
from nest.hooks import hook
from nest.hooks.registry import Registry, registry
from nest.instance import Pass
from nest.spec import PlanDocument
from nest.testing import check_schedule
from tests.simulate.uniform_plans import uniform_plan

Order = Callable[[int, int, int], Any]


class Unordered:
    """Prices as GPipe."""

    name = "foo"

    def weights(self, micro_batches: int, stages: int) -> tuple[float, float]:
        return micro_batches - 1.0, 1.0

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> int:
        return micro_batches


class Ordered(Unordered):
    """Prices as GPipe, and runs as told."""

    def __init__(self, order: Order) -> None:
        self.order = order


def all_forward_first(stage: int, stages: int, micro_batches: int) -> Sequence[Pass]:
    return [Pass(kind, index) for kind in ("forward", "backward") for index in range(micro_batches)]


def leaves_one_out(stage: int, stages: int, micro_batches: int) -> Sequence[Pass]:
    return all_forward_first(stage, stages, micro_batches)[:-1]


def backward_first(stage: int, stages: int, micro_batches: int) -> Sequence[Pass]:
    return all_forward_first(stage, stages, micro_batches)[::-1]


def crosswise(stage: int, stages: int, micro_batches: int) -> Sequence[Pass]:
    """The first stage waits for the first gradient before the second micro-batch; the last one takes that first."""
    indices = range(micro_batches) if stage == 1 else range(micro_batches - 1, -1, -1)
    return [Pass(kind, index) for index in indices for kind in ("forward", "backward")]


def no_passes(stage: int, stages: int, micro_batches: int) -> Any:
    return ["forward"] * micro_batches


def raises(stage: int, stages: int, micro_batches: int) -> Any:
    raise RuntimeError("out of order")


def plan(schedule: object, stages: int = 3) -> tuple[PlanDocument, Registry]:
    module = ModuleType("foo")

    @hook
    def nest_schedules() -> list[Any]:
        return [schedule]

    module.nest_schedules = nest_schedules  # type: ignore[attr-defined]
    known = registry(extra=[module])
    found = next(each for each in (uniform_plan(seed, "gpipe") for seed in range(99)) if len(each.stages) == stages)
    assert found.micro_batches is not None
    problem = {**found.problem, "training": {**found.problem["training"], "schedule": "foo"}}
    problem["fixed"] = {name: value for name, value in problem["fixed"].items() if name != "schedule"}
    return evaluate(problem, plugins=known), known


def test_a_plug_in_s_order_is_replayed() -> None:
    told, known = plan(Ordered(all_forward_first))
    found = api.simulate(told, plugins=known)
    assert found.batch_time == pytest.approx(told.batch_time, rel=1e-9)
    assert known.warnings == ()


def test_a_plug_in_s_schedule_without_an_order_is_refused() -> None:
    told, known = plan(Unordered())
    with pytest.raises(InputError, match="'foo' states no order of passes"):
        api.simulate(told, plugins=known)
    assert known.warnings == ()


@pytest.mark.parametrize(
    ("order", "reason", "priced"),
    [
        (leaves_one_out, "it runs 1 forward;", True),
        (backward_first, "a forward pass comes first", True),
        (crosswise, "waits for ever", True),
        (no_passes, "is not a pass", False),
        (raises, "out of order", False),
    ],
)
def test_an_order_that_cannot_be_run_sets_the_schedule_aside(order: Order, reason: str, priced: bool) -> None:
    told, known = plan(Ordered(order))
    assert (told.schedule == "foo") == priced
    if priced:
        with pytest.raises(InputError, match="foo"):
            api.simulate(told, plugins=known)
    (line,) = known.warnings
    assert reason in line
    failed = [finding for finding in check_schedule(Ordered(order)) if not finding.passed]
    assert failed
