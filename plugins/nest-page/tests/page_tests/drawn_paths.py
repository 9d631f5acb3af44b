"""What a drawing draws, read from its elements."""

import re
from xml.etree import ElementTree

from nest_page.records import Drawing

_BOX = re.compile(r"M(-?[\d.]+) (-?[\d.]+)h(-?[\d.]+)v(-?[\d.]+)h(-?[\d.]+)z")


def elements(drawing: Drawing) -> ElementTree.Element:
    """The drawing as XML."""
    return ElementTree.fromstring(f"<svg>{drawing.body}</svg>")


def boxes_of(drawing: Drawing, style: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of the rectangles of the paths with a class, in the order they are drawn."""
    found = []
    for path in elements(drawing).iter("path"):
        if style in path.get("class", "").split():
            text = path.get("d", "")
            assert _BOX.sub("", text) == ""
            for x, y, width, height, _ in _BOX.findall(text):
                found.append((float(x), float(y), float(x) + float(width), float(y) + float(height)))
    return found
