"""Plug-ins: built-in, installed, named by the environment or passed in; each is loaded and called separately.

So a broken one harms no other.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property, partial
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pluggy

from nest.errors import InputError, InternalError
from nest.hooks import spec
from nest.hooks.bundled import DISTRIBUTION, bundled_entries, bundled_modules
from nest.hooks.calls import CallError, CallTimeoutError, Guard, call_limit
from nest.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from importlib import metadata
    from types import ModuleType

GROUP = "nest"
"""Entry-point group of plug-ins."""

DISABLED, ALL = "NEST_DISABLED_PLUGINS", "all"
"""Variable that switches plug-ins off: names of distributions or entry points between commas, or all others."""

NAMED = "NEST_PLUGINS"
"""Variable that names plug-ins which are not installed: files or modules, separated as in `PATH`."""

BUILT_INS = {
    "nest_model_importers": "nest.models",
    "nest_topology_importers": "nest.catalogue.registered",
    "nest_strategies": "nest.strategies",
    "nest_cost_models": "nest.costs",
    "nest_layer_times": "nest.costs",
    "nest_collective_models": "nest.collectives",
    "nest_schedules": "nest.schedules",
    "nest_stacks": "nest.catalogue.registered",
}
"""Module of the core's own objects by hook, imported when the hook is called."""

HOOKS = tuple(name for name in vars(spec) if name.startswith("nest_"))
"""All hooks."""

Answer = TypeVar("Answer")


class Plugin(NamedTuple):
    """A module (or object) with hook functions, and its origin.

    Attributes:
        name: unique among plug-ins.
        version: of the distribution; empty if it has none.
        load: imports it.
        entry: name of its entry point, if any.
        built_in: it is part of nest.
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


def built_in_plugins(hook: str) -> list[Plugin]:
    """Plug-ins of this distribution with a hook: the core's, then bundled ones (entry-point group `nest.KIND`)."""
    core = [_built_in(BUILT_INS[hook])] if hook in BUILT_INS else []
    bundled = bundled_entries(hook.replace("_", ".", 1)).items()
    return [*core, *(_built_in(path)._replace(entry=name) for name, path in bundled)]


def _built_in(path: str) -> Plugin:
    return Plugin(path, DISTRIBUTION, __version__, partial(import_module, path), built_in=True)


def only_own(versions: Mapping[str, str]) -> bool:
    """True if only nest's own distribution has plug-ins."""
    return versions.keys() == {DISTRIBUTION}


def _may_be_installed() -> bool:
    """True if a distribution may bring plug-ins, by the entry-point files in folders of the path.

    `importlib.metadata` knows for sure, but takes 4 % of the time of a small solve to import.
    """
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return True
    try:
        for folder in map(Path, sys.path):
            if folder.suffix == ".egg" or folder.is_file():  # Archives may hold distributions, too.
                return True
            for file in folder.glob("*-info/entry_points.txt"):
                if f"[{GROUP}]" in file.read_text(encoding="utf-8"):
                    return True
    except Exception:  # What cannot be read may name some.
        return True
    return False


def installed_plugins() -> list[Plugin]:
    """Plug-ins of other distributions, by distribution and entry point, with those switched off."""
    if not _may_be_installed():
        return []
    from importlib import metadata

    plugins = []
    try:
        entries, damaged = list(metadata.entry_points(group=GROUP)), list[Plugin]()
    except Exception:  # Damage in any distribution, be it a plug-in or not: what is raised depends on it.
        entries, damaged = _entries_one_by_one()
    bundled = bundled_modules()
    for entry in entries:
        if entry.value in bundled:  # A copy of a bundled distribution, which is imported in its place.
            continue
        distribution, version = _distribution(entry)
        plugins.append(Plugin(f"{distribution}:{entry.name}", distribution, version, entry.load, entry.name))
    plugins += damaged
    return sorted(plugins, key=lambda plugin: (normal_name(plugin.distribution), plugin.name))


def _entries_one_by_one() -> tuple[list[metadata.EntryPoint], list[Plugin]]:
    """Readable entry points, and plug-ins for unreadable ones that may be nest's."""
    from importlib import metadata

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
    """True if the damaged entry points of a distribution may be nest's."""
    try:
        return f"[{GROUP}]" in (distribution.read_text("entry_points.txt") or "")
    except Exception:
        return True


def _raise(error: Exception) -> Any:
    raise error


