"""The reference pages name every key, command and option there is."""

import itertools
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import pytest
import typer

from nest import spec
from nest.cli import app
from nest.graph import Operator, OperatorGraph, Parameter, Tensor
from nest.hooks.kinds import KINDS
from nest.whatif.launch_files import exporters
from tests.docs import calibration_reference, hook_reference, published_runs, stack_reference
from tests.docs.document import REPOSITORY
from tools import site_hooks

REFERENCE = Path(__file__).resolve().parent.parent.parent / "docs" / "reference"
RECORDS = {
    "problem.md": [
        spec.Problem,
        spec.Training,
        spec.Overlap,
        spec.ClusterSpec,
        spec.LevelSpec,
        spec.DeviceSpec,
        spec.MatrixPeaks,
        spec.MemoryOverheads,
        spec.TransformerSpec,
        spec.MlaSpec,
        spec.ProfileSpec,
        spec.ProfileCandidate,
        spec.ProfileGroup,
        spec.ProfileRecompute,
        spec.Search,
        spec.Fixed,
    ],
    "graph.md": [OperatorGraph, Operator, Tensor, Parameter],
    "measurements.md": [spec.OperatorMeasurement, spec.CollectiveMeasurement, spec.RunMeasurement, spec.RunFigures],
    "stacks.md": [spec.StackSpec],
    "plan.md": [spec.PlanDocument, spec.StageRecord, spec.MemoryBreakdown, spec.CandidateSummary],
}


@pytest.mark.parametrize("page", RECORDS)
def test_every_key_is_described(page: str) -> None:
    words = set(re.findall(r"\w+", (REFERENCE / page).read_text()))
    keys = {field.name for record in RECORDS[page] for field in attrs.fields(record)}
    assert sorted(keys - words) == []


def test_hooks_are_those_of_the_code() -> None:
    page = (REFERENCE / "hooks.md").read_text()
    assert hook_reference.refreshed(page) == page, "python -m tests.docs.refresh docs/reference/hooks.md"
    assert all(f"## `nest_{kind}()`" in page for kind in KINDS)
    for member in ("by_default", "examples", "times", "in_flight(stage, stages, micro_batches)"):
        assert f"`{member}" in hook_reference.text()


def test_what_is_public_is_there() -> None:
    page = (REFERENCE / "public.md").read_text()
    for row in re.findall(r"^\| `(nest[.\w]*)` \|.*$", page, re.MULTILINE):
        import_module(row)
    for module in re.findall(r"`(nest\.hooks\.[a-z]+)`", page):
        import_module(module)


def test_stacks_are_those_of_the_catalogue() -> None:
    page = (REFERENCE / "stacks.md").read_text()
    assert stack_reference.refreshed(page) == page, "python -m tests.docs.refresh docs/reference/stacks.md"


def test_exporters_have_the_strategies_and_schedules_of_the_page() -> None:
    rows = [
        [cell.strip() for cell in line.split(" | ")]
        for line in (REFERENCE / "exporters.md").read_text().partition("## Training")[2].splitlines()
        if line.startswith("| ")
    ]
    for each in exporters():
        row = next(row for row in rows if f"`{each['name']}`" in row[0])
        limits = dict(part.split(" ", 1) for part in each["limits"].split("; ") if part.startswith(("strat", "sched")))
        if "strategies" in limits:
            assert row[1].strip("`").split() == limits["strategies"].split(", ")
        if "schedules" in limits and each["name"] != "maxtext":  # Its 1F1B is for plans without a pipeline.
            assert row[2].strip("`").split() == limits["schedules"].split(", ")


def test_every_command_is_described() -> None:
    """By what its help does not say; the options are in the help."""
    page = (REFERENCE / "command-line.md").read_text()
    group: Any = typer.main.get_command(app.app)
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `nest ")]
    assert [name for name in group.list_commands(None) if not any(f"`nest {name}`" in row for row in rows)] == []


def test_every_command_and_option_is_described() -> None:
    """The site's page of commands is made of their help: all have one, and no two rows are alike."""
    lines = list(site_hooks.command_reference())
    group: Any = typer.main.get_command(app.app)
    for name in group.list_commands(None):
        start = lines.index(f"## `nest {name}`")
        assert lines[start + 2].strip(), name
        options = [each for option in group.get_command(None, name).params for each in option.opts if each[:2] == "--"]
        section = "\n".join(itertools.takewhile(lambda line: not line.startswith("## "), lines[start + 1 :]))
        assert [each for each in options if each != "--help" and each not in section] == [], name
    rows = [line for line in lines if line.startswith("| `")]
    assert [row for row in rows if row.count(" | ") < 1 or row.endswith("|  |")] == []


@pytest.mark.parametrize("page", ["docs/explanation/cost-model.md", "docs/reference/devices.md"])
def test_tables_of_coefficients_are_those_of_the_code(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    assert calibration_reference.refreshed(text) == text, f"python -m tests.docs.refresh {page}"


def test_published_runs_are_told_as_they_were_found() -> None:
    pages = ("docs/explanation/published-runs.md", "benchmarks/published/README.md")
    texts = [(REPOSITORY / page).read_text() for page in pages]
    assert all(any(published_runs.begin(part) in text for text in texts) for part in published_runs.PARTS)
    assert [published_runs.refreshed(text) for text in texts] == texts, f"python -m tests.docs.refresh {pages}"


def test_every_table_of_coefficients_is_in_a_page_and_names_what_there_is() -> None:
    pages = "".join(
        (REPOSITORY / page).read_text() for page in ("docs/explanation/cost-model.md", "docs/reference/devices.md")
    )
    assert [part for part in calibration_reference.PARTS if calibration_reference.begin(part) not in pages] == []
    for name in attrs.fields_dict(spec.Coefficients):
        assert any(
            line.startswith(f"| `{name}` | ") and len(line) > 60 for line in calibration_reference.coefficients()
        )
