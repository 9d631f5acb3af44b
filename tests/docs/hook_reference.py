"""The part of docs/reference/hooks.md that is made of `nest/hooks/spec.py` and the protocols' docstrings.

`python -m tests.docs.refresh docs/reference/hooks.md` writes it; a test compares.
"""

import inspect
import re
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

from nest.hooks import protocols, spec
from nest.hooks.kinds import KINDS

BEGIN = "<!-- generated from nest/hooks/spec.py by tests/docs/hook_reference.py -->"
END = "<!-- end of what is generated -->"


def refreshed(page: str) -> str:
    """`page` with the part between the marks made anew."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{text()}{END}{after}"


def text() -> str:
    """The reference: a section for each hook."""
    hooks = [name for name in vars(spec) if name.startswith("nest_")]
    return "\n".join(line for hook in hooks for line in _section(hook)) + "\n"


def _section(hook: str) -> Iterator[str]:
    function = getattr(spec, hook)
    arguments = ", ".join(inspect.signature(function).parameters)
    yield f"\n## `{hook}({arguments})`\n"
    yield _flat(function.__doc__ or "")
    kind = hook.removeprefix("nest_")
    if kind not in KINDS:
        return
    protocol = getattr(protocols, KINDS[kind].class_name)
    told, optional = _parts(protocol)
    yield f"\n`nest.hooks.protocols.{KINDS[kind].class_name}`: {told}\n"
    yield "| each object offers | |"
    yield "|---|---|"
    for name, member in _members(protocol):
        yield f"| `{_signature(name, member)}` | {_cell(member)} |"
    for name, description in optional:
        yield f"| optional: `{name}` | {description[0].upper()}{description[1:]} |"
    others = [
        each
        for each in vars(protocols).values()
        if isinstance(each, type) and each is not protocol and protocol in each.__mro__
    ]
    for other in others:
        for name, member in _members(other):
            yield f"| optional: `{_signature(name, member)}` | {_cell(member)} |"
    for other in others:
        yield f"\n`nest.hooks.protocols.{other.__name__}`: {_parts(other)[0]}"


def _members(protocol: Any) -> list[tuple[str, Any]]:
    """The members a protocol itself asks for."""
    named = vars(protocols.Named) if protocols.Named in protocol.__bases__ else {}
    return [
        (name, member)
        for name, member in {**named, **vars(protocol)}.items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    ]


def _parts(protocol: Any) -> tuple[str, list[tuple[str, str]]]:
    """What a protocol's docstring says: of its objects, and of members they may have."""
    told, _, rest = inspect.cleandoc(protocol.__doc__ or "").partition("Optional:\n")
    paragraphs = [_flat(paragraph) for paragraph in told.split("\n\n") if paragraph.strip()]
    found = re.findall(r"^(\w+): (.*(?:\n +.*)*)", dedent(rest), re.MULTILINE)
    return "\n\n".join(paragraphs), [(name, _flat(description)) for name, description in found]


def _signature(name: str, member: Any) -> str:
    """A member as people call it."""
    if isinstance(member, property):
        return f"{name}: {_type(member.fget)}"
    arguments = [each for each in inspect.signature(member).parameters if each != "self"]
    return f"{name}({', '.join(arguments)}) -> {_type(member)}".replace("|", "\\|")


def _type(function: Any) -> str:
    told = inspect.get_annotations(function)["return"]
    plain = isinstance(told, type) and not getattr(told, "__args__", ())
    text = told if isinstance(told, str) else told.__name__ if plain else str(told)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)


def _cell(member: Any) -> str:
    """A member's docstring in one line of a table, its arguments behind what it gives."""
    function = member.fget if isinstance(member, property) else member
    told, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:\n")
    sentences = [_flat(told)]
    for name, description in re.findall(r"^(\w+): (.*(?:\n +.*)*)", dedent(rest), re.MULTILINE):
        sentences.append(f"`{name}`: {_flat(description)}")
    return "<br>".join(sentences).replace("|", "\\|")


def _flat(text: str) -> str:
    return " ".join(text.split())