def _distribution(entry: metadata.EntryPoint) -> tuple[str, str]:
    """Name and version of an entry point's distribution, as far as damaged metadata tell."""
    name, version = "", ""
    with suppress(Exception):  # What is raised, or missing, depends on the version of Python and on the damage.
        name = str((entry.dist and entry.dist.name) or entry.module)
        version = str((entry.dist and entry.dist.version) or "")
    return name or entry.name, version


def named_plugins() -> list[Plugin]:
    """Files (`FILE.py`) and modules in `NEST_PLUGINS`, in order."""
    names = dict.fromkeys(name.strip() for name in os.environ.get(NAMED, "").split(os.pathsep) if name.strip())
    return [
        Plugin(name, Path(name).name, "", partial(_from_file, Path(name)), Path(name).stem)
        if name.endswith(".py")
        else Plugin(name, name, "", partial(import_module, name), name)
        for name in names
    ]


def add_named(files: Iterable[str]) -> None:
    """Add `files` to `NEST_PLUGINS`, for this process and its children.

    Raises:
        InputError: one is no Python file.
    """
    for file in files:
        if not file.endswith(".py") or not Path(file).is_file():
            raise InputError(f"--plugin {file}: there is no such file; name a Python file, FILE.py.")
        named = [os.environ.get(NAMED, ""), os.path.abspath(file)]  # noqa: PTH100 - links stay links
        os.environ[NAMED] = os.pathsep.join(each for each in named if each)


def _from_file(path: Path) -> ModuleType:
    """Import a module from a file; it joins `sys.modules`, where dataclasses and pickles look for it."""
    name = f"nest_plugin_{normal_name(path.stem).replace('-', '_')}"
    specification = spec_from_file_location(name, path)
    assert specification is not None  # The name ends with `.py`.
    assert specification.loader is not None
    sys.modules[name] = module = module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def switched_off(plugins: Iterable[Plugin]) -> tuple[list[Plugin], list[str]]:
    """Plug-ins named by `NEST_DISABLED_PLUGINS`, and its other names."""
    plugins = list(plugins)
    written = {normal_name(name): name.strip() for name in os.environ.get(DISABLED, "").split(",") if name.strip()}
    if written.pop(ALL, None):
        return plugins, []
    names = [(plugin, {normal_name(plugin.distribution), normal_name(plugin.entry)}) for plugin in plugins]
    off = [plugin for plugin, own in names if own & set(written)]
    known = {name for _, own in names for name in own}
    return off, [name for normal, name in written.items() if normal not in known]


def given_plugins(modules: Iterable[Any]) -> list[Plugin]:
    """Modules or objects passed in, as plug-ins named after themselves."""
    plugins = []
    for position, module in enumerate(modules):
        name = getattr(module, "__name__", type(module).__name__)
        plugins.append(Plugin(f"{name}#{position}", name, "", lambda module=module: module))  # type: ignore[misc]
    return plugins


def normal_name(distribution: str) -> str:
    """Normalized name of a distribution (PyPA, name normalization)."""
    return re.sub(r"[-_.]+", "-", distribution.strip()).lower()


class PluginState(NamedTuple):
    """A distribution with plug-ins.

    Attributes:
        hooks: implemented hooks, with the names of registered objects.
        faults: disabled parts, with reasons.
        off: it is switched off.
    """

    distribution: str
    version: str
    hooks: Mapping[str, tuple[str, ...]]
    faults: tuple[str, ...]
    off: bool

    @property
    def state(self) -> str:
        """`active`, `disabled: ...`, `switched off ...`, or two of them."""
        useful = any(self.hooks.values()) or ("nest_commands" in self.hooks and not self.faults)
        parts = ["active"] if useful else []
        parts += [f"disabled: {fault}" for fault in self.faults]
        parts += [f"switched off ({DISABLED})"] if self.off else []
        return "; ".join(parts) or "active"


