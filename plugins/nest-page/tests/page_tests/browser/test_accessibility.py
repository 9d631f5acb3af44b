"""Reports by axe-core's rules, all of them, best practices too: unfolded, in light and dark, wide and narrow.

`NEST_AXE` names another `axe.min.js` than the one that comes with the extra `browser`.
"""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from page_tests.browser.pages import PAGES
from page_tests.browser.visit import Visit

_RUN = "() => axe.run(document, {resultTypes: ['violations', 'incomplete']})"


@pytest.fixture(scope="module")
def axe() -> str:
    """The rules, as a script."""
    named = os.environ.get("NEST_AXE")
    if named:
        return Path(named).read_text(encoding="utf-8")
    spec = find_spec("axe_playwright_python")
    if spec is None or spec.origin is None:
        pytest.skip("no axe-core: set NEST_AXE, or install the extra `browser`")
    return (Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def violations(shown: Any, axe: str) -> list[str]:
    """What breaks a rule, where."""
    shown.evaluate(axe)
    return [
        f"{each['id']}: {each['help']}: {node['html'][:200]} {node.get('failureSummary', '')}"
        for each in shown.evaluate(_RUN)["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", PAGES)
def test_breaks_no_rule(
    name: str, dark: bool, axe: str, report_of: Callable[[str], Path], visit: Callable[..., Visit]
) -> None:
    shown = visit(report_of(name), dark=dark).page
    shown.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert violations(shown, axe) == []
    shown.set_viewport_size({"width": 390, "height": 800})
    assert violations(shown, axe) == []


def test_the_rules_are_applied(axe: str, tmp_path: Path, visit: Callable[..., Visit]) -> None:
    """What the test above relies on."""
    path = tmp_path / "wrong.html"
    path.write_text(
        "<!DOCTYPE html><html><title>x</title><main><h1>x</h1><p style='color: #bbb'>faint</p></main></html>"
    )
    broken = {each.partition(":")[0] for each in violations(visit(path).page, axe)}
    assert {"html-has-lang", "color-contrast"} <= broken
