"""Flags as a file for the shell and as a map for YAML."""

import json
from collections.abc import Mapping, Sequence
from shlex import quote

Value = bool | int | float | str | tuple[str, ...] | None
"""What a flag says: True stands alone; several words follow one flag; False and None leave it out."""

Flags = dict[str, Value]
"""Values by flag, each with its hyphens."""

WIDEST = 120
"""Characters of a line of comment."""


def said(flags: Mapping[str, Value]) -> dict[str, bool | int | float | str | tuple[str, ...]]:
    """The flags that are given: those that are neither False nor None."""
    return {flag: value for flag, value in flags.items() if value is not None and value is not False}


def shell_file(
    comments: Sequence[str], environment: Mapping[str, str], unset: Sequence[str], groups: Mapping[str, Flags]
) -> str:
    """A bash file to be sourced: an array for each group that says something, and `MEGATRON_ARGS` with all of them.

    Args:
        comments: lines in front.
        environment: variables to export.
        unset: variables that must not be set.
        groups: flags by the name of their array.
    """
    arrays = {name: said(flags) for name, flags in groups.items() if said(flags)}
    lines = ["#!/usr/bin/env bash", *(_comment(text) for text in comments)]
    lines += [f"export {name}={quote(value)}" for name, value in environment.items()]
    lines += [f"unset {name}" for name in unset]
    for name, flags in arrays.items():
        lines += [f"{name}=(", *(f"  {_words(flag, value)}" for flag, value in flags.items()), ")"]
    lines += ["MEGATRON_ARGS=(", *(f'  "${{{name}[@]}}"' for name in arrays), ")"]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    return f"# {' '.join(text.split())}"


def _words(flag: str, value: bool | int | float | str | tuple[str, ...]) -> str:
    if value is True:
        return flag
    words = value if isinstance(value, tuple) else (str(value),)
    return " ".join([flag, *(quote(word) for word in words)])


def yaml_file(comments: Sequence[str], environment: Mapping[str, str], groups: Mapping[str, Flags]) -> str:
    """The map of flags that Megatron-LM's functional tests read: `ENV_VARS` and `MODEL_ARGS`.

    Words are written as JSON writes them, which YAML reads alike.
    """
    lines = [_comment(text) for text in comments]
    if environment:
        lines += ["ENV_VARS:", *(f"  {name}: {json.dumps(value)}" for name, value in environment.items())]
    flags = [(flag, value) for group in groups.values() for flag, value in said(group).items()]
    lines += ["MODEL_ARGS:", *(f"  {flag}: {_yaml(value)}" for flag, value in flags)]
    return "\n".join(lines) + "\n"


def _yaml(value: bool | int | float | str | tuple[str, ...]) -> str:
    """Several words stand in one pair of brackets, as Megatron-LM's `_run_training.sh` takes them apart."""
    return json.dumps(f"[{' '.join(value)}]" if isinstance(value, tuple) else value)
