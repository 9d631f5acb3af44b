"""Mutations of values, of texts and of the words of a command line."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

Steps = tuple[Any, ...]

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, 7, -1, 64, 0.5, 1e300, -1e300, 1e-300, 1e-30, 1e30, 2**53, 10**12, 10**400,
    float("nan"), float("inf"), -float("inf"), "", " ", "x", "5", "tp", "none", "nan", "1e400", "450 GB/s", "3 us",
    "1 GiB", "-1 GB", "5 parsecs", "é💥\u202e", "\ud800", "\0", "a" * 400, [], {}, [0], [1, 2], ["a"], [[0, 1]],
    {"a": 1},
    [None], [[]], {"": {}}, [1e308, 1e308],
)  # fmt: skip
"""What a value may turn into."""

KEYS = ("", "foo", "tp", "layers", "fanout", "mla", "experts", "topology", "name", "stages", "costs", "mixed", "fixed")
"""Keys that may be added."""

UNITS = ("GB/s", "GiB", "us", "s", "TFLOP/s", "parsecs", "%", "GB / s", "Gbit/s")

NUMBERS = ("0", "-1", "1e400", "nan", "99999999999999999999", "0.5", "1e-320", "2", "-0", "x", "")
"""What a number in a text or on the command line may turn into."""

WORDS = (
    *NUMBERS, "1", "3", "inf", "-inf", "1e-300", "=", "a=b", "tp=3", "💥", "a" * 300, "--", "none", "all", "\t", "..",
)  # fmt: skip
"""What a word of the command line may turn into."""


def places(value: Any, steps: Steps = ()) -> Iterator[Steps]:
    """Paths to everything in a value."""
    if steps:
        yield steps
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in rows:
        yield from places(item, (*steps, step))


def nudged(value: Any, random: Random) -> Any:
    """A value of which one number is another of its size, or one list shorter, longer or in another order."""
    found = deepcopy(value)
    chosen = [steps for steps in places(found) if isinstance(_at(found, steps), (int, float, list))]
    if not chosen:
        return found
    *above, last = random.choice(chosen)
    old = _at(found, (*above, last))
    if isinstance(old, list):
        new = random.choice((old[:-1], [*old, *old[-1:]], old[::-1], old[1:]))
    elif isinstance(old, bool):
        new = not old
    else:
        new = random.choice((1, 2, 3, 4, old + 1, max(old - 1, 0), old * 2, old / 2, old * 10, old // 2))
    _at(found, tuple(above))[last] = new
    return found


def _at(value: Any, steps: Steps) -> Any:
    for step in steps:
        value = value[step]
    return value


def mutated(value: Any, random: Random) -> Any:
    """A value of which one thing is deleted, doubled, replaced, moved or added."""
    found = deepcopy(value)
    steps = random.choice(list(places(found)) or [()])
    if not steps:
        return deepcopy(random.choice(ODD))
    above: Any = found
    for step in steps[:-1]:
        above = above[step]
    last, old = steps[-1], above[steps[-1]]
    action = random.choice(("delete", "replace", *4 * ("nudge",), "add", "double", "swap", "wrap", "unit"))
    if action == "delete":
        del above[last]
    elif action == "replace":
        above[last] = deepcopy(random.choice(ODD))
    elif action == "nudge":
        above[last] = _nudged(old, random)
    elif action == "add":
        added = deepcopy(random.choice(ODD))
        above.update({random.choice(KEYS): added}) if isinstance(above, dict) else above.insert(0, added)
    elif action == "double":
        above.update({f"{last}s": old}) if isinstance(above, dict) else above.insert(last, deepcopy(old))
    elif action == "swap":
        other = random.choice(list(above) if isinstance(above, dict) else range(len(above)))
        above[last], above[other] = above[other], old
    elif action == "wrap":
        above[last] = _wrapped(old, random.choice((1, 2, 120)))
    else:
        above[last] = f"{old} {random.choice(UNITS)}" if isinstance(old, (int, float)) else random.choice(UNITS)
    return found


def _nudged(old: Any, random: Random) -> Any:
    if isinstance(old, bool) or not isinstance(old, (int, float, str)):
        return not old
    if isinstance(old, str):
        place = random.randrange(len(old) + 1)
        return random.choice(
            (old[:place], old[place:], old[:place] + random.choice("xX-. 0é/#[{") + old[place:], old * 2)
        )
    near = (0, 1, 2, 3, 4, 8, old + 1, old - 1, old * 2, old * 3, old // 2)
    far = (-old, old * 1e12, old / 1e12, old / 3, float(old), str(old), old * 1000, 16)
    return random.choice(near if random.random() < 0.6 else far)


def _wrapped(old: Any, depth: int) -> Any:
    for _ in range(depth):
        old = [old]
    return old


def mutated_text(text: str, random: Random) -> str:
    """A text of which lines or characters are lost, doubled, moved or replaced."""
    lines = text.splitlines(keepends=True) or [""]
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    action = random.choice(
        ("drop", "double", "swap", "cut", "number", "number", "word", "insert", "flip", "indent", "join")
    )
    if action == "drop":
        del lines[one]
    elif action == "double":
        lines.insert(other, lines[one])
    elif action == "swap":
        lines[one], lines[other] = lines[other], lines[one]
    elif action == "cut":
        return text[: random.randrange(len(text) + 1)]
    elif action == "number":
        return _replaced(text, r"\d+(\.\d+)?([eE][-+]?\d+)?", random.choice(NUMBERS), random)
    elif action == "word":
        return _replaced(text, r"[A-Za-z_][\w-]*", random.choice(WORDS), random)
    elif action == "insert":
        place = random.randrange(len(text) + 1)
        return (
            text[:place]
            + random.choice(("\0", "é", "\t", '"', "'", "{", "]", ":", "- ", "&a ", "*a", "<", "\ufeff", "\n"))
            + text[place:]
        )
    elif action == "flip" and text:
        place = random.randrange(len(text))
        return text[:place] + chr(ord(text[place]) ^ (1 << random.randrange(7))) + text[place + 1 :]
    elif action == "indent":
        lines[one] = " " * random.randrange(1, 5) + lines[one]
    else:
        lines[one] = lines[one].rstrip("\r\n")
    return "".join(lines)


def _replaced(text: str, pattern: str, new: str, random: Random) -> str:
    found = list(re.finditer(pattern, text))
    if not found:
        return text + new
    chosen = random.choice(found)
    return text[: chosen.start()] + new + text[chosen.end() :]


def written(mapping: Any) -> str:
    """A value as JSON, which is YAML too; numbers that JSON does not have as Python writes them."""
    return json.dumps(mapping, indent=1)
