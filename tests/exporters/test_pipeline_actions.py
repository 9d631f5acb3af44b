"""Orders of pipeline schedules, run on a machine of our own: they end when PROBLEM.md section 4 says."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest.errors import InputError
from nest.exporters.pipeline_actions import ORDERS, Order, actions, csv_text
from nest.hooks.registry import registry

ACTION = re.compile(r"(\d+)([FBIW])(\d+)")
PARTS = {"F": 1, "I": 1, "W": 1, "B": 2}
"""Durations: forward, and the two halves of the backward pass, equally long (nest/schedules/zero_bubble.py)."""


def finish(order: Order, stages: int) -> int:
    """When the last action ends, each rank running its own in order as soon as what they read is there."""
    ends: dict[tuple[int, str, int], int] = {}
    places = [0] * len(order)
    clocks = [0] * len(order)
    while any(place < len(row) for place, row in zip(places, order, strict=True)):
        moved = False
        for rank, row in enumerate(order):
            while places[rank] < len(row):
                stage, kind, index = _parsed(row[places[rank]])
                ready = _ready(ends, stage, kind, index, stages)
                if ready is None:
                    break
                clocks[rank] = max(clocks[rank], ready) + PARTS[kind]
                ends[stage, kind, index] = clocks[rank]
                places[rank] += 1
                moved = True
        assert moved, "the order deadlocks"
    return max(clocks)


def _parsed(action: str) -> tuple[int, str, int]:
    found = ACTION.fullmatch(action)
    assert found is not None, action
    return int(found[1]), found[2], int(found[3])


def _ready(ends: dict[tuple[int, str, int], int], stage: int, kind: str, index: int, stages: int) -> int | None:
    if kind == "F":
        return 0 if stage == 0 else ends.get((stage - 1, "F", index))
    if kind == "W":
        return ends.get((stage, "I", index))
    if stage == stages - 1:
        return ends.get((stage, "F", index))
    behind = ends.get((stage + 1, "I", index), ends.get((stage + 1, "B", index)))
    return behind if (stage, "F", index) in ends else None


def in_flight(row: tuple[str, ...]) -> int:
    """Most runs of one micro-batch through one chunk that wait for their last backward pass at once."""
    held = most = 0
    halves = any("W" in action for action in row)
    for action in row:
        kind = _parsed(action)[1]
        held += (kind == "F") - (kind == ("W" if halves else "B"))
        most = max(most, held)
    return most


@st.composite
def shapes(draw: st.DrawFn) -> tuple[str, int, int, int]:
    name = draw(st.sampled_from(sorted(ORDERS)))
    ranks = draw(st.integers(2, 6))
    chunks = draw(st.integers(2, 4)) if name == "interleaved" else 1
    micro_batches = draw(st.integers(1, 4)) * ranks if name == "interleaved" else draw(st.integers(1, 20))
    return name, ranks, chunks, micro_batches


@given(shapes())
@settings(max_examples=60, deadline=None)
def test_every_action_runs_once_on_its_rank(shape: tuple[str, int, int, int]) -> None:
    name, ranks, chunks, micro_batches = shape
    order = actions(*shape)
    assert len(order) == ranks
    kinds = "FIW" if name == "zero-bubble" else "FB"
    for rank, row in enumerate(order):
        wanted = [
            (chunk * ranks + rank, kind, index)
            for chunk in range(chunks)
            for kind in kinds
            for index in range(micro_batches)
        ]
        assert sorted(map(_parsed, row)) == sorted(wanted)


@given(shapes())
@settings(max_examples=60, deadline=None)
def test_it_takes_as_long_and_holds_as_much_as_the_schedule_says(shape: tuple[str, int, int, int]) -> None:
    name, ranks, chunks, micro_batches = shape
    schedule = registry().schedules()[name]
    if chunks > 1:
        schedule = schedule.with_chunks(chunks)  # type: ignore[attr-defined]
    first, total = schedule.weights(micro_batches, ranks)
    stage = 3 * chunks
    order = actions(*shape)
    assert finish(order, ranks * chunks) == pytest.approx(stage * (first + total * ranks))
    for rank, row in enumerate(order):
        assert in_flight(row) <= chunks * schedule.in_flight(rank + 1, ranks, micro_batches) + 1e-9


def test_no_pipeline_runs_micro_batch_after_micro_batch() -> None:
    assert actions("nest", 1, 1, 2) == (("0F0", "0B0", "0F1", "0B1"),)


def test_a_schedule_without_an_order_is_refused() -> None:
    with pytest.raises(InputError, match="'zero-bubble-h2'"):
        actions("zero-bubble-h2", 2, 1, 4)


def test_the_file_has_a_row_for_each_rank() -> None:
    assert csv_text(actions("1f1b", 2, 1, 2)) == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
