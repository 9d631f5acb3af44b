"""The page of a study: figures of what its rows say, every point linked to its row, whatever the rows are."""

import json
import re
from itertools import product
from typing import Any

import html5lib
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from nest_page.records import Heading
from nest_page.study import study_page
from nest_page.study.base_problem import VARIES, Shared
from nest_page.study.curves import curve_figure
from nest_page.study.front import pareto_optimal
from nest_page.study.grids import _winners
from nest_page.study.points import METRICS, Study, StudyPoint, study_of, usual_metric
from nest_page.study.views import curve_views, pair_views
from nest_page.study.words import names_of, value_in_words
from nest_page.svg import fitted
from page_tests.plans import problem
from page_tests.reading import Page

BANDWIDTH, MEMORY, BATCH = "cluster.levels[1].bandwidth", "cluster.memory", "training.global_batch"


def point(number: int, values: tuple[Any, ...], time: float | None = 1.0, **keys: Any) -> StudyPoint:
    if time is None:
        return StudyPoint(number, values, "infeasible", "memory is tightest", **keys)
    figures = {"devices": 16, "memory": 2.0**30, "plan": "tp 2, 1f1b", "tokens": 1e6 / time, "replicas": 8}
    return StudyPoint(number, values, "optimal", batch_time=time, throughput=64 / time, **{**figures, **keys})


def product_of(columns: dict[str, list[Any]], **keys: Any) -> Study:
    """Rows of a product; step times are the rows' numbers, and every seventh row has no plan."""
    points = [
        point(number, values, None if number % 7 == 0 else float(number), plan=f"pp {number % 12}", **keys)
        for number, values in enumerate(product(*columns.values()), 1)
    ]
    return study_of(tuple(columns), points)


STUDY = product_of(
    {
        "model": ["llama", "mixtral"],
        "topology": ["torus", "fat <tree>", "dragonfly"],
        BANDWIDTH: ["100 GB/s", "12.5 GB/s", "50 GB/s"],
        MEMORY: ["80 GB", 40e9],
    }
)


def page_of(study: Study, metric: str = "step-time") -> str:
    return study_page(Heading("a study"), study, METRICS[metric], {}, "How to get a plan.")


@pytest.fixture(scope="module")
def text() -> str:
    return page_of(STUDY)


def test_numbers_are_in_their_order_and_all_else_as_it_comes() -> None:
    model, topology, bandwidth, memory = STUDY.axes
    assert bandwidth.values == ("12.5 GB/s", "50 GB/s", "100 GB/s")
    assert bandwidth.numbers == (12.5e9, 50e9, 100e9)
    assert memory.values == ("37.3 GiB", "80 GB")
    assert (model.numbers, topology.values) == (None, ("torus", "fat <tree>", "dragonfly"))
    left_out = study_of((MEMORY, "model"), [point(1, ("8 GB", "a")), point(2, (None, None))])
    assert left_out.axes[0].numbers == (8e9,)
    assert [axis.shown(left_out.points[1]) for axis in left_out.axes] == ["", "default"]


@pytest.mark.longer
def test_page_is_valid_and_loads_nothing(text: str) -> None:
    html5lib.HTMLParser(strict=True).parse(text)
    tags = Page(text).tags
    assert not {name for name, _ in tags} & {"script", "img", "iframe", "form"}
    assert all((told.get("href") or "#").startswith(("#", "data:,")) for _, told in tags)


def test_every_point_leads_to_its_row(text: str) -> None:
    tags = Page(text).tags
    names = [told["id"] for _, told in tags if "id" in told]
    assert len(names) == len(set(names))
    rows = {name for name in names if re.fullmatch("row-[0-9]+", name or "")}
    assert rows == {f"row-{each.number}" for each in STUDY.points}
    leads = {(told.get("href") or "")[1:] for name, told in tags if name == "a"}
    assert leads <= set(names)
    # Whatever a figure draws, its tables have, and lead there too.
    for figure in re.findall(r"<figure.*?</details>", text, re.DOTALL):
        drawing, tables = figure.split("<table", 1)
        assert set(re.findall('href="#(row-[0-9]+)"', drawing)) <= set(re.findall('href="#(row-[0-9]+)"', tables))


def test_tables_say_what_rows_say(text: str) -> None:
    table = Page(text).table("All rows")
    assert table.column("row")[4].text == "5"
    assert table.values("step time") == [each.batch_time for each in STUDY.points if each.batch_time is not None]
    assert [cell.text for cell in table.column("topology")] == [STUDY.axes[1].shown(each) for each in STUDY.points]


