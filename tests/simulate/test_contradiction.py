"""A schedule of a plug-in whose order contradicts its weights: it is not planned with, and who wanted it is told."""

from collections.abc import Callable
from random import Random
from types import ModuleType
from typing import Any

import pytest

from nest import api
from nest.errors import InputError
from nest.hooks import hook
from nest.hooks.registry import Registry
from nest.instance import Pass, weights_of
from nest.instance.schedule import places_of
from nest.plan.certificate import batch_length, longest_pipeline
from nest.schedules.gpipe import GPipe
from nest.schedules.one_forward_one_backward import OneForwardOneBackward
from nest.schedules.zero_bubble import ZeroBubbleH2
from tests.plan.four_layers import four_layers


class Foo:
    """One forward, one backward, of which tests change one member."""

    name = "foo"

    def weights(self, micro_batches: int, stages: int) -> Any:
        return (micro_batches - 1.0, 1.0)

    def in_flight(self, stage: int, stages: int, micro_batches: int) -> Any:
        return min(micro_batches, stages - stage + 1)

    def order(self, stage: int, stages: int, micro_batches: int) -> Any:
        return OneForwardOneBackward().order(stage, stages, micro_batches)


def no_bubble(self: Foo, micro_batches: int, stages: int) -> Any:
    return (float(micro_batches), 0.0)


def one_at_a_time(self: Foo, stage: int, stages: int, micro_batches: int) -> Any:
    return [Pass(kind, index) for index in range(micro_batches) for kind in ("forward", "backward")]


def offering(schedule: type[Foo] = Foo, **members: Callable[..., Any]) -> Registry:
    """A registry with Foo, some of its members others."""
    made = ModuleType("schedules_of_foo")
    item = type("Changed", (schedule,), members)()

    def nest_schedules() -> list[Any]:
        return [item]

    made.nest_schedules = hook(nest_schedules)  # type: ignore[attr-defined]
    return Registry([made])


def problem(*schedules: str, **keys: Any) -> dict[str, Any]:
    return four_layers(training={"global_batch": 8, "schedule": list(schedules)}, **keys)


FOUR_STAGES = {"fixed": {"pp": 4, "replicas": 1}}

CONTRADICTIONS: dict[str, tuple[dict[str, Callable[..., Any]], str]] = {
    "weights beyond the bound": (
        {"weights": no_bubble, "order": one_at_a_time, "in_flight": lambda self, *a: 1},
        "prices equal stages at 8 times the time of one (A + B s), but its order takes 32",
    ),
    "weights": (
        {"weights": no_bubble},
        "prices equal stages at 8 times the time of one (A + B s), but its order takes 11",
    ),
    "counts": ({"in_flight": lambda self, *a: 1}, "counts 1 micro-batches in flight in stage 1 of 4"),
    "an order that waits": (
        {"order": lambda self, i, s, m: one_at_a_time(self, i, s, m)[:: 1 if i < s else -1]},
        "gives stage 4 of 4 an invalid order",
    ),
}


def test_weights_below_a_slow_order_win_nothing() -> None:
    """They are 24 ms, but its plans have the price of their replay, 96 ms."""
    known = offering(**CONTRADICTIONS["weights beyond the bound"][0])
    plan = api.solve(problem("foo", "1f1b", fixed={**FOUR_STAGES["fixed"], "zero": 0}), plugins=known)
    assert (plan.status, plan.schedule, plan.batch_time) == ("optimal", "1f1b", pytest.approx(0.033))
    assert known.warnings == ()


@pytest.mark.parametrize("fault", [each for each in CONTRADICTIONS if each != "weights beyond the bound"])
def test_the_plan_is_the_one_without_it(fault: str) -> None:
    members, expected = CONTRADICTIONS[fault]
    known = offering(**members)
    plan = api.solve(problem("foo", "1f1b", **FOUR_STAGES), plugins=known)
    assert (plan.status, plan.schedule) == ("optimal", "1f1b")
    (warning,) = known.warnings
    assert "schedules_of_foo" in warning
    assert f"its schedule 'foo' {expected}" in warning
    alone = api.solve(problem("1f1b", **FOUR_STAGES))
    assert (plan.batch_time, plan.stages) == (alone.batch_time, alone.stages)


@pytest.mark.parametrize("fault", CONTRADICTIONS)
def test_a_problem_that_names_no_other_schedule_is_refused(fault: str) -> None:
    members, expected = CONTRADICTIONS[fault]
    with pytest.raises(InputError) as caught:
        api.solve(problem("foo", **FOUR_STAGES), plugins=offering(**members))
    assert "the schedule 'foo' of plug-in schedules_of_foo" in str(caught.value)
    assert expected in str(caught.value)


def test_what_is_wrong_on_equal_stages_shows_where_unequal_ones_hide_it() -> None:
    """Three of four stages are idle: their order takes what the weights say, and the bound is far."""
    busy = four_layers(training={"global_batch": 8, "schedule": ["foo", "1f1b"]}, **FOUR_STAGES)
    one = busy["profile"]["candidates"][0]
    one["forward"], one["backward"] = [1e-3, 1e-6, 1e-6, 1e-6], [2e-3, 2e-6, 2e-6, 2e-6]
    known = offering(weights=no_bubble)
    assert api.solve(busy, plugins=known).schedule == "1f1b"
    assert "prices equal stages at 8 times the time of one (A + B s), but its order takes 11" in known.warnings[0]


def test_a_schedule_that_agrees_is_planned_with() -> None:
    known = offering()
    plan = api.solve(problem("foo", "gpipe", **FOUR_STAGES), plugins=known)
    assert (plan.status, plan.schedule, known.warnings) == ("optimal", "foo", ())
    found = api.check(plan, plugins=known).certificate
    assert found is not None
    assert found.missing is None


def test_one_without_an_order_is_taken_at_its_word_and_said_to_be() -> None:
    silent = type("Silent", (), {name: vars(Foo)[name] for name in ("name", "weights", "in_flight")})
    known = offering(silent)
    plan = api.solve(problem("foo", **FOUR_STAGES), plugins=known)
    assert (plan.status, plan.schedule, known.warnings) == ("optimal", "foo", ())
    found = api.check(plan, plugins=known)
    assert found.ok
    assert found.certificate is not None
    assert "states no order of passes" in str(found.certificate.missing)


def test_a_proof_prices_it_by_its_order() -> None:
    known = offering(weights=no_bubble)
    plan = api.solve(problem("1f1b", **FOUR_STAGES))
    written = {**plan.to_dict(), "problem": problem("1f1b", "foo", **FOUR_STAGES)}
    verdict = api.verify(written, plugins=known)
    assert verdict.status == "proved"
    assert known.warnings == ()  # Its plans are no faster: they have the price of their replay.


@pytest.mark.parametrize("schedule", [OneForwardOneBackward(), GPipe(), ZeroBubbleH2()])
def test_no_pipeline_takes_longer_than_the_bound(schedule: Any) -> None:
    random = Random(7)
    for _ in range(40):
        stages, micro_batches = random.choice((2, 3, 5)), random.choice((1, 4, 9))
        orders = [schedule.order(stage, stages, micro_batches) for stage in range(1, stages + 1)]
        lengths = [{(step.kind, 0): random.random() ** 4 for step in order} for order in orders]
        staggered = bool(getattr(schedule, "staggered", False))
        places = places_of(schedule, stages, micro_batches)
        taken = batch_length(orders, places, lengths, staggered)
        weights = weights_of(schedule, micro_batches, stages)
        assert taken <= longest_pipeline(weights, orders, places, lengths, staggered) * (1 + 1e-9)
