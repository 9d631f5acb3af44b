"""From sections to one HTML file that needs nothing else."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache

from attrs import frozen
from jinja2 import Environment, PackageLoader, StrictUndefined

from nest.hooks.manager import own_version
from nest.reporting.palette import style_sheet
from nest.reporting.records import Section
from nest.reporting.svg import number


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


def rendered(title: str, standing: Standing, sections: Sequence[Section]) -> str:
    """The page.

    Args:
        title: of the page.
        standing: of the plan.
        sections: from top to bottom.
    """
    environment = _environment()
    style = style_sheet() + "".join(environment.get_template(name).render() for name in ("page.css", "charts.css"))
    # The browser applies no style but this one, and loads nothing (Content Security Policy 3, sections 6.1 and 8.4).
    style_hash = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    template = environment.get_template("page.html.j2")
    return template.render(
        title=title,
        standing=standing,
        sections=sections,
        style=_Verbatim(style),
        style_hash=style_hash,
        version=own_version(),
    )


class _Verbatim(str):
    """Our own style sheet, which is not escaped."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


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
    found.filters["coordinate"] = number
    return found
