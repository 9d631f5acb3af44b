"""From sections to one HTML file that needs nothing else."""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from nest import __version__
from nest_page.palette import hatches, style_sheet
from nest_page.records import UNITS, Heading, PlanStatus, Section, aligned, column_styles
from nest_page.svg import number, outline
from nest_page.timeline_drawing import patterns

_FORBIDDEN = re.compile(
    "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\ufdd0-\\ufdef"
    + "".join(f"{chr(plane * 0x10000 + 0xFFFE)}{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(17))
    + "]"
)
"""Controls and noncharacters, which no HTML file may hold (HTML Living Standard, 13.2.3.5); names may."""
_MEASURE = re.compile(rf"(?<=[0-9]) (?=(?:{'|'.join(UNITS)})\b)")


def rendered(heading: Heading, statuses: Sequence[PlanStatus], sections: Sequence[Section]) -> str:
    """The page, its sections from top to bottom."""
    environment = _environment()
    sheets = (environment.get_template(name).render() for name in ("page.css", "charts.css"))
    # On one line: the Nu Html Checker takes the hash of a style sheet of several lines for a wrong one.
    style = " ".join((style_sheet() + "".join(sheets)).split("\n")).strip()
    # The browser applies no style but this one, and loads nothing (Content Security Policy 3, sections 6.1 and 8.4).
    style_hash = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    template = environment.get_template("page.html.j2")
    text = template.render(
        heading=heading,
        statuses=statuses,
        sections=sections,
        style=Markup(style),
        style_hash=style_hash,
        patterns=hatches() + patterns(),
        version=__version__,
    )
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def prose(sentence: str) -> Markup:
    """A sentence, escaped, in which what stands between backquotes is set as code."""
    parts = sentence.split("`")
    if len(parts) % 2 == 0:  # One that has no partner is but a character.
        return escape(sentence)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts)
    )


def breakable(name: str) -> Markup:
    """The path of a key, escaped, which may be broken after its dots."""
    return Markup(".<wbr>").join(name.split("."))


def unbroken(sentence: str) -> str:
    """A sentence in which no line ends between a number and its unit."""
    return _MEASURE.sub("\N{NO-BREAK SPACE}", sentence)


def fact_columns(count: int) -> int:
    """Columns of a grid of figures, at most 5, in which at most the last place of the last row is free."""
    return {3: 3, 5: 5, 6: 3, 9: 3}.get(count, 4)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("nest_page.drawing"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["coordinate"] = number
    environment.filters["prose"] = prose
    environment.filters["breakable"] = breakable
    environment.filters["unbroken"] = unbroken
    environment.filters["columns"] = fact_columns
    environment.filters["aligned"] = aligned
    environment.filters["column_styles"] = column_styles
    environment.filters["outline"] = lambda form: outline(form, 7.0, 7.0)
    return environment