def test_a_curve_shows_the_rows_it_says(text: str) -> None:
    (view,) = (each for each in curve_views(STUDY, METRICS["step-time"], {}) if each.across == 2)
    assert (view.facet, view.other) == (0, 1)
    held = STUDY.axes[3].values[view.held[3]]
    table = Page(text).table("Step time of mixtral over level 2 bandwidth, by topology")
    for row in table.rows:
        for name, cell in zip(table.header[1:], row[1:], strict=True):
            (own,) = (
                each
                for each in STUDY.points
                if [axis.shown(each) for axis in STUDY.axes] == ["mixtral", name, row[0].text, held]
            )
            assert cell.value == own.batch_time


@pytest.mark.parametrize(("metric", "better"), [("step-time", "Less is better"), ("samples", "More is better")])
def test_curves_say_which_way_is_better(metric: str, better: str) -> None:
    (view, *_) = curve_views(STUDY, METRICS[metric], {})
    assert better in curve_figure(view).caption


def test_what_is_not_drawn_can_be_chosen() -> None:
    for value in range(2):
        (view,) = (each for each in curve_views(STUDY, METRICS["step-time"], {3: value}) if each.across == 2)
        assert view.held[3] == value
        assert f"device memory at {STUDY.axes[3].values[value]}" in view.note


def test_the_best_alternative_of_a_column_is_framed(text: str) -> None:
    (figure,) = re.findall(r'<figure id="figure-heat-2-1".*?</figure>', text, re.DOTALL)
    assert "The best topology of each column is framed." in figure
    assert figure.count('class="own"') == 2 * 3  # Of each panel of each size, one path of all frames.
    (view,) = (each for each in pair_views(STUDY, METRICS["step-time"], {}) if (each.across, each.other) == (2, 1))
    for column in view.columns:
        cells = [each for row in view.rows if (each := view.point(0, column, row)) is not None]
        fastest = min((each for each in cells if each.batch_time is not None), key=lambda each: each.batch_time or 0.0)
        assert fastest.number in _winners(view)


def test_labels_stand_for_the_keys_that_they_decide() -> None:
    rows = [
        point(number, (name, nic, [{"bandwidth": number % 6}], model), float(number))
        for number, (model, name, nic) in enumerate(product("ab", ["torus", "fat tree"], [25, 50, 100]), 6)
    ]
    rows = [evolve(row, number=index) for index, row in enumerate(rows, 1)]
    study = study_of(("label.network", "label.nic", "cluster.levels", "model"), rows)
    assert [study.axes[index].name for index in study.varying] == ["network", "nic", "model"]
    text = page_of(study)
    table = Page(text).table("Step time of b over nic, by network")
    assert [[cell.value for cell in row[1:]] for row in table.rows] == [[12.0, 15.0], [13.0, 16.0], [14.0, 17.0]]
    assert 'figure id="figure-heat-1-0"' in text


def test_the_front_is_what_nothing_beats() -> None:
    points = [
        point(1, (1,), 2.0, devices=8, memory=4.0),
        point(2, (2,), 1.0, devices=16, memory=4.0),
        point(3, (3,), 2.0, devices=16, memory=4.0),
        point(4, (4,), 2.0, devices=16, memory=3.0),
        point(5, (5,), 2.0, devices=8, memory=4.0),
    ]
    assert [each.number for each in pareto_optimal(points)] == [1, 2, 4, 5]


@given(st.lists(st.tuples(*[st.integers(1, 4)] * 4), min_size=1, max_size=12))
@settings(deadline=None)
def test_the_front_equals_brute_force(figures: list[tuple[int, int, int, int]]) -> None:
    points = [
        point(number, (number,), float(time), devices=devices, memory=float(memory), cost=float(cost))
        for number, (time, devices, memory, cost) in enumerate(figures, 1)
    ]
    expected = [
        number
        for number, own in enumerate(figures, 1)
        if not any(all(a <= b for a, b in zip(each, own, strict=True)) and each != own for each in figures)
    ]
    assert [each.number for each in pareto_optimal(points)] == expected


def test_step_times_of_different_batches_are_not_compared() -> None:
    study = product_of({BATCH: [8, 16], MEMORY: ["40 GB", "80 GB"]})
    assert usual_metric(study).name == "tokens"
    assert [name for name, _ in study.trainings] == ["global batch 8", "global batch 16"]
    assert usual_metric(product_of({"training.micro_batch": [1, 2], MEMORY: [1, 2]})).name == "step-time"


