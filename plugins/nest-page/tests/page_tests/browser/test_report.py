"""Reports as a browser shows them: alone, on screens of any width, in the dark and on paper."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from page_tests.browser.layout import cut_off, faint, overlapping, sticking_out
from page_tests.browser.pages import PAGES
from page_tests.browser.visit import HEIGHT, Visit

Open = Callable[..., Visit]
WIDTHS = (360, 390, 768, 1024, 1440, 2560)
SIZES = (390, 768, 1400)
"""Widths at which the three drawings of a figure are shown."""

PAPER = 718
"""Width of A4 between margins of 1 cm, in CSS pixels (1/96 inch)."""


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest, report_of: Callable[[str], Path]) -> Path:
    return report_of(request.param)


@pytest.mark.parametrize("dark", [False, True])
def test_asks_nobody_for_anything_and_has_nothing_to_complain(page: Path, visit: Open, dark: bool) -> None:
    opened = visit(page, dark=dark)
    opened.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    opened.page.wait_for_load_state("networkidle")
    assert opened.requests == []
    assert opened.messages == []


@pytest.mark.parametrize("unfolded", [False, True])
def test_fits_any_screen(page: Path, visit: Open, unfolded: bool) -> None:
    shown = visit(page).page
    shown.evaluate("open => document.querySelectorAll('details').forEach(each => { each.open = open; })", unfolded)
    wrong = {}
    for width in WIDTHS:
        shown.set_viewport_size({"width": width, "height": 900})
        wrong[width] = [*sticking_out(shown), *cut_off(shown)]
    assert not any(wrong.values()), wrong


@pytest.mark.parametrize("width", SIZES)
def test_labels_of_drawings_do_not_lie_on_each_other(page: Path, visit: Open, width: int) -> None:
    assert overlapping(visit(page, width=width).page) == []


def test_one_drawing_of_each_figure_is_shown_and_no_smaller_than_it_is_drawn(page: Path, visit: Open) -> None:
    shown = visit(page).page
    for place, width in enumerate(reversed(SIZES)):
        shown.set_viewport_size({"width": width, "height": 900})
        for figure in shown.query_selector_all("figure"):
            assert [size.is_visible() for size in figure.query_selector_all("div[class^=at-]")] == [
                index == place for index in range(len(SIZES))
            ]
            for drawing in figure.query_selector_all(f".at-{place} .drawing"):
                assert drawing.bounding_box()["width"] == pytest.approx(float(drawing.get_attribute("width")), abs=0.5)


@pytest.mark.parametrize(("width", "dark"), [(390, True), (768, False), (1400, False), (1400, True)])
def test_labels_of_drawings_stand_out(page: Path, visit: Open, dark: bool, width: int) -> None:
    assert faint(visit(page, width=width, dark=dark).page) == []


def test_goes_dark_where_that_is_preferred(page: Path, visit: Open) -> None:
    light, dark = (visit(page, dark=each).page for each in (False, True))
    assert brightness(light, "backgroundColor") > 0.8 > 0.4 > brightness(light, "color")
    assert brightness(dark, "backgroundColor") < 0.2 < 0.6 < brightness(dark, "color")


def brightness(shown: Any, paint: str) -> float:
    """Of the page's background or text, from 0 to 1."""
    colour: str = shown.evaluate("paint => getComputedStyle(document.body)[paint]", paint)
    return sum(float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")) / (3 * 255)


def test_says_the_same_without_scripts(page: Path, visit: Open) -> None:
    """Nothing of the page is made by a script: switched off, the words are the same."""
    with_scripts, without = (visit(page, scripts=each).page for each in (True, False))
    assert with_scripts.inner_text("body") == without.inner_text("body")


def test_prints(page: Path, visit: Open) -> None:
    shown = visit(page, width=PAPER).page
    shown.emulate_media(media="print")
    assert sticking_out(shown) == []
    assert cut_off(shown) == []
    assert overlapping(shown) == []
    printed = shown.pdf(format="A4", margin=dict.fromkeys(("top", "bottom", "left", "right"), "1cm"))
    assert printed.startswith(b"%PDF-")


def test_skip_link_is_the_first_stop_and_leads_to_the_plan(page: Path, visit: Open) -> None:
    shown = visit(page).page
    shown.keyboard.press("Tab")
    link = shown.locator(":focus")
    assert link.get_attribute("href") == "#main"
    assert link.bounding_box()["x"] >= 0
    shown.keyboard.press("Enter")
    assert shown.url.endswith("#main")
    shown.keyboard.press("Tab")
    assert (
        shown.evaluate("document.querySelector('#main').contains(document.activeElement)")
        or not shown.locator("#main :is(a, summary, [tabindex])").count()
    )


def test_names_with_markup_are_only_words(report_of: Callable[[str], Path], visit: Open) -> None:
    opened = visit(report_of("hostile"))
    assert opened.page.title() != "taken"
    assert opened.page.locator("script, img, iframe, object, embed").count() == 0
    assert opened.requests == []


@pytest.mark.parametrize("width", [390, 1440])
def test_the_verdict_on_memory_is_as_prominent_as_that_on_the_proof(
    report_of: Callable[[str], Path], visit: Open, width: int
) -> None:
    """Both are on the first screen, one below the other, in letters of one size; so are the assumptions."""
    shown = visit(report_of("small"), width=width).page
    looks = "all => all.map(each => [getComputedStyle(each).fontSize, getComputedStyle(each).borderTopWidth])"
    proof, memory = shown.eval_on_selector_all(".status strong", looks)
    assert proof == memory
    places = [each.bounding_box() for each in shown.query_selector_all(".status, .about dd")]
    assert len(places) == 4
    assert all(one["y"] < two["y"] for one, two in pairwise(places))
    assert places[-1]["y"] + places[-1]["height"] < HEIGHT


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1440, False)])
def test_errors_of_a_study_are_inside_its_figures(
    report_of: Callable[[str], Path], visit: Open, width: int, dark: bool
) -> None:
    shown = visit(report_of("study"), width=width, dark=dark).page
    bars = [each for each in shown.query_selector_all(".whisker") if each.is_visible()]
    assert bars
    for bar in bars:
        box = bar.bounding_box()
        drawing = bar.evaluate(
            "each => { const {y, height} = each.ownerSVGElement.getBoundingClientRect(); return [y, height]; }"
        )
        assert drawing[0] <= box["y"] <= box["y"] + box["height"] <= sum(drawing)
    labels = shown.eval_on_selector_all(".drawing text", "all => all.map(each => each.textContent)")
    assert not [each for each in labels if "cluster." in each or "training." in each]


def test_the_measures_see_what_is_wrong(tmp_path: Path, visit: Open) -> None:
    """What the tests above rely on: a page with one fault of each kind."""
    path = tmp_path / "wrong.html"
    path.write_text(
        "<!DOCTYPE html><title>x</title><body style='background: #fff'>"
        "<div style='width: 3000px'>wide</div><div style='width: 20px; overflow: hidden'>toolongtofit</div>"
        "<svg width='200' height='50'><text x='10' y='20'>one</text><text x='15' y='22'>two</text>"
        "<text x='190' y='40'>outside</text><rect x='90' width='60' height='30' fill='#333'/>"
        "<text x='95' y='20'>dark</text></svg><img src='http://127.0.0.1:9/x.png' alt=''>"
    )
    opened = visit(path)
    assert any("wide" in each for each in sticking_out(opened.page))
    assert {"toolongtofit", "outside"} <= {each.split('"')[1] for each in cut_off(opened.page)}
    assert [each for each in overlapping(opened.page) if "one" in each and "two" in each]
    assert [each.split('"')[1] for each in faint(opened.page)] == ["dark"]
    assert opened.requests == ["http://127.0.0.1:9/x.png"]
    assert opened.messages
