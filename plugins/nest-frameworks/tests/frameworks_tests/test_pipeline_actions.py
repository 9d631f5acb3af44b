"""Orders of pipeline schedules as PyTorch reads them: every run of layers on its rank, and no rank waits for ever."""

import re

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.deployment.pytorch_schedules import RUNS
from nest.errors import InputError
from nest.hooks.pipelines import deployed, orders, schedule_of
from nest.hooks.registry import registry
from nest.instance import admits, chunks_of, route
from nest.spec import PlanDocument
from nest_frameworks.pipeline_actions import Order, actions, csv_text, schedule_file
from tests.deployment.plans import Decisions, made_up

ACTION = re.compile(r"(\d+)([FBIW])(\d+)")


def plan_of(name: str, ranks: int, chunks: int, micro_batches: int) -> PlanDocument:
    """A plan of one layer in each chunk."""
    plan = made_up(Decisions((ranks,), 1, 1, 1, 1, 1, 1, "pp-inner", tuple(range(ranks))))
    plan = evolve(plan, schedule=name, chunks=chunks, micro_batches=micro_batches)
    homes = route(schedule_of(plan), ranks)
    held = [tuple((f"layers.{k}",) for k, home in enumerate(homes) if home == rank) for rank in range(ranks)]
    stages = (
        evolve(stage, layers=tuple(name for chunk in mine for name in chunk), chunks=mine if chunks > 1 else None)
        for stage, mine in zip(plan.stages, held, strict=True)
    )
    return evolve(plan, stages=tuple(stages))


def order_of(plan: PlanDocument) -> Order:
    passes = orders(plan)
    assert passes is not None
    return actions(deployed(plan), passes)


def parsed(action: str) -> tuple[int, str, int]:
    found = ACTION.fullmatch(action)
    assert found is not None, action
    return int(found[1]), found[2], int(found[3])


def check_runs(order: Order, last: int) -> None:
    """Every rank runs its actions one after the other, as soon as what they read is there."""
    done: set[tuple[int, str, int]] = set()
    places = [0] * len(order)
    while any(place < len(row) for place, row in zip(places, order, strict=True)):
        before = sum(places)
        for rank, row in enumerate(order):
            while places[rank] < len(row) and ready(done, *parsed(row[places[rank]]), last):
                done.add(parsed(row[places[rank]]))
                places[rank] += 1
        assert sum(places) > before, "the order deadlocks"


def ready(done: set[tuple[int, str, int]], stage: int, kind: str, index: int, last: int) -> bool:
    if kind == "F":
        return stage == 0 or (stage - 1, "F", index) in done
    if kind == "W":
        return (stage, "I", index) in done
    behind = stage == last or bool({(stage + 1, "I", index), (stage + 1, "B", index)} & done)
    return behind and (stage, "F", index) in done


@st.composite
def plans(draw: st.DrawFn) -> PlanDocument:
    known = registry().schedules()
    name = draw(st.sampled_from(RUNS))
    schedule, ranks = known[name], draw(st.integers(2, 6))
    chunks = chunks_of(schedule)
    if hasattr(schedule, "with_chunks"):
        chunks = draw(st.integers(2, 4))
        schedule = schedule.with_chunks(chunks)
    admitted = [count for count in range(1, 4 * ranks * chunks) if admits(schedule, ranks, count)]
    return plan_of(name, ranks, chunks, draw(st.sampled_from(admitted)))


@given(plans())
@settings(max_examples=24, deadline=None)
def test_every_action_runs_once_on_its_rank_and_no_rank_waits_for_ever(plan: PlanDocument) -> None:
    order, runs, count = order_of(plan), deployed(plan).runs, plan.micro_batches or 0
    assert [run.blocks for run in runs] == [(number,) for number in range(len(runs))]
    for rank, row in enumerate(order):
        ran = [parsed(action) for action in row]
        mine = {number for number, run in enumerate(runs) if run.stage == rank}
        forward = [(stage, index) for stage, kind, index in ran if kind == "F"]
        assert sorted(forward) == sorted((stage, index) for stage in mine for index in range(count))
        assert sorted((stage, index) for stage, kind, index in ran if kind in "BW") == sorted(forward)
        assert len(set(ran)) == len(ran)
    check_runs(order, len(runs) - 1)


def test_a_v_has_the_ends_of_the_pipeline_on_the_first_rank() -> None:
    plan = plan_of("zb-v", 2, 2, 4)
    assert [run.stage for run in deployed(plan).runs] == [0, 1, 1, 0]
    assert {parsed(action)[0] for action in order_of(plan)[0]} == {0, 3}


def test_no_pipeline_has_no_file() -> None:
    plan = plan_of("1f1b", 1, 1, 2)
    assert schedule_file(plan) == {}


def test_a_schedule_that_nobody_brings_is_refused() -> None:
    plan = evolve(plan_of("1f1b", 2, 1, 2), schedule="made-up", chunks=2)
    with pytest.raises(InputError, match="'made-up' is not installed; install its plug-in"):
        deployed(plan)


def test_the_file_has_a_row_for_each_rank() -> None:
    assert csv_text(order_of(plan_of("1f1b", 2, 1, 2))) == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
