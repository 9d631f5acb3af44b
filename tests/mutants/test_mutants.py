"""Every fault fails the test that its table names, and every table keeps up with what it plants faults in."""

import ast
import subprocess
import sys
from collections import Counter

import pytest

from tests.mutants.faults import REPOSITORY, Fault, faults
from tests.mutants.run import run

LONGEST = 600.0
"""Seconds after which a test with a fault counts as hung, which catches nothing."""

FEWEST = 575
LEFT_OUT = {"longer", "slow", "mutants", "conformance", "browser"}
"""Marks of tests that the default run leaves out, or that some machines skip."""


@pytest.mark.mutants
@pytest.mark.parametrize("fault", faults(), ids=lambda fault: f"{fault.room}: {fault.name}")
def test_it_is_caught(fault: Fault) -> None:
    done = run(fault, *fault.catching, timeout=LONGEST)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout


@pytest.mark.slow
def test_the_checker_of_certificates_refuses_what_faults_of_searches_lose() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants.certified", "--count", "30"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost, refused" in done.stdout


def test_there_are_enough_and_no_two_of_a_name() -> None:
    assert len(faults()) >= FEWEST
    assert max(Counter(fault.name for fault in faults()).values()) == 1


@pytest.mark.longer
def test_each_can_be_planted() -> None:
    for fault in faults():
        compile(fault.source(), fault.file, "exec")
        assert fault.new != fault.old


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("nest/documents/document.py", "nest.documents.document"),
        ("nest/report/text/__init__.py", "nest.report.text"),
        ("plugins/nest-measured/src/nest_measured/__init__.py", "nest_measured"),
        ("plugins/nest-measured/src/nest_measured/table.py", "nest_measured.table"),
    ],
)
def test_modules_of_plug_ins_begin_below_their_src(file: str, module: str) -> None:
    fault = Fault("", "", "", file, "", "", "")
    assert fault.module == module
    assert fault.path.is_file()


@pytest.mark.longer
def test_each_names_a_test_of_the_default_run() -> None:
    known = {path: _marks(path) for path in {_file(fault) for fault in faults()}}
    for fault in faults():
        name = fault.caught_by.partition("::")[2].partition("[")[0]
        assert name in known[_file(fault)], fault.caught_by
        assert not known[_file(fault)][name] & LEFT_OUT, fault.caught_by


def _file(fault: Fault) -> str:
    return fault.caught_by.partition("::")[0]


def _marks(path: str) -> dict[str, set[str]]:
    """Of each test of a module, all words in its decorators, its marks among them."""
    tree = ast.parse((REPOSITORY / path).read_text())
    return {
        node.name: {
            word.attr for each in node.decorator_list for word in ast.walk(each) if isinstance(word, ast.Attribute)
        }
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }
