"""An entry of the catalogue for people: figures with units and sources."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from attrs import fields, has

from nest.report.text.layout import WIDE, Screen, figures, paragraph, table
from nest.units import Bytes, BytesPerSecond, FlopPerSecond, Seconds, format_decimal, format_seconds

INDENT = 2

_DECIMAL = {Bytes: "B", BytesPerSecond: "B/s", FlopPerSecond: "FLOP/s"}


def entry_text(entry: object, screen: Screen = WIDE) -> str:
    """List the attributes of an attrs object that have a value, in their order; parts below their names."""
    return "\n".join(_lines(_members(entry), screen))


def _members(entry: Any) -> list[tuple[str, Any, Any]]:
    members = []
    for attribute in fields(type(entry)):
        value = getattr(entry, attribute.name)
        if value is not None and value not in ((), {}, ""):
            members.append((attribute.name, value, attribute.type))
    return members


def _lines(members: list[tuple[str, Any, Any]], screen: Screen) -> Iterator[str]:
    plain: list[tuple[str, str]] = []
    for name, value, kind in members:
        if not _has_parts(value):
            plain.append((name, _figure(value, kind)))
            continue
        if plain:
            yield figures(plain, screen)
            plain = []
        yield name
        yield _indented(value, kind, screen)
    if plain:
        yield figures(plain, screen)


def _has_parts(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(has(type(each)) or " " in str(each) for each in value)
    return has(type(value)) or isinstance(value, Mapping)


def _indented(value: Any, kind: Any, screen: Screen) -> str:
    """Return the parts of a value, two spaces further right."""
    narrower = screen if screen.width is None else screen._replace(width=max(screen.width - INDENT, 1))
    if has(type(value)):
        text = "\n".join(_lines(_members(value), narrower))
    elif isinstance(value, Mapping):
        text = "\n".join(_lines([(str(name), each, _inner(kind)) for name, each in value.items()], narrower))
    elif all(has(type(each)) for each in value):
        text = _records(value, narrower)
    else:
        text = "\n".join(paragraph(str(each), narrower, INDENT) for each in value)
    return "\n".join(" " * INDENT + line if line else line for line in text.split("\n"))


def _records(records: Any, screen: Screen) -> str:
    rows = [{name: (value, kind) for name, value, kind in _members(each)} for each in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    names.sort(key=lambda name: name != "name")
    cells = [[_figure(*row[name]) if name in row else "" for name in names] for row in rows]
    values = [[row[name][0] for row in rows if name in row] for name in names]
    numbers = [place for place, record in enumerate(values) if all(isinstance(each, (int, float)) for each in record)]
    return table(names, cells, numbers, screen)


def _inner(kind: Any) -> Any:
    return get_args(kind)[-1] if get_args(kind) else None


def _figure(value: Any, kind: Any) -> str:
    units = (kind, *get_args(kind))
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value))
    if isinstance(value, float) and Seconds in units:
        return format_seconds(value)
    if isinstance(value, float) and any(each in _DECIMAL for each in units):
        return format_decimal(value, next(_DECIMAL[each] for each in units if each in _DECIMAL))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
