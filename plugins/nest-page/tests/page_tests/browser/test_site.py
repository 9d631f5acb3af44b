"""The documentation site in a browser: nothing wider than the screen, and no rule of axe-core broken by its pages."""

from collections.abc import Iterator
from typing import Any

import pytest

from page_tests.browser.test_accessibility import axe, violations  # noqa: F401
from page_tests.browser.visit import serving
from tests.docs.test_site import built

PAGES = (
    "",
    "tutorial/first-plan/",
    "how-to/fix-out-of-memory/",
    "reference/commands/",
    "reference/problem/",
    "reference/python/graph/",
    "explanation/problem/",
    "repository/CONTRIBUTING/",
)
OF_THE_THEME = {"aria-dialog-name", "landmark-unique"}
"""Rules that Material's own search and menus break."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of the site, which this machine serves: scripts of pages read no files of a disk."""
    with serving(built(tmp_path_factory.mktemp("site"))) as served:
        yield served


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", PAGES)
def test_pages_fit_the_screen_and_break_no_rule(
    name: str,
    dark: bool,
    axe: str,  # noqa: F811
    address: str,
    chromium: Any,
) -> None:
    scheme = "dark" if dark else "light"
    context = chromium.new_context(
        viewport={"width": 1440, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    shown = context.new_page()
    shown.goto(f"{address}{name}")
    shown.wait_for_selector("[data-md-component=palette]", state="attached")
    found = [each for each in violations(shown, axe) if each.partition(":")[0] not in OF_THE_THEME]
    assert found == []
    for width in (1440, 390):
        shown.set_viewport_size({"width": width, "height": 900})
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
