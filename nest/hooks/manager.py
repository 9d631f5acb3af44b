"""Finding plug-ins and calling their hooks, each on its own so that a broken one harms no other."""

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from difflib import get_close_matches
from functools import cache, partial
from importlib import import_module, metadata
from typing import Any, TypeVar

import pluggy
from attrs import frozen

from nest.errors import InputError, InternalError
from nest.hooks import spec
from nest.hooks.guard import Faulty, Guard, Slow, call_limit
from nest.version import __version__

DISTRIBUTION = "nest-planner"
"""The distribution of the built-ins."""

GROUP = "nest"
"""The entry-point group plug-ins join."""

DISABLED = "NEST_DISABLED_PLUGINS"
"""The environment variable that switches plug-ins off: names of distributions or entry points, separated by commas."""

HOOKS = tuple(name for name in vars(spec) if name.startswith("nest_"))
"""Every hook there is."""

Answer = TypeVar("Answer")

BUILT_INS = (
    "nest.models",
    "nest.topologies",
    "nest.strategies",
    "nest.costs",
    "nest.collectives",
    "nest.schedules",
    "nest.planners",
    "nest.exporters",
    "nest.stacks",
)
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


def switched_off(plugins: Iterable[Plugin]) -> tuple[list[Plugin], list[str]]:
    """Those of `plugins` that `NEST_DISABLED_PLUGINS` names, and what it names beside them."""
    written = {normal_name(name): name.strip() for name in os.environ.get(DISABLED, "").split(",") if name.strip()}
    names = [(plugin, {normal_name(plugin.distribution), normal_name(plugin.entry)}) for plugin in plugins]
    off = [plugin for plugin, own in names if own & set(written)]
    known = {name for _, own in names for name in own}
    return off, [told for name, told in written.items() if name not in known]


def given_plugins(modules: Iterable[Any]) -> list[Plugin]:
    """Modules or objects handed over directly, as plug-ins named after themselves."""
    found = []
    for position, module in enumerate(modules):
        name = getattr(module, "__name__", type(module).__name__)
        found.append(Plugin(f"{name}#{position}", name, "", partial(_itself, module)))
    return found


def _itself(module: Any) -> Any:
    return module


def normal_name(distribution: str) -> str:
    """A distribution name in its normal form (PyPA, name normalization)."""
    return re.sub(r"[-_.]+", "-", distribution.strip()).lower()


class Manager:
    """Loads plug-ins and calls their hooks one plug-in at a time; what is faulty is set aside.

    Built-ins run unguarded: what they raise is a bug in nest, and nothing to go on without.

    Attributes:
        strict: whether a fault is an error.
        warnings: a line for each fault, and for what is odd but no fault.
        faults: plug-ins with what is wrong with them.
    """

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.warnings: list[str] = []
        self.faults: list[tuple[Plugin, str]] = []
        self._managers: dict[str, pluggy.PluginManager] = {}
        self._guards: dict[str, Guard] = {}
        self._limit = call_limit()

    def guard(self, plugin: Plugin) -> Guard:
        """The guard of a plug-in that is no built-in."""
        return self._guards.setdefault(plugin.name, Guard(self._limit))

    def renew(self) -> None:
        """Give every plug-in its whole time again."""
        for guard in self._guards.values():
            guard.renew()

    def register(self, plugins: Iterable[Plugin]) -> list[Plugin]:
        """Load and register `plugins`; those that cannot be are set aside. Returns the others."""
        kept = []
        for plugin in plugins:
            try:
                self._managers[plugin.name] = self.watch(plugin, partial(_registered, plugin))
            except Faulty as fault:
                self.set_aside(plugin, f"loading it {fault}")
                continue
            self._warn_of_unknown_hooks(plugin)
            kept.append(plugin)
        return kept

    def watch(self, plugin: Plugin, function: Callable[[], Answer]) -> Answer:
        """What `function`, which calls into `plugin`, returns.

        Raises:
            Faulty: the plug-in is no built-in, and at fault.
        """
        return function() if plugin.built_in else self.guard(plugin).call(function)

    def hooks(self, plugin: Plugin) -> tuple[str, ...]:
        """Names of the hooks that a plug-in implements, in the order of `nest.hooks.spec`."""
        if plugin.name not in self._managers:
            return ()
        callers = self._managers[plugin.name].hook
        return tuple(name for name in HOOKS if getattr(callers, name).get_hookimpls())

    def call(self, hook: str, plugin: Plugin, read: Callable[[list[Any]], Answer], **arguments: Any) -> Answer | None:
        """What `read` makes of a plug-in's answers to `hook`; None: it has no such hook, or fails and is set aside.

        A plug-in that does not come back is asked for nothing any more.
        """
        if hook not in self.hooks(plugin):
            return None
        caller = getattr(self._managers[plugin.name].hook, hook)
        try:
            return self.watch(plugin, lambda: read(caller(**arguments)))
        except Faulty as fault:
            if isinstance(fault, Slow):
                del self._managers[plugin.name]
            self.set_aside(plugin, f"its hook {hook} {fault}")
            return None

    def set_aside(self, plugin: Plugin, reason: str, instead: str = "") -> None:
        """Note in one line that something of `plugin` is not used.

        Args:
            plugin: the plug-in.
            reason: what is wrong with it.
            instead: what takes its place, if anything does.

        Raises:
            InputError: faults are errors.
        """
        if plugin.built_in:
            raise InternalError(f"{plugin.name}: {reason}. This is a bug in nest; please report it.")
        told = " ".join(reason.split())
        self.faults.append((plugin, told))
        self.warnings.append(f"plug-in {plugin.origin} is set aside: {told}{instead}")
        self.check_strict()

    def check_strict(self) -> None:
        """Refuse to go on where faults are errors and there is one.

        Raises:
            InputError: the first fault.
        """
        if self.strict and self.faults:
            plugin, told = self.faults[0]
            raise InputError(f"plug-in {plugin.origin} is faulty, which --strict-plugins makes an error: {told}.")

    def _warn_of_unknown_hooks(self, plugin: Plugin) -> None:
        manager = self._managers[plugin.name]
        for caller in manager.get_hookcallers(manager.get_plugin(plugin.name)) or ():
            if not caller.has_spec():
                near = get_close_matches(caller.name, HOOKS, n=1)
                hint = f"; did it mean {near[0]}?" if near else ""
                self.faults.append((plugin, f"there is no hook {caller.name}{hint}"))
                self.warnings.append(f"plug-in {plugin.origin}: there is no hook {caller.name}{hint}")
                self.check_strict()


def _registered(plugin: Plugin) -> pluggy.PluginManager:
    """A manager of the plug-in alone: one that comes back too late can join no other."""
    manager = pluggy.PluginManager(spec.PROJECT)
    manager.add_hookspecs(spec)
    loaded = plugin.load()
    hash(loaded)  # pluggy keeps plug-ins in sets
    manager.register(loaded, name=plugin.name)
    return manager
