"""Memory over time against the replay it draws."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nest
from nest_page.memory_over_time import highest, memory_over_time_figure
from nest_page.task_table import TaskTable
from nest_page.timeline import windows_of
from nest_page.timeline_drawing import room, window_scales
from page_tests.drawn_paths import elements
from page_tests.long_plans import long_plan

STAGES = 7

POINTS = st.lists(st.tuples(st.floats(0.01, 9.9), st.floats(0, 100)), max_size=20, unique_by=lambda each: each[0])


@given(POINTS, st.floats(0, 100), st.floats(0, 5), st.floats(0.1, 5), st.integers(1, 12))
def test_the_most_of_each_part_is_found(
    points: list[tuple[float, float]], first: float, start: float, length: float, parts: int
) -> None:
    told = ((0.0, first), *sorted(points))
    found = highest(told, start, start + length, parts)
    assert len(found) == parts
    for index, size in enumerate(found):
        low, high = start + length * index / parts, start + length * (index + 1) / parts
        # Points at the very edge of a part may count for either.
        near = 1e-9
        lasting = [each for each, after in zip(told, [*told[1:], (99.0, 0.0)], strict=True) if after[0] > low + near]
        least = max([lasting[0][1], *(each[1] for each in lasting if each[0] < high - near)])
        reached = [each for each, after in zip(told, [*told[1:], (99.0, 0.0)], strict=True) if after[0] >= low - near]
        most = max([reached[0][1], *(each[1] for each in reached if each[0] <= high + near)])
        assert least <= size <= most


@pytest.mark.parametrize(("schedule", "micro_batches"), [("1f1b", 8), ("1f1b", 200), ("gpipe", 300)])
@pytest.mark.parametrize("times", [1.1, 50.0])
def test_peaks_are_those_of_the_replay(schedule: str, micro_batches: int, times: float) -> None:
    plan = long_plan(schedule, STAGES, micro_batches)
    replay = nest.simulate(plan)
    planned = [stage.memory for stage in plan.stages]
    capacity = max(planned) * times
    found = windows_of(TaskTable.of(replay.timeline.tasks, STAGES))
    figure = memory_over_time_figure(replay, found, capacity, planned)
    for row, stage, points, counted in zip(
        figure.table.rows, replay.stages, replay.timeline.memory, planned, strict=True
    ):
        _, start, peak, time, share, plans = (cell.value for cell in row)
        assert (start, peak, plans) == (points[0][1], stage.memory_peak, counted)
        assert share == stage.memory_peak / capacity
        assert (time, peak) in points
        assert all(size < stage.memory_peak for at, size in points if at < (time or 0.0))
    body = elements(figure.sizes[0][0])
    dots = [dot for dot in body.iter("circle") if dot.get("class") == "peak"]
    scales = window_scales(found, room())
    for dot, row in zip(dots, figure.table.rows, strict=True):
        time, x = row[3].value or 0.0, float(dot.get("cx", ""))
        inside = [scale for scale in scales if scale.low <= time <= scale.high]
        assert not inside or x == pytest.approx(inside[0](time), abs=0.051)
        assert inside or not any(scale.start <= x <= scale.end for scale in scales)
    grounds = [
        float(re.split(r"[ HV]", area.get("d", ""))[1]) for area in body.iter("path") if area.get("class") == "held"
    ]
    assert all(float(dot.get("cy", "")) < ground for dot, ground in zip(dots, grounds, strict=True))
    lines = [path for path in body.iter("path") if path.get("class") == "capacity-line"]
    assert len(lines) == (STAGES if times < 4 else 0)
    assert ("is above the drawing" in figure.caption) == (times > 4)
