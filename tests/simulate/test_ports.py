"""Replays of plans whose ports are busy: who waits for them, and that no port carries more than its time allows."""

from collections import Counter

import pytest

import nest
from nest.plan.evaluate import evaluate
from nest.simulate.replay import contradiction, replay
from nest.simulate.stage_tasks import WAIT, stage_works
from nest.simulate.trace import trace
from nest.units import percent
from nest_whatif.text.replay import replay_text
from tests.agreement.busy_plans import KINDS, decided, runnable_plans, with_ports
from tests.oracle.check import same
from tests.simulate.traffic import overfull
from tests.simulate.uniform_plans import uniform_plan


@pytest.mark.parametrize("kind", KINDS)
def test_stages_wait_for_busy_ports_as_the_plan_says_and_no_port_is_overfull(kind: str) -> None:
    counts: Counter[str] = Counter()
    for seed in range(18):
        random, problem = with_ports(seed, kind)
        for plan in runnable_plans(random, problem):
            instance, solution = decided(problem, plan)
            priced = evaluate(instance, solution)
            works = stage_works(instance, solution)
            found = replay(instance, solution)
            assert overfull(found) == [], (kind, seed)
            assert contradiction(instance, solution) is None, (kind, seed)
            assert same(found.closed_form, priced.closed_form), (kind, seed)
            assert not priced.replayed or same(found.batch_time, priced.replayed), (kind, seed)
            for work, told, stage in zip(works, found.stages, priced.stages, strict=True):
                assert same(work.time, stage.time), (kind, seed)
                assert same(work.sync, stage.sync), (kind, seed)
                assert (told.traffic is None) == (stage.ports is None) == (work.ports is None)
                if work.ports is None or stage.ports is None:
                    continue
                counts["stages"] += 1
                assert all(map(same, work.ports.often, stage.ports)), (kind, seed)
                waits = [piece.seconds for pieces in work.passes.values() for piece in pieces if piece.kind == WAIT]
                counts["waits"] += bool(waits)
                counts["once"] += any(work.ports.once)
                whole, most = found.micro_batches * work.time + work.sync, max(told.traffic or ())
                assert most <= whole * (1 + 1e-9), (kind, seed)
                counts["full"] += most > whole * (1 - 1e-9)
    assert counts["stages"] > 40
    assert counts["waits"] > counts["stages"] / 6
    assert counts["once"] > 10
    assert counts["full"] > 5


def test_waits_and_the_busiest_port_are_told() -> None:
    plans = [uniform_plan(seed, "1f1b", ports=True) for seed in range(10)]
    replays = [(plan, nest.simulate(plan)) for plan in plans]
    plan, found = next(each for each in replays if any(task.kind == WAIT for task in each[1].timeline.tasks))
    assert '"wait for a busy port 0"' in trace(found)
    assert [len(stage["traffic"]) for stage in found.to_dict()["stages"]] == [1] * len(found.stages)
    most = max(max(stage.traffic or ()) for stage in found.stages) / found.batch_time
    assert f"busiest port  {percent(most)} of the step, at level 0 on stage 1" in replay_text(found.to_dict(), plan)
    free = uniform_plan(0, "1f1b")
    assert "busiest port" not in replay_text(nest.simulate(free).to_dict(), free)
