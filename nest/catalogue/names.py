"""What to say of a name nobody knows."""

from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from nest.errors import InputError
from nest.io.names import any_of, meant, near, plain

KINDS = {
    "clusters": ("cluster", "cluster.name"),
    "devices": ("device", "cluster.device"),
    "links": ("link", "link of a level"),
    "models": ("model", "model"),
    "optimizers": ("optimizer", "training.optimizer"),
    "precisions": ("precision", "training.precision"),
    "profiles": ("link profile", "cluster.link_profile"),
    "stacks": ("software stack", "training.stack"),
}
"""Folders of the catalogue, what each holds, and where such a name is written."""


def unknown_name(
    place: str, kind: str, name: str, known: Iterable[str], value: object = None, otherwise: str = ""
) -> InputError:
    """The error for a `name` at `place` that is none of `known`: what it may stand for, or all that are known.

    Args:
        place: where the name was written, such as `cluster.device`.
        kind: what it should have named, such as `device`; `name`: something to be computed with.
        name: as written.
        known: the names there are.
        value: what was written under it.
        otherwise: a sentence on what to do with a name that is no slip.
    """
    options = sorted(known)
    shown = name if len(name) <= 60 else name[:57] + "..."
    told = f"{place}: there is no {kind} called {shown!r}."
    other, close = meant(name, options), near(name, options)
    if other is not None:
        meaning = other.name if kind == "name" and not other.section else None
        hint = f"write `{meaning}`" if meaning else other.remedy(value)
        return InputError(f"{told} {hint[0].upper()}{hint[1:]}.")
    elsewhere = None if close else _of_another_kind(name, kind)
    if elsewhere is not None:
        return InputError(f"{told} {elsewhere}")
    hint = f" Did you mean {any_of(map(repr, close))}?" if close else ""
    listed = f" Known: {', '.join(options)}." if options else " None is known."
    return InputError(f"{told}{hint}{listed}{f' {otherwise}' if otherwise and not close else ''}")


def _of_another_kind(name: str, kind: str) -> str | None:
    """What of the catalogue a name that is no `kind` resembles, and where that is written; None: nothing."""
    found = {folder: near(name, _names(folder)) for folder, (what, _) in KINDS.items() if what not in kind}
    for same in (True, False):
        for folder, close in found.items():
            what, where = KINDS[folder]
            if close and (plain(close[0]) == plain(name)) is same:
                start = f"It is a {what}" if same else f"Did you mean the {what} {any_of(map(repr, close))}"
                return f"{start}; write it under `{where}`." if same else f"{start}? It belongs under `{where}`."
    return None


@cache
def _names(folder: str) -> tuple[str, ...]:
    """The names of a folder of the catalogue."""
    return tuple(sorted(each.name.removesuffix(".toml") for each in files("nest.library").joinpath(folder).iterdir()))
