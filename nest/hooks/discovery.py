"""Finding plug-ins: built-in, installed, named by the environment, and handed over from Python."""

import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from importlib import import_module, metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import frozen

from nest.errors import InputError
from nest.version import __version__

DISTRIBUTION = "nest-planner"
"""The distribution of the built-ins."""

GROUP = "nest"
"""The entry-point group plug-ins join."""

DISABLED = "NEST_DISABLED_PLUGINS"
"""The environment variable that switches plug-ins off: names of distributions or entry points, separated by commas."""

ALL = "all"
"""What `NEST_DISABLED_PLUGINS` names to switch off all plug-ins but the built-ins."""

NAMED = "NEST_PLUGINS"
"""The environment variable that names plug-ins which are not installed: files or modules, separated as in `PATH`."""

_ROOMS = "models topologies strategies costs collectives schedules planners exporters stacks"
BUILT_INS = tuple(f"nest.{room}" for room in _ROOMS.split())
"""Modules of the built-ins, by path so that nobody imports them before they are needed."""


@frozen
class Plugin:
    """A module (or object) with hook functions, and where it comes from.

    Attributes:
        name: unique among plug-ins.
        distribution: the distribution that brings it.
        version: that distribution's version; empty when it has none.
        load: imports it.
        entry: the name of its entry point, if it has one.
        built_in: whether it is part of nest.
    """

    name: str
    distribution: str
    version: str
    load: Callable[[], Any]
    entry: str = ""
    built_in: bool = False

    @property
    def release(self) -> tuple[str, str]:
        """Distribution and version."""
        return self.distribution, self.version

    @property
    def origin(self) -> str:
        """Distribution and version, for people."""
        return f"{self.distribution} {self.version}".rstrip()


def built_in_plugins() -> list[Plugin]:
    """The plug-ins of this distribution."""
    version = own_version()
    return [Plugin(path, DISTRIBUTION, version, partial(import_module, path), built_in=True) for path in BUILT_INS]


@cache
def own_version() -> str:
    """The version of this distribution, be it installed or run from its folder."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return __version__


def installed_plugins() -> list[Plugin]:
    """The plug-ins of other distributions, by distribution and entry point, those switched off among them."""
    found = []
    try:
        entries, damaged = list(metadata.entry_points(group=GROUP)), list[Plugin]()
    except Exception:  # Damage in any distribution, be it a plug-in or not: what is raised depends on it.
        entries, damaged = _entries_one_by_one()
    for entry in entries:
        distribution, version = _distribution(entry)
        found.append(Plugin(f"{distribution}:{entry.name}", distribution, version, entry.load, entry.name))
    found += damaged
    return sorted(found, key=lambda plugin: (normal_name(plugin.distribution), plugin.name))


def _entries_one_by_one() -> tuple[list[metadata.EntryPoint], list[Plugin]]:
    """Entry points of the distributions whose entry points can be read; those that may join nest and cannot be read."""
    entries: list[metadata.EntryPoint] = []
    damaged: list[Plugin] = []
    seen: set[str] = set()
    for distribution in metadata.distributions():
        name, version = "", ""
        with suppress(Exception):
            name, version = str(distribution.name or ""), str(distribution.version or "")
        if normal_name(name) in seen:  # An earlier folder of the path hides it.
            continue
        seen.add(normal_name(name))
        try:
            entries += distribution.entry_points.select(group=GROUP)
        except Exception as error:
            if _may_join(distribution):
                damaged.append(Plugin(f"{name}:", name or "of no name", version, partial(_raise, error)))
    return entries, damaged


def _may_join(distribution: metadata.Distribution) -> bool:
    """Whether the damaged entry points of a distribution may be nest's."""
    try:
        return f"[{GROUP}]" in (distribution.read_text("entry_points.txt") or "")
    except Exception:
        return True


def _raise(error: Exception) -> Any:
    raise error


def _distribution(entry: metadata.EntryPoint) -> tuple[str, str]:
    """Name and version of the distribution of an entry point; where its metadata are damaged, what can be known."""
    name, version = "", ""
    with suppress(Exception):  # What is raised, or missing, depends on the version of Python and on the damage.
        name = str((entry.dist and entry.dist.name) or entry.module)
        version = str((entry.dist and entry.dist.version) or "")
    return name or entry.name, version


def named_plugins() -> list[Plugin]:
    """The files (`FILE.py`) and modules that `NEST_PLUGINS` names, in its order."""
    names = dict.fromkeys(name.strip() for name in os.environ.get(NAMED, "").split(os.pathsep) if name.strip())
    return [
        Plugin(name, Path(name).name, "", partial(_from_file, Path(name)), Path(name).stem)
        if name.endswith(".py")
        else Plugin(name, name, "", partial(import_module, name), name)
        for name in names
    ]


def add_named(files: Iterable[str]) -> None:
    """Let `NEST_PLUGINS` name `files`, too, for this process and those it starts.

    Raises:
        InputError: one is no Python file.
    """
    for file in files:
        if not file.endswith(".py") or not Path(file).is_file():
            raise InputError(f"--plugin {file}: there is no such file; name a Python file, FILE.py.")
        named = [os.environ.get(NAMED, ""), os.path.abspath(file)]  # noqa: PTH100 - links stay links
        os.environ[NAMED] = os.pathsep.join(each for each in named if each)


def _from_file(path: Path) -> ModuleType:
    """The module in a file; it joins `sys.modules`, where dataclasses and pickles look for it."""
    name = f"nest_plugin_{normal_name(path.stem).replace('-', '_')}"
    found = spec_from_file_location(name, path)
    assert found is not None  # The name ends with `.py`.
    assert found.loader is not None
    sys.modules[name] = module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def switched_off(plugins: Iterable[Plugin]) -> tuple[list[Plugin], list[str]]:
    """Those of `plugins` that `NEST_DISABLED_PLUGINS` names, and what it names beside them."""
    plugins = list(plugins)
    written = {normal_name(name): name.strip() for name in os.environ.get(DISABLED, "").split(",") if name.strip()}
    if written.pop(ALL, None):
        return plugins, []
    names = [(plugin, {normal_name(plugin.distribution), normal_name(plugin.entry)}) for plugin in plugins]
    off = [plugin for plugin, own in names if own & set(written)]
    known = {name for _, own in names for name in own}
    return off, [name for normal, name in written.items() if normal not in known]


def given_plugins(modules: Iterable[Any]) -> list[Plugin]:
    """Modules or objects handed over directly, as plug-ins named after themselves."""
    found = []
    for position, module in enumerate(modules):
        name = getattr(module, "__name__", type(module).__name__)
        found.append(Plugin(f"{name}#{position}", name, "", lambda module=module: module))  # type: ignore[misc]
    return found


def normal_name(distribution: str) -> str:
    """A distribution name in its normal form (PyPA, name normalization)."""
    return re.sub(r"[-_.]+", "-", distribution.strip()).lower()
