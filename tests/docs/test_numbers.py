"""Every tolerance has one home, and the page of numbers names it with its value."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from nest import tolerances
from tests.docs.document import REPOSITORY

SMALL = 1e-5
"""Up to this, a number is a tolerance, a unit or a physical figure."""

FIGURES = {
    "plugins/nest-calibrate/src/nest_calibrate/links.py": "limits of what is fitted",
    "plugins/nest-calibrate/src/nest_calibrate/lines.py": "seconds that starting a call varies by",
    "plugins/nest-calibrate/src/nest_calibrate/nccl.py": "seconds of NCCL's protocols",
    "plugins/nest-calibrate/src/nest_calibrate/plausible.py": "units",
    "plugins/nest-calibrate/src/nest_calibrate/collective_measurements.py": "units",
    "plugins/nest-frameworks/src/nest_frameworks/configurations.py": "models' epsilons",
    "plugins/nest-frameworks/src/nest_frameworks/torchtitan/models.py": "a model's epsilon",
    "nest/network/graph.py": "units",
    "plugins/nest-page/src/nest_page/records.py": "units",
    "plugins/nest-page/src/nest_page/study/points.py": "units",
    "plugins/nest-page/src/nest_page/svg.py": "units",
    "nest/spec/device.py": "seconds of a launch",
    "plugins/nest-testing/src/nest_testing/costs.py": "latencies",
    "plugins/nest-torch/src/nest_torch/parallel/checking.py": "differences of training that a check accepts",
    "plugins/nest-torch/src/nest_torch/parallel/trial.py": "the same, before training begins",
    "plugins/nest-torch/src/nest_torch/parallel/training.py": "PyTorch's addend where it clips a norm",
    "plugins/nest-certificate/src/nest_certificate/rules.py": "roundings that docs/explanation/certificate.md states",
    "plugins/nest-testing/src/nest_testing/planner.py": "latencies",
    "plugins/nest-testing/src/nest_testing/samples.py": "latencies",
    "plugins/nest-networks/src/nest_networks/infragraph.py": "units",
    "plugins/nest-networks/src/nest_networks/ns3.py": "units",
    "nest/units.py": "units",
    "plugins/nest-measured/src/nest_measured/kineto.py": "units",
}
"""Modules whose small numbers are units or have seconds."""

SHARED = "nest/tolerances.py"

PAGE = (REPOSITORY / "docs" / "explanation" / "numbers.md").read_text()


MAY_BE_SMALL = re.compile(r"\d[eE]-|\.0000|close\(")
"""What stands in a module that has a small number or a comparison; others need not be parsed."""


@cache
def modules() -> dict[str, ast.Module]:
    """The modules of nest and its plug-ins that may have small numbers, by path."""
    folders = [REPOSITORY / "nest", *(REPOSITORY / "plugins").glob("*/src")]
    texts = {path: path.read_text() for folder in folders for path in sorted(folder.rglob("*.py"))}
    return {
        path.relative_to(REPOSITORY).as_posix(): ast.parse(text)
        for path, text in texts.items()
        if MAY_BE_SMALL.search(text)
    }


def constants(tree: ast.Module) -> dict[str, ast.expr]:
    """What a module defines on its own line, by name."""
    return {
        statement.targets[0].id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }


def small(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float) and 0 < abs(node.value) <= SMALL:
            yield node


def told() -> dict[str, float]:
    """Names and values of the page's tables."""
    return {name: float(value) for name, value in re.findall(r"^\| `([\w.]+)` \| ([\d.e+-]+) \|", PAGE, re.MULTILINE)}


def faults(place: str, tree: ast.Module) -> list[str]:
    """Small numbers without a name, and comparisons with a tolerance that is not said."""
    named = {id(value) for value in constants(tree).values()}
    found = [f"{place}:{node.lineno}: {node.value}" for node in small(tree) if id(node) not in named]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            asked = {"isclose": {"rel_tol", "rtol"}, "allclose": {"rtol"}}.get(name)
            if asked and not asked & {each.arg for each in node.keywords}:
                found.append(f"{place}:{node.lineno}: {name} with a tolerance of its own")
    return found


@pytest.mark.longer
def test_no_tolerance_without_a_name() -> None:
    assert [fault for place, tree in modules().items() if place not in FIGURES for fault in faults(place, tree)] == []


def test_the_page_names_every_tolerance_with_its_value() -> None:
    defined = {name: value for name, value in vars(tolerances).items() if name.isupper()}
    for place in modules().keys() - FIGURES.keys() - {SHARED}:
        for name, value in constants(modules()[place]).items():
            if any(small(value)):
                assert isinstance(value, ast.Constant)
                defined[f"{Path(place).stem}.{name}"] = value.value
    assert told() == defined


def test_tolerances_are_defined_once() -> None:
    homes: dict[str, list[str]] = {}
    for place in modules().keys() - FIGURES.keys():
        for name, value in constants(modules()[place]).items():
            if any(small(value)):
                homes.setdefault(name, []).append(place)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_the_page_names_the_tolerances_of_the_oracle() -> None:
    paths = sorted((REPOSITORY / "tests" / "oracle").glob("*.py"))
    found = [
        name
        for path in paths
        for name, value in constants(ast.parse(path.read_text())).items()
        if any(small(value)) and not path.name.startswith("test_")
    ]
    assert found
    assert [name for name in found if f"`{name}`" not in PAGE.partition("brute force")[2]] == []


def test_figures_are_still_there() -> None:
    assert [place for place in FIGURES if not any(small(modules()[place]))] == []


@pytest.mark.parametrize(
    "text", ["print(1 - 1e-9)", "isclose(1.0, 2.0)", "def f(x=1e-12): pass", "ROUND, TRIP = 1e-9, 2"]
)
def test_faults_are_seen(text: str) -> None:
    assert faults("", ast.parse(text))
