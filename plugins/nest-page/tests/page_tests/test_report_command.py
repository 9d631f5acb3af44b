"""`nest report` as a person calls it."""

import json
import re
from pathlib import Path

import pytest

import nest
from nest_page import verbs
from nest_page.page_of_plan import PARTS
from page_tests.plans import quick, solved
from studies_tests.test_sweep import MEMORY, written
from tests.command_line import Caller


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(solved().to_dict()))
    return path


def test_the_page_is_written(plan: Path, call: Caller, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    output.write_text("what was there before")
    without = [word for part in PARTS for word in ("--without", part)]
    assert call("report", plan, "-o", output, *without) == (0, f"{output}\n", "")
    assert output.read_text() == quick(solved())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "plan.json"]


@pytest.mark.parametrize(
    ("change", "told"), [({"batch_time": 1.0}, "fails its check, so nest writes no report"), ({"stages": 3}, "stages")]
)
def test_what_cannot_be_reported_on_is_refused(
    change: dict[str, object], told: str, plan: Path, call: Caller, tmp_path: Path
) -> None:
    plan.write_text(json.dumps({**solved().to_dict(), **change}))
    code, _, err = call("report", plan, "-o", tmp_path / "page.html")
    assert code == 2
    assert told in err
    assert not (tmp_path / "page.html").exists()


def test_a_place_that_is_none_is_told_first(
    plan: Path, monkeypatch: pytest.MonkeyPatch, call: Caller, tmp_path: Path
) -> None:
    monkeypatch.setattr(verbs, "report_page", lambda *_, **__: pytest.fail("work was done first"))
    code, _, err = call("report", plan, "-o", tmp_path / "nowhere" / "page.html")
    assert code == 2
    assert "there is no folder" in err


@pytest.mark.longer
def test_a_study_is_reported_on_by_its_rows_or_by_itself(call: Caller, tmp_path: Path) -> None:
    study = written(tmp_path, vary={MEMORY: ["80 GB", "10 MB"]})
    rows, output = tmp_path / "rows.jsonl", tmp_path / "page.html"
    nest.sweep(study, output=rows, jobs=1)
    for source in (rows, study):
        assert call("report", source, "-o", output, "--metric", "mfu") == (0, f"{output}\n", "")
    page = output.read_text()
    assert 'id="figure-regions-0"' in page
    assert re.search(r"<h1>Transformer \(\d layers\) on \d+ A100 SXM 80G by device memory</h1>", page)
    assert 'id="base"' in page
    for options, code in (("--at", f"{MEMORY}=80 GB"), 0), (("--baseline", "1"), 0), (("--baseline", "2"), 2):
        found, _, err = call("report", rows, *options, "-o", output)
        assert found == code
    assert "--baseline 2: " in err
    assert call("report", rows, "--row", "2", "-o", output)[0] == 0
    assert "Infeasible" in output.read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["study.json", "--without", "frontier"], "--without goes with a plan only"),
        (["plan.json", "--metric", "mfu"], "--metric goes with a study only"),
        (["plan.json", "--baseline", "1"], "--baseline goes with a study only"),
        (["rows.jsonl", "--row", "1", "--at", "a=1"], "--at goes with a study only"),
        (["study.json", "--at", "a"], "write it as KEY=VALUE"),
    ],
)
def test_options_of_a_plan_and_of_a_study_do_not_go_together(
    plan: Path, monkeypatch: pytest.MonkeyPatch, call: Caller, options: list[str], told: str
) -> None:
    written(plan.parent, vary={MEMORY: ["80 GB"]})
    monkeypatch.chdir(plan.parent)
    code, _, err = call("report", *options, "-o", "page.html")
    assert code == 2
    assert told in err


@pytest.mark.longer
@pytest.mark.parametrize(
    ("options", "epoch", "shown"),
    [
        (["--date", "2026-01-31"], None, "2026-01-31"),
        ([], "1769817600", "2026-01-31"),
        (["--date", "2025-12-01"], "1769817600", "2025-12-01"),
        ([], None, None),
    ],
)
def test_the_date_comes_from_an_option_or_the_environment_never_from_a_clock(
    options: list[str], epoch: str | None, shown: str | None, plan: Path, monkeypatch: pytest.MonkeyPatch, call: Caller
) -> None:
    monkeypatch.chdir(plan.parent)
    if epoch is not None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    without = [word for part in PARTS for word in ("--without", part)]
    assert call("report", "plan.json", *without, *options)[0] == 0
    text = Path("report.html").read_text()
    assert f"<time datetime={json.dumps(shown)}>" in text if shown else "<time" not in text


@pytest.mark.parametrize(("options", "epoch"), [(["--date", "31.1.2026"], "0"), ([], "today"), ([], "9" * 30)])
def test_a_date_that_is_none_is_refused(
    options: list[str], epoch: str, plan: Path, monkeypatch: pytest.MonkeyPatch, call: Caller
) -> None:
    monkeypatch.chdir(plan.parent)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    code, _, err = call("report", "plan.json", *options)
    assert code == 2
    assert "write it as" in err
    assert not Path("report.html").exists()
