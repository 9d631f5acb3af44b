"""Results of sweeps read again: every format says the same, a study finds its rows, and rows lead to their plans."""

import json
from pathlib import Path

import pytest

import nest
from nest.errors import InputError
from nest_studies.sweep.rows import plan_of, result_of, result_rows, study_point, varied_columns
from page_tests.reading import Page
from studies_tests.test_sweep import BATCH, MEMORY, PROBLEM, known, rows_of, written

VARIED = {BATCH: [4, 8], MEMORY: ["80 GB", "10 MB"]}
POINTS = [{BATCH: 16}, {"model": "nonsense"}]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("study") / "rows.jsonl"
    nest.sweep(written(output.parent, vary=VARIED, points=POINTS), output=output, jobs=1)
    return output


@pytest.mark.longer
def test_a_row_says_what_its_plan_says(result: Path) -> None:
    row, refused, *_ = rows_of(result)
    columns = varied_columns(result)
    assert columns == (BATCH, MEMORY, "model")
    point = study_point(1, row, columns, "")
    plan = row["plan"]
    assert point.values == (4, "80 GB", plan["problem"]["model"])
    assert point.memory == max(stage["upper_memory"] for stage in plan["stages"])
    assert point.tokens == plan["summary"]["tokens_per_second"]
    assert (point.devices, point.replicas, point.batch_time) == (row["devices"], row["dp"], row["batch_time"])
    assert f"micro-batch {plan['candidate']['micro_batch']}, 1f1b, ZeRO {row['zero']}" in point.plan
    none = study_point(2, refused, columns, "")
    assert (none.status, none.reason, none.batch_time) == ("infeasible", refused["reason"], None)


def test_the_memory_of_a_row_is_that_of_its_fullest_stage() -> None:
    document = nest.evaluate({**PROBLEM, "fixed": {"pp": 2, "dp": 2, "micro_batch": 1}})
    row = {**dict.fromkeys(("reason", "batch_time"), None), "status": "optimal", "plan": document.to_dict()}
    row |= {"pp": 2, "schedule": "1f1b", "zero": 0, "recompute": "none"}
    needed = [stage.upper_memory or stage.memory for stage in document.stages]
    assert study_point(1, row, (), "").memory == max(needed) > needed[0]


@pytest.mark.longer
def test_what_a_point_leaves_out_is_what_its_problem_says(result: Path) -> None:
    rows = rows_of(result)
    assert study_point(5, rows[4], varied_columns(result), "").values[0] == 16
    # A point that is no problem has none: nobody knows what it would be.
    assert study_point(6, rows[5], varied_columns(result), "").values == (None, None, "nonsense")


@pytest.mark.longer
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_every_format_gives_the_same_page(result: Path, tmp_path: Path, suffix: str) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow", reason="the extra `sweep` reads Parquet")
    study = written(tmp_path, vary=VARIED, points=POINTS)
    output = known(result, tmp_path / f"rows.{suffix}")
    nest.sweep(study, output=output, jobs=1)
    (tmp_path / "rows.jsonl").write_bytes(result.read_bytes())
    here, there = nest.study_page(output), nest.study_page(tmp_path / "rows.jsonl")
    assert here.replace(f"rows.{suffix}", "rows.jsonl") == there
    assert plan_of(output, 1) == plan_of(result, 1)


def test_a_study_finds_its_rows(result: Path, tmp_path: Path) -> None:
    study = result.parent / "study.json"
    assert result_of(study) == result
    assert nest.study_page(study, output=tmp_path / "page.html") == (tmp_path / "page.html").read_text()
    alone = written(tmp_path, vary=VARIED)
    with pytest.raises(InputError, match=r"no result file beside it; run `nest sweep"):
        nest.study_page(alone)
    (tmp_path / "other.jsonl").write_text('{"key": 1}\n')
    (tmp_path / "broken.csv").write_text("not\nrows\n")
    for name in ("one.jsonl", "two.jsonl"):
        (tmp_path / name).write_bytes(result.read_bytes())
    written(tmp_path, vary=VARIED, points=POINTS)
    with pytest.raises(InputError, match=r"one.jsonl, two.jsonl have its rows; name one"):
        nest.study_page(alone)


@pytest.mark.longer
def test_plans_are_written_and_led_to(result: Path, tmp_path: Path) -> None:
    text = nest.study_page(result, output=tmp_path / "page.html", plans=tmp_path / "all plans")
    rows = rows_of(result)
    assert [path.name for path in sorted((tmp_path / "all plans").iterdir())] == [f"row-{n}.json" for n in range(1, 6)]
    assert json.loads((tmp_path / "all plans" / "row-5.json").read_text()) == rows[4]["plan"]
    hrefs = {told["href"] or "" for name, told in Page(text).tags if name == "a"}
    led = {href for href in hrefs if not href.startswith("#")}
    assert led == {f"all%20plans/row-{number}.json" for number in range(1, 6)}
    assert nest.check(tmp_path / "all plans" / "row-1.json").ok


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("rows.jsonl", "", "not a result of `nest sweep`"),
        ("rows.jsonl", "[1]\n", "not a result of `nest sweep`: a line is no row"),
        ("rows.jsonl", '{"cluster": "a", "nodes": 1, "uses": 1, "plan": null}\n', "it has no columns"),
        ("rows.csv", "a,b\n1,2\n", "it has no columns `key`, `status` and `plan`"),
        ("rows.jsonl", '{"key": "", "status": "optimal", "plan": {"a": 1}}\n', "row 1 is none that"),
        ("rows.csv", 'key,status,plan\n1,optimal,"{"\n', "row 1 is none that"),
        ("rows.parquet", "PAR", "not a result of `nest sweep`"),
        ("rows.jsonl", None, "cannot be read: No such file"),
        ("rows.parquet", None, "cannot be read"),
    ],
)
def test_what_is_no_result_is_told(tmp_path: Path, name: str, text: str | None, told: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="the extra `sweep` reads Parquet")
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=told):
        nest.study_page(tmp_path / name)


def test_a_row_that_is_not_there_is_told(result: Path) -> None:
    with pytest.raises(InputError, match=r"there is no row 9; it has 6\."):
        plan_of(result, 9)
    with pytest.raises(InputError, match=r"row 6 has no plan: .*nonsense"):
        plan_of(result, 6)
    assert len(list(result_rows(result))) == 6
