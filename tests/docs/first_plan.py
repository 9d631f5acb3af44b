"""Tables of the first plan: the entries of the rule, and first plans of usual problems.

`python -m tests.docs.refresh benchmarks/usual_problems.md docs/explanation/first-plan.md` writes them; tests compare.
"""

from benchmarks.published.report import table
from benchmarks.usual_problems import page
from nest.documents.first_plan import ORDER
from tests.docs import generated


def begin(part: str) -> str:
    """The mark in front of a generated part."""
    return generated.begin("first_plan", part)


def entries() -> list[str]:
    """What plans are compared by."""
    rows = [(str(place), f"`{entry.name}`", entry.reason) for place, entry in enumerate(ORDER, 1)]
    return table(("", "less of", "because"), rows)


PARTS = {"entries": entries, "usual": page}


def refreshed(text: str) -> str:
    """`text` with every part between marks made anew."""
    return generated.refreshed(text, "first_plan", PARTS)
