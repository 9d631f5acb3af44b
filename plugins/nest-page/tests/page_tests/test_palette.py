"""Colours can be told from the page and carry text, in both schemes (WCAG 2.2, sections 1.4.3 and 1.4.11)."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from nest_page import palette
from nest_page.stage_bars import MEMORY_CAUSES, TIME_CAUSES

PAGES = {"light": palette.LIGHT, "dark": palette.DARK}


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio (WCAG 2.2)."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("hue", sorted(palette.HUES))
def test_hues_carry_dark_text_and_stand_out(hue: str) -> None:
    assert contrast(palette.HUES[hue], palette.ON_HUE) >= 4.5
    for scheme in PAGES.values():
        assert contrast(palette.HUES[hue], scheme["page"]) >= 3


@pytest.mark.parametrize("scheme", sorted(PAGES))
@pytest.mark.parametrize("role", ["text", "muted", "link", "good", "poor", "bad"])
def test_text_can_be_read(scheme: str, role: str) -> None:
    colours = PAGES[scheme]
    assert contrast(colours[role], colours["page"]) >= 4.5
    assert contrast(colours[role], colours["panel"]) >= 4.5


def test_schemes_have_the_same_roles() -> None:
    assert set(palette.LIGHT) == set(palette.DARK)
    assert not set(palette.LIGHT) & set(palette.HUES)


@pytest.mark.parametrize("colour", palette.STAGES)
def test_stages_carry_dark_text_and_stand_out(colour: str) -> None:
    assert contrast(colour, palette.ON_HUE) >= 4.5
    for scheme in PAGES.values():
        assert contrast(colour, scheme["page"]) >= 3


def test_stages_are_not_taken_for_causes() -> None:
    assert not set(palette.STAGES) & set(palette.HUES.values())
    assert max(map(chroma, palette.STAGES)) < min(chroma(palette.HUES[hue]) for hue in palette.SERIES)


def chroma(colour: str) -> int:
    """How far the channels of a colour are apart."""
    parts = [int(colour[index : index + 2], 16) for index in (1, 3, 5)]
    return max(parts) - min(parts)


def test_neighbouring_stages_differ() -> None:
    count = len(palette.STAGES)
    assert len(set(palette.STAGES)) == count
    styles = [palette.stage_style(stage) for stage in range(3 * count)]
    assert all(one != other for one, other in pairwise(styles))
    sheet = palette.style_sheet()
    assert all(f".{style}{{" in sheet for style in styles)


def test_causes_drawn_side_by_side_differ() -> None:
    for causes in (TIME_CAUSES, MEMORY_CAUSES):
        assert len({palette.CAUSES[cause] for cause in causes}) == len(causes)
        assert all(f".{palette.cause_style(cause)}{{" in palette.style_sheet() for cause in causes)


def test_every_variable_is_defined() -> None:
    folder = Path(palette.__file__).with_name("templates")
    sheets = palette.style_sheet() + "".join(path.read_text() for path in sorted(folder.glob("*.css")))
    used = set(re.findall(r"var\(--([a-z-]+)\)", sheets))
    assert used <= {*palette.LIGHT, *palette.HUES, "on-hue"}
