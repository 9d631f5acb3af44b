"""Predicted curves beside measured points: the table of docs/explanation/curves.md and its pictures.

`python -m tests.docs.curves` writes both; a test compares. benchmarks/fidelity/curves.toml has the points.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import log
from pathlib import Path
from typing import Any

from attrs import frozen
from markupsafe import Markup

import nest
import tests.bundled  # noqa: F401
from nest_page.palette import DARK, HUES, LIGHT
from nest_page.svg import element, joined, number, text
from tests.docs import generated
from tests.docs.document import REPOSITORY

PAGE = Path("docs/explanation/curves.md")
FOLDER = REPOSITORY / "docs" / "images"
POINTS = REPOSITORY / "benchmarks" / "fidelity" / "curves.toml"

WIDTH, HEIGHT, LEFT, TOP, BELOW = 340.0, 200.0, 48.0, 30.0, 64.0
"""Of the area of a panel, and around it, px."""

SERIES = ("blue", "orange", "teal")
"""Hues of a panel's series."""


@frozen
class Series:
    """One curve: `(x, predicted seconds, measured seconds)` by x; a measured time may be missing."""

    name: str
    points: tuple[tuple[int, float, float | None], ...]


@cache
def curves() -> tuple[tuple[Mapping[str, Any], tuple[Series, ...]], ...]:
    """The curves of the file, predicted."""
    every = tomllib.loads(POINTS.read_text())["curve"]
    return tuple((each, tuple(_series(each, series) for series in each["series"])) for each in every)


def _series(curve: Mapping[str, Any], series: Mapping[str, Any]) -> Series:
    points = []
    for index, (x, *measured) in enumerate(series["points"]):
        plan = nest.evaluate(_problem(curve, series, index, x))
        assert plan.batch_time is not None
        points.append((x, plan.batch_time, measured[0] if measured else None))
    return Series(series["name"], tuple(points))


def _problem(curve: Mapping[str, Any], series: Mapping[str, Any], index: int, x: int) -> dict[str, Any]:
    problem = curve["problem"]
    training = {"optimizer": "adam", "uneven_batch": True, **problem["training"], **series.get("training", {})}
    cluster = {**problem["cluster"]}
    if curve["axis"] == "GPUs":
        inner, *outer = cluster["levels"]
        cluster["levels"] = [inner, *({**level, "fanout": x // inner["fanout"]} for level in outer)]
        if x <= inner["fanout"]:
            cluster["levels"] = [inner]
    else:
        training["sequence_length"] = x
    if "batches" in series:
        training["global_batch"] = series["batches"][index]
    fixed = {**problem["fixed"], **(series["fixed"][index] if "fixed" in series else {})}
    return {"nest": 1, "model": problem["model"], "training": training, "cluster": cluster, "fixed": fixed}


def table() -> Iterator[str]:
    """Measured and predicted seconds of each point."""
    yield "| runs | | measured | predicted | |"
    yield "|---|---|---|---|---|"
    for curve, every in curves():
        yield f"| **{curve['name']}** | | | | |"
        for series in every:
            for x, predicted, measured in series.points:
                shown = "" if measured is None else f"{measured:.4g} s"
                off = "" if measured is None else f"{100 * (predicted / measured - 1):+.0f} %"
                yield f"| {series.name} | {x:,} {curve['axis']} | {shown} | {predicted:.3g} s | {off} |"


def sources() -> Iterator[str]:
    """Where the points of each curve are published."""
    for curve, _ in curves():
        yield f"* {curve['name']}: {curve['source']}."


PARTS = {"table": table, "sources": sources}


def refreshed(page: str) -> str:
    """`page` with its table and sources made anew."""
    return generated.refreshed(page, "curves", PARTS)


def pictures() -> Mapping[str, str]:
    """The files by name."""
    return {f"curves-{name}.svg": _picture(colours) for name, colours in (("light", LIGHT), ("dark", DARK))}


def _picture(colours: Mapping[str, str]) -> str:
    panels, wide = [], LEFT + WIDTH + 16
    tall = TOP + HEIGHT + BELOW
    for index, (curve, series) in enumerate(curves()):
        place = f"translate({number(index % 2 * wide)} {number(index // 2 * tall)})"
        panels.append(element("g", _panel(curve, series), transform=place))
    rows = (len(panels) + 1) // 2
    style = (
        f"svg{{background:{colours['page']}}}text{{font:12px system-ui,sans-serif;fill:{colours['text']}}}"
        f".title{{font-weight:600}}.axis{{stroke:{colours['line']};fill:none}}.curve{{fill:none;stroke-width:2}}"
        + "".join(f".{hue}{{stroke:{HUES[hue]}}}.dot.{hue}{{fill:{HUES[hue]}}}" for hue in SERIES)
    )
    width, height = number(2 * wide), number(rows * tall)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    label = "Step times: predicted as lines, measured as points"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
    return f"{start}\n<style>{style}</style>\n{joined(panels)}\n</svg>\n"


def _panel(curve: Mapping[str, Any], every: Sequence[Series]) -> Markup:
    seconds = [each for series in every for _, *both in series.points for each in both if each is not None]
    ends = sorted({x for series in every for x, _, _ in series.points})
    low, high = 0.8 * min(seconds), 1.25 * max(seconds)

    def across(x: int) -> float:
        return LEFT + 8 + (WIDTH - 16) * log(x / ends[0]) / log(ends[-1] / ends[0])

    def up(value: float) -> float:
        return TOP + HEIGHT * log(high / value) / log(high / low)

    parts = [
        text(LEFT, TOP - 10, curve["name"], "title"),
        element("rect", x=LEFT, y=TOP, width=WIDTH, height=HEIGHT, class_="axis"),
    ]
    parts += [text(LEFT - 4, up(each) + 4, f"{each:.3g} s", anchor="end") for each in (min(seconds), max(seconds))]
    parts += [
        text(across(x), TOP + HEIGHT + 16, f"{x:,}", anchor="end" if x == ends[-1] else "start")
        for x in (ends[0], ends[-1])
    ]
    parts.append(text(LEFT + WIDTH / 2, TOP + HEIGHT + 16, curve["axis"], anchor="middle"))
    left = LEFT
    for hue, series in zip(SERIES, every, strict=False):
        line = " ".join(f"{number(across(x))},{number(up(predicted))}" for x, predicted, _ in series.points)
        parts.append(element("polyline", points=line, class_=f"curve {hue}"))
        parts += [
            element("circle", cx=across(x), cy=up(measured), r=4, class_=f"dot {hue}")
            for x, _, measured in series.points
            if measured is not None
        ]
        parts.append(element("path", d=f"M{number(left)} {number(TOP + HEIGHT + 34)}h14", class_=f"curve {hue}"))
        parts.append(text(left + 18, TOP + HEIGHT + 38, series.name))
        left += 24 + 6.7 * len(series.name)
    return joined(parts)


def write() -> None:
    """Write the pictures and the page."""
    for name, svg in pictures().items():
        Path(FOLDER / name).write_text(svg)
    page = REPOSITORY / PAGE
    page.write_text(refreshed(page.read_text()))


if __name__ == "__main__":
    write()
