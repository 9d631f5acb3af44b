"""Schedules against PROBLEM.md's table and against a small simulation of what they describe."""

import pytest

from nest.hooks.registry import registry
from nest.instance import Schedule

SIZES = [(micro_batches, stages) for micro_batches in (1, 2, 3, 4, 9) for stages in (1, 2, 3, 5)]


def schedule(name: str) -> Schedule:
    return registry().schedules()[name]


def orders(name: str, micro_batches: int, stages: int) -> list[list[tuple[str, int]]]:
    """What each stage runs, in order: forwards and backwards of micro-batches."""
    rows = []
    for stage in range(stages):
        ahead = micro_batches if name == "gpipe" else min(micro_batches, stages - stage - 1)
        row = [("forward", m) for m in range(ahead)]
        done = 0
        for m in range(ahead, micro_batches):
            row += [("forward", m), ("backward", done)]
            done += 1
        rows.append(row + [("backward", m) for m in range(done, micro_batches)])
    return rows


def simulate(rows: list[list[tuple[str, int]]], times: list[tuple[float, float]]) -> float:
    """When the last operation ends; each waits for the one before it on its stage and for its input."""
    ends: dict[tuple[str, int, int], float] = {}
    position, clock = [0] * len(rows), [0.0] * len(rows)
    while any(p < len(row) for p, row in zip(position, rows, strict=True)):
        for stage, row in enumerate(rows):
            if position[stage] == len(row):
                continue
            kind, m = row[position[stage]]
            before = stage - 1 if kind == "forward" else stage + 1
            own = [("forward", m, stage)] if kind == "backward" else []
            needed = [*own, (kind, m, before)] if 0 <= before < len(rows) else own
            if all(need in ends for need in needed):
                start = max([clock[stage], *(ends[need] for need in needed)])
                clock[stage] = ends[kind, m, stage] = start + times[stage][kind == "backward"]
                position[stage] += 1
    return max(ends.values())


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("micro_batches", "stages"), SIZES)
def test_equal_stages_take_what_the_weights_say(name: str, micro_batches: int, stages: int) -> None:
    time = simulate(orders(name, micro_batches, stages), [(1.0, 2.0)] * stages)
    largest, total = schedule(name).weights(micro_batches, stages)
    assert time == pytest.approx(largest * 3.0 + total * 3.0 * stages)


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("micro_batches", "stages"), SIZES)
def test_in_flight_is_what_a_stage_holds_at_its_fullest(name: str, micro_batches: int, stages: int) -> None:
    for stage, row in enumerate(orders(name, micro_batches, stages), start=1):
        held = fullest = 0
        for kind, _ in row:
            held += 1 if kind == "forward" else -1
            fullest = max(fullest, held)
        assert schedule(name).in_flight(stage, stages, micro_batches) == fullest


@pytest.mark.parametrize(("micro_batches", "stages"), SIZES)
def test_the_papers_bound_is_the_table_of_the_problem(micro_batches: int, stages: int) -> None:
    bound = schedule("nest")
    assert bound.weights(micro_batches, stages) == (micro_batches + stages - 1, 0)
    for stage in range(1, stages + 1):
        assert bound.in_flight(stage, stages, micro_batches) == min(micro_batches, stages - stage + 1)
