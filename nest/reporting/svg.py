"""SVG elements as text; what people wrote is escaped on its way in."""

from collections.abc import Iterable

from markupsafe import Markup, escape

WIDTH = 1120
"""Of a figure that fills the page, CSS pixels on a large screen."""

WIDTHS = (WIDTH, 704, 358)
"""Of the drawings of a figure, of which one is shown: on a large screen, on a tablet and on paper, on a phone."""

NARROW = 500
"""Width below which drawings do without words that are said beside them, px."""

_DIGIT = 6.7
"""Mean width of a digit or a letter at 12 px in the page's font, px: system fonts differ by a tenth of it."""


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel: finer cannot be seen, and costs bytes."""
    text = f"{value:.1f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def element(tag: str, content: str | Markup = "", /, **attributes: str | float | None) -> Markup:
    """One element.

    Args:
        tag: its name.
        content: what stands in it; text that is no `Markup` is escaped.
        attributes: by name, `class_` for `class` and `_` for `-`; numbers are coordinates; None: not written.
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value) if isinstance(value, str) else number(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    inner = escape(content)
    return Markup(f"<{tag}{written}>{inner}</{tag}>" if inner else f"<{tag}{written}/>")


def joined(parts: Iterable[Markup]) -> Markup:
    """Elements one after the other."""
    return Markup("\n").join(parts)


def text(x: float, y: float, content: str, style: str = "", anchor: str = "start") -> Markup:
    """A line of text; `y` is its base line, `anchor` start, middle or end."""
    return element("text", content, x=x, y=y, class_=style or None, text_anchor=None if anchor == "start" else anchor)


def boxes(places: Iterable[tuple[float, float, float, float]]) -> str:
    """The `d` of one path of many rectangles, `(x, y, width, height)` each: far fewer bytes than as many elements."""
    return "".join(
        f"M{number(x)} {number(y)}h{number(width)}v{number(height)}h{number(-width)}z" for x, y, width, height in places
    )


def fits(content: str, width: float, size: float = 12) -> bool:
    """Whether a text at `size` px is sure to fit into `width` px."""
    return len(content) * _DIGIT * size / 12 <= width


def shortened(content: str, width: float, size: float = 12) -> str:
    """The beginning of a text at `size` px that is sure to fit into `width` px, with an ellipsis for the rest."""
    if fits(content, width, size):
        return content
    return content[: max(int(width * 12 / (_DIGIT * size)) - 1, 0)].rstrip() + "…"
