"""Every test here opens what nest writes in a real browser, and has the marker that says so.

They are skipped where the browser, or what they need beside it, is missing: the extra `browser` installs the packages,
and Chromium is `NEST_CHROMIUM` or the first of `CHROMIUM` on the path.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from page_tests.browser.pages import written
from page_tests.browser.visit import Visit, visited

HERE = "plugins/nest-page/tests/page_tests/browser/"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(HERE):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A running browser without a window, which finds no host but this one."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is missing: the extra `browser` has it")
    named = os.environ.get("NEST_CHROMIUM")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.skip(f"no Chromium: set NEST_CHROMIUM, or install one of {', '.join(CHROMIUM)}")
    with playwright.sync_playwright() as driver:
        # Inside a container there is neither a GPU nor, for root, a sandbox.
        arguments = ["--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        browser = driver.chromium.launch(executable_path=found, args=arguments, chromium_sandbox=False)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Visit]]:
    """Opens a file: `visit(path, width=390, dark=True)`; closed when the test ends."""
    with visited(chromium) as opened:
        yield opened


@pytest.fixture(scope="session")
def report_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """One of `PAGES`, by its name."""
    return partial(written, folder=tmp_path_factory.mktemp("reports"))
