"""The part of docs/reference/hooks.md that is made of `nest/hooks/spec.py`, `kinds.py` and the protocols.

`python -m tests.docs.refresh docs/reference/hooks.md` writes it; a test compares.
"""

import inspect
import re
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

import nest.testing
from nest.hooks import protocols, spec
from nest.hooks.kinds import KINDS, Kind

BEGIN = "<!-- generated from nest/hooks/spec.py by tests/docs/hook_reference.py -->"
END = "<!-- end of what is generated -->"


def refreshed(page: str) -> str:
    """`page` with a new text between the marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{text()}{END}{after}"


def text() -> str:
    """The reference: a section for each hook."""
    hooks = [name for name in vars(spec) if name.startswith("nest_")]
    return "\n".join(line for hook in hooks for line in _section(hook)) + "\n"


def _section(hook: str) -> Iterator[str]:
    function = getattr(spec, hook)
    yield f"\n## `{hook}({', '.join(inspect.signature(function).parameters)})`\n"
    yield " ".join((function.__doc__ or "").split())
    kind = KINDS.get(hook.removeprefix("nest_"))
    if kind is not None:
        yield from _kind(kind)


def _kind(kind: Kind) -> Iterator[str]:
    protocol = getattr(protocols, kind.class_name)
    others = [each for each in vars(protocols).values() if isinstance(each, type) and protocol in each.__mro__[1:]]
    yield kind.use.replace("$name", "NAME")
    name = f"`nest.hooks.protocols.{kind.class_name}`"
    check = f"check_{kind.word.replace('-', '_')}"
    assert hasattr(nest.testing, check)
    yield f"\nProtocol: {name}. Template: `--kind {kind.word}`. Check: `{check}`.\n"
    for signature in _members(protocol):
        yield f"* `{signature}`"
    optional = dict.fromkeys(_optional(protocol))
    for other in others:
        optional |= {signature.partition("(")[0].partition(":")[0]: signature for signature in _members(other)}
    if optional:
        yield f"* optional: {', '.join(f'`{signature or name}`' for name, signature in optional.items())}"


def _members(protocol: Any) -> list[str]:
    """The members that a protocol itself requires, as people call them."""
    named = vars(protocols.Named) if protocols.Named in protocol.__bases__ else {}
    return [
        _signature(name, member)
        for name, member in {**named, **vars(protocol)}.items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    ]


def _optional(protocol: Any) -> list[str]:
    """Names of the members below `Optional:` in a protocol's docstring."""
    _, _, rest = inspect.cleandoc(protocol.__doc__ or "").partition("Optional:\n")
    return re.findall(r"^(\w+): ", dedent(rest), re.MULTILINE)


def _signature(name: str, member: Any) -> str:
    if isinstance(member, property):
        return f"{name}: {_type(member.fget)}"
    arguments = [each for each in inspect.signature(member).parameters if each != "self"]
    return f"{name}({', '.join(arguments)}) -> {_type(member)}"


def _type(function: Any) -> str:
    returned = inspect.get_annotations(function)["return"]
    plain = isinstance(returned, type) and not getattr(returned, "__args__", ())
    text = returned if isinstance(returned, str) else returned.__name__ if plain else str(returned)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)
