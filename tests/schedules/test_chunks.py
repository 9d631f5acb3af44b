"""Interleaved and zero-bubble schedules against simulations of what their papers describe."""

from collections.abc import Callable
from typing import Any

import pytest

from nest.hooks.registry import registry
from nest.instance import ChunkedSchedule, Schedule, chunks_of, fullest_moments, in_flight, least_held
from nest.instance.schedule import moments_of_order

SIZES = [(micro_batches, stages) for micro_batches in (1, 2, 3, 4, 5, 8, 9, 20) for stages in (1, 2, 3, 4, 5, 8)]
DEALT = [
    (turns * stages, stages, chunks) for turns in (1, 2, 3, 5) for stages in (2, 3, 4, 8) for chunks in (2, 3, 4, 7)
]

Step = tuple[str, int, int]
"""`forward`, `backward` or `weights`; the micro-batch; which chunk of its stage."""


def interleaved(chunks: int) -> Schedule:
    family = registry().schedules()["interleaved"]
    assert isinstance(family, ChunkedSchedule)
    return family.with_chunks(chunks)


def simulate(rows: list[list[Step]], chunks: int, seconds: dict[str, float]) -> list[tuple[float, float]]:
    """When each stage begins and ends; a step waits for the one before it on its stage and for what it needs."""
    stages = len(rows)
    last = stages * chunks - 1
    ends: dict[tuple[str, int, int], float] = {}
    position, clock, begin = [0] * stages, [0.0] * stages, [0.0] * stages
    while any(p < len(row) for p, row in zip(position, rows, strict=True)):
        before = list(position)
        for stage, row in enumerate(rows):
            while position[stage] < len(row):
                kind, m, chunk = row[position[stage]]
                place = chunk * stages + stage
                needed = {
                    "forward": [("forward", m, place - 1)] if place else [],
                    "backward": [("forward", m, place), *([("backward", m, place + 1)] if place < last else [])],
                    "weights": [("backward", m, place)],
                }[kind]
                if not all(need in ends for need in needed):
                    break
                start = max([clock[stage], *(ends[need] for need in needed)])
                begin[stage] = start if not position[stage] else begin[stage]
                clock[stage] = ends[kind, m, place] = start + seconds[kind]
                position[stage] += 1
        assert position != before, "the order cannot be run"
    return list(zip(begin, clock, strict=True))


def held(row: list[Step], frees: str) -> int:
    """Most chunks of micro-batches held at any time."""
    now = most = 0
    for kind, _, _ in row:
        now += (kind == "forward") - (kind == frees)
        most = max(most, now)
    return most


def megatron(micro_batches: int, stages: int, chunks: int) -> list[list[Step]]:
    """Megatron-LM's interleaved order: micro-batches in groups of `stages`, chunk after chunk."""

    def step(kind: str, number: int) -> Step:
        group, within = divmod(number, stages * chunks)
        chunk = within // stages
        chunk = chunk if kind == "forward" else chunks - 1 - chunk
        return kind, group * stages + within % stages, chunk

    rows = []
    steps = micro_batches * chunks
    for stage in range(stages):
        ahead = min(steps, 2 * (stages - stage - 1) + (chunks - 1) * stages)
        row = [step("forward", number) for number in range(ahead)]
        for number in range(steps - ahead):
            row += [step("forward", ahead + number), step("backward", number)]
        rows.append(row + [step("backward", number) for number in range(steps - ahead, steps)])
    return rows


@pytest.mark.parametrize(("micro_batches", "stages", "chunks"), DEALT)
def test_equal_chunks_take_what_the_weights_say(micro_batches: int, stages: int, chunks: int) -> None:
    spans = simulate(megatron(micro_batches, stages, chunks), chunks, {"forward": 1.0, "backward": 2.0})
    slowest, total = interleaved(chunks).weights(micro_batches, stages)
    assert max(end for _, end in spans) == pytest.approx((slowest + total * stages) * 3 * chunks)


