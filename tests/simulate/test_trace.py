"""Traces: what a viewer needs of the Trace Event Format, and that nothing of the replay is lost."""

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given

import nest
from nest.instance import Instance, Solution
from nest.simulate.replay import Replay, replay
from nest.simulate.stragglers_and_jitter import Disturbance, SlowDevice
from nest.simulate.trace import trace
from tests.plan.mixed_plans import mixed_plans
from tests.simulate.uniform_plans import SCHEDULES, uniform_plan

Event = dict[str, Any]


def events(found: Replay) -> list[Event]:
    document = json.loads(trace(found))
    assert document["displayTimeUnit"] == "ms"
    told: list[Event] = document["traceEvents"]
    return told


def tracks(told: list[Event]) -> dict[tuple[int, int], list[Event]]:
    """The slices of each track, as they begin."""
    found = defaultdict(list)
    for event in told:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return {track: sorted(slices, key=lambda each: each["ts"]) for track, slices in found.items()}


def valid(told: list[Event]) -> None:
    """Nothing overlaps, every track has a name, every arrow begins and ends inside a slice."""
    by_track = tracks(told)
    named = {(each["pid"], each["tid"]) for each in told if each["ph"] == "M" and each["name"] == "thread_name"}
    assert by_track.keys() <= named
    numbers = [thread for _, thread in named]
    assert len(set(numbers)) == len(numbers)
    assert not set(numbers) & {0, *(process for process, _ in named)}
    for slices in by_track.values():
        assert all(each["dur"] > 0 and each["ts"] >= 0 for each in slices)
        for one, two in pairwise(slices):
            assert one["ts"] + one["dur"] <= two["ts"]
            # In nanoseconds, too, which are whole numbers: nobody has to round them.
            nanoseconds = [1000 * each for each in (one["ts"], one["dur"], two["ts"])]
            assert all(each == int(each) for each in nanoseconds)
            assert nanoseconds[0] + nanoseconds[1] <= nanoseconds[2]
    flows = defaultdict(list)
    for event in told:
        assert event["ph"] in "XMCsf"
        if event["ph"] in "sf":
            flows[event["id"]].append(event)
            inside = [
                each
                for each in by_track[event["pid"], event["tid"]]
                if each["ts"] <= event["ts"] < each["ts"] + each["dur"]
            ]
            assert len(inside) == 1
    for start, finish in flows.values():
        assert (start["ph"], finish["ph"], finish["bp"]) == ("s", "f", "e")
        assert (start["name"], start["cat"]) == (finish["name"], finish["cat"])
        assert start["ts"] <= finish["ts"]


@pytest.mark.longer
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_traces_are_valid_and_whole(schedule: str) -> None:
    for seed in range(2):
        found = nest.simulate(uniform_plan(seed, schedule))
        told = events(found)
        valid(told)
        messages = 2 * found.micro_batches * sum(one != two for one, two in pairwise(found.places.route))
        assert sum(each["ph"] == "s" for each in told) == messages
        for stage, work in enumerate(found.stages):
            seconds = sum(each["dur"] for each in tracks(told)[1, 101 + stage]) / 1e6
            assert seconds == pytest.approx(work.busy + work.synchronisation, rel=1e-6)
            memory = [each for each in told if each["ph"] == "C" and each["name"] == f"memory of stage {stage + 1}"]
            assert max(each["args"]["bytes"] for each in memory) == pytest.approx(work.memory_peak)
            assert [each["ts"] for each in memory] == sorted(each["ts"] for each in memory)


@pytest.mark.longer
@given(mixed_plans())
def test_traces_of_any_plan_are_valid(plan: tuple[Instance, Solution]) -> None:
    valid(events(replay(*plan)))
    valid(events(replay(*plan, Disturbance(jitter=0.5, slow=(SlowDevice(0, 0, 2.0),)))))


def test_what_is_received_was_sent_meanwhile() -> None:
    plan = next(
        each
        for each in (uniform_plan(seed, "interleaved") for seed in range(100))
        if each.problem["profile"]["candidates"][0]["edge_bytes"][0] and len(each.stages) > 2
    )
    told = events(nest.simulate(plan))
    received = [each for each in told if each["ph"] == "X" and each["cat"].startswith("receive") and each["pid"] == 1]
    sent = [each for each in told if each["ph"] == "X" and each["pid"] == 2]
    assert [(each["ts"], each["dur"]) for each in received] == [(each["ts"], each["dur"]) for each in sent]
    assert all(each["args"]["stage"] != each["args"]["to"] for each in sent)
    assert received


def test_the_same_replay_gives_the_same_bytes() -> None:
    plan = uniform_plan(7, "1f1b")
    assert trace(nest.simulate(plan, jitter=0.1)) == trace(nest.simulate(plan, jitter=0.1))
