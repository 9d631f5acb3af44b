"""The report of each plan, written once."""

from pathlib import Path

from nest import api, html_page
from tests.browser.plans import PLANS

SEARCHED_LONG = {"many-stages"}
"""Plans whose frontier and sensitivity take long; their pages go without."""


def written(name: str, folder: Path) -> Path:
    """The page of a plan of `PLANS`, in a file."""
    path = folder / f"{name}.html"
    if not path.exists():
        without = html_page.PARTS if name in SEARCHED_LONG else ()
        path.write_text(api.report_page(PLANS[name](), without=without), encoding="utf-8")
    return path
