"""Jitter and slow devices: what they must do whatever the plan."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nest
from nest.errors import InputError
from nest.instance import Instance, Solution
from nest.simulate.replay import Replay, replay
from nest.simulate.stragglers_and_jitter import Disturbance, SlowDevice
from nest.spec import PlanDocument
from tests.measured import profile
from tests.plan.mixed_plans import mixed_plans
from tests.simulate.uniform_plans import SCHEDULES, uniform_plan


def disturbed(plan: tuple[Instance, Solution], disturbance: Disturbance) -> tuple[Replay, tuple[float, ...]]:
    found = replay(*plan, disturbance)
    assert found.disturbed is not None
    return found, found.disturbed.batch_times


@pytest.mark.longer
@given(mixed_plans())
def test_a_device_that_is_no_slower_changes_nothing(plan: tuple[Instance, Solution]) -> None:
    """The replay of all replicas, in arrays, is that of one: two programs, one answer."""
    found, times = disturbed(plan, Disturbance(slow=(SlowDevice(0, 0, 1.0),)))
    assert times == pytest.approx((found.batch_time,), rel=1e-12)
    assert found.disturbed is not None
    told, ours = found.disturbed.timeline, found.timeline
    assert [(task.stage, task.kind, task.run, task.micro_batch) for task in told.tasks] == [
        (task.stage, task.kind, task.run, task.micro_batch) for task in ours.tasks
    ]
    assert [task.start for task in told.tasks] == pytest.approx([task.start for task in ours.tasks], rel=1e-9)
    assert told.peaks == ours.peaks
    assert max(found.disturbed.waits) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.longer
@given(mixed_plans(), st.floats(1.0, 3.0), st.integers(0, 99), st.integers(0, 99))
def test_a_slow_device_costs_something_and_no_more_than_if_all_were_slow(
    plan: tuple[Instance, Solution], factor: float, stage: int, replica: int
) -> None:
    stages, replicas = len(plan[1].stages), plan[1].replicas
    one = SlowDevice(stage % stages, replica % replicas, factor)
    every = tuple(SlowDevice(i, r, factor) for i in range(stages) for r in range(replicas))
    found, (alone,) = disturbed(plan, Disturbance(slow=(one,)))
    _, (together,) = disturbed(plan, Disturbance(slow=every))
    assert found.batch_time * (1 - 1e-9) <= alone <= together * (1 + 1e-9)
    assert together <= found.batch_time * factor * (1 + 1e-9)


@pytest.mark.parametrize(("degree", "waits"), [("all", 0.0), (2, 3.0), (1, 4.5)])
def test_only_a_shard_group_marches_in_step(degree: int | str, waits: float) -> None:
    """By hand: 4 replicas of one stage, ZeRO 3, four micro-batches of 3 s, which the first replica takes 4.5 s for.

    It is late by 6 s, and with it those that gather weights from it in every micro-batch; the others wait at the end.
    """
    found = nest.simulate(sharded_plan(degree), slow_devices={"1/0": 1.5})
    assert found.disturbed is not None
    assert found.disturbed.waits == pytest.approx([waits], abs=1e-3)
    assert found.disturbed.batch_times[0] == pytest.approx(found.batch_time + 6.0, abs=1e-3)


def sharded_plan(degree: int | str) -> PlanDocument:
    """A single layer with ZeRO 3 on 4 replicas, whose network takes next to no time."""
    problem = {
        "nest": 1,
        "profile": profile(
            [1.0],
            [2.0],
            state={key: [8.0] for key in ("weights", "gradients", "optimizer")},
            kept={key: [1.0] for key in ("first", "more")},
        ),
        "training": {"global_batch": 16},
        "cluster": {"levels": [{"name": "rack", "fanout": 4, "bandwidth": 1e6, "latency": 1e-6}], "memory": 1e3},
    }
    return nest.evaluate(problem, fix={"pp": 1, "replicas": 4, "zero": 3, "zero_degree": degree})


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_jitter_is_the_same_for_the_same_seed_only(schedule: str) -> None:
    plan = uniform_plan(3, schedule)
    once, again, other = (nest.simulate(plan, jitter=0.1, seed=seed, runs=7).to_dict() for seed in (5, 5, 6))
    assert once == again
    assert once["disturbed"]["mean"] != other["disturbed"]["mean"]
    assert once["batch_time"] == other["batch_time"]


def test_factors_have_a_mean_of_one_and_the_deviation_asked_for() -> None:
    """One stage, one replica, one micro-batch: the batch is the sum of its tasks."""
    plan = next(
        each
        for each in (uniform_plan(seed, "1f1b") for seed in range(980, 1000))
        if each.data_parallel == 1 and each.micro_batches == 1 and len(each.stages) == 1
    )
    found = nest.simulate(plan, jitter=0.3, runs=20_000)
    assert found.disturbed is not None
    seconds = [task.end - task.start for task in found.timeline.tasks]
    times = numpy.array(found.disturbed.batch_times)
    spread = (numpy.exp(0.3**2) - 1) ** 0.5 * sum(each**2 for each in seconds) ** 0.5
    assert times.mean() == pytest.approx(found.batch_time, rel=0.01)
    assert times.std() == pytest.approx(spread, rel=0.05)
    assert found.disturbed.percentile(5) < found.batch_time < found.disturbed.percentile(95)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"jitter": -0.1}, "jitter"),
        ({"jitter": 0.1, "runs": 0}, "run"),
        ({"jitter": 0.1, "seed": -1}, "seed"),
        ({"slow_devices": {"99": 1.2}}, "stage 99"),
        ({"slow_devices": {"1/99": 1.2}}, "replica 99"),
        ({"slow_devices": {"0": 1.2}}, "counted from 1"),
        ({"slow_devices": {"one": 1.2}}, "'one'"),
        ({"slow_devices": {"1/" + "9" * 5000: 1.2}}, "'1/999"),
        ({"slow_devices": {"1": 0.0}}, "factor"),
        ({"slow_devices": {"1": float("inf")}}, "factor"),
        ({"slow_devices": {"1": 1e308}}, "at most"),
        ({"slow_devices": {"1": 2.0, "1/0": 2.0}}, "twice"),
        ({"slow_devices": {"1": 2.0, "01": 3.0}}, "twice"),
    ],
)
def test_what_cannot_be_is_told(asked: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        nest.simulate(uniform_plan(1, "1f1b"), **asked)  # type: ignore[arg-type]
