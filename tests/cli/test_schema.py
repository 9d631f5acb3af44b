"""`nest schema`: prints and writes."""

import json
from pathlib import Path

import pytest

from nest.catalogue.formats import FORMATS
from tests.command_line import call


def test_schemas_go_where_the_project_keeps_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "schema") == 0
    assert {path.name for path in (tmp_path / "schemas").iterdir()} == {f"{name}.schema.json" for name in FORMATS}


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_printed_is_what_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    assert call(monkeypatch, "schema", name) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["title"] == f"nest {name}"
    assert call(monkeypatch, "schema", name, "--output", str(tmp_path)) == 0
    assert capsys.readouterr().out == f"{tmp_path / name}.schema.json\n"
    assert [path.read_text() for path in tmp_path.iterdir()] == [printed]


HALVING = """
from nest.hooks import hook


class Halving:
    name, after = "halving", ()

    def degrees(self, block, context):
        return (1,)

    def apply(self, block, degree, context):
        return block


@hook
def nest_strategies():
    return [Halving()]
"""


def test_names_of_plug_ins_are_examples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "halving.py"
    path.write_text(HALVING)
    monkeypatch.setenv("NEST_PLUGINS", str(path))
    assert call(monkeypatch, "schema", "problem") == 0
    found = json.loads(capsys.readouterr().out)
    assert {"tp", "halving"} <= set(found["properties"]["strategies"]["propertyNames"]["examples"])
    assert found["properties"]["costs"]["examples"][0] == "roofline"
    assert "1f1b" in found["$defs"]["Training"]["properties"]["schedule"]["examples"]


@pytest.mark.parametrize("arguments", [["problme"], ["--output", "{none}"], ["plan", "--output", "{none}"]])
def test_what_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    assert call(monkeypatch, "schema", *[each.format(none=tmp_path / "none") for each in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("nest: ")
    assert list(tmp_path.iterdir()) == []
