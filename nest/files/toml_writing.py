"""Mappings as TOML 1.0 text (https://toml.io/en/v1.0.0)."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
"""Keys that need no quotes (TOML 1.0, "Keys")."""

DELETE = "\x7f"
"""The one control character that JSON leaves in strings and TOML does not allow there."""


def toml_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of scalars and lists, in the order given, as the standard library's `tomllib` reads them.

    Args:
        tables: by name; values are text, numbers, truth values and lists of them, also in lists.
    """
    return "\n".join(_table(name, values) for name, values in tables.items())


def _table(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"[{_key(name)}]", *(f"{_key(key)} = {_value(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if BARE_KEY.fullmatch(name) else _string(name)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Sequence):
        if any(not isinstance(item, str) and isinstance(item, Sequence) for item in value):
            return "[\n" + "".join(f"  {_value(item)},\n" for item in value) + "]"
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise TypeError(f"no TOML for {type(value).__name__}")


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace(DELETE, "\\u007f")