@pytest.mark.longer
@pytest.mark.parametrize(
    "columns",
    [
        {"model": ["a", "b"]},
        {MEMORY: ["8 GB"]},
        {MEMORY: ["8 GB", "9 GB"]},
        {"topology": ["a", "b", "c"]},
        {"model": ["a", "b"], "topology": ["x", "y"]},
        {MEMORY: [f"{each} GB" for each in range(1, 300)]},
        {"model": [f"m{each}" for each in range(20)], MEMORY: ["8 GB", "9 GB"]},
        {"search.zero": [[0], [1, 2]], "strategies": [{"tp": [1]}, None]},
        {"a": [1, 2], "b": [1, 2], "c": [1, 2], "d": [1, 2], "e": [1, 2]},
    ],
)
def test_any_keys_make_a_page(columns: dict[str, list[Any]]) -> None:
    text = page_of(product_of(columns))
    html5lib.HTMLParser(strict=True).parse(text)
    assert text.count("<figure ") == text.count("The same as a table")


@pytest.mark.parametrize("metric", METRICS)
def test_a_figure_may_show_any_of_what_rows_say(metric: str) -> None:
    study = product_of({"model": ["a", "b"], MEMORY: ["8 GB", "9 GB"]}, mfu=0.5)
    values = [value for each in study.points if (value := METRICS[metric].value(each)) is not None]
    title, heading = METRICS[metric].title, METRICS[metric].heading
    table = Page(page_of(study, metric)).table(f"{heading} of a over device memory")
    assert table.values(title) == values[:2]


def test_without_any_plan_there_is_a_page() -> None:
    study = study_of((MEMORY,), [point(1, ("1 GB",), None), point(2, ("2 GB",), None)])
    page = Page(page_of(study))
    (row,) = page.table("Why rows have no plan").rows
    assert [cell.text for cell in row] == ["infeasible", "2", "1", "memory is tightest"]


def test_the_status_is_that_of_the_worst_row() -> None:
    near = StudyPoint(2, ("2 GB",), "near-optimal", batch_time=1.0, plan="pp 1", devices=1)
    rows = [point(1, ("1 GB",)), near]
    assert "1 optimal and 1 near-optimal; those near-optimal are simpler or safer" in page_of(study_of((MEMORY,), rows))
    rows[1] = StudyPoint(2, ("2 GB",), "feasible", batch_time=1.0, plan="pp 1", devices=1)
    assert "Partly proved" in page_of(study_of((MEMORY,), rows))
    rows.append(StudyPoint(3, ("3 GB",), "error", "a bug"))
    assert "Errors" in page_of(study_of((MEMORY,), rows))


def ranged(number: int, values: tuple[Any, ...], time: float, **keys: Any) -> StudyPoint:
    return point(number, values, time, low=0.8 * time, high=1.25 * time, **keys)


BASE = {"cluster": {"levels": [{"name": "node", "fanout": 8}, {"name": "spine", "fanout": 2}]}}
MEASURED = study_of(
    (BANDWIDTH, MEMORY),
    [
        ranged(number, values, 10.0 - number / 10)
        for number, values in enumerate(product(["12.5 GB/s", "50 GB/s", "100 GB/s"], ["40 GB", "80 GB"]), 1)
    ],
    BASE,
)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (BANDWIDTH, "spine bandwidth"),
        ("cluster.levels[0].latency", "node latency"),
        ("cluster.levels[0].fanout", "devices per node"),
        ("cluster.levels[1].fanout", "nodes per spine"),
        ("cluster.levels[5].bandwidth", "level 6 bandwidth"),
        (MEMORY, "device memory"),
        (BATCH, "global batch"),
        ("strategies.tp", "TP"),
        ("search.zero", "ZeRO"),
        ("label.network", "network"),
        ("training.unheard_of", "unheard of"),
    ],
)
def test_keys_have_words(key: str, words: str) -> None:
    assert names_of([key], BASE) == (words,)


def test_keys_of_the_same_words_keep_their_paths_but_labels_their_names() -> None:
    keys = ["fixed.tp", "strategies.tp", "label.TP", MEMORY]
    assert names_of(keys, {}) == ("fixed.tp", "strategies.tp", "TP", "device memory")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("model", "llama-3-8b", "Llama 3 8B"),
        ("model", '{"transformer": {"layers": 4}}', "Transformer (4 layers)"),
        ("strategies.tp", "[1, 2]", "1, 2"),
        ("training.schedule", "1f1b", "1f1b"),
        ("x", "[not json", "[not json"),
        ("cluster.levels", '[{"fanout": 8}]', '[{"fanout": 8}]'),
    ],
)
def test_values_have_words(key: str, value: str, words: str) -> None:
    assert value_in_words(key, value) == words


