"""Replays against the closed form, against what must hold of any pipeline, and against the plan's own numbers."""

from itertools import pairwise, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nest
from frameworks_tests.random_plans import plans
from nest.hooks.registry import registry
from nest.instance import Instance, Pass, Solution, weights_of
from nest.instance.schedule import places_of
from nest.plan.certificate import equal_stages_take
from nest.plan.evaluate import evaluate
from nest.plan.layout import schedule_of
from nest.simulate.replay import Replay, replay
from nest.simulate.stage_tasks import WAIT, stage_works
from nest.simulate.timeline import makespan, orders_of, run
from nest.spec import PlanDocument
from nest_whatif.text.replay import replay_text
from tests.agreement.problems import random_chunked_problem, random_problem
from tests.agreement.random_pools import random_pool_problem
from tests.measured import profile
from tests.plan.mixed_plans import mixed_plans
from tests.seeds import few, seeds
from tests.simulate.uniform_plans import SCHEDULES, decided, uniform_plan

SEEDS = range(10)


def close(one: float, other: float) -> bool:
    return one == pytest.approx(other, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(
    ("schedule", "ports"), few(product(SCHEDULES, [False, True]), ("1f1b", False), ("zero-bubble", True))
)
def test_on_uniform_stages_a_replay_takes_what_the_closed_form_says(schedule: str, ports: bool) -> None:
    for seed in SEEDS:
        plan = uniform_plan(seed, schedule, ports=ports)
        found = nest.simulate(plan)
        equal = weights_of(schedule_of(*decided(plan)), found.micro_batches, len(found.stages))
        time, sync = found.stages[0].busy / found.micro_batches, found.stages[0].synchronisation
        assert close(found.batch_time, equal_stages_take(equal, len(found.stages)) * time + sync), seed
        assert close(price(found, plan), plan.batch_time or 0.0), seed
        if equal.uniform or all(task.kind != WAIT for task in found.timeline.tasks):
            assert close(found.closed_form, found.batch_time), seed
            assert found.difference.total == 0, seed
            assert found.idle_share == pytest.approx(plan.summary["idle_share"], abs=1e-9)
        else:  # Weights of parts take ports to be waited for in forward passes and gradients of inputs only.
            assert found.difference.total == found.difference.passes, seed
        for stage, record in zip(found.stages, plan.stages, strict=True):
            assert close(stage.memory_peak, record.memory), seed


@settings(max_examples=20)
@given(plans())
def test_replays_of_planned_models_hold_together(plan: PlanDocument) -> None:
    check(nest.simulate(plan), plan)


@pytest.mark.longer
@pytest.mark.parametrize("seed", seeds(6, 60))
def test_replays_of_best_plans_hold_together(seed: int) -> None:
    make = random_chunked_problem if seed % 3 == 0 else random_problem
    plan = nest.solve(make(Random(seed)))
    if plan.status != "infeasible":
        check(nest.simulate(plan), plan)


@pytest.mark.parametrize("seed", seeds(6, 60))
def test_replays_on_pools_hold_together(seed: int) -> None:
    """Each stage with the capacity, the levels and the exposed shares of its own pool."""
    plan = nest.solve(random_pool_problem(Random(seed)))
    if plan.status != "infeasible":
        check(nest.simulate(plan), plan)


def check(found: Replay, plan: PlanDocument) -> None:
    """What holds of every replay of a plan."""
    assert plan.batch_time is not None
    assert plan.micro_batches is not None
    assert close(price(found, plan), plan.batch_time)
    assert found.difference.total == pytest.approx(found.batch_time - found.closed_form, abs=1e-8 * found.batch_time)
    for number, (stage, record) in enumerate(zip(found.stages, plan.stages, strict=True)):
        other = plan.stages[found.places.mirrored(number, plan.micro_batches - 1)]  # Itself, unless devices hold two.
        assert close(stage.busy, plan.micro_batches * (record.time + other.time) / 2)
        assert close(stage.synchronisation, record.sync_time)
        whole = stage.busy + stage.synchronisation
        assert whole <= found.batch_time * (1 + 1e-9)
        assert whole + stage.idle == pytest.approx(found.batch_time, rel=1e-9, abs=1e-12)
        if other is record:
            assert stage.memory_peak <= record.memory * (1 + 1e-9)
        else:  # The plan counts each as if the device held it twice.
            assert stage.memory_peak <= (record.memory + other.memory) * (1 + 1e-9)
    for stage, points in zip(found.stages, found.timeline.memory, strict=True):
        assert stage.memory_peak == max(size for _, size in points)
        assert [time for time, _ in points] == sorted(time for time, _ in points)
    causal(found)
    ordered(found)


def price(found: Replay, plan: PlanDocument) -> float:
    """What the plan must be priced at (PROBLEM.md section 4, "Price and replay")."""
    usual = "replay" if "model" in plan.problem else "closed-form"
    literature = plan.problem["training"].get("price", usual) == "closed-form"
    if literature and found.schedule in ("1f1b", "gpipe", "nest"):
        return found.closed_form
    return max(found.closed_form, found.batch_time)


def causal(found: Replay) -> None:
    """No pass begins before what it needs is there; what is overlapped sends when both passes are done."""
    places, last = found.places, len(found.places.route) - 1
    begun: dict[tuple[str, int, int], float] = {}
    ended: dict[tuple[str, int, int], float] = {}
    sent: dict[tuple[str, int, int], float] = {}
    own = [[span for span in found.timeline.spans if span.stage == stage] for stage in range(len(found.stages))]
    for spans in own:
        for span, following in zip(spans, [*spans[1:], spans[-1]], strict=True):
            place, index = places.place(span.stage, span.run), span.run.micro_batch
            # A whole backward pass finds both gradients.
            parts = ("input-gradients", "weight-gradients") if span.run.kind == "backward" else (span.run.kind,)
            for kind in parts:
                begun[kind, place, index], ended[kind, place, index] = span.start, span.end
                sent[kind, place, index] = (following if span.run.overlapped else span).end
    for (kind, place, index), start in begun.items():
        if kind == "forward":
            assert not place or sent[kind, place - 1, index] <= start
        elif kind == "input-gradients":
            assert ended["forward", place, index] <= start
            assert place == last or sent[kind, place + 1, index] <= start
        else:
            assert begun["input-gradients", place, index] <= start
    assert len(begun) == 3 * found.micro_batches * (last + 1)


def ordered(found: Replay) -> None:
    """A stage does one thing at a time, and all its time is in its tasks."""
    for stage, told in enumerate(found.stages):
        tasks = [task for task in found.timeline.tasks if task.stage == stage]
        for one, two in pairwise(tasks):
            assert one.end <= two.start + 1e-12 * found.batch_time
        seconds = sum(task.end - task.start for task in tasks)
        assert seconds == pytest.approx(told.busy + told.synchronisation, rel=1e-9, abs=1e-300)


@given(mixed_plans(), st.floats(0, 1), st.booleans())
def test_stages_have_the_times_and_the_memory_of_the_plan(
    plan: tuple[Instance, Solution], exposed: float, hiding: bool
) -> None:
    from attrs import evolve

    instance, solution = plan
    space = evolve(instance.space, exposed=exposed, hiding=hiding, synchronisation=1.3, sharded_synchronisation=1.1)
    instance = evolve(instance, space=space)
    priced = evaluate(instance, solution)
    for work, stage in zip(stage_works(instance, solution), priced.stages, strict=True):
        assert close(work.time, stage.time)
        assert close(work.sync, stage.sync)
    found = replay(instance, solution)
    assert close(found.closed_form, priced.closed_form)
    if priced.replayed:
        assert close(found.batch_time, priced.replayed)
    for told, stage in zip(found.stages, priced.stages, strict=True):
        assert told.memory_peak <= stage.memory * (1 + 1e-9)
    causal(found)


def test_a_replay_is_shorter_where_the_slowest_stage_need_not_wait_for_those_behind_it() -> None:
    """By hand: stages of 1 s forward, of 3 s and 1 s backward.

    The second stage runs its first micro-batch until 3 s. The first has run two forward passes by then, and works on
    until 3 s + 4 * 3 s + 2 * 1 s. The closed form has it wait for the whole 2 s of the second stage, not for 1 s.
    """
    found = nest.simulate(stages_of([1.0, 1.0], [3.0, 1.0], 4))
    assert found.batch_time == pytest.approx(17.0)
    assert found.closed_form == pytest.approx(3 * 4.0 + 6.0)
    assert found.difference.stages == pytest.approx(-1.0)
    assert (found.difference.passes, found.difference.chunks) == (0.0, 0.0)


def test_a_replay_is_longer_where_stages_split_their_time_otherwise() -> None:
    """By hand: of three stages the first only runs forward, 2 s, the second only backward, 2 s, and the last is idle.

    In 1F1B the second stage has run two forward passes before its first backward pass, for which it waits until 4 s;
    then it runs one every 2 s. The closed form has 2 s + 2 s + 3 * 2 s.
    """
    found = nest.simulate(stages_of([2.0, 0.0, 0.0], [0.0, 2.0, 0.0], 4))
    assert found.closed_form == pytest.approx(10.0)
    assert found.batch_time == pytest.approx(12.0)
    assert found.difference.stages == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("price", "rows"),
    [
        ("replay", ["step time   12 s (in the plan)", "formula     10 s"]),
        ("closed-form", ["step time   12 s", "formula     10 s (in the plan)"]),
    ],
)
def test_the_text_says_which_of_both_is_the_price(price: str, rows: list[str]) -> None:
    plan = stages_of([2.0, 0.0, 0.0], [0.0, 2.0, 0.0], 4, price=price)
    assert replay_text(nest.simulate(plan).to_dict(), plan).splitlines()[2:4] == rows


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=7), st.floats(0.0, 1.0), st.integers(1, 14))
def test_stages_that_divide_their_time_alike_never_take_longer(
    times: list[float], share: float, micro_batches: int
) -> None:
    """1F1B takes no more than the closed form, and GPipe exactly as much, however long each stage takes."""
    schedules, stages = registry().schedules(), len(times)

    def seconds(stage: int, step: Pass) -> float:
        return times[stage] * (share if step.kind == "forward" else 1 - share)

    for name in ("1f1b", "gpipe"):
        schedule = schedules[name]
        slowest, total = schedule.weights(micro_batches, stages)
        form = slowest * max(times) + total * sum(times)
        spans = run(orders_of(schedule, stages, micro_batches), places_of(schedule, stages, micro_batches), seconds)
        found = makespan(spans, False)
        assert found <= form * (1 + 1e-9) + 1e-12
        assert name == "1f1b" or found == pytest.approx(form, rel=1e-9, abs=1e-12)


