"""Reading back what exporters write."""

import ast
import json
import shlex
import tomllib
from collections.abc import Mapping
from io import StringIO
from typing import Any

from ruamel.yaml import YAML


def parsed(files: Mapping[str, str]) -> dict[str, Any]:
    """Every file as its reader sees it; files that do not parse fail the test."""
    return {name: _parsed(name, text) for name, text in files.items()}


def _parsed(name: str, text: str) -> Any:
    if name.endswith(".toml"):
        return tomllib.loads(text)
    if name.endswith(".json"):
        return json.loads(text)
    if name.endswith(".yaml"):
        return YAML(typ="safe", pure=True).load(StringIO(text))
    if name.endswith(".py"):
        return assignments(text)
    if name.endswith(".sh"):
        return settings(text)
    return [line.split(",") for line in text.splitlines()]


def assignments(text: str) -> dict[str, Any]:
    """Literal values that a module assigns to names, attributes and keyword arguments, by their last name."""
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Tuple)
        ):
            pairs = list(zip(node.targets[0].elts, node.value.elts, strict=True))
        elif isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.keyword) and node.arg is not None:
            pairs = [(ast.Name(node.arg), node.value)]
        else:
            continue
        for target, value in pairs:
            name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", None)
            try:
                found[str(name)] = ast.literal_eval(value)
            except ValueError:
                found[str(name)] = ast.unparse(value)
    return found


def settings(text: str) -> dict[str, str]:
    """`KEY=VALUE` words of the bash array a script declares."""
    body = text[text.index("=(\n") + 3 : text.rindex(")")]
    return dict(word.split("=", 1) for word in shlex.split(body, comments=True))
