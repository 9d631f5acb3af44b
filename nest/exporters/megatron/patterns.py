"""Python lists of 0 and 1, one for each layer, as `--moe-layer-freq` and `--window-attn-skip-freq` take them."""

import re
from collections.abc import Sequence
from itertools import groupby

from nest.errors import InputError

LONGEST = 10_000
"""Layers a pattern may speak of; models have hundreds."""

_TOKEN = re.compile(r"\s*(\d+|[\[\](),+*])")


def write_pattern(values: Sequence[int]) -> str:
    """`values` as such a list: `([0]*3+[1]*58)`."""
    runs = [(value, len(list(run))) for value, run in groupby(values)]
    return "(" + "+".join(f"[{value}]" if length == 1 else f"[{value}]*{length}" for value, length in runs) + ")"


def read_pattern(flag: str, text: str) -> tuple[int, ...]:
    """The numbers that `text` lists: brackets, commas, `+` and `*` only; nothing is evaluated as Python.

    Raises:
        InputError: it is no such list; the text names `flag`.
    """
    try:
        found = _Reader(_tokens(text)).whole()
    except (ValueError, IndexError, RecursionError):
        raise InputError(f"{flag} {text!r:.80} is no list such as ([0]*3+[1]*58).") from None
    return tuple(found)


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(text)
        tokens.append(found.group(1))
        at = found.end()
    return tokens


class _Reader:
    """Reads sums of products of lists and counts."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens

    def whole(self) -> list[int]:
        found = self.sum()
        if self.tokens:
            raise ValueError(self.tokens)
        return found

    def sum(self) -> list[int]:
        found = self.product()
        while self.tokens[:1] == ["+"]:
            self.tokens.pop(0)
            found = [*found, *self.product()]
        return found

    def product(self) -> list[int]:
        found = self.list()
        while self.tokens[:1] == ["*"]:
            self.tokens.pop(0)
            count = _number(self.tokens.pop(0))
            if len(found) * count > LONGEST:
                raise ValueError(count)
            found = found * count
        return found

    def list(self) -> list[int]:
        opened = self.tokens.pop(0)
        if opened == "(":
            found = self.sum()
        elif opened == "[":
            found = []
            while self.tokens[0] != "]":
                found.append(_number(self.tokens.pop(0)))
                if self.tokens[0] == ",":
                    self.tokens.pop(0)
        else:
            raise ValueError(opened)
        if self.tokens.pop(0) != {"(": ")", "[": "]"}[opened]:
            raise ValueError(opened)
        return found


def _number(token: str) -> int:
    if len(token) > len(str(LONGEST)):
        raise ValueError(token)
    return int(token)
