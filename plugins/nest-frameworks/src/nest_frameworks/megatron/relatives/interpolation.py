"""`${...}` in configurations of OmegaConf, as far as they follow from the file.

Sources: omegaconf 2.3, docs/source/usage.rst (variable interpolation) and docs/source/custom_resolvers.rst (oc.select);
`multiply`: nemo/core/config/hydra_runner.py and launcher_scripts/main.py of NVIDIA's NeMo, which register it.
"""

import re
from collections.abc import Mapping
from math import prod
from typing import Any

_INNER = re.compile(r"\$\{([^${}]*)\}")
MOST = 50
"""Substitutions in one value; files have one or two."""

Path = tuple[str, ...]


def resolved(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` with what its `${...}` stand for; those that only a run would tell are left as they are."""
    return {key: _value(content, (key,), value) for key, value in content.items()}


def _value(root: Mapping[str, Any], at: Path, value: Any, left: int = MOST) -> Any:
    if isinstance(value, Mapping):
        return {key: _value(root, (*at, str(key)), each, left) for key, each in value.items()}
    if isinstance(value, list):
        return [_value(root, (*at, "[]"), each, left) for each in value]
    while isinstance(value, str) and left > 0 and (match := _INNER.search(value)):
        left -= 1
        found = _meant(root, at, match[1].strip(), left)
        if found is None or isinstance(found, (Mapping, list)):
            return value if found is None or match[0] != value else found
        value = found if match[0] == value else value[: match.start()] + str(found) + value[match.end() :]
    return value


def _meant(root: Mapping[str, Any], at: Path, text: str, left: int) -> Any:
    """Meaning of `text` in the file; None: none."""
    name, colon, arguments = text.partition(":")
    if not colon:
        return _node(root, at, text, left)
    words = [word.strip() for word in arguments.split(",")]
    if name == "oc.select":
        found = _node(root, at, words[0], left)
        return found if found is not None or len(words) < 2 else words[1]
    if name == "multiply" and all(re.fullmatch(r"-?\d{1,9}(\.\d{1,9})?", word) for word in words):
        product = prod((float(word) for word in words), start=1.0)
        return int(product) if product.is_integer() else product
    return None


def _node(root: Mapping[str, Any], at: Path, text: str, left: int) -> Any:
    """The value at a path: from the top, or with leading dots from where it is asked for."""
    names = text.lstrip(".")
    up = len(text) - len(names)
    path = (*at[: len(at) - up], *names.split(".")) if up else tuple(names.split("."))
    # The launcher of NeMo puts its files under `training`.
    for each in (path, path[1:]) if not up else (path,):
        found: Any = root
        for name in each:
            found = found.get(name) if isinstance(found, Mapping) else None
        if each and found is not None:
            return _value(root, each, found, left)
    return None
