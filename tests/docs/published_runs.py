"""Tables of published runs in the documents: their sources, and what nest says of them as one results file has it.

`python -m tests.docs.refresh docs/explanation/published-runs.md benchmarks/published/README.md` writes them; a test
compares.
"""

from benchmarks.published.report import sources
from benchmarks.published.runs import published
from tests.docs import generated
from tests.docs.document import REPOSITORY

FOUND = REPOSITORY / "benchmarks" / "results" / "2026-11-23" / "published.md"
"""What `python -m benchmarks.published --output FILE` wrote, that documents show."""


def begin(part: str) -> str:
    """The mark in front of a generated part."""
    return generated.begin("published_runs", part)


def told() -> list[str]:
    """Sources and assumptions of every run."""
    return sources(published())


def section(title: str) -> list[str]:
    """What stands under a heading of the results file."""
    return FOUND.read_text(encoding="utf-8").split(f"## {title}\n", 1)[1].split("\n## ", 1)[0].strip().splitlines()


PARTS = {
    "sources": told,
    "prices": lambda: section("The published layouts, priced"),
    "optima": lambda: section("The best plans"),
}


def refreshed(page: str) -> str:
    """`page` with every part between marks made anew."""
    return generated.refreshed(page, "published_runs", PARTS)
