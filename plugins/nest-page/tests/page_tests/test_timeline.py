"""The timeline against the replay it draws."""

from collections import Counter
from itertools import pairwise

import numpy
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

import nest
from nest.simulate.replay import Replay
from nest.simulate.timeline import Task, Timeline
from nest.units import percent
from nest_page.task_table import STYLE_OF, STYLES, TaskTable, busy, groups
from nest_page.timeline import MOST_BOXES, batch_figures, timeline_figure, windows_of
from nest_page.timeline_drawing import MOST_ROWS, PARTS, Windows, placing, strip, task_boxes
from page_tests.drawn_paths import boxes_of, elements
from page_tests.long_plans import long_plan

TENTH = 0.1


def replay_of(name: str) -> Replay:
    if name == "1f1b":
        return nest.simulate(long_plan("1f1b", 6, 200, zero=2))
    if name == "gpipe":
        return nest.simulate(long_plan("gpipe", 5, 150))
    if name == "interleaved":
        return nest.simulate(long_plan("interleaved", 4, 96, chunks=3))
    if name == "zero-bubble-h2":
        return nest.simulate(long_plan("zero-bubble-h2", 6, 120))
    return nest.simulate(long_plan("1f1b", 3, 8))


@pytest.fixture(scope="module", params=["short", "1f1b", "gpipe", "interleaved", "zero-bubble-h2"])
def replay(request: pytest.FixtureRequest) -> Replay:
    return replay_of(request.param)


def table_of(replay: Replay) -> TaskTable:
    return TaskTable.of(replay.timeline.tasks, len(replay.stages))


def windows_of_replay(replay: Replay) -> Windows:
    return windows_of(table_of(replay))


@pytest.mark.longer
def test_every_task_of_the_windows_is_drawn_where_it_ran(replay: Replay) -> None:
    table, found = table_of(replay), windows_of_replay(replay)
    place = placing(found)
    drawing = timeline_figure(replay, table, found).sizes[0][-1]
    for name, _, kinds in STYLES:
        expected = []
        for task in replay.timeline.tasks:
            for scale in place.scales:
                if (
                    task.kind in kinds
                    and task.stage in found.stages
                    and task.start < scale.high
                    and task.end > scale.low
                ):
                    row = found.stages.index(task.stage)
                    left, right = scale(max(task.start, scale.low)), scale(min(task.end, scale.high))
                    expected.append((place.top(row), left, right))
        drawn = sorted((top, left, right) for left, top, right, _ in boxes_of(drawing, f"task-{name}"))
        assert len(drawn) == len(expected), name
        for (top, left, right), told in zip(drawn, sorted(expected), strict=True):
            assert top == pytest.approx(told[0], abs=TENTH)
            assert left == pytest.approx(told[1], abs=0.051)
            # What is thinner than a tenth of a pixel is drawn as a tenth.
            assert right == pytest.approx(max(told[2], left + TENTH), abs=0.051)


@pytest.mark.longer
def test_windows_and_what_is_left_out_add_up_to_the_batch(replay: Replay) -> None:
    found = windows_of_replay(replay)
    parts = sorted([*found.windows, *found.gaps])
    assert parts[0][0] == 0.0
    assert parts[-1][1] == max(task.end for task in replay.timeline.tasks)
    assert all(before[1] == after[0] for before, after in pairwise(parts))
    assert all(start < end for start, end in parts)
    if replay.schedule != "zero-bubble-h2":
        assert sum(end - start for start, end in parts) == pytest.approx(replay.batch_time, rel=1e-12)
    told = timeline_figure(replay, table_of(replay), found).more[0]
    assert sum(row[3].value or 0.0 for row in told.rows) == pytest.approx(parts[-1][1], rel=1e-12)


@pytest.mark.longer
@pytest.mark.parametrize("name", ["1f1b", "interleaved"])
def test_steady_periods_are_alike(name: str) -> None:
    replay = replay_of(name)
    start, end = windows_of_replay(replay).windows[1]
    middle = (start + end) / 2
    for stage in range(len(replay.stages)):
        begun = [task.start for task in replay.timeline.tasks if task.stage == stage]
        one, other = (sum(low <= each < high for each in begun) for low, high in ((start, middle), (middle, end)))
        assert abs(one - other) <= 1


def _down_and_up(micro_batches: int) -> list[Task]:
    """Two stages that run two chunks of each micro-batch in a V, one micro-batch after the other."""
    steps = [("forward", 0, 0), ("forward", 1, 0), ("forward", 1, 1), ("forward", 0, 1)]
    steps += [("backward", stage, chunk) for _, stage, chunk in reversed(steps)]
    return [
        Task(stage, kind, kind, index, chunk, float(8 * index + place), float(8 * index + place + 1))
        for index in range(micro_batches)
        for place, (kind, stage, chunk) in enumerate(steps)
    ]


def test_a_schedule_of_chunks_may_repeat_itself_with_every_micro_batch() -> None:
    found = windows_of(TaskTable.of(_down_and_up(200), 2))
    start, end = found.windows[1]
    assert end - start == 2 * 8


def test_what_belongs_to_the_other_of_two_stages_has_a_foot() -> None:
    tasks = [Task(0, "forward", "forward", index, 0, float(index), index + 1.0) for index in range(4)]
    done = Task(0, "update", None, None, 0, 4.0, 5.0)
    assert TaskTable.of([*tasks, done], 1, 2).part.tolist() == [0, 0, 1, 1, 0]
    assert TaskTable.of([*tasks, done], 1).parts == 1


