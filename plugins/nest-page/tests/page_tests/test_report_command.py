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
from tests.command_line import call


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(solved().to_dict()))
    return path


def test_the_page_is_written(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    output = tmp_path / "page.html"
    output.write_text("what was there before")
    without = [word for part in PARTS for word in ("--without", part)]
    assert call(monkeypatch, "report", str(plan), "-o", str(output), *without) == 0
    assert capsys.readouterr().out == f"{output}\n"
    assert output.read_text() == quick(solved())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "plan.json"]


@pytest.mark.parametrize(
    ("change", "told"), [({"batch_time": 1.0}, "fails its check, so nest writes no report"), ({"stages": 3}, "stages")]
)
def test_what_cannot_be_reported_on_is_refused(
    change: dict[str, object],
    told: str,
    plan: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    plan.write_text(json.dumps({**solved().to_dict(), **change}))
    assert call(monkeypatch, "report", str(plan), "-o", str(tmp_path / "page.html")) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_a_place_that_is_none_is_told_first(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(verbs, "report_page", lambda *_, **__: pytest.fail("work was done first"))
    assert call(monkeypatch, "report", str(plan), "-o", str(tmp_path / "nowhere" / "page.html")) == 2
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.longer
def test_a_study_is_reported_on_by_its_rows_or_by_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    study = written(tmp_path, vary={MEMORY: ["80 GB", "10 MB"]})
    nest.sweep(study, output=tmp_path / "rows.jsonl", jobs=1)
    pages = []
    for source in (study, tmp_path / "rows.jsonl"):
        output = tmp_path / "page.html"
        assert call(monkeypatch, "report", str(source), "-o", str(output), "--metric", "mfu") == 0
        pages.append(output.read_text())
    assert capsys.readouterr().out == f"{output}\n" * 2
    assert 'id="figure-regions-0"' in pages[0]
    assert re.search(r"<h1>Transformer \(\d layers\) on \d+ A100 SXM 80G by device memory</h1>", pages[0])
    assert 'id="base"' in pages[0]
    for options, code in (("--at", f"{MEMORY}=80 GB"), 0), (("--baseline", "1"), 0), (("--baseline", "2"), 2):
        assert call(monkeypatch, "report", str(tmp_path / "rows.jsonl"), *options, "-o", str(output)) == code
    assert "--baseline 2: " in capsys.readouterr().err
    assert call(monkeypatch, "report", str(tmp_path / "rows.jsonl"), "--row", "2", "-o", str(output)) == 0
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
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    written(plan.parent, vary={MEMORY: ["80 GB"]})
    monkeypatch.chdir(plan.parent)
    assert call(monkeypatch, "report", *options, "-o", "page.html") == 2
    assert told in capsys.readouterr().err


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
    options: list[str], epoch: str | None, shown: str | None, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(plan.parent)
    if epoch is not None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    without = [word for part in PARTS for word in ("--without", part)]
    assert call(monkeypatch, "report", "plan.json", *without, *options) == 0
    text = Path("report.html").read_text()
    assert f"<time datetime={json.dumps(shown)}>" in text if shown else "<time" not in text


@pytest.mark.parametrize(("options", "epoch"), [(["--date", "31.1.2026"], "0"), ([], "today"), ([], "9" * 30)])
def test_a_date_that_is_none_is_refused(
    options: list[str], epoch: str, plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(plan.parent)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    assert call(monkeypatch, "report", "plan.json", *options) == 2
    assert "write it as" in capsys.readouterr().err
    assert not Path("report.html").exists()
