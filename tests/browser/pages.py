"""The report of each plan, written once."""

from pathlib import Path

from nest import reporting
from tests.browser.plans import PLANS


def written(name: str, folder: Path) -> Path:
    """The page of a plan of `PLANS`, in a file."""
    path = folder / f"{name}.html"
    if not path.exists():
        path.write_text(reporting.report(PLANS[name]()), encoding="utf-8")
    return path
