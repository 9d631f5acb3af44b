"""The distributions in plugins/ join nest by being installed, and leave no trace when they are removed."""

import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

import pytest

from nest.hooks.bundled import bundled_modules
from nest_testing.public_names import private_imports
from tests import processes

REPOSITORY = Path(__file__).resolve().parent.parent.parent
FOLDERS = sorted(path.parent for path in (REPOSITORY / "plugins").glob("*/pyproject.toml"))
ULYSSES = REPOSITORY / "plugins" / "nest-ulysses"
LONG = ULYSSES / "examples" / "llama-2-7b-on-32-single-gpu-nodes" / "problem.yaml"

BUNDLED = {package.replace("_", "-") for package in bundled_modules()}
"""Distributions that come with nest, each for its very version."""


def project(folder: Path) -> dict[str, Any]:
    return dict(tomllib.loads((folder / "pyproject.toml").read_text())["project"])


def install(folder: Path, site: Path) -> str:
    """What pip leaves of a distribution that matters here, in `site`; returns the path Python is to search."""
    about = project(folder)
    information = site / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n"
    )
    entries = "\n".join(f"{name} = {target}" for name, target in about["entry-points"]["nest"].items())
    (information / "entry_points.txt").write_text(f"[nest]\n{entries}\n")
    return os.pathsep.join([str(site), str(folder / "src")])


def nest(*arguments: str, path: str = "", seed: str | None = None) -> str:
    """What a new process prints; nothing may go wrong."""
    searched = os.pathsep.join(part for part in (path, str(REPOSITORY)) if part)
    hashed = {} if seed is None else {"PYTHONHASHSEED": seed}
    environment = {**os.environ, "PYTHONPATH": searched, **hashed}
    done = processes.run([sys.executable, "-m", "nest", *arguments], env=environment, cwd=REPOSITORY)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_distribution_says_what_it_is(folder: Path) -> None:
    about = project(folder)
    assert about["name"] == folder.name
    nest_itself = f"nest-planner=={about['version']}" if folder.name in BUNDLED else "nest-planner>=0.1,<1"
    assert about["dependencies"][0] == nest_itself
    assert (folder / about["readme"]).is_file()
    assert list((folder / "tests").rglob("test_*.py"))
    for target in about["entry-points"]["nest"].values():
        assert (folder / "src" / target / "__init__.py").is_file()


@pytest.mark.longer
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_distribution_imports_what_is_public(folder: Path) -> None:
    for path in (folder / "src").rglob("*.py"):
        assert list(private_imports(path.read_text())) == [], path


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_installed_it_is_loaded_without_a_warning(folder: Path, tmp_path: Path) -> None:
    path = install(folder, tmp_path)
    listed = nest("strategies", path=path)
    assert ("nest-ulysses" in listed) == (folder.name == "nest-ulysses")


@pytest.mark.slow
def test_pip_installs_ulysses_into_a_fresh_environment_and_removes_it(tmp_path: Path) -> None:
    venv.create(tmp_path / "fresh", with_pip=True)
    folder = tmp_path / "fresh" / ("Scripts" if os.name == "nt" else "bin")

    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        program, *rest = arguments
        return subprocess.run([folder / program, *rest], cwd=tmp_path, capture_output=True, text=True, check=False)

    installed = call("pip", "install", "--quiet", REPOSITORY)
    if installed.returncode:
        pytest.skip(f"pip cannot install here: {installed.stderr.strip().splitlines()[-1]}")
    solve = ("nest", "solve", LONG, "--json")
    before = call(*solve)
    assert call("pip", "install", "--quiet", "--no-deps", ULYSSES).returncode == 0
    with_it = call(*solve)
    assert call("pip", "uninstall", "--quiet", "--yes", "nest-ulysses").returncode == 0
    after = call(*solve)
    assert [done.returncode for done in (before, with_it, after)] == [0, 0, 0]
    assert json.loads(with_it.stdout)["candidate"]["degrees"]["ulysses"] > 1
    assert after.stdout == before.stdout != with_it.stdout
