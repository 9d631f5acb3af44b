"""Charts of the frontier and of sensitivity against the answers they draw."""

import re

import pytest
from attrs import evolve

from nest_page.pareto_chart import BEHIND, BOTTOM, TOP, OwnPlan, pareto_figure
from nest_page.records import Drawing
from nest_page.sensitivity_chart import quantity, sensitivity_figure, signed
from nest_page.svg import SIZE, WIDTH, WIDTHS
from nest_whatif.pareto_front import FrontierPoint
from nest_whatif.sensitivity import Response
from page_tests.drawn_paths import elements

GIB = 2.0**30
OWN = OwnPlan(memory=60 * GIB, throughput=100.0, capacity=80 * GIB)


def point(devices: int, memory: float, throughput: float | None, *, proved: bool = True) -> FrontierPoint:
    if throughput is None:
        return FrontierPoint(devices, memory * GIB, None, None, None, None, efficient=False)
    label = f"pp {devices}"
    return FrontierPoint(devices, memory * GIB, label, devices, 512 / throughput, throughput, True, proved)


POINTS = (
    point(64, 120, 130.0),
    point(64, 60, 100.0),
    point(64, 35, 80.0, proved=False),
    point(32, 110, 60.0),
    point(32, 50, 40.0),
    point(16, 120, 39.0),
    point(8, 120, None),
)


def marks(drawing: Drawing, style: str) -> list[tuple[float, float]]:
    """Left ends of the marks with a class."""
    return [
        (float(x), float(y))
        for path in elements(drawing).iter("path")
        if style in path.get("class", "").split()
        for x, y in [re.findall(r"-?[\d.]+", path.get("d", ""))[:2]]
    ]


def texts(drawing: Drawing) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for each in elements(drawing).iter("text"):
        found.setdefault(each.text or "", []).append((float(each.get("x", "")), float(each.get("y", ""))))
    return found


def test_every_plan_of_the_frontier_has_a_mark_where_its_figures_are() -> None:
    drawing = pareto_figure(POINTS, OWN).sizes[0][0]
    (own,) = [each for each in elements(drawing).iter("circle") if each.get("class") == "own"]
    x_own, y_own = float(own.get("cx", "")), float(own.get("cy", ""))
    across = marks(drawing, "fill-blue")
    # The plan's own point and 120 GiB give the scales; the rest follows.
    (right,) = [x + SIZE for x, _ in across if x + SIZE > x_own + 1]
    per_gib = (right - x_own) / 60
    per_sample = (BOTTOM - y_own) / OWN.throughput
    circles = [(x + SIZE, y) for x, y in [*across, *marks(drawing, "hollow")]]
    expected = [each for each in POINTS if each.devices == 64]
    assert len(circles) == len(expected)
    for (x, y), each in zip(circles, expected[1::-1] + expected[2:], strict=True):
        assert x == pytest.approx(x_own + (each.memory / GIB - 60) * per_gib, abs=0.2)
        assert y == pytest.approx(BOTTOM - (each.throughput or 0.0) * per_sample, abs=0.2)
    assert len(marks(drawing, "hollow")) == 1
    assert "this plan" in texts(drawing)
    keys = pareto_figure(POINTS, OWN).keys
    assert [key.label for key in keys] == ["64 devices", "32 devices", "16 devices"]
    assert all(marks(drawing, key.style) for key in keys)


def test_lines_are_steps_that_rise_where_a_plan_begins_to_fit() -> None:
    drawing = pareto_figure(POINTS, OWN).sizes[0][0]
    lines = [path for path in elements(drawing).iter("path") if "series" in path.get("class", "")]
    assert len(lines) == 3
    for line, points in zip(lines, (3, 2, 1), strict=True):
        path = line.get("d", "")
        assert re.fullmatch(r"M[\d.]+ [\d.]+(H[\d.]+V[\d.]+)*H[\d.]+", path)
        assert path.count("V") == points - 1
        assert path.endswith(f"H{WIDTH - BEHIND:g}")
        heights = [float(each) for each in re.findall(r"(?:^M[\d.]+ |V)([\d.]+)", path)]
        assert heights == sorted(heights, reverse=True)
        assert all(TOP <= each <= BOTTOM for each in heights)


def test_the_table_of_the_frontier_has_every_answer() -> None:
    figure = pareto_figure(POINTS, OWN)
    for row, each in zip(figure.table.rows, POINTS, strict=True):
        values = [cell.value for cell in row]
        assert values[:2] == [each.devices, each.memory]
        if each.throughput is None:
            assert row[2].text == "none fits"
        else:
            assert values[2:5] == [each.throughput, each.batch_time, each.devices_used]
            assert row[5].text == each.label
            assert ("not proved" in row[6].text) == (not each.proved)
    assert "No plan fits 8 devices of 120 GiB." in figure.caption
    assert "Hollow" in figure.caption
    assert "Hollow" not in pareto_figure([evolve(each, proved=True) for each in POINTS], OWN).caption


