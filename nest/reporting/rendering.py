"""From sections to one HTML file that needs nothing else."""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache

from attrs import frozen
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from nest.hooks.manager import own_version
from nest.reporting.alignment import UNITS, aligned, column_styles
from nest.reporting.marks import outline
from nest.reporting.palette import hatches, style_sheet
from nest.reporting.records import Section
from nest.reporting.svg import WIDTH, number

_MEASURE = re.compile(rf"(?<=[0-9]) (?=(?:{'|'.join(UNITS)})\b)")


@frozen
class Standing:
    """How far a plan is to be trusted.

    Attributes:
        name: in a word or two.
        style: class of the style sheet: `good`, `poor` or `bad`.
        proof: a sentence on what is proved.
    """

    name: str
    style: str
    proof: str


def rendered(title: str, size: str, standing: Standing, sections: Sequence[Section]) -> str:
    """The page.

    Args:
        title: of the page.
        size: of the model, in words; may be empty.
        standing: of the plan.
        sections: from top to bottom.
    """
    environment = _environment()
    sheets = (environment.get_template(name).render() for name in ("page.css", "charts.css"))
    # On one line: the Nu Html Checker takes the hash of a style sheet of several lines for a wrong one.
    style = " ".join((style_sheet() + "".join(sheets)).split("\n")).strip()
    # The browser applies no style but this one, and loads nothing (Content Security Policy 3, sections 6.1 and 8.4).
    style_hash = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    template = environment.get_template("page.html.j2")
    return template.render(
        title=title,
        size=size,
        standing=standing,
        sections=sections,
        style=Markup(style),
        style_hash=style_hash,
        hatches=hatches(),
        version=own_version(),
    )


def prose(sentence: str) -> Markup:
    """A sentence, escaped, in which what stands between backquotes is set as code."""
    parts = sentence.split("`")
    if len(parts) % 2 == 0:  # One that has no partner is but a character.
        return escape(sentence)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts)
    )


def unbroken(sentence: str) -> str:
    """A sentence in which no line ends between a number and its unit."""
    return _MEASURE.sub("\N{NO-BREAK SPACE}", sentence)


def fact_columns(count: int) -> int:
    """Columns of a grid of figures, at most 5, in which at most the last place of the last row is free."""
    return {3: 3, 5: 5, 6: 3, 9: 3}.get(count, 4)


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("nest.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.globals["wide"] = WIDTH
    found.filters["coordinate"] = number
    found.filters["prose"] = prose
    found.filters["unbroken"] = unbroken
    found.filters["columns"] = fact_columns
    found.filters["aligned"] = aligned
    found.filters["column_styles"] = column_styles
    found.filters["outline"] = lambda form: outline(form, 7.0, 7.0)
    return found
