"""Commands: what goes to standard output, what to standard error, and the exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nest.cli import app
from tests.command_line import call

REPOSITORY = Path(__file__).resolve().parent.parent.parent
EXAMPLE = str(REPOSITORY / "examples" / "measured-layers" / "problem.yaml")


def infeasible(folder: Path) -> str:
    text = Path(EXAMPLE).read_text().replace("memory: 16 GB", "memory: 1 GB")
    path = folder / "problem.yaml"
    path.write_text(text)
    return str(path)


def test_the_table_names_what_a_person_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "solve", EXAMPLE) == 0
    first = capsys.readouterr()
    for option in ("--stages", "--verbose"):
        assert call(monkeypatch, "solve", EXAMPLE, option) == 0
        printed = capsys.readouterr()
        assert printed.err == first.err == ""
        assert printed.out.startswith(first.out.rstrip())
        for words in ("replicas", "idle share", "of capacity", "link behind", "Runner-up"):
            assert words in printed.out
            assert words not in first.out


def test_json_is_one_document(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "solve", EXAMPLE, "--json") == 0
    assert json.loads(capsys.readouterr().out)["status"] == "optimal"


def test_several_problems_give_a_document_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call(monkeypatch, "solve", EXAMPLE, infeasible(tmp_path)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["optimal", "infeasible"]


def test_infeasible_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call(monkeypatch, "solve", infeasible(tmp_path)) == 1
    printed = capsys.readouterr()
    assert "\nNo feasible plan. Memory is tightest" in printed.out
    assert printed.err == ""


def test_a_written_plan_checks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    assert call(monkeypatch, "solve", EXAMPLE, "--output", str(plan)) == 0
    assert call(monkeypatch, "check", str(plan)) == 0
    document = json.loads(plan.read_text())
    capsys.readouterr()
    plan.write_text(json.dumps({**document, "fit_probability": 0.5}))
    assert call(monkeypatch, "check", str(plan)) == 1
    assert "Its decisions and step time hold. Solve its problem again" in capsys.readouterr().out
    document["stages"][0]["time"] *= 1.001
    plan.write_text(json.dumps(document))
    assert call(monkeypatch, "check", str(plan)) == 1
    printed = capsys.readouterr().out
    assert "stages[0].time" in printed
    assert "hold" not in printed


def test_evaluate_takes_decisions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "evaluate", EXAMPLE, "--fix", "pp=2", "--fix", "tp=1", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["stages"]) == 2
    assert plan["candidate"]["name"] == "one-device"
    assert plan["lower_bound"] is None


def test_the_search_explains_itself(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "solve", EXAMPLE, "--explain-search") == 0
    told = capsys.readouterr().err
    assert "combinations" in told
    assert "bound from compute" in told
    assert "states" in told


def test_help_and_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from nest import __version__

    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"nest {__version__}\n"
    assert call(monkeypatch, "--help") == 0
    assert call(monkeypatch, "solve", "--unknown") == 2
    assert call(monkeypatch, "frobnicate") == 2


def test_a_command_is_imported_alone() -> None:
    script = (
        "import sys\n"
        "sys.argv = ['nest', 'check', '--help']\n"
        "from nest.cli import app\n"
        "try:\n    app.main()\nexcept SystemExit:\n    pass\n"
        "print(*sorted(set(app.MODULES.values()) & {name.removeprefix('nest.cli.') for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "check"


def test_help_lists_commands_before_groups_of_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--help") == 0
    listed = capsys.readouterr().out.partition("Commands:\n")[2].splitlines()
    names = [line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "]
    core = (*app.MODULES, *app.OUTSIDE)
    assert [name for name in names if name in core] == [*app.COMMANDS, *app.GROUPS]