def response(name: str, factor: float, kept: float | None, best: float | None, *, changed: bool = False) -> Response:
    return Response(name, "bytes/s", 1e9 * factor, factor, kept, best, None if best is None else "pp 2", changed)


RESPONSES = (
    response("bandwidth of rack", 0.5, 0.04, 0.03, changed=True),
    response("bandwidth of rack", 2.0, -0.01, -0.01),
    response("memory", 0.5, None, 0.20, changed=True),
    response("memory", 0.8, None, None),
    response("memory", 2.0, 0.0, 0.0),
)


def test_panels_show_every_answer() -> None:
    figure = sensitivity_figure(RESPONSES)
    drawing = figure.sizes[0][0]
    told = texts(drawing)
    assert {"+20.0 %", "+3.0 %"} <= set(told)
    # What matters the most stands first.
    assert told["Memory"][0][0] < told["Bandwidth of rack"][0][0]
    assert len(marks(drawing, "mark-changed")) == 2
    assert len(marks(drawing, "mark-best")) == 2
    assert len(marks(drawing, "mark-kept")) == 1
    assert len(marks(drawing, "cross")) == 2
    second = told["Bandwidth of rack"][0][0]
    (left,) = [(x + SIZE, y) for x, y in marks(drawing, "mark-changed") if x > second]
    (kept,) = [(x + SIZE, y + SIZE) for x, y in marks(drawing, "mark-kept")]
    (right,) = [(x + SIZE, y) for x, y in marks(drawing, "mark-best") if x > second]
    assert left[0] == pytest.approx(kept[0], abs=0.11)
    # 3 % and -1 % give the scale, and 4 % lies on it.
    assert kept[1] == pytest.approx(left[1] - (right[1] - left[1]) / 4, abs=0.2)
    assert "× 0.8" in told
    assert "In 2 of 5, another plan is best" in figure.caption
    assert "The most is +20.0 %, with memory times 0.5." in figure.caption


def test_the_table_of_sensitivity_has_every_answer() -> None:
    rows = sensitivity_figure(RESPONSES).table.rows
    for row, each in zip(rows, RESPONSES, strict=True):
        assert [cell.value for cell in row[1:5]] == [each.factor, each.value, each.kept, each.best]
        assert (row[3].text == "does not fit") == (each.kept is None)
        assert (row[4].text == "none fits") == (each.best is None)
        assert row[5].text == ("" if each.best is None else "pp 2" if each.changed else "this plan")


def test_all_is_drawn_inside_its_box() -> None:
    for figure in (pareto_figure(POINTS, OWN), sensitivity_figure(RESPONSES)):
        for width, drawings in zip(WIDTHS, figure.sizes, strict=True):
            for drawing in drawings:
                assert drawing.width == width
                for places in texts(drawing).values():
                    assert all(0 <= x <= width and 0 <= y <= drawing.height for x, y in places)


def test_a_problem_in_which_nothing_moves_is_drawn() -> None:
    figure = sensitivity_figure((response("memory", 2.0, 0.0, 0.0),))
    assert "None of these changes the best plan." in figure.caption
    assert len(marks(figure.sizes[0][0], "mark-best")) == 1


@pytest.mark.parametrize(
    ("value", "unit", "told"),
    [
        (4.5e11, "bytes/s", "450 GB/s"),
        (80 * GIB, "bytes", "80 GiB"),
        (9.894e14, "FLOP/s", "989.4 TFLOP/s"),
        (1024.0, "samples", "1,024 samples"),
    ],
)
def test_quantities_have_their_unit(value: float, unit: str, told: str) -> None:
    assert quantity(value, unit) == told


def test_changes_are_signed() -> None:
    assert [signed(each) for each in (0.0312, -0.5, 0.0004, 0.0)] == [
        "+3.1 %",
        "\N{MINUS SIGN}50.0 %",
        "no change",
        "no change",
    ]


def test_what_fits_nowhere_is_told_once_for_each_memory() -> None:
    points = [point(8, 120, 1.0), *(point(count, memory, None) for memory in (120, 60) for count in (4, 2, 1))]
    caption = pareto_figure(points, OWN).caption
    assert "No plan fits 4, 2 or 1 devices of 120 GiB. No plan fits 4, 2 or 1 devices of 60 GiB." in caption
    assert "No plan fits 1 device of 120 GiB." in pareto_figure([points[0], points[3]], OWN).caption


def test_fixed_decisions_are_told_of() -> None:
    assert "fixes" not in pareto_figure(POINTS, OWN).caption
    assert "fixes are kept" in pareto_figure(POINTS, evolve(OWN, fixed=True)).caption
