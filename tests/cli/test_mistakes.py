"""docs/reference/mistakes.md: every mistake is answered with its remedy, and the page says what is answered."""

import re

import pytest

from tests.docs.document import REPOSITORY
from tests.docs.generated import END, begin
from tests.docs.mistakes import FILE, GROUPS, Mistake, answer, row, rows

PAGE = (REPOSITORY / "docs" / "reference" / "mistakes.md").read_text()
ROWS = [each for _, each in rows()]


@pytest.mark.parametrize("mistake", ROWS, ids=[row(each, "")[2:-4][:60] for each in ROWS])
def test_a_mistake_is_answered_with_its_remedy(mistake: Mistake) -> None:
    code, told = answer(mistake)
    assert (code, mistake.remedy in told) == (mistake.exit, True), told
    assert "Traceback" not in told
    if code == 2 and mistake.command == ("solve", FILE):
        assert all(re.match(rf"nest: {FILE}:|nest: constraint `", line) for line in told.splitlines())
    assert row(mistake, told) in PAGE, "python -m tests.docs.refresh docs/reference/mistakes.md"


@pytest.mark.parametrize("heading", GROUPS)
def test_the_page_has_these_mistakes_and_no_others(heading: str) -> None:
    part = PAGE.split(begin("mistakes", heading))[1].split(END)[0]
    found = [line for line in part.splitlines() if line.startswith("| ") and line != "| written | answered |"]
    assert [line.split(" | ")[0] for line in found] == [row(each, "")[:-4].rstrip() for each in GROUPS[heading]]
