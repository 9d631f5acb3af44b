"""A page as a program reads it: its tables, by their captions, and its text."""

from collections.abc import Mapping
from html.parser import HTMLParser

from attrs import define, field, frozen


@frozen
class ReadCell:
    """Text of a cell, and its figure in full."""

    text: str
    value: float | None


@define
class ReadTable:
    """Caption, header and rows of a table."""

    caption: str = ""
    header: list[str] = field(factory=list)
    rows: list[list[ReadCell]] = field(factory=list)

    def column(self, name: str) -> list[ReadCell]:
        place = self.header.index(name)
        return [row[place] for row in self.rows]

    def values(self, name: str) -> list[float]:
        return [cell.value for cell in self.column(name) if cell.value is not None]


class Page(HTMLParser):
    """Reads a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[ReadTable] = []
        self.facts: dict[str, ReadCell] = {}
        self.tags: list[tuple[str, Mapping[str, str | None]]] = []
        self.listings: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self._caught = ""
        self._value: float | None = None
        self._term = ""
        self.feed(text)
        self.close()

    def table(self, caption: str) -> ReadTable:
        (found,) = (table for table in self.tables if table.caption == caption)
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.tags.append((tag, told))
        if tag == "table":
            self.tables.append(ReadTable())
        if tag == "tr":
            self.tables[-1].rows.append([])
        if tag in ("th", "td", "caption", "dt", "dd", "pre"):
            self._caught = ""
            value = told.get("data-value")
            self._value = None if value is None else float(value)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        text = self._caught.strip()
        if tag == "caption":
            self.tables[-1].caption = text
        elif tag in ("th", "td"):
            self.tables[-1].rows[-1].append(ReadCell(text, self._value))
        elif tag == "thead":
            self.tables[-1].header = [cell.text for cell in self.tables[-1].rows.pop()]
        elif tag == "dt":
            self._term = text
        elif tag == "dd":
            self.facts[self._term] = ReadCell(text, self._value)
        elif tag == "pre":
            self.listings.append(self._caught)

    def handle_data(self, data: str) -> None:
        told = data.replace("\N{NO-BREAK SPACE}", " ")  # That is for the eye alone.
        self._caught += told
        self.text += told
