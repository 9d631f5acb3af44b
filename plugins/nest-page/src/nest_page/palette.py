"""Colours of the page, by what they stand for; figures name classes, never colours.

Hues lie evenly apart in OKLCH (CSS Color 4, section 9.2), all with a relative luminance (WCAG 2.2) of 0.24 to 0.30:
dark text on each of them has a contrast above 4.5, and each stands out with above 3 from a white and from a near-black
page, so one set serves both schemes.
"""

from collections.abc import Mapping

from markupsafe import Markup

from nest_page.svg import element, joined

HUES: Mapping[str, str] = {
    "blue": "#528ed9",
    "orange": "#d77c35",
    "teal": "#2c9e92",
    "rose": "#d9627a",
    "violet": "#9776cd",
    "green": "#4ea253",
    "ochre": "#b18f22",
    "cyan": "#2c9cc0",
    "magenta": "#c966ab",
    "olive": "#88983a",
    "slate": "#7d8a9b",
    "grey": "#949088",
}
"""Fills by name."""

ON_HUE = "#0b0d10"
"""Text on any of them."""

LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "panel": "#f6f7f9",
    "text": "#16191d",
    "muted": "#545c66",
    "line": "#d5d9df",
    "link": "#0b57b0",
    "good": "#17693a",
    "poor": "#8a5300",
    "bad": "#a3202c",
}
"""The light scheme, by role."""

DARK: Mapping[str, str] = {
    "page": "#121417",
    "panel": "#1b1e23",
    "text": "#e6e8eb",
    "muted": "#a3abb5",
    "line": "#343a42",
    "link": "#82b6f5",
    "good": "#6ec98f",
    "poor": "#e0b05c",
    "bad": "#f18a92",
}
"""The dark scheme, by role."""

STAGES = ("#ba7f79", "#619a7c", "#9387b9", "#ad875c", "#4e99a1", "#b07f9f", "#8b935d", "#6a91ba")
"""Fills of pipeline stages, again from the beginning after the last: neighbours differ, and stages carry numbers.

They are duller than `HUES` (a chroma of 0.075 in OKLCH, 45 degrees apart), so that none looks like a cause's color.
"""

SERIES = ("blue", "orange", "teal", "rose", "violet", "green", "ochre", "cyan", "magenta", "olive")
"""Hues of lines in charts, again from the beginning after the last; a mark's class is `fill-HUE`."""

CAUSES: Mapping[str, str] = {
    # Of time.
    "compute": "blue",
    "collectives": "orange",
    "recompute": "violet",
    "pipeline": "cyan",
    "sharding": "ochre",
    "ports": "magenta",
    "sync": "rose",
    "bubble": "grey",
    "waiting": "slate",
    # Of tasks of a timeline (nest.simulate.timeline).
    "forward": "blue",
    "backward": "green",
    "input-gradients": "green",
    "weight-gradients": "olive",
    "receive-activations": "cyan",
    "receive-gradients": "teal",
    "gather-weights": "ochre",
    "reduce-gradients": "rose",
    "update": "magenta",
    "idle": "grey",
    # Of memory.
    "weights": "teal",
    "gradients": "rose",
    "optimizer": "violet",
    "activations": "ochre",
    "transient": "green",
    "communication": "cyan",
    "framework": "slate",
    "fragmentation": "orange",
    "reserve": "grey",
}
"""Hue of each cause; a figure fills it with the class `cause-NAME`."""

HATCHED = frozenset({"bubble", "waiting", "idle", "reserve", "fragmentation"})
"""Causes that nothing useful stands behind: drawn as lines on the page's panel, not as a filled box."""


def stage_style(stage: int) -> str:
    """The class that fills what belongs to a stage, counted from 0."""
    return f"stage-{stage % len(STAGES)}"


def cause_style(cause: str) -> str:
    """The class that fills what has a cause."""
    return f"cause-{cause}"


def label_style(cause: str) -> str:
    """The class of text that stands on what has a cause; empty: the page's own."""
    return "" if cause in HATCHED else "on"


def hatches() -> Markup:
    """Definitions that the classes of hatched causes refer to, once for the page."""
    return joined(
        element(
            "pattern",
            element("rect", class_="paper", width=6, height=6)
            + element("path", d="M-1 1L1 -1M0 6L6 0M5 7L7 5", class_=f"hatch line-{CAUSES[cause]}"),
            id=f"hatch-{cause}",
            width="6",
            height="6",
            patternUnits="userSpaceOnUse",
        )
        for cause in sorted(HATCHED)
    )


def style_sheet() -> str:
    """The variables of both schemes, and a class for each stage and cause."""
    lines = [":root{color-scheme:light dark;" + _variables({**LIGHT, **HUES, "on-hue": ON_HUE}) + "}"]
    lines.append("@media (prefers-color-scheme:dark){:root{" + _variables(DARK) + "}}")
    lines.append("@media print{:root{color-scheme:light;" + _variables(LIGHT) + "}}")
    lines += [f".stage-{index}{{fill:{colour}}}" for index, colour in enumerate(STAGES)]
    lines += [
        f".cause-{cause}{{fill:url(#hatch-{cause})}}" if cause in HATCHED else _fill(f"cause-{cause}", hue)
        for cause, hue in CAUSES.items()
    ]
    lines += [f".line-{hue}{{stroke:var(--{hue})}}" for hue in HUES]
    lines += [_fill(f"fill-{hue}", hue) for hue in SERIES]
    return "\n".join(lines) + "\n"


def _variables(colours: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


def _fill(name: str, hue: str) -> str:
    return f".{name}{{fill:var(--{hue})}}"
