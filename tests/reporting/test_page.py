"""The page as a whole: valid, self-contained, the same bytes again."""

from pathlib import Path

import html5lib
import pytest

from nest import planner, reporting
from nest.spec import PlanDocument

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def plan() -> PlanDocument:
    return planner.solve(EXAMPLES / "measured-layers" / "problem.yaml")


def test_page_is_valid_html(plan: PlanDocument) -> None:
    html5lib.HTMLParser(strict=True).parse(reporting.report(plan))
