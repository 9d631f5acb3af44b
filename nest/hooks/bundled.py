"""Bundled distributions (`plugins/`), found by nest's own entry points.

An entry point of the group `nest.KIND` names a module with the hook `nest_KIND`, which is imported when that is called.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

DISTRIBUTION = "nest-planner"
"""The distribution of the built-ins."""


def bundled_entries(group: str) -> Mapping[str, str]:
    """Entry points of this distribution in a group, by name; empty if nest runs from a folder uninstalled."""
    found: dict[str, str] = {}
    within = ""
    for line in _own_entry_points().splitlines():
        if line.startswith("["):
            within = line.strip("[] ")
        elif within == group and "=" in line:
            name, _, value = line.partition("=")
            found[name.strip()] = value.strip()
    return found


def bundled_folders() -> list[str]:
    """Package folders of bundled distributions."""
    found = [find_spec(module) for module in sorted(bundled_modules())]
    return [folder for each in found if each is not None for folder in each.submodule_search_locations or ()]


def bundled_modules() -> frozenset[str]:
    """Packages of bundled distributions."""
    groups = re.findall(r"^\[(nest\..*)\]", _own_entry_points(), re.MULTILINE)
    return frozenset(re.split("[.:]", place)[0] for group in groups for place in bundled_entries(group).values())


def bundled_verb(name: str) -> Any:
    """Function of a bundled distribution that the package `nest` offers by this name.

    Raises:
        AttributeError: there is none.
    """
    place = bundled_entries("nest.verbs").get(name)
    if place is None:
        raise AttributeError(f"module 'nest' has no attribute {name!r}")
    module, _, function = place.partition(":")
    return getattr(import_module(module), function)


@cache
def _own_entry_points() -> str:
    for folder in sys.path:
        for file in Path(folder).glob(f"{DISTRIBUTION.replace('-', '_')}-*.dist-info/entry_points.txt"):
            return file.read_text(encoding="utf-8")
    return ""
