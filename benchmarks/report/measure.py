"""Writes a page, opens it in a browser without a network, and reads the browser's own clock."""

import time
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from attrs import frozen

import nest
from nest.spec import PlanDocument

WIDTH, HEIGHT = 1280, 900
PHONE = 4
"""How many times slower Chromium computes for the column of slow machines (Emulation.setCPUThrottlingRate)."""

# The page is shown when the first frame after `load` is on the screen: a callback of `requestAnimationFrame` runs
# before its frame is painted, the one it asks for afterwards (HTML, section 8.1.7.3 "update the rendering").
_SHOWN = """() => new Promise(done => {
    const shown = () => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
    document.readyState === 'complete' ? shown() : addEventListener('load', shown);
})"""

# Paint Timing, section 4: the entry comes some time after the frame.
_PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


@frozen
class Page:
    """What was measured of one page.

    Attributes:
        name: of its plan.
        devices: of the cluster.
        stages: of the plan.
        micro_batches: of a replica.
        size: bytes of the file.
        elements: of the document, as the browser has it.
        writing: seconds that `nest_page.page_of_plan.report` takes.
        first_paint: seconds from the beginning of navigation to the first word or drawing on the screen, the median.
        shown: seconds to the first frame after everything is loaded, the median.
        whole: the same in a window as high as the page, so that all of it is painted.
        phone: `shown` on a processor that is `PHONE` times slower.
    """

    name: str
    devices: int
    stages: int
    micro_batches: int
    size: int
    elements: int
    writing: float
    first_paint: float
    shown: float
    whole: float
    phone: float


def measured(name: str, plan: PlanDocument, folder: Path, browser: str, times: int) -> Page:
    """Write the page of a plan and open it, each time in a new profile.

    Args:
        name: of the plan; the page is `NAME.html`.
        plan: feasible.
        folder: where the page is written.
        browser: path of a Chromium.
        times: the page is opened for each figure; the median counts.
    """
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.html"
    begun = time.perf_counter()
    text = nest.report_page(plan)
    writing = time.perf_counter() - begun
    path.write_text(text, encoding="utf-8")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--disable-gpu"], chromium_sandbox=False)
        _opened(chromium, path, HEIGHT)  # The first page of a browser waits for its processes.
        usual = [_opened(chromium, path, HEIGHT) for _ in range(times)]
        height = usual[0]["height"]
        whole = [_opened(chromium, path, height) for _ in range(times)]
        phone = [_opened(chromium, path, HEIGHT, PHONE) for _ in range(times)]
        chromium.close()
    return Page(
        name=name,
        devices=prod(level["fanout"] for level in plan.problem["cluster"]["levels"]),
        stages=len(plan.stages),
        micro_batches=plan.micro_batches or 0,
        size=path.stat().st_size,
        elements=usual[0]["elements"],
        writing=writing,
        first_paint=median(each["painted"] for each in usual) / 1e3,
        shown=median(each["shown"] for each in usual) / 1e3,
        whole=median(each["shown"] for each in whole) / 1e3,
        phone=median(each["shown"] for each in phone) / 1e3,
    )


def _opened(chromium: Any, path: Path, height: int, slower: int = 1) -> dict[str, Any]:
    """Milliseconds of one visit, and how large the page is."""
    context = chromium.new_context(viewport={"width": WIDTH, "height": height}, offline=True)
    page = context.new_page()
    if slower > 1:
        context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
    page.goto(path.resolve().as_uri(), wait_until="commit")
    found = {
        "shown": page.evaluate(_SHOWN),
        "painted": page.wait_for_function(_PAINTED).json_value(),
        "elements": page.evaluate("document.querySelectorAll('*').length"),
        "height": page.evaluate("document.documentElement.scrollHeight"),
    }
    context.close()
    return found
