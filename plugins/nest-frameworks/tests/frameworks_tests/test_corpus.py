"""Public launch files, written anew from their facts: read right, or refused for the recorded reason."""

from pathlib import Path

import pytest
from attrs import evolve

from frameworks_tests.corpus import STYLES, Row, decided, rows, written
from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.hooks.architectures import architecture_of
from nest_frameworks import nest_plan_readers

READERS = {each.name: each for each in nest_plan_readers()}
ROWS = rows()
CHOSEN = 160
"""Rows of the first draw; those behind it were drawn later."""


def name_of(row: Row) -> str:
    return "/".join(row.source.split("/")[-2:])


@pytest.mark.longer
@pytest.mark.parametrize("index", range(len(ROWS)), ids=lambda index: name_of(ROWS[index]))
def test_public_files_are_read_right_or_refused_for_the_true_reason(index: int, tmp_path: Path) -> None:
    row = ROWS[index]
    files = written(row, STYLES[index % len(STYLES)])
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    options = LaunchOptions(row.nodes, 8 if row.nodes else None, row.part, folder=tmp_path)
    if row.model is not None:
        options = evolve(options, model=architecture_of(dict(row.model)))
    text = next(iter(files.values()))
    if row.refused:
        with pytest.raises(InputError) as error:
            READERS[row.reader].read_launch(text, options)
        assert row.refused in str(error.value)
        return
    found = READERS[row.reader].read_launch(text, options)
    said = {**found.settings["training"], **found.settings["fixed"]}
    said |= {"cp": said.get("cp", 1) * said.get("ulysses", 1), "ep": said.get("ep", 1)}
    expected = decided(row)
    assert {name: said.get(name) for name in expected} == expected


@pytest.mark.longer
@pytest.mark.parametrize("style", STYLES[1:])
def test_a_run_is_the_same_however_its_script_spells_it(style: str, tmp_path: Path) -> None:
    scripts = [row for row in ROWS if not row.refused and len(written(row, "file")) > 1][:12]
    assert scripts
    for row in scripts:
        options = LaunchOptions(row.nodes, 8 if row.nodes else None, row.part, folder=tmp_path)
        for name, text in written(row, style).items():
            (tmp_path / name).write_text(text)
        plain, spelled = (
            READERS[row.reader].read_launch(text, options).settings
            for text in (written(row)["run.sh"], (tmp_path / "run.sh").read_text())
        )
        assert plain == spelled, row.source


def test_the_corpus_has_150_files_of_which_none_is_read_as_another_run() -> None:
    assert len(ROWS) >= 150
    assert len({row.source for row in ROWS}) == len(ROWS)
    assert len({row.framework for row in ROWS}) >= 7
    assert sum(not row.refused for row in ROWS[:CHOSEN]) >= 0.75 * CHOSEN