def test_rows_are_compared_with_a_baseline() -> None:
    metric = METRICS["step-time"]
    told = [MEASURED.against(metric, each) for each in MEASURED.points]
    assert told[:3] == ["baseline", "\N{MINUS SIGN}1.0 %", "\N{MINUS SIGN}2.0 %"]
    last = evolve(MEASURED, baseline=6)
    assert (last.against(metric, last.points[0]), last.against(metric, last.points[5])) == ("+5.3 %", "baseline")
    column = Page(page_of(last)).table("All rows").column("against baseline")
    assert [cell.text for cell in column] == [last.against(metric, each) for each in last.points]
    assert "the baseline: row 6." in Page(page_of(last)).text


def test_a_row_without_a_plan_has_no_change_and_is_no_baseline() -> None:
    study = study_of((MEMORY,), [point(1, (1,), None), point(2, (2,), 2.0), point(3, (3,), 3.0)])
    assert [study.against(METRICS["step-time"], each) for each in study.points] == ["", "baseline", "+50.0 %"]


@pytest.mark.parametrize(
    ("metric", "ends"), [("step-time", (0.8, 1.25)), ("tokens", (0.8, 1.25)), ("samples", (0.8, 1.25))]
)
def test_the_likely_range_is_that_of_the_step_time(metric: str, ends: tuple[float, float]) -> None:
    row = ranged(1, (1,), 4.0)
    value, between = METRICS[metric].value(row), METRICS[metric].between(row)
    assert value is not None
    assert between == pytest.approx((0.8 * value, 1.25 * value))
    assert METRICS[metric].between(point(1, (1,), 4.0)) is None


def test_prediction_errors_are_drawn_as_far_as_they_go() -> None:
    """Every row with a range has a bar, at whose ends the axis has its low and high step time."""
    (view, *_) = curve_views(MEASURED, METRICS["step-time"], {})
    drawing = curve_figure(view).sizes[0][0]
    bars = re.findall(r'<path d="([^"]*)" class="whisker', drawing.body)
    ends = [tuple(map(float, each)) for bar in bars for each in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", bar)]
    assert len(ends) == len(MEASURED.points)
    shown = {point.number: point.batch_time for point in MEASURED.points}
    longest, shortest = max(ends, key=lambda each: each[0] - each[1]), min(ends, key=lambda each: each[0] - each[1])
    ratio = (longest[0] - longest[1]) / (shortest[0] - shortest[1])
    assert ratio == pytest.approx(max(shown.values()) / min(shown.values()), rel=0.01)
    assert "80 % likely" in curve_figure(view).caption


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([100.0, 101.0], 99.0, 102.0), ([1.0, 100.0], 0.0, 110.0), ([5.0], 4.9, 5.1), ([0.0], 0.0, 1.0), ([], 0.0, 1.1)],
)
def test_axes_fit_the_data(values: list[float], low: float, high: float) -> None:
    scale = fitted(values, 100.0, 0.0)
    assert low <= scale.low <= min(values, default=0.0)
    assert max(values, default=1.0) < scale.high <= high or values == [0.0]
    assert scale.high > scale.low


def shared_of(*problems: dict[str, Any]) -> Shared:
    shared = Shared()
    for each in problems:
        shared.add({"problem": each, "summary": {"devices": each["training"].pop("devices", 16)}, "stages": [{}]})
    return shared


def small(**training: Any) -> dict[str, Any]:
    return problem(training={"global_batch": 32, "sequence_length": 4096, **training})


def test_the_title_says_what_is_planned_and_what_varies() -> None:
    shared = shared_of(small(), small(devices=32))
    assert shared.title(MEASURED) == (
        "Transformer (8 layers) on 16 H100 SXM and 32 H100 SXM by spine bandwidth and device memory"
    )
    models = study_of(("model",), [point(1, ("llama-3-8b",)), point(2, ("llama-3-70b",))])
    assert shared_of(small()).title(models) == "Llama 3 8B and Llama 3 70B on 16 H100 SXM"
    many = study_of(("model",), [point(n, (f"m{n}",)) for n in range(1, 6)])
    assert shared_of(small()).title(many) == "5 models on 16 H100 SXM"


def test_the_base_problem_is_what_all_rows_share() -> None:
    shared = shared_of(small(), small(global_batch=64))
    assert shared.problem["training"] == {"global_batch": VARIES, "sequence_length": 4096}
    assert shared.problem["model"] == problem()["model"]
    (section,) = shared.sections()
    assert json.loads(section.more[0].listings[0].text) == shared.problem
    assert shared.sizes() == ("8 layers, 2.41 billion parameters", "2 nodes of 8 devices")
    assert len(shared_of(small(), small()).sizes()) == 3


def test_rows_without_plans_have_a_page_without_a_base_problem() -> None:
    shared = Shared()
    shared.add(None)
    assert (shared.sizes(), shared.sections()) == ((), ())
    assert shared.title(MEASURED) == "Study by spine bandwidth and device memory"
