"""Whether `[ ... ]` and `[[ ... ]]` of a script hold, as far as that follows from the script."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from nest.exporters.megatron.reading.expansion import UNKNOWN

_NUMBERS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})


def holds(words: Sequence[str]) -> bool | None:
    """Whether the test in `words`, without its brackets, holds; None: the script does not say.

    Files are not looked at, so what hangs on them is not said either.
    """
    for joint in ("||", "-o"):
        if joint in words:
            at = list(words).index(joint)
            return _either(holds(words[:at]), holds(words[at + 1 :]))
    for joint in ("&&", "-a"):
        if joint in words:
            at = list(words).index(joint)
            return _both(holds(words[:at]), holds(words[at + 1 :]))
    if words[:1] == ["!"]:
        return _not(holds(words[1:]))
    if any(UNKNOWN in word for word in words):
        return None
    match list(words):
        case []:
            return False
        case [word]:
            return bool(word)
        case ["-z", word]:
            return not word
        case ["-n", word]:
            return bool(word)
        case [first, "=" | "==", second]:
            return fnmatchcase(first, second)
        case [first, "!=", second]:
            return not fnmatchcase(first, second)
        case [first, operator, second] if operator in _NUMBERS:
            return _compared(first, operator, second)
    return None


def _compared(first: str, operator: str, second: str) -> bool | None:
    try:
        left, right = int(first), int(second)
    except ValueError:
        return None
    return {
        "-eq": left == right,
        "-ne": left != right,
        "-lt": left < right,
        "-le": left <= right,
        "-gt": left > right,
        "-ge": left >= right,
    }[operator]


def _either(first: bool | None, second: bool | None) -> bool | None:
    if first is True or second is True:
        return True
    return None if first is None or second is None else False


def _both(first: bool | None, second: bool | None) -> bool | None:
    return _not(_either(_not(first), _not(second)))


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value
