"""What to say of a name nobody knows."""

from collections.abc import Iterable
from difflib import get_close_matches

from nest.errors import InputError


def unknown_name(place: str, kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a `name` at `place` that is none of `known`: it says which is nearest and lists all.

    Args:
        place: where the name was written, such as `cluster.device`.
        kind: what it should have named, such as `device`.
        name: as written.
        known: the names there are.
    """
    options = sorted(known)
    shown = name if len(name) <= 60 else name[:57] + "..."
    near = get_close_matches(name, options, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = f" Known: {', '.join(options)}." if options else " None is known."
    return InputError(f"{place}: there is no {kind} called {shown!r}.{hint}{listed}")