@pytest.mark.parametrize(("micro_batches", "stages", "chunks"), DEALT)
def test_chunks_in_flight_are_what_a_stage_holds_at_its_fullest(micro_batches: int, stages: int, chunks: int) -> None:
    schedule = interleaved(chunks)
    for stage, row in enumerate(megatron(micro_batches, stages, chunks), start=1):
        moments = fullest_moments(schedule, stage, stages, micro_batches)
        assert in_flight(moments) == held(row, "backward") / chunks
        ahead = 2 * (stages - stage) + (chunks - 1) * stages + 1
        assert in_flight(moments) == min(micro_batches * chunks, ahead) / chunks


@pytest.mark.parametrize("chunks", [2, 3, 5])
@pytest.mark.parametrize("stages", [2, 3, 4, 7])
@pytest.mark.parametrize("rounds", [1, 2, 3, 6])
def test_every_chunk_holds_at_one_moment_what_the_schedule_says(chunks: int, stages: int, rounds: int) -> None:
    schedule, micro_batches = interleaved(chunks), rounds * stages
    every = (fullest_moments(schedule, stage, stages, micro_batches) for stage in range(1, stages + 1))
    assert least_held(schedule, stages, micro_batches) == tuple(max(map(min, moments)) for moments in every)


@pytest.mark.parametrize("chunks", [2, 3, 5])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 3), (2, 2), (2, 7), (3, 18), (4, 9), (4, 24), (5, 5)])
def test_the_fullest_moments_are_those_of_the_order(chunks: int, stages: int, micro_batches: int) -> None:
    schedule: Any = interleaved(chunks)
    for stage in range(1, stages + 1):
        order = schedule.order(stage, stages, micro_batches)
        assert schedule.in_flight(stage, stages, micro_batches) == moments_of_order(order, chunks)


def test_the_family_makes_schedules_of_one_name() -> None:
    assert [chunks_of(interleaved(chunks)) for chunks in (2, 3, 8)] == [2, 3, 8]
    assert {interleaved(chunks).name for chunks in (2, 3, 8)} == {"interleaved"}


def split_backward(
    micro_batches: int, stages: int, ahead: Callable[[int], int], late: Callable[[int], int]
) -> list[list[Step]]:
    """`ahead` forward passes first, then one backward, one forward; weights `late` micro-batches behind backward."""
    rows = []
    for stage in range(stages):
        forward = min(micro_batches, ahead(stage))
        row, weights = [("forward", m, 0) for m in range(forward)], 0
        for backward in range(micro_batches):
            row.append(("backward", backward, 0))
            if backward + 1 - weights > late(stage):
                row.append(("weights", weights, 0))
                weights += 1
            if forward < micro_batches:
                row.append(("forward", forward, 0))
                forward += 1
        rows.append(row + [("weights", m, 0) for m in range(weights, micro_batches)])
    return rows


THIRDS = {"forward": 1.0, "backward": 1.0, "weights": 1.0}


def thirds(schedule: Schedule, micro_batches: int, stages: int) -> float:
    """What the weights say of equal stages whose parts take a second each."""
    slowest, *parts = schedule.weights(micro_batches, stages)
    return 3 * slowest + stages * sum(parts)


@pytest.mark.parametrize(("micro_batches", "stages"), SIZES)
def test_zero_bubble_takes_what_the_weights_say_and_holds_what_it_says(micro_batches: int, stages: int) -> None:
    rows = split_backward(micro_batches, stages, lambda stage: stages - stage, lambda stage: stage)
    schedule = registry().schedules()["zero-bubble"]
    assert max(end for _, end in simulate(rows, 1, THIRDS)) == pytest.approx(thirds(schedule, micro_batches, stages))
    for stage, row in enumerate(rows, start=1):
        assert schedule.in_flight(stage, stages, micro_batches) == held(row, "weights")


@pytest.mark.parametrize(("micro_batches", "stages"), SIZES)
def test_the_second_zero_bubble_has_none_where_optimizer_steps_need_not_wait(micro_batches: int, stages: int) -> None:
    rows = split_backward(micro_batches, stages, lambda stage: 2 * (stages - stage) - 1, lambda stage: 2 * stage)
    schedule = registry().schedules()["zero-bubble-h2"]
    longest = max(end - begin for begin, end in simulate(rows, 1, THIRDS))
    assert longest == pytest.approx(thirds(schedule, micro_batches, stages))
    for stage, row in enumerate(rows, start=1):
        assert schedule.in_flight(stage, stages, micro_batches) == held(row, "weights")
