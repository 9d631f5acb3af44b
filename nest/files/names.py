"""What to say of a key or a name nobody knows."""

from collections.abc import Iterable
from difflib import get_close_matches

from nest.files.synonyms import meant, plain

SHORTEST = 4
"""Letters of a name that is looked for inside another."""

MOST = 3
"""Names offered."""


def near(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The `known` names that a `name` resembles, best first; case, separators and organisations make no difference."""
    options = {plain(option): option for option in known}
    written = plain(name[:100])
    if written in options:
        return (options[written],)
    inside = [option for option in options if len(option) >= SHORTEST and option in written]
    if inside:
        return (options[max(inside, key=len)],)
    around = [option for option in options if len(written) >= SHORTEST and option.startswith(written)]
    if around:
        return tuple(options[option] for option in around[:MOST])
    return tuple(options[option] for option in get_close_matches(written[:60], options, n=1))


def any_of(names: Iterable[str]) -> str:
    """The names as a question ends with them: `a`, `a or b`."""
    return " or ".join(names)


def hint(name: str, known: Iterable[str], value: object = None) -> str:
    """What somebody may mean by a name that is none of the `known`: nest's for it, or the nearest; empty: who knows.

    Args:
        name: as written.
        known: those that may stand there.
        value: what was written under it.
    """
    options = list(known)
    other, close = meant(name, options), near(name, options)
    if other is not None:
        return other.told(value)
    return f"did you mean {any_of(close)}?" if close else ""


def nearest(name: str, known: Iterable[str], value: object = None) -> str:
    """What `hint` says of a key, and all that are known where it says nothing; arguments as there."""
    options = list(known)
    if not options:
        return "no key is known here"
    first = get_close_matches(name[:60], options, n=1, cutoff=0.0)[0]
    return hint(name, options, value) or f"the nearest is {first}; known here: {', '.join(options)}"
