"""Messages that hide (docs/explanation/simulation.md): beside what a stage does, from when they are sent on."""

import json
from itertools import pairwise
from random import Random

import pytest
from attrs import evolve

from nest.instance import Instance, Solution, weights_of
from nest.plan.certificate import highest_price, longest_pipeline
from nest.plan.evaluate import PricedPlan, evaluate
from nest.plan.layout import schedule_of
from nest.simulate.replay import Replay, contradiction, replay
from nest.simulate.stage_tasks import stage_works
from nest.simulate.timeline import orders_of
from nest.simulate.trace import trace
from tests.simulate.test_trace import valid
from tests.simulate.uniform_plans import SCHEDULES, decided, uniform_plan

SEEDS = range(6)


def hiding(seed: int, schedule: str) -> tuple[Instance, Solution, float] | None:
    """A plan of stages that compute as long, whose messages hide, and the seconds of a message; None: it has none."""
    plan = uniform_plan(seed, schedule)
    instance, solution = decided(plan)
    random = Random(seed)
    (candidate,) = instance.candidates
    if len(solution.stages) == 1:
        return None
    size = random.choice([0.5, 3.0, 60.0])
    even = {"forward": [candidate.forward[1]] * len(candidate.forward)}
    even |= {"backward": [candidate.backward[0]] * len(candidate.backward)}
    candidate = evolve(candidate, tensor_bytes=[size] * len(candidate.tensor_bytes), **even)
    space = evolve(instance.space, hidden_messages=frozenset({schedule}))
    (level,) = instance.cluster.levels
    seconds = level.latency + size / level.bandwidth
    return evolve(instance, candidates=(candidate,), space=space), solution, seconds


@pytest.mark.longer
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_hides_is_priced_as_replayed_and_the_bound_holds(schedule: str) -> None:
    seen = 0
    for seed in SEEDS:
        made = hiding(seed, schedule)
        if made is None:
            continue
        instance, solution, _ = made
        priced, found = evaluate(instance, solution), replay(instance, solution)
        for work, stage in zip(stage_works(instance, solution), priced.stages, strict=True):
            assert work.time == pytest.approx(stage.time, rel=1e-9)
            assert sum(work.travel[each] for each in work.travel if each[0] != "backward") == pytest.approx(
                stage.hidden
            )
            seen += stage.hidden > 0
        assert found.closed_form == pytest.approx(priced.closed_form, rel=1e-9)
        assert priced.replayed in (0.0, pytest.approx(found.batch_time, rel=1e-9))
        difference = found.batch_time - found.closed_form
        assert found.difference.total == pytest.approx(difference, abs=1e-8 * found.batch_time)
        assert contradiction(instance, solution) is None
        within_bound(instance, solution, priced, found)
        valid(json.loads(trace(found))["traceEvents"])
    assert seen


def within_bound(instance: Instance, solution: Solution, priced: PricedPlan, found: Replay) -> None:
    """At least what stages do beside messages, at most what they take where all messages are in their passes."""
    schedule, count = schedule_of(instance, solution), len(solution.stages)
    space = evolve(instance.space, hidden_messages=frozenset())
    shown = evolve(instance, space=space)
    whole = replay(shown, solution)
    works = stage_works(shown, solution)
    lengths = [{each: work.seconds(*each) for each in work.passes} for work in works]
    orders = orders_of(schedule, count, found.micro_batches)
    weights = weights_of(schedule, found.micro_batches, count, hides=True)
    most = longest_pipeline(weights, orders, found.places, lengths, bool(getattr(schedule, "staggered", False)))
    most = max(most, highest_price(weights, orders, found.places, lengths)) + priced.sync
    assert found.batch_time <= whole.batch_time * (1 + 1e-9)
    for seconds in (found.batch_time, priced.closed_form):
        assert found.micro_batches * min(stage.time for stage in priced.stages) <= seconds * (1 + 1e-9)
        assert seconds <= most * (1 + 1e-9)


@pytest.mark.parametrize("schedule", ["interleaved", "gpipe"])
def test_messages_show_once_at_every_boundary_where_the_order_has_a_pass_to_spare(schedule: str) -> None:
    """However many micro-batches and chunks: with equal stages the replay takes what the closed form says."""
    seen = 0
    for seed in range(30):
        made = hiding(seed, schedule)
        if made is None:
            continue
        instance, solution, seconds = made
        found = replay(instance, solution)
        shortest = min(work.seconds("forward", 0) for work in stage_works(instance, solution))
        if seconds > shortest:
            continue  # A message that takes longer than the pass it hides under shows in part.
        assert found.batch_time == pytest.approx(found.closed_form, rel=1e-9)
        seen += 1
    assert seen > 10


def test_a_message_under_way_stops_no_stage_that_has_other_work() -> None:
    for schedule in ("interleaved", "1f1b"):
        made = hiding(3, schedule)
        assert made is not None
        found = replay(*made[:2])
        assert found.timeline.hidden
        for task in found.timeline.hidden:
            reader = next(
                span
                for span in found.timeline.spans
                if (span.stage, span.run.kind, span.run.micro_batch, span.run.chunk)
                == (task.stage, task.run, task.micro_batch, task.chunk)
            )
            assert task.end <= reader.start + 1e-9
        for own in ([s for s in found.timeline.spans if s.stage == stage] for stage in range(len(found.stages))):
            assert all(one.end <= two.start + 1e-9 for one, two in pairwise(own))
