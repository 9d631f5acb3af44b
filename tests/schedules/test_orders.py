"""Orders of the built-in schedules: legal, and within the memory they are counted with."""

from collections.abc import Iterator

import pytest

from nest.hooks.registry import registry
from nest.instance import ChunkedSchedule, OrderedSchedule, admits, chunks_of, fullest_moments, in_flight
from nest.instance.schedule import numbered, order_fault, runs

SIZES = [(micro_batches, stages) for micro_batches in (1, 2, 3, 5, 8, 12, 16, 24) for stages in (1, 2, 3, 4, 8)]
LETTERS = {"forward": "F", "backward": "B", "input-gradients": "I", "weight-gradients": "W"}


def schedules() -> Iterator[OrderedSchedule]:
    for schedule in registry().schedules().values():
        found = [schedule.with_chunks(v) for v in (2, 3)] if isinstance(schedule, ChunkedSchedule) else [schedule]
        for each in found:
            assert isinstance(each, OrderedSchedule)
            yield each


@pytest.mark.parametrize(("micro_batches", "stages"), SIZES)
def test_orders_are_legal_and_hold_what_in_flight_says(micro_batches: int, stages: int) -> None:
    for schedule in schedules():
        chunks = chunks_of(schedule)
        if not admits(schedule, stages, micro_batches):
            continue
        for stage in range(1, stages + 1):
            order = schedule.order(stage, stages, micro_batches)
            assert order_fault(order, micro_batches, chunks) is None
            now = most = 0
            for step in order:
                now += (step.kind == "forward") - (step.kind in ("backward", "weight-gradients"))
                most = max(most, now)
            assert most == in_flight(fullest_moments(schedule, stage, stages, micro_batches)) * chunks


def test_steps_are_numbered_by_kind_and_chunk_and_pairs_run_together() -> None:
    forward, backward, inputs, weights = ((kind, 0) for kind in LETTERS)
    order = numbered([forward, (forward, backward), inputs, forward, weights, ("forward", 1)])
    written = [f"{step.chunk}{LETTERS[step.kind]}{step.micro_batch}" for step in order]
    assert written == ["0F0", "0F1", "0B0", "0I1", "0F2", "0W1", "1F0"]
    assert [len(each) for each in runs(order)] == [1, 2, 1, 1, 1, 1]


def test_what_is_wrong_with_an_order_is_said() -> None:
    from nest.instance import Pass

    whole = [Pass("forward", 0), Pass("backward", 0)]
    assert order_fault(whole, 1, 1) is None
    assert "never runs micro-batch 1" in str(order_fault(whole, 2, 1))
    assert "never runs micro-batch 0 of chunk 1" in str(order_fault(whole, 1, 2))
    assert "runs a micro-batch 1" in str(order_fault([*whole, Pass("forward", 1)], 1, 1))
    assert "a forward pass comes first" in str(order_fault(whole[::-1], 1, 1))
    assert "2 forward" in str(order_fault([whole[0], *whole], 1, 1))
    assert "1 input-gradients" in str(order_fault([whole[0], Pass("input-gradients", 0)], 1, 1))
    beside = [Pass("forward", 0), Pass("backward", 0, overlapped=True)]
    assert "overlaps with no single pass after it" in str(order_fault(beside, 1, 1))
    three = [Pass("forward", 0, 0, True), Pass("forward", 1, 0, True), Pass("backward", 0), Pass("backward", 1)]
    assert "overlaps with no single pass after it" in str(order_fault(three, 2, 1))
