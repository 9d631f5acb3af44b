"""A new plug-in distribution, from templates: `nest plugins new`."""

import re
import sys
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from keyword import iskeyword
from string import Template

from nest import __version__
from nest.errors import InputError
from nest.hooks.registry import registry
from nest.public.checks import DISTRIBUTION, KINDS, Kind, reserved_names

LONGEST = 60  # Most characters of a name: it becomes part of file names, which some file systems limit to 255.


def skeleton(distribution: str, word: str) -> dict[str, str]:
    """Return the files of a new distribution with one object of the kind `word`: their paths in its folder, and texts.

    The module is called like the distribution, with underscores; the object like the module, without `nest_` in front.

    Raises:
        InputError: the kind is unknown, or the name is invalid for a distribution or module, or taken.
    """
    kind = next((kind for kind in KINDS.values() if kind.word == word), None)
    if kind is None:
        known = ", ".join(each.word for each in KINDS.values())
        raise InputError(f"nest plugins new: there is no kind {word!r:.80}; give --kind one of {known}.")
    words = _words(distribution, kind)
    module = words["module"]
    paths = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"{module}.py": f"{word}/module.py",
        f"tests/test_{module}.py": f"{word}/test_module.py",
    }
    return {path: _template(name).substitute(words) for path, name in paths.items()}


def _template(name: str) -> Template:
    folder = files("nest_testing").joinpath("templates")
    return Template(folder.joinpath(f"{name}.template").read_text(encoding="utf-8"))


def _words(distribution: str, kind: Kind) -> Mapping[str, str]:
    """Return the replacements of words in the templates."""
    if not re.fullmatch(r"[A-Za-z0-9]+([-_.][A-Za-z0-9]+)*", distribution) or len(distribution) > LONGEST:
        raise InputError(
            f"nest plugins new: {distribution!r:.80} cannot be the name of a distribution; use up to {LONGEST} letters "
            "and digits, with single `-`, `_` or `.` between them."
        )
    module = re.sub(r"[-_.]", "_", distribution).lower()
    name = module.removeprefix("nest_")
    if not module.isidentifier() or not name.isidentifier() or iskeyword(module) or iskeyword(name):
        raise InputError(
            f"nest plugins new: {distribution!r} makes the module {module!r} with {name!r}, which Python cannot name; "
            "begin with a letter and avoid its keywords."
        )
    if module == DISTRIBUTION.replace("-", "_"):
        raise InputError(f"nest plugins new: {DISTRIBUTION!r} is the distribution of nest itself; choose another name.")
    if kind.registered == "strategies" and name in reserved_names():
        raise InputError(
            f"nest plugins new: {name!r} means something else in constraints, under `fixed` or in blocks; "
            "choose another name."
        )
    if module in sys.stdlib_module_names or find_spec(module) is not None:
        raise InputError(f"nest plugins new: there is a module {module!r} already; choose another name.")
    if name in getattr(registry(), kind.registered)():
        owner = " ".join(registry().origin(kind.registered, name)).rstrip()
        raise InputError(
            f"nest plugins new: {name!r} is the name of a {kind.word} of {owner} already; choose another name."
        )
    class_name = "".join(part.capitalize() for part in name.split("_")) + kind.class_name
    given = {"distribution": distribution, "module": module, "name": name, "class_name": class_name}
    bounds = {"version": __version__, "next_major": str(int(__version__.partition(".")[0]) + 1)}
    return {**given, **bounds, "summary": kind.summary, "use": Template(kind.use).substitute(given)}
