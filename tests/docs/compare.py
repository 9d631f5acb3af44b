"""Whether a command printed what a document says: equal words, and numbers equal but for rounding."""

import re
from collections.abc import Sequence

NUMBER = re.compile(r"(?<![\w.])(\d+\.\d+(?:e[+-]\d+)?)(?![\w.]*\d)")
ELISION = "..."
"""A line of a document that stands for any number of lines."""


def same(expected: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether `printed` is what `expected` says.

    White space between words does not count. Numbers with a decimal point may differ by one unit of their last digit:
    sums are taken in another order on other machines. Everything else is compared letter by letter.
    """
    if not expected:
        return not printed
    if expected[0] == ELISION:
        return any(same(expected[1:], printed[start:]) for start in range(len(printed) + 1))
    return bool(printed) and same_line(expected[0], printed[0]) and same(expected[1:], printed[1:])


def same_line(expected: str, printed: str) -> bool:
    """Whether two lines are equal but for white space and rounding."""
    ours, theirs = (NUMBER.split(" ".join(_unruled(line).split())) for line in (expected, printed))
    return len(ours) == len(theirs) and all(
        _same_number(a, b) if index % 2 else a == b for index, (a, b) in enumerate(zip(ours, theirs, strict=True))
    )


def _unruled(line: str) -> str:
    """The line with rules of dashes, which are as long as columns are wide, made equal."""
    return re.sub(r"-{2,}", "--", line)


def _same_number(expected: str, printed: str) -> bool:
    unit = max(_last_digit(expected), _last_digit(printed))
    return abs(float(expected) - float(printed)) <= 1.001 * unit


def _last_digit(number: str) -> float:
    mantissa, _, exponent = number.partition("e")
    return float(10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))
