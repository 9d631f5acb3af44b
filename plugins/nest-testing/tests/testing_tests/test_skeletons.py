"""What `nest plugins new` writes works as it is: its tests pass, it conforms, and it joins by its entry point."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import nest
from nest.errors import InputError
from nest.hooks.kinds import KINDS
from nest.io import write_folder
from nest_testing.conformance import CHECKS
from nest_testing.skeleton import skeleton
from tests import processes

REPOSITORY = Path(nest.__file__).resolve().parent.parent
WORDS = [kind.word for kind in KINDS.values()]


def written(folder: Path, word: str) -> Path:
    """A new distribution, as pip would find it installed: its module on the path, beside its `.dist-info`."""
    project = folder / f"nest-new-{word}"
    write_folder(project, skeleton(project.name, word))
    described = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    information = project / f"{described['name'].replace('-', '_')}-{described['version']}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {described['name']}\nVersion: {described['version']}\n"
    )
    entries = "\n".join(f"{name} = {target}" for name, target in described["entry-points"]["nest"].items())
    (information / "entry_points.txt").write_text(f"[nest]\n{entries}\n")
    return project


def python(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(project), str(REPOSITORY)])
    return processes.run([sys.executable, *arguments], cwd=project, env={**os.environ, "PYTHONPATH": path})


def test_there_is_one_for_every_kind() -> None:
    assert sorted(KINDS) == sorted(CHECKS)
    assert len(set(WORDS)) == len(WORDS)


@pytest.mark.longer
@pytest.mark.parametrize("word", WORDS)
def test_its_tests_pass(word: str, tmp_path: Path) -> None:
    done = python(written(tmp_path, word), "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "cannot be the name"),
        ("-nest", "cannot be the name"),
        ("a/b", "cannot be the name"),
        ("../up", "cannot be the name"),
        ("a--b", "cannot be the name"),
        ("n" * 61, "cannot be the name"),
        ("7up", "Python cannot name"),
        ("nest-class", "Python cannot name"),
        ("lambda", "Python cannot name"),
        ("nest", "a module 'nest' already"),
        ("json", "a module 'json' already"),
        ("NumPy", "a module 'numpy' already"),
        ("tp", "the name of a strategy of nest-planner"),
        ("nest-sp", "the name of a strategy of nest-planner"),
        ("nest-planner", "the distribution of nest itself"),
        ("nest-pp", "'pp' means something else in constraints"),
    ],
)
def test_names_that_cannot_be_are_refused(name: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        skeleton(name, "strategy")


def test_kinds_that_are_not_are_refused() -> None:
    with pytest.raises(InputError, match="there is no kind 'device'; give --kind one of strategy, "):
        skeleton("nest-new", "device")
