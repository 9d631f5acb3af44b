"""What to say of a key nobody knows."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """Which of the `known` names a `name` most resembles, and all of them when none comes close."""
    options = list(known)
    if not options:
        return "no key is known here"
    close = get_close_matches(name[:60], options, n=1)
    if close:
        return f"did you mean {close[0]}?"
    first = get_close_matches(name[:60], options, n=1, cutoff=0.0)[0]
    return f"the nearest is {first}; known here: {', '.join(options)}"
