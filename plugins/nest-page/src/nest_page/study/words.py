"""Keys of problems and their values in words: `spine bandwidth` for `cluster.levels[1].bandwidth`."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from nest.public.text import model_name

LABEL = "label."
"""Beginning of keys that say what points are called."""

WORDS = {
    "cluster.memory": "device memory",
    "cluster.name": "cluster",
    "cluster.levels": "network levels",
    "cluster.price": "price of a device hour",
    "search.zero": "ZeRO",
    "training.micro_batch": "micro-batch",
}
"""Words of keys whose last name says too little; others are called by that."""

DEGREES = ("tp", "sp", "cp", "ep", "etp", "pp", "vp", "dp")
"""Names that are abbreviations."""

LONGEST = 24
"""Characters of the name of a level."""

_LEVEL = re.compile(r"cluster\.levels\[(\d+)\]\.(\w+)")


def names_of(keys: Sequence[str], problem: Mapping[str, Any]) -> tuple[str, ...]:
    """Each key in words; of several with the same words, the path.

    Args:
        keys: paths.
        problem: what all rows share, which names the levels of the network.
    """
    words = [_name(key, problem) for key in keys]
    named = zip(keys, words, strict=True)
    return tuple(word if key.startswith(LABEL) or words.count(word) == 1 else key for key, word in named)


def _name(key: str, problem: Mapping[str, Any]) -> str:
    if key.startswith(LABEL):
        return key.removeprefix(LABEL)
    if level := _LEVEL.fullmatch(key):
        index, what = int(level[1]), level[2].replace("_", " ")
        if what != "fanout":
            return f"{_level(index, problem)} {what}"
        return f"{_level(index - 1, problem) if index else 'device'}s per {_level(index, problem)}"
    last = key.rpartition(".")[2]
    return WORDS.get(key) or (last.upper() if last in DEGREES else last.replace("_", " "))


def _level(index: int, problem: Mapping[str, Any]) -> str:
    levels = problem.get("cluster", {}).get("levels")
    level = levels[index] if isinstance(levels, list) and index < len(levels) else None
    name = str((level.get("name") if isinstance(level, Mapping) else None) or f"level {index + 1}")
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def value_in_words(key: str, text: str) -> str:
    """A value as written, or as JSON, for people: models by their usual names, lists without brackets."""
    try:
        value = json.loads(text) if text.startswith(("{", "[")) else text
    except ValueError:
        value = text
    if key == "model":
        return model_name(value)
    if isinstance(value, list) and value and not any(isinstance(each, (dict, list)) for each in value):
        return ", ".join(map(str, value))
    return text
