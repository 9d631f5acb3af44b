"""Every exporter and reader has its page, and the dictionary of Megatron-LM's flags is whole."""

import ast
import re
from pathlib import Path

import attrs
import pytest

import nest_frameworks.megatron
from nest.hooks.registry import registry
from nest.spec import Training
from nest.spec.constraints import PLAN_NAMES, STAGE_NAMES
from nest_frameworks.megatron.notation import FLAG
from nest_frameworks.megatron.reading.decisions import read_decisions
from nest_frameworks.megatron.reading.flags import read_flags
from tests.docs.document import REPOSITORY

HOW_TO = REPOSITORY / "docs" / "how-to"
PAGES = {path.stem: path.read_text() for path in (HOW_TO / "launch").glob("*.md")}
DICTIONARY = (HOW_TO / "megatron-users.md").read_text()
BY_MODEL = {"stages", "zero"}
"""Decisions whose flags mean something beside others only."""

NO_JOBS = {"dot", "astra-sim"}
"""Exporters of pictures and simulators."""


def flags_written() -> set[str]:
    """The flags that the exporter may write: the texts in its modules that are one flag and nothing else."""
    folder = Path(nest_frameworks.megatron.__file__).parent
    trees = [ast.parse((folder / f"{part}_flags.py").read_text()) for part in ("model", "parallel", "training")]
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and re.fullmatch(r"--[a-z][a-z0-9-]*", text)} | {FLAG}


def test_the_dictionary_has_every_flag_that_the_exporter_writes() -> None:
    written = flags_written()
    assert len(written) > 80
    assert written - set(re.findall(r"`(--[a-z0-9-]+)`", DICTIONARY)) == set()


def test_the_dictionary_names_keys_of_problems() -> None:
    keys = re.findall(r"`(training|fixed)\.(\w+)", DICTIONARY)
    assert len(keys) > 25
    decisions = PLAN_NAMES | STAGE_NAMES | set(registry().strategies()) | {"stages"}
    known = {"training": {each.name for each in attrs.fields(Training)}, "fixed": decisions}
    assert [f"{section}.{key}" for section, key in keys if key not in known[section]] == []


def test_the_reader_takes_flags_as_the_dictionary_says() -> None:
    """Rows of one flag and one decision: a number where the row names no value."""
    rows = re.findall(r"^\| `(--[a-z-]+)` \| `fixed\.(\w+)(?:: ([\w-]+))?` \|", DICTIONARY, re.MULTILINE)
    expected = {key: {"": 2, "true": True}.get(value, value) for _, key, value in rows if key not in BY_MODEL}
    words = [word for flag, key, value in rows if key in expected for word in (flag, *(() if value else ("2",)))]
    decided = read_decisions(read_flags(words), None, None)
    assert len(expected) > 6
    assert {key: decided.get(key) for key in expected} == expected


@pytest.mark.parametrize("name", sorted(set(registry().exporters()) - NO_JOBS))
def test_every_exporter_has_a_page_and_a_row(name: str) -> None:
    index = (HOW_TO / "launch-a-plan.md").read_text()
    assert f"`{name}`" in index
    page = "".join([index, *PAGES.values()])
    assert f"--to {name}" in page


@pytest.mark.parametrize("name", sorted(registry().plan_readers()))
def test_every_reader_is_told_on_the_page_of_its_framework(name: str) -> None:
    assert any(f"--from {name}" in text for text in (*PAGES.values(), (HOW_TO / "check-my-script.md").read_text()))
