"""Traces in the Perfetto UI: what it shows is what the file says, all of it, without a complaint."""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import nest
from page_tests.browser.perfetto import Perfetto, perfetto
from page_tests.browser.plans import of_llama
from tests.command_line import call
from tests.simulate.uniform_plans import SCHEDULES, uniform_plan

Event = dict[str, Any]


@pytest.fixture(scope="module")
def viewer(chromium: Any) -> Iterator[Perfetto]:
    """One page for all: opening one trace after another is what people do."""
    with perfetto(chromium) as opened:
        yield opened


def nanoseconds(microseconds: float) -> int:
    assert 1000 * microseconds == int(1000 * microseconds)
    return int(1000 * microseconds)


def slices(events: list[Event]) -> Counter[tuple[Any, ...]]:
    return Counter(
        (
            *(each["pid"], each["tid"], nanoseconds(each["ts"]), nanoseconds(each["dur"]), each["name"], each["cat"]),
            *(each["args"]["stage"], each["args"]["micro_batch"], each["args"]["chunk"]),
        )
        for each in events
        if each["ph"] == "X"
    )


def names(events: list[Event]) -> Counter[tuple[Any, ...]]:
    processes = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    threads = [each for each in events if each["name"] == "thread_name"]
    return Counter((each["pid"], processes[each["pid"]], each["tid"], each["args"]["name"]) for each in threads)


def points(events: list[Event]) -> Counter[tuple[Any, ...]]:
    found = [each for each in events if each["ph"] == "C"]
    return Counter((f"{each['name']} bytes", nanoseconds(each["ts"]), each["args"]["bytes"]) for each in found)


def arrows(events: list[Event]) -> Counter[tuple[Any, ...]]:
    """Of each flow, the slices in which it begins and ends."""
    found: list[tuple[Any, ...]] = []
    flows = sorted((each for each in events if each["ph"] in "sf"), key=lambda each: each["id"])
    for _, ends in groupby(flows, key=lambda each: each["id"]):
        start, finish = sorted(ends, key=lambda each: each["ph"], reverse=True)
        found.append((*around(start, events), *around(finish, events)))
    return Counter(found)


def around(end: Event, events: list[Event]) -> tuple[Any, ...]:
    """The slice in which a flow's end lies."""
    track = [each for each in events if each["ph"] == "X" and (each["pid"], each["tid"]) == (end["pid"], end["tid"])]
    (found,) = [each for each in track if each["ts"] <= end["ts"] < each["ts"] + each["dur"]]
    return found["tid"], found["name"], nanoseconds(found["ts"])


def shown(rows: list[list[Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in rows)


def same(viewer: Perfetto, trace: Path) -> None:
    """What the viewer shows of a trace is what the file says."""
    events: list[Event] = json.loads(trace.read_text())["traceEvents"]
    viewer.load(trace)
    assert viewer.complaints() == []
    assert slices(events) == shown(
        viewer.query(
            "select pid, tid, ts, dur, slice.name, category, extract_arg(slice.arg_set_id, 'args.stage'), "
            "extract_arg(slice.arg_set_id, 'args.micro_batch'), extract_arg(slice.arg_set_id, 'args.chunk') "
            "from slice join thread_track on track_id = thread_track.id join thread using (utid) "
            "join process using (upid)"
        )
    )
    assert viewer.query("select count(*) from slice where depth > 0") == [[0]]
    assert names(events) == shown(
        viewer.query(
            "select pid, process.name, tid, thread.name from thread_track join thread using (utid) "
            "join process using (upid)"
        )
    )
    assert points(events) == shown(
        viewer.query(
            "select process_counter_track.name, ts, value from counter "
            "join process_counter_track on track_id = process_counter_track.id"
        )
    )
    assert arrows(events) == shown(
        viewer.query(
            "select a.tid, o.name, o.ts, b.tid, i.name, i.ts from flow join slice o on o.id = slice_out "
            "join slice i on i.id = slice_in join thread_track ot on ot.id = o.track_id "
            "join thread_track it on it.id = i.track_id join thread a on a.utid = ot.utid "
            "join thread b on b.utid = it.utid"
        )
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_perfetto_shows_all_of_a_trace(schedule: str, viewer: Perfetto, tmp_path: Path) -> None:
    trace = tmp_path / f"{schedule}.json"
    plans = (uniform_plan(seed, schedule) for seed in range(100))
    nest.simulate(next(each for each in plans if len(each.stages) > 2), trace=trace)
    same(viewer, trace)


def test_perfetto_shows_all_of_a_disturbed_replay(viewer: Perfetto, tmp_path: Path) -> None:
    trace = tmp_path / "disturbed.json"
    plan = of_llama("interleaved", zero=3, chunks=2)
    nest.simulate(plan, trace=trace, slow_devices={"2/1": 1.4}, jitter=0.05, runs=2)
    same(viewer, trace)


def test_tracks_stand_on_the_screen_in_the_order_of_the_stages(
    viewer: Perfetto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, trace = tmp_path / "plan.json", tmp_path / "trace.json"
    plan.write_text(json.dumps(of_llama(zero=2, recompute="full").to_dict()))
    assert call(monkeypatch, "simulate", str(plan), "--trace", str(trace)) == 0
    viewer.load(trace)
    assert viewer.complaints() == []
    # Perfetto adds the number of a process or thread to its name, and its unit to a counter's.
    shown_as = [
        "replica 0 1",
        *(f"stage {stage} {100 + stage}" for stage in range(1, 5)),
        *(f"memory of stage {stage} bytes" for stage in range(1, 5)),
        "links 2",
        *("stage 1 sends activations 105", "stage 2 sends activations 107", "stage 2 sends gradients 108"),
        *("stage 3 sends activations 109", "stage 3 sends gradients 110", "stage 4 sends gradients 112"),
    ]
    assert viewer.tracks() == shown_as


def test_perfetto_complains_of_a_trace_that_is_wrong(viewer: Perfetto, tmp_path: Path) -> None:
    """What the tests above rely on: that it would have said so."""
    trace = tmp_path / "wrong.json"
    nest.simulate(uniform_plan(1, "1f1b"), trace=trace)
    document = json.loads(trace.read_text())
    piece = next(each for each in document["traceEvents"] if each["ph"] == "X" and each["dur"] > 1)
    document["traceEvents"].append({**piece, "ts": piece["ts"] + 0.5 * piece["dur"]})
    trace.write_text(json.dumps(document))
    viewer.load(trace)
    assert viewer.complaints()