def test_chunks_that_differ_are_not_taken_for_stages_that_do() -> None:
    """Two stages that are equal in all: each runs a chunk of 1 s and one of 3 s, forward and backward."""
    found = nest.simulate(stages_of([1.0, 1.0, 3.0, 3.0], [1.0, 1.0, 3.0, 3.0], 4, chunks=2))
    assert found.difference.total == pytest.approx(found.batch_time - found.closed_form)
    assert found.difference.chunks == pytest.approx(found.difference.total)
    assert abs(found.difference.total) > 0.1
    assert found.difference.stages == 0.0


def stages_of(
    forward: list[float],
    backward: list[float],
    micro_batches: int,
    *,
    chunks: int = 1,
    peak: float = 0.0,
    schedule: str = "1f1b",
    price: str = "closed-form",
    update: list[float] | None = None,
) -> PlanDocument:
    """A chunk for each layer, without communication."""
    count = len(forward)
    problem = {
        "nest": 1,
        "profile": profile(
            forward, backward, state={"update": update} if update else {}, kept={"peak": [peak] * count}
        ),
        "training": {
            "global_batch": micro_batches,
            "schedule": "interleaved" if chunks > 1 else schedule,
            "price": price,
        },
        "cluster": {"levels": [{"name": "node", "fanout": count, "bandwidth": 1.0, "latency": 0.0}], "memory": 1.0},
    }
    return nest.evaluate(problem, fix={"pp": count // chunks, "chunks": chunks})


def test_optimizer_steps_begin_after_the_last_pass_of_all_stages() -> None:
    """By hand: two stages of 1 s and 2 s, two micro-batches, 1F1B.

    The last stage is done at 7 s and the first at 9 s; then one updates for 0.5 s, the other for 3 s.
    """
    found = nest.simulate(stages_of([1.0, 1.0], [2.0, 2.0], 2, update=[0.5, 3.0]))
    assert max(span.end for span in found.timeline.spans if span.stage == 1) == 7.0
    assert found.batch_time == found.closed_form == 12.0
    assert updates(found) == [(0, 9.0, 9.5), (1, 9.0, 12.0)]
    assert [stage.idle for stage in found.stages] == [12.0 - 6.0 - 0.5, 12.0 - 6.0 - 3.0]


def test_steps_that_do_not_wait_are_counted_from_each_stage_s_own_beginning() -> None:
    """By hand: one micro-batch through stages whose three passes take 1 s each, and 1 s, 5 s and 5 s, in ZB-H2.

    The first works from 0 s to 9 s, the second from 1 s to 12 s: for 11 s, the longest. Updates add 3 s, the longest.
    """
    found = nest.simulate(stages_of([1.0, 1.0], [2.0, 10.0], 1, schedule="zero-bubble-h2", update=[3.0, 0.5]))
    assert found.batch_time == 14.0
    assert updates(found) == [(0, 9.0, 12.0), (1, 12.0, 12.5)]


def updates(found: Replay) -> list[tuple[int, float, float]]:
    return [(task.stage, task.start, task.end) for task in found.timeline.tasks if task.kind == "update"]
