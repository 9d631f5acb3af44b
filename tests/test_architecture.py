"""House rules that no tool of `.ci/run` checks: sizes, chains of imports, and what a bare `nest --help` loads."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import networkx
import pytest

from nest.io import read_mapping
from tests import statements

REPOSITORY = Path(__file__).resolve().parent.parent
LONGEST_MODULE = 400
LONGEST_CHAIN = 20
LARGEST_CORE = 58_000
"""Lines of the package `nest`; what the hooks serve from outside is a bundled distribution."""
CIRCLES = {
    f"nest.formulate.{name}"
    for name in ("formulation", "worth", "options", "modes", "pools", "risk", "space", "target")
}
"""Modules that still import each other, for types."""
MOST_LOADED = {"llama-3-70b-on-128-h100": 196, "measured-layers": 156}
"""Files of nest that `nest solve` of an example loads at most: with a model, exporters are asked for `runs_on`."""
MOST_STATEMENTS = 23_994
"""Of the engine: `python -m tests.statements` counts them. Commit 28417941 had 22,237. Lower it with each removal."""
LONGEST_FUNCTION = 91
"""Lines of the engine's longest function; 104 at commit 28417941."""
EXAMPLE = REPOSITORY / "examples/llama-3-70b-on-128-h100"
MOST_STOPS = {"stops": 42, "modules": 18, "returns": 24}
"""Functions that a problem is handed to between the command line and the answer, their modules, and stops in modules
where it was before (`tests.problem_stops`)."""
LONGEST_OF_VERBS = {"nest/api.py": 483}  # Every verb once, with its docstring.


def _passes(*command: str) -> None:
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_modules_stay_small() -> None:
    long = {
        str(path.relative_to(REPOSITORY)): lines
        for folder in (REPOSITORY / "nest", *(REPOSITORY / "plugins").glob("*/src"))
        for path in folder.rglob("*.py")
        if not path.is_symlink()  # The checker of certificates is one file for its readers.
        if (lines := len(path.read_text().splitlines()))
        > LONGEST_OF_VERBS.get(path.relative_to(REPOSITORY).as_posix(), LONGEST_MODULE)
    }
    assert not long


def test_the_core_fits_in_one_head() -> None:
    assert sum(len(path.read_text().splitlines()) for path in (REPOSITORY / "nest").rglob("*.py")) <= LARGEST_CORE


@pytest.mark.longer
def test_the_engine_does_not_grow() -> None:
    packages, longest = statements.engine()
    assert sum(packages.values()) <= MOST_STATEMENTS, packages
    assert longest[0] <= LONGEST_FUNCTION, longest


def test_statements_are_counted_apart_from_docstrings() -> None:
    tree = ast.parse(
        '"""A module."""\nLIMIT = 1\n"""Most."""\n\n\ndef nested():\n    """Two\n    lines."""\n'
        "    if LIMIT:\n        def inner(): return 2\n    return 'text'\n\n\nclass Empty:\n    pass\n"
    )
    assert statements.count(tree) == 8
    assert statements.longest(tree, "a.py") == (4, "a.py:6 nested")


@pytest.mark.longer
def test_chains_of_imports_stay_short() -> None:
    chain = networkx.dag_longest_path(_imports(anywhere=False))
    assert len(chain) <= LONGEST_CHAIN, chain


@pytest.mark.longer
def test_no_modules_import_each_other() -> None:
    """Neither inside functions nor for types alone."""
    circles = [each for each in networkx.strongly_connected_components(_imports(anywhere=True)) if len(each) > 1]
    assert not [each for each in circles if not each <= CIRCLES], circles


