"""Every command and example of every document runs and prints what the document says; every link leads somewhere."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.compare import same
from tests.docs.document import REPOSITORY, Step, documents, run, steps
from tests.seeds import few

REFRESH = "bring documents up to date with: python -m tests.docs.refresh"
NEEDS_SHARED = "../shared/"
DOCUMENTS = [str(path) for path in documents()]
RUNNING = [
    name for name in DOCUMENTS if re.search(r"^```(console|python)$", (REPOSITORY / name).read_text(), re.MULTILINE)
]


FIRST = ("README.md", "docs/tutorial/")
"""Documents of the default run: what a newcomer types first. Commands of the others have the marker `longer`."""

SLOW = [name for name in RUNNING if any(step.slow for step in steps((REPOSITORY / name).read_text()))]


@pytest.mark.parametrize("name", few(RUNNING, *(name for name in RUNNING if name.startswith(FIRST))))
def test_what_a_document_shows_is_so(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    shows_what_is_so(name, tmp_path, request, lambda step: not step.slow)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_what_takes_long_in_a_document_is_so(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    shows_what_is_so(name, tmp_path, request, lambda _: True)


def shows_what_is_so(name: str, tmp_path: Path, request: pytest.FixtureRequest, only: Callable[[Step], bool]) -> None:
    text = (REPOSITORY / name).read_text()
    if NEEDS_SHARED in "".join("".join(step.arguments) for step in steps(text)):
        request.getfixturevalue("shared")
    for outcome in run(text, tmp_path / "checkout", only):
        told = " ".join(outcome.step.arguments)
        printed = "\n".join(outcome.printed)
        assert outcome.exit == outcome.step.exit, f"{told}\n{printed}"
        if outcome.step.expected is not None:
            assert same(outcome.step.expected, outcome.printed), f"{REFRESH}\n{told}\n{printed}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    path = REPOSITORY / name
    for target in links(path.read_text()):
        place, _, anchor = target.partition("#")
        found = (path.parent / place).resolve() if place else path
        assert found.exists(), f"{name} links to {target}, which is not there"
        assert found.is_relative_to(REPOSITORY), f"{name} links to {target}, outside the repository"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found.read_text()), f"{name} links to {target}; that page has no such heading"


def links(text: str) -> list[str]:
    """Targets of the links that lead into the repository, code left out."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"`[^`\n]*`", "", prose)
    found = re.findall(r"\]\(([^)\s]+)\)", prose)
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(text: str) -> set[str]:
    """Headings as link targets, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_a_block_may_name_the_columns_of_its_terminal(tmp_path: Path) -> None:
    block = "```console\n$ nest stacks\n```\n"
    wide, narrow = (
        next(run(text, tmp_path / name / "checkout"))
        for text, name in ((block, "a"), (f"<!-- columns: 40 -->\n{block}", "b"))
    )
    assert (wide.exit, narrow.exit) == (0, 0)
    assert max(map(len, narrow.printed)) <= 40 < max(map(len, wide.printed))
    assert "\x1b" not in "".join(narrow.printed)
