"""Files that tools and people look for: citation, security, issue forms, and a workflow with its Python versions."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.docs.document import REPOSITORY

GITHUB = REPOSITORY / ".github"
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def test_the_workflow_runs_what_ci_runs_on_every_python() -> None:
    (job,) = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == versions


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_issue_forms_are_whole(form: Path) -> None:
    """By GitHub's syntax for issue forms: a name, a description, a body whose inputs have distinct ids and labels."""
    written = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= set(written)
    inputs = [each for each in written["body"] if each["type"] != "markdown"]
    assert inputs
    assert all(each["attributes"]["label"] for each in inputs)
    assert len({each["id"] for each in inputs}) == len(inputs)


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    version = re.search(r'__version__ = "(.*)"', (REPOSITORY / "nest" / "version.py").read_text())
    assert version is not None
    assert (citation["version"], citation["license"]) == (version[1], PROJECT["license"])
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_conventions_name_no_address_that_nobody_reads() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    for name in ("SECURITY.md", "CITATION.cff", "CONTRIBUTING.md"):
        assert f"]({name})" in readme
    paths = [REPOSITORY / name for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff", "CONTRIBUTING.md")]
    for path in (*paths, *GITHUB.rglob("*.yml")):
        assert not re.search(r"[\w.]+@[\w-]+\.\w+", path.read_text()), path
