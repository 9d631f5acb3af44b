"""What cannot be written where it should be is told in a sentence, and what was found is printed."""

import json
from pathlib import Path
from typing import Any

import pytest

import nest
from nest.cli import app
from tests.plan.test_check import PROBLEM
from tests.test_any_problem import MEASURED


def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["nest", *words])
    with pytest.raises(SystemExit) as stop:
        app.main()
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(PROBLEM))
    return path


def refused(*_: Any, **__: Any) -> None:
    raise PermissionError(13, "Permission denied")


@pytest.mark.longer
@pytest.mark.parametrize("options", [(), ("--json",)], ids=str)
@pytest.mark.parametrize("place", ["loop", "/dev/full", "read-only", "too long"])
def test_the_plan_is_printed_where_it_cannot_be_written(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    problem: Path,
    place: str,
    options: tuple[str, ...],
) -> None:
    path = tmp_path / "plan.json"
    if place == "loop":
        path.symlink_to(path)
    elif place == "read-only":
        monkeypatch.setattr("tempfile.mkstemp", refused)  # The superuser may write anywhere.
    elif place == "too long":
        path = tmp_path / ("x" * 300)
    else:
        path = Path(place)
    before = sorted(tmp_path.iterdir())
    code, out, err = call(capsys, monkeypatch, "solve", str(problem), "--output", str(path), *options)
    assert code == 2
    (line,) = err.splitlines()
    assert line.startswith(f"nest: {path}: cannot write here: ")
    assert line.endswith(". The content is on standard output instead.")
    assert json.loads(out)["stages"] == nest.solve(PROBLEM).to_dict()["stages"]
    assert sorted(tmp_path.iterdir()) == before


def test_a_link_to_a_file_that_is_not_there_yet_makes_that_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: Path
) -> None:
    (tmp_path / "link").symlink_to("plan.json")
    assert call(capsys, monkeypatch, "solve", str(problem), "--output", str(tmp_path / "link"))[0] == 0
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "plan.json").read_text())["status"] == "optimal"


def test_a_better_plan_is_printed_where_it_cannot_be_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = nest.evaluate({**MEASURED, "constraints": [], "fixed": {}}).to_dict()
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    code, out, err = call(capsys, monkeypatch, "verify", str(tmp_path / "plan.json"), "--output", "/dev/full")
    assert (code, err.count("\n")) == (2, 1)
    assert json.loads(out)["better"]["batch_time"] < plan["batch_time"]
