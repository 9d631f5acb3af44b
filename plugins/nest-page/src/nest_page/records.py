"""Subject and parts of a page: figures, tables and keys of colours, ready to be set."""

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen
from markupsafe import Markup

from nest.hooks.registry import Registry
from nest.instance import Instance, Solution
from nest.public.planning import Formulation, PricedPlan
from nest.spec import PlanDocument, Problem
from nest.units import format_bytes, format_seconds, percent


@frozen
class Subject:
    """A feasible plan as read, its self-contained problem, and what follows from them: decisions and prices."""

    plan: PlanDocument
    problem: Problem
    instance: Instance
    formulation: Formulation
    solution: Solution
    priced: PricedPlan
    known: Registry

    @property
    def batch_time(self) -> float:
        """Seconds per optimizer step."""
        return self.priced.batch_time

    @property
    def summary(self) -> Mapping[str, Any]:
        """Derived figures."""
        return self.plan.summary


@frozen
class Cell:
    """One cell of a table: words, and the figure in full, SI units, for programs; None: the words say it all.

    `link` is what the words lead to; empty: nothing.
    """

    text: str
    value: float | None = None
    link: str = ""

    @property
    def full(self) -> str:
        """The figure, digit for digit."""
        return "" if self.value is None else repr(self.value)

    @classmethod
    def seconds(cls, value: float) -> "Cell":
        """A time."""
        return cls(format_seconds(value), value)

    @classmethod
    def size(cls, value: float) -> "Cell":
        """A size."""
        return cls(format_bytes(value), value)

    @classmethod
    def share(cls, value: float) -> "Cell":
        """A share, in per cent."""
        return cls(f"{percent(value)}", value)


@frozen
class Table:
    """Rows under a header, the first cell of a row its name; `words` are the columns of words, set flush left.

    `anchors` are the names of the rows, unique on the page, for links; none: they have no names.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: tuple[int, ...] = (0,)
    anchors: tuple[str, ...] = ()


@frozen
class Key:
    """Entry of a legend: a fill, or a mark with a form (`svg.outline`); `style` is its class in the style sheet."""

    label: str
    style: str
    form: str = ""


@frozen
class Drawing:
    """An SVG picture: its view box, px, elements, a title, and what there is to see for people who do not see it.

    One that is `linked` has links in it.
    """

    width: float
    height: float
    body: Markup
    title: str
    description: str
    linked: bool = False


@frozen
class Figure:
    """A drawing with what it means, in words and in numbers.

    Attributes:
        name: unique on the page, for links: `memory`.
        title: heading.
        caption: what is drawn, and what was left out; `backquoted` words are set as code.
        sizes: for each of `nest_page.svg.WIDTHS`, the drawings from top to bottom.
        table: the same figures as numbers.
        keys: legend, in the order of the drawing.
        more: further tables.
    """

    name: str
    title: str
    caption: str
    sizes: tuple[tuple[Drawing, ...], ...]
    table: Table
    keys: tuple[Key, ...] = ()
    more: tuple[Table, ...] = ()


@frozen
class Fact:
    """A figure of the headline, by a name that is unique on the page, with what to know about it."""

    name: str
    cell: Cell
    note: str = ""


@frozen
class Listing:
    """Text to be copied: a file, or commands."""

    name: str
    text: str
    note: str = ""


@frozen
class Fold:
    """Parts folded away under a line that describes them."""

    name: str
    listings: tuple[Listing, ...] = ()
    tables: tuple[Table, ...] = ()


@frozen
class Section:
    """A part of the page under a heading of its own.

    Attributes:
        name: unique on the page, for links.
        title: heading.
        paragraphs: what stands above figures and listings; `backquoted` words are set as code.
        figures: drawings and their numbers.
        tables: numbers without a drawing.
        listings: to be copied, the most useful first.
        more: further listings, folded away.
        more_title: what these are.
        facts: figures that stand out.
        lead: a sentence or two in front of all else.
    """

    name: str
    title: str
    paragraphs: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    listings: tuple[Listing, ...] = ()
    more: tuple[Fold, ...] = ()
    more_title: str = ""
    facts: tuple[Fact, ...] = ()
    lead: str = ""


@frozen
class PlanStatus:
    """The trust a plan deserves, in a word or two and in a sentence on its proof.

    Its style is a class of the style sheet: `good`, `poor` or `bad`.
    """

    name: str
    style: str
    proof: str


@frozen
class Heading:
    """Title, sizes and date of a page: model, cluster and batch in words; `about`: terms with their sentences."""

    title: str
    sizes: tuple[str, ...] = ()
    kind: str = "plan"
    about: tuple[tuple[str, str], ...] = ()
    date: datetime.date | None = None


UNITS: Mapping[str, float] = {
    "TiB": 2.0**40, "GiB": 2.0**30, "MiB": 2.0**20, "KiB": 2.0**10, "B": 1.0,
    "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9,
}  # fmt: skip
"""Units that `nest.units` writes times and sizes in, and what they are in SI units."""

DIGITS = 4
"""Digits of the greatest figure of a column."""

LONG = 24
"""Characters from which words are broken over lines."""

_FIGURE = re.compile(r"(?P<number>[0-9][0-9.]*) (?P<unit>[A-Za-z]+)")


def aligned(table: Table) -> tuple[tuple[Cell, ...], ...]:
    """The rows of a table, figures of a column that all have one unit with the same number of decimals."""
    columns = list(zip(*table.rows, strict=True))
    for place, cells in enumerate(columns):
        if place and place not in table.words:
            same = alike([cell.text for cell in cells], [cell.value for cell in cells])
            columns[place] = tuple(Cell(text, cell.value, cell.link) for text, cell in zip(same, cells, strict=True))
    return tuple(zip(*columns, strict=True))


def alike(texts: Sequence[str], values: Sequence[float | None]) -> list[str]:
    """Figures with the same number of decimals, where all have one unit; as they are otherwise.

    Args:
        texts: of the figures, such as `21.8 GiB`; other texts stay.
        values: of the figures, SI units; None: not a figure.
    """
    common = [
        _FIGURE.fullmatch(text) if value is not None and value > 0 else None
        for text, value in zip(texts, values, strict=True)
    ]
    units = {match["unit"] for match in common if match is not None}
    if len(units) != 1 or not units <= set(UNITS):
        return list(texts)
    (unit,) = units
    greatest = max(
        value for value, match in zip(values, common, strict=True) if match is not None and value is not None
    )
    most = max(len(match["number"].partition(".")[2]) for match in common if match is not None)
    decimals = min(most, max(DIGITS - 1 - math.floor(math.log10(greatest / UNITS[unit])), 0))
    cells = []
    for text, value, match in zip(texts, values, common, strict=True):
        if match is not None and value is not None:
            cells.append(f"{value / UNITS[unit]:.{decimals}f} {unit}")
        else:
            cells.append(f"0 {unit}" if value == 0 and _FIGURE.fullmatch(text) else text)
    return cells


def column_styles(table: Table) -> tuple[str, ...]:
    """Classes of the cells of each column: `words` are set flush left, `long` ones may be broken over lines."""
    styles = []
    for place, name in enumerate(table.header):
        words = place in table.words
        longest = max((len(row[place].text) for row in table.rows), default=len(name))
        styles.append(" ".join([*(["words"] if words else []), *(["long"] if words and longest >= LONG else [])]))
    return tuple(styles)