class Loader:
    """Loads plug-ins and calls their hooks one plug-in at a time; failing parts are disabled.

    Built-ins run unguarded: their errors are bugs of nest.

    Attributes:
        strict: a plug-in error ends nest.
        warnings: a line for each plug-in error, and for oddities.
        errors: plug-ins with their faults.
    """

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.warnings: list[str] = []
        self.errors: list[tuple[Plugin, str]] = []
        self._managers: dict[str, pluggy.PluginManager] = {}
        self._guards: dict[str, Guard] = {}
        self._limit = call_limit()

    def guard(self, plugin: Plugin) -> Guard:
        """Guard of a plug-in that is no built-in."""
        return self._guards.setdefault(plugin.name, Guard(self._limit))

    def renew(self) -> None:
        """Reset every plug-in's total time."""
        for guard in self._guards.values():
            guard.renew()

    def register(self, plugins: Iterable[Plugin]) -> list[Plugin]:
        """Load and register `plugins`; failing ones are disabled. Returns the others."""
        registered = []
        for plugin in plugins:
            try:
                self._managers[plugin.name] = self.watch(plugin, partial(_registered, plugin, self))
            except CallError as error:
                self.disable(plugin, f"loading it {error}")
                continue
            self._warn_of_unknown_hooks(plugin)
            registered.append(plugin)
        return registered

    def watch(self, plugin: Plugin, function: Callable[[], Answer]) -> Answer:
        """Call `function`, which calls into `plugin`.

        Raises:
            CallError: the plug-in is no built-in, and fails.
        """
        return function() if plugin.built_in else self.guard(plugin).call(function)

    def hooks(self, plugin: Plugin) -> tuple[str, ...]:
        """Names of a plug-in's hooks, in the order of `nest.hooks.spec`."""
        manager = self._managers.get(plugin.name)
        return () if manager is None else tuple(each for each in HOOKS if getattr(manager.hook, each).get_hookimpls())

    def call(self, hook: str, plugin: Plugin, read: Callable[[list[Any]], Answer], **arguments: Any) -> Answer | None:
        """Apply `read` to a plug-in's answers to `hook`; None: it has no such hook, or fails and is disabled.

        A plug-in that timed out is not called again.
        """
        manager = self._managers.get(plugin.name)
        if manager is None or hook not in self.hooks(plugin):
            return None
        caller = getattr(manager.hook, hook)
        try:
            return self.watch(plugin, lambda: read(caller(**arguments)))
        except CallError as error:
            if isinstance(error, CallTimeoutError):
                self._managers.pop(plugin.name, None)
            self.disable(plugin, f"its hook {hook} {error}")
            return None

    def disable(self, plugin: Plugin, reason: str, instead: str = "") -> None:
        """Record that something of `plugin` is not used, why, and what replaces it, if anything.

        Raises:
            InputError: plug-in errors end nest.
        """
        if plugin.built_in:
            raise InternalError(f"{plugin.name}: {reason}. This is a bug in nest; please report it.")
        text = " ".join(reason.split())
        self.errors.append((plugin, text))
        self.warnings.append(f"plug-in {plugin.origin} is disabled: {text}{instead}")
        self.check_strict()

    def check_strict(self) -> None:
        """Stop on the first plug-in error if these end nest.

        Raises:
            InputError: the first of them.
        """
        if self.strict and self.errors:
            plugin, text = self.errors[0]
            raise InputError(f"plug-in error in {plugin.origin}, which --strict-plugins does not allow: {text}.")

    _of_built_ins = cached_property(lambda _: _manager())
    """Manager shared by built-ins: each hook belongs to one of them."""

    def _warn_of_unknown_hooks(self, plugin: Plugin) -> None:
        manager = self._managers[plugin.name]
        for caller in manager.get_hookcallers(manager.get_plugin(plugin.name)) or ():
            if not caller.has_spec():
                near = get_close_matches(caller.name, HOOKS, n=1)
                hint = f"; did it mean {near[0]}?" if near else ""
                self.errors.append((plugin, f"there is no hook {caller.name}{hint}"))
                self.warnings.append(f"plug-in {plugin.origin}: there is no hook {caller.name}{hint}")
                self.check_strict()


def _manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(spec.PROJECT)
    manager.add_hookspecs(spec)
    return manager


def _registered(plugin: Plugin, loader: Loader) -> pluggy.PluginManager:
    """Manager of a plug-in; only the core's own share one, as one that loads late can join none."""
    manager = loader._of_built_ins if plugin.built_in and not plugin.entry else _manager()
    loaded = plugin.load()
    needed = getattr(loaded, "hook_version", spec.VERSION)
    if type(needed) is not int or needed > spec.VERSION:
        raise CallError(f"is refused: it needs version {needed!r:.20} of the hooks, and this nest has {spec.VERSION}")
    hash(loaded)  # pluggy keeps plug-ins in sets
    manager.register(loaded, name=plugin.name)
    return manager
