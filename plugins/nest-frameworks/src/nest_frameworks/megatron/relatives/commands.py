"""Settings on the command lines of launch scripts, as the maps that files would have; no script is ever run."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from attrs import evolve

from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.io import read_mapping_text
from nest.io.source import DEEPEST
from nest_frameworks.megatron.reading.expansion import unseen
from nest_frameworks.megatron.reading.tokens import UNKNOWN, check_seen, is_printed, named

if TYPE_CHECKING:
    from nest_frameworks.megatron.reading.walked import Files, Walk

_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.DOTALL)
_UNKNOWN = re.compile(rf"{UNKNOWN}\$?([^{UNKNOWN}]*){UNKNOWN}?")
_WORDS = {"true": True, "false": False, "null": None, "none": None, "": None}


def command(
    text: str, options: LaunchOptions, calls: Callable[[Sequence[str]], bool], what: str
) -> "tuple[tuple[str, ...], Walk, list[str]]":
    """The words of the last command of a script that `calls` is true of, what is known after the script, and notes.

    `what`: what is looked for, for the message where it is not there.

    Raises:
        InputError: it is no script, there is no such command, or a loop makes several of them.
    """
    from nest_frameworks.megatron.reading.launch import (
        SHOWN,
        check_branches,
        competing_launches,
        undefined_variables,
        unset_variables,
    )
    from nest_frameworks.megatron.reading.script import walk

    script = walk(text, options)
    found, untaken = (
        [call for call in every if call.words[0] not in SHOWN and calls(call.words)]
        for every in (script.calls, script.untaken)
    )
    if not found:
        check_branches(untaken)
        raise InputError(f"there is no {what} here.")
    *others, call = found
    first = next((place for place, word in enumerate(call.words) if "=" in word or word.startswith("--")), 0)
    for before, word in pairwise(call.words[first:]):
        if is_printed(word) and not before.startswith("-"):
            raise InputError(f"line {call.line}: {unseen(word, 'stands among the arguments')}")
        check_seen(word.partition("=")[0].replace(UNKNOWN, ""), f"line {call.line}: ")
    notes = competing_launches(call, others, untaken)
    script = evolve(script, variables={name: (text,) for name, text in call.variables.items()})
    return call.words, script, [*notes, *undefined_variables(script), *unset_variables(call.words[first:], text)]


def arguments_of(files: "Files", name: str) -> dict[str, Any]:
    """Arguments in a file that a command names.

    Raises:
        InputError: it is not here, or none.
    """
    inner = files.text(name)
    if inner is None:
        raise InputError(f"the script takes its arguments from {name!r:.80}, which is not here.")
    return dict(read_mapping_text(inner, name))


def overrides(words: Sequence[str]) -> dict[str, Any]:
    """The map that `section.key=value` words make, as Hydra reads them (`+` in front adds a key).

    Source: hydra 1.3, docs/advanced/override_grammar/basic.md. What only a run would tell stays `${...}`.
    """
    content: dict[str, Any] = {}
    for word in words:
        match = _OVERRIDE.fullmatch(word)
        if match is None:
            continue
        *above, key = match[1].split(".")
        if len(above) >= DEEPEST:
            raise InputError(f"{match[1]:.60} is nested more than {DEEPEST} levels deep.")
        section = content
        for name in above:
            inner = section.setdefault(name, {})
            if not isinstance(inner, dict):
                raise InputError(f"{match[1]} is below a key that has a value.")
            section = inner
        section[key] = scalar(match[2])
    return content


def scalar(word: str) -> Any:
    """A value as YAML would read it where it is a plain one, or a list of plain ones."""
    plain = named(word)
    plain = _UNKNOWN.sub(lambda found: f"${found[1]}" if found[1].startswith("(") else f"${{{found[1]}}}", plain)
    plain = plain.strip().strip("'\"")
    if plain.startswith("[") and plain.endswith("]"):
        return [scalar(each) for each in plain[1:-1].split(",") if each.strip()]
    if plain.lower() in _WORDS:
        return _WORDS[plain.lower()]
    if re.fullmatch(r"-?\d{1,18}", plain):
        return int(plain)
    if re.fullmatch(r"-?(\d{1,18}\.\d*|\d*\.?\d{1,18})([eE][+-]?\d{1,3})?", plain):
        return float(plain)
    return plain
