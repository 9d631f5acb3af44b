"""Tables of the first plan: the entries of the rule, and first plans of usual problems.

`python -m tests.docs.refresh benchmarks/usual_problems.md docs/explanation/first-plan.md` writes them; tests compare.
"""

from benchmarks.published.report import table
from benchmarks.usual_problems import page
from nest.documents.first_plan import ORDER
from tests.docs import generated
from tests.docs.document import REPOSITORY

FOUND = REPOSITORY / "benchmarks" / "usual_problems.md"
SHOWN = ("problem", "layout", "step time", "likely to fit")
"""Columns of the short table."""


def begin(part: str) -> str:
    """The mark in front of a generated part."""
    return generated.begin("first_plan", part)


def entries() -> list[str]:
    """What plans are compared by."""
    rows = [(str(place), f"`{entry.name}`", entry.reason) for place, entry in enumerate(ORDER, 1)]
    return table(("", "less of", "because"), rows)


def first() -> list[str]:
    """The first plans alone, as the page of usual problems has them."""
    lines = [line for line in FOUND.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    rows = [dict(zip(cells[0], row, strict=False)) for row in cells]
    told = [[row[name] for name in SHOWN] for row in rows if row.get("plan") == "nest"]
    return table(SHOWN, told)


PARTS = {"entries": entries, "usual": page, "first": first}


def refreshed(text: str) -> str:
    """`text` with every part between marks made anew."""
    return generated.refreshed(text, "first_plan", PARTS)