def _imports(*, anywhere: bool) -> networkx.DiGraph:
    """Which modules of nest import which, at their top level or `anywhere`."""
    files = {_dotted(path): path for path in (REPOSITORY / "nest").rglob("*.py")}
    imports = networkx.DiGraph()
    for name, path in files.items():
        tree = ast.parse(path.read_text())
        for statement in ast.walk(tree) if anywhere else tree.body:
            if isinstance(statement, ast.ImportFrom):
                names = [f"{statement.module}.{alias.name}" for alias in statement.names]
                modules = {each if each in files else statement.module for each in names}
                imports.add_edges_from((name, other) for other in modules if other in files)
    return imports


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.longer
@pytest.mark.parametrize(("example", "most"), MOST_LOADED.items())
def test_a_solve_loads_what_it_uses(example: str, most: int) -> None:
    script = (
        "import sys\n"
        f"sys.argv = ['nest', 'solve', 'examples/{example}/problem.yaml']\n"
        "from nest.cli import app\n"
        "try:\n    app.main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "own = {name: module for name, module in sys.modules.items() if name.partition('.')[0] == 'nest'}\n"
        "loaded = sorted(name for name, module in own.items() if getattr(module, '__file__', None))\n"
        f"assert len(loaded) <= {most}, (len(loaded), loaded)\n"
        "absent = {'networkx', 'ortools', 'pandas', 'jinja2', 'rich'} & set(sys.modules)\n"
        "assert not absent, absent\n"
    )
    _passes(sys.executable, "-c", script)


def _few_stops(problem: Path) -> None:
    command, off = (sys.executable, "-m", "tests.problem_stops", str(problem)), {**os.environ, "NEST_CACHE": "off"}
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, env=off)
    stops: dict[str, list[str]] = json.loads(done.stdout)
    count = sum(map(len, stops.values()))
    made = {"stops": count, "modules": len(stops), "returns": count - len(stops)}
    assert all(made[name] <= most for name, most in MOST_STOPS.items()), (made, done.stdout)


@pytest.mark.longer
def test_a_problem_stops_at_few_functions(tmp_path: Path) -> None:
    """Of the README's example with one way to split it, which stops where the whole example does."""
    written = dict(read_mapping(EXAMPLE / "problem.yaml").mapping)
    written["training"] = {**written["training"], "global_batch": 16, "micro_batch": [1]}
    written |= {
        "constraints": ["pp == 4"],
        "model": str(EXAMPLE / written["model"]),
        "strategies": {"tp": [4], "cp": [2]},
    }
    (tmp_path / "problem.json").write_text(json.dumps(written))
    _few_stops(tmp_path / "problem.json")


@pytest.mark.slow
def test_the_example_stops_at_few_functions() -> None:
    _few_stops(EXAMPLE / "problem.yaml")


@pytest.mark.longer
def test_nothing_is_looked_through_for_garbage_at_the_end() -> None:
    script = (
        "import gc, sys\n"
        "sys.argv = ['nest', '--version']\n"
        "from nest.cli import app\n"
        "try:\n    app.main()\nexcept SystemExit:\n    pass\n"
        "assert len(gc.get_objects()) < 100 < gc.get_freeze_count()\n"
    )
    _passes(sys.executable, "-c", script)


@pytest.mark.longer
@pytest.mark.parametrize("command", [["--help"], ["solve", "--help"]])
def test_help_loads_nothing_heavy(command: list[str]) -> None:
    script = (
        "import sys\n"
        f"sys.argv = ['nest', *{command!r}]\n"
        "from nest.cli import app\n"
        "try:\n    app.main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'cattrs', 'ruamel', 'networkx', 'ortools', 'pandas', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    _passes(sys.executable, "-c", script)


def test_nothing_is_planned_while_tests_are_collected() -> None:
    """Every process that collects tests runs what modules of tests do when they are imported."""
    verb = re.compile(r"(nest|api)\.(solve|evaluate|explain|frontier|compare|recommend|sweep)\(")
    planned = []
    for path in [*(REPOSITORY / "tests").rglob("*.py"), *(REPOSITORY / "plugins").glob("*/tests/**/*.py")]:
        text = path.read_text()
        if any(line[:1].strip() and verb.search(line) for line in text.splitlines()):
            statements = [each for each in ast.parse(text).body if isinstance(each, (ast.Assign, ast.AnnAssign))]
            planned += [f"{path}: {ast.unparse(each)}" for each in statements if _called(each, verb)]
    assert not planned


def _called(statement: ast.stmt, verb: re.Pattern[str]) -> bool:
    """Whether a statement calls what `verb` matches, but in functions that it makes."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call) and verb.match(ast.unparse(node)):
            return True
        if not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False