@st.composite
def tables(draw: st.DrawFn) -> TaskTable:
    """Tasks of no schedule at all."""
    stages, most = draw(st.integers(1, 70)), draw(st.integers(1, 400))
    random = numpy.random.default_rng(draw(st.integers(0, 2**32)))
    kinds = draw(st.lists(st.sampled_from(sorted(STYLE_OF)), min_size=1, unique=True))
    tasks = []
    for stage in range(stages):
        clock = 0.0
        for index in range(int(random.integers(1, most + 1))):
            start = clock + float(random.choice([0.0, random.exponential()]))
            clock = start + float(random.exponential(10.0 ** random.integers(-4, 1)))
            kind = kinds[int(random.integers(len(kinds)))]
            tasks.append(Task(stage, kind, "forward", index, 0, start, clock))
    return TaskTable.of(tasks, stages)


@pytest.mark.longer
def test_many_tasks_of_few_passes_are_bounded() -> None:
    tasks = [
        Task(stage, "forward" if index == 0 else "receive-activations", "forward", index, 0, start, start + 0.5)
        for stage in range(40)
        for index, start in enumerate(numpy.cumsum(numpy.random.default_rng(stage).uniform(0.5, 1.5, 1000)).tolist())
    ]
    table = TaskTable.of(tasks, 40)
    found = windows_of(table)
    assert found.cut
    assert MOST_BOXES / 2 < len(task_boxes(table, found, placing(found))) <= MOST_BOXES


@pytest.mark.longer
@settings(max_examples=10)
@given(tables())
def test_any_batch_is_bounded_and_covered(table: TaskTable) -> None:
    found = windows_of(table)
    drawn = task_boxes(table, found, placing(found))
    assert 0 < len(drawn) <= MOST_BOXES
    assert found.windows[0][0] == 0.0
    assert found.windows[-1][1] == table.end_of_all
    assert all(start < end for start, end in (*found.windows, *found.gaps))


def test_the_strip_is_as_dark_as_stages_are_busy(replay: Replay) -> None:
    found = windows_of_replay(replay)
    told = busy(table_of(replay), PARTS)
    drawing = strip(told, found)
    rows = groups(len(replay.stages), MOST_ROWS)
    shares = told.shares(rows)
    part = (boxes_of(drawing, "bracket")[-1][2] - boxes_of(drawing, "bracket")[0][0]) / PARTS
    cells: Counter[tuple[int, int]] = Counter()
    first = boxes_of(drawing, "bracket")[0][0]
    tops = sorted({top for shade in range(1, 6) for _, top, _, _ in boxes_of(drawing, f"busy-{shade}")})
    for shade in range(1, 6):
        for left, top, right, _ in boxes_of(drawing, f"busy-{shade}"):
            for index in range(round((left - first) / part), round((right - first) / part)):
                cells[tops.index(top), index] += 1
                assert (shade - 1) / 5 - 1e-6 <= shares[tops.index(top), index] <= shade / 5 + 1e-6
    assert set(cells.values()) == {1}
    assert len(cells) == int((shares > 1e-6).sum())


@pytest.mark.longer
def test_the_table_says_what_the_replay_says(replay: Replay) -> None:
    table = timeline_figure(replay, table_of(replay), windows_of_replay(replay)).table
    assert len(table.rows) == len(replay.stages)
    for row, stage in zip(table.rows, replay.stages, strict=True):
        values = [cell.value for cell in row]
        *seconds, idle, share, peak = values[1:]
        assert (idle, peak) == (stage.idle, stage.memory_peak)
        assert share == stage.idle / replay.batch_time
        assert sum(each or 0.0 for each in seconds) + stage.idle == pytest.approx(replay.batch_time, rel=1e-9)
        assert all(len(cell.text) > 0 for cell in row)


@pytest.mark.longer
def test_the_caption_says_by_how_much_the_closed_form_differs() -> None:
    replay = nest.simulate(long_plan("gpipe", 5, 150))
    caption = timeline_figure(replay, table_of(replay), windows_of_replay(replay)).caption
    difference = replay.batch_time - replay.closed_form
    assert f"{nest.units.format_seconds(difference)} more ({percent(difference / replay.closed_form)}) than" in caption


def test_micro_batches_stand_in_their_boxes() -> None:
    replay = replay_of("short")
    table, found = table_of(replay), windows_of_replay(replay)
    place = placing(found)
    drawing = timeline_figure(replay, table, found).sizes[0][0]
    told = [
        (float(text.get("y", "")), float(part.get("x", "")), int(part.text or ""))
        for text in elements(drawing).iter("text")
        for part in text.iter("tspan")
    ]
    assert {number for _, _, number in told} == set(range(1, 9))
    for y, x, number in told:
        row = int((y - place.top(0)) // place.row)
        (around,) = [box for box in task_boxes(table, found, place) if box.row == row and box.left < x < box.right]
        assert int(table.micro_batch[around.task]) + 1 == number


def test_a_batch_that_takes_no_time_is_drawn() -> None:
    replay = nest.simulate(long_plan("1f1b", 2, 1))
    empty = Timeline(0, (), (), (), (((0.0, 5.0),), ((0.0, 5.0),)), (5.0, 5.0))
    figures = batch_figures(evolve(replay, batch_time=0.0, closed_form=0.0, timeline=empty), 10.0, [5.0, 5.0])
    assert "the step takes 0 s" in figures[0].caption
    for figure in figures:
        for drawing in figure.sizes[0]:
            assert "nan" not in drawing.body
            assert len(elements(drawing)) > 0
