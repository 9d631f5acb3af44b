"""The line on which something was written, looked up only when a message needs it."""

import re
from functools import lru_cache
from typing import Any

from nest.files.source import Source, Steps


def line_of(source: Source, steps: Steps) -> int | None:
    """The line (from 1) of what `steps` lead to in `source`, or of the deepest part of the way that is there."""
    if source.format == "toml":
        return _toml_line(source.text, steps)
    try:
        node = _tree(source.text)
    except Exception:  # A text that was read once but cannot be composed only loses its line numbers.
        return None
    line = None
    for step in steps:
        found = _child(node, step)
        if found is None:
            break
        line, node = found
    return line


@lru_cache(maxsize=4)
def _tree(text: str) -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).compose(text)


def _child(node: Any, step: str | int) -> tuple[int, Any] | None:
    """Line and node of one step below `node`."""
    if isinstance(step, int):
        items = node.value if getattr(node, "id", "") == "sequence" else []
        return (items[step].start_mark.line + 1, items[step]) if step < len(items) else None
    if getattr(node, "id", "") != "mapping":
        return None
    for key, value in node.value:
        if key.value == step:
            return key.start_mark.line + 1, value
    return None


def _toml_line(text: str, steps: Steps) -> int | None:
    """The first line that assigns the last named key, after the last table header that names an earlier one."""
    names = [step for step in steps if isinstance(step, str)]
    if not names:
        return None
    lines = text.splitlines()
    start = 0
    for number, line in enumerate(lines):
        header = re.match(r"\s*\[+\s*([\w.\"'-]+)\s*\]+", line)
        if header and header[1].replace('"', "").split(".") == names[:-1]:
            start = number
    assignment = re.compile(rf"(^|[\s{{,])[\"']?{re.escape(names[-1])}[\"']?\s*=")
    return next((n for n, line in enumerate(lines[start:], start + 1) if assignment.search(line)), None)
