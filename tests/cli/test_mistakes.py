"""Every mistake is answered with its remedy; docs/reference/mistakes.md shows one of each kind."""

import re

import pytest

from tests.docs.document import REPOSITORY
from tests.docs.generated import END, begin
from tests.docs.mistakes import ALIKE, FILE, GROUPS, Mistake, answer, is_shown, row, rows

PAGE = (REPOSITORY / "docs" / "reference" / "mistakes.md").read_text()
ROWS = [each for _, each in rows()]


@pytest.mark.parametrize(
    "mistake",
    # nest tells other mistakes beside an answer, which takes a search.
    [each if each.exit == 2 else pytest.param(each, marks=pytest.mark.longer) for each in ROWS],
    ids=[row(each, "")[2:-4][:60] for each in ROWS],
)
def test_a_mistake_is_answered_with_its_remedy(mistake: Mistake) -> None:
    code, told = answer(mistake)
    assert (code, mistake.remedy in told) == (mistake.exit, True), told
    assert "Traceback" not in told
    if code == 2 and mistake.command == ("solve", FILE):
        assert all(re.match(rf"nest: {FILE}:|nest: constraint `", line) for line in told.splitlines())
    if is_shown(mistake):
        assert row(mistake, told) in PAGE, "python -m tests.docs.refresh docs/reference/mistakes.md"


@pytest.mark.parametrize("heading", GROUPS)
def test_the_page_has_these_mistakes_and_no_others(heading: str) -> None:
    part = PAGE.split(begin("mistakes", heading))[1].split(END)[0]
    found = [line for line in part.splitlines() if line.startswith("| ") and line != "| written | answered |"]
    shown = [row(each, "")[:-4].rstrip() for each in GROUPS[heading] if is_shown(each)]
    assert [line.split(" | ")[0] for line in found] == shown


def test_mistakes_that_the_page_leaves_out_are_there() -> None:
    assert len([each for each in ROWS if not is_shown(each)]) == len(ALIKE)
