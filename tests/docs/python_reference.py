"""The reference pages of modules that plug-ins import, made of docstrings: `docs/reference/python/*.md`.

`python -m tests.docs.refresh docs/reference/python/graph.md` writes one; a test compares.
"""

import inspect
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import attrs

from nest.io.schema import field_descriptions
from tests.docs import generated

MODULES = ("nest.graph", "nest.spec", "nest.deployment", "nest.network")


def refreshed(page: str) -> str:
    """`page` with the parts between marks made anew."""
    return generated.refreshed(page, "python_reference", {name: partial(_module, name) for name in MODULES})


def _module(name: str) -> list[str]:
    module = import_module(name)
    return [line for each in sorted(module.__all__, key=str.lower) for line in _entry(each, getattr(module, each))]


def _entry(name: str, item: Any) -> Iterator[str]:
    yield from ("", f"## `{name}`", "")
    if inspect.isclass(item):
        yield from _class(item)
    elif inspect.isfunction(item):
        yield f"`{name}({', '.join(inspect.signature(item).parameters)})`"
        yield from _text(item)
    else:
        text = repr(item)
        yield f"A constant: `{text}`." if isinstance(item, (str, int, float, tuple)) else "A name for a type."


def _class(item: Any) -> Iterator[str]:
    told, _, _ = (inspect.getdoc(item) or "").partition("\nAttributes:\n")
    yield _flat(told)
    fields, texts = attrs.fields_dict(item) if attrs.has(item) else {}, field_descriptions(item)
    rows = [(f"`{key}`", texts.get(key, "")) for key in fields if not key.startswith("_")]
    for key, member in vars(item).items():
        function = member.fget if isinstance(member, property) else getattr(member, "func", member)
        function = getattr(function, "__func__", function)  # Of class methods.
        if not key.startswith("_") and inspect.isfunction(function) and function.__doc__:
            arguments = [each for each in inspect.signature(function).parameters if each not in ("self", "cls")]
            called = "" if function is not member and not hasattr(member, "__func__") else f"({', '.join(arguments)})"
            rows.append((f"`{key}{called}`", inspect.cleandoc(function.__doc__).partition("\n\n")[0]))
    if rows:
        yield from ("", "| | |", "|---|---|")
        yield from (f"| {key} | {_flat(text)} |" for key, text in rows)


def _text(function: Any) -> Iterator[str]:
    """A docstring: its paragraphs, then arguments and errors as lists."""
    for section in (inspect.getdoc(function) or "").split("\n\n"):
        title, _, rest = section.partition(":\n")
        if title in ("Args", "Raises", "Returns"):
            yield from ("", f"{title}:", "")
            entries = inspect.cleandoc(rest).replace("\n    ", " ").splitlines()
            yield from (f"* {_flat(entry)}" for entry in entries)
        else:
            yield from ("", _flat(section))


def _flat(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
