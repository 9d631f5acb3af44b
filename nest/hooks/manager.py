"""Finding plug-ins and calling their hooks, each on its own so that a broken one harms no other."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from functools import partial
from importlib import import_module, metadata
from typing import Any

import pluggy
from attrs import frozen

from nest.hooks import spec

DISTRIBUTION = "nest-planner"
"""The distribution of the built-ins."""

GROUP = "nest"
"""The entry-point group plug-ins join."""

DISABLED = "NEST_DISABLED_PLUGINS"
"""The environment variable that switches distributions off: their names, separated by commas."""

BUILT_INS = (
    "nest.models",
    "nest.topologies",
    "nest.strategies",
    "nest.costs",
    "nest.collectives",
    "nest.schedules",
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
    """

    name: str
    distribution: str
    version: str
    load: Callable[[], Any]

    @property
    def origin(self) -> str:
        """Distribution and version, for people."""
        return f"{self.distribution} {self.version}".rstrip()


def built_in_plugins() -> list[Plugin]:
    """The plug-ins of this distribution."""
    version = own_version()
    return [Plugin(path, DISTRIBUTION, version, partial(import_module, path)) for path in BUILT_INS]


def own_version() -> str:
    """The version of this distribution; empty when it runs from a folder nothing was installed from."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""


def installed_plugins() -> list[Plugin]:
    """The plug-ins of other distributions, by distribution and entry point, without those switched off."""
    disabled = {_normal(name) for name in os.environ.get(DISABLED, "").split(",") if name.strip()}
    found = []
    for entry in metadata.entry_points(group=GROUP):
        distribution, version = (entry.dist.name, entry.dist.version) if entry.dist else (entry.module, "")
        if _normal(distribution) not in disabled:
            found.append(Plugin(f"{distribution}:{entry.name}", distribution, version, entry.load))
    return sorted(found, key=lambda plugin: (_normal(plugin.distribution), plugin.name))


def given_plugins(modules: Iterable[Any]) -> list[Plugin]:
    """Modules or objects handed over directly, as plug-ins named after themselves."""
    found = []
    for position, module in enumerate(modules):
        name = getattr(module, "__name__", type(module).__name__)
        found.append(Plugin(f"{name}#{position}", name, "", partial(_itself, module)))
    return found


def _itself(module: Any) -> Any:
    return module


def _normal(distribution: str) -> str:
    """A distribution name in its normal form (PyPA, name normalization)."""
    return re.sub(r"[-_.]+", "-", distribution.strip()).lower()


class Manager:
    """Registers plug-ins with pluggy and calls their hooks one plug-in at a time."""

    def __init__(self) -> None:
        self._pluggy = pluggy.PluginManager(spec.PROJECT)
        self._pluggy.add_hookspecs(spec)
        self._loaded: dict[str, Any] = {}
        self.warnings: list[str] = []

    def register(self, plugins: Iterable[Plugin]) -> list[Plugin]:
        """Load and register `plugins`; those that cannot be are set aside. Returns the others."""
        kept = []
        for plugin in plugins:
            try:
                loaded = plugin.load()
                hash(loaded)  # pluggy keeps plug-ins in sets
                self._pluggy.register(loaded, name=plugin.name)
            # A plug-in may raise anything, even SystemExit, while it is imported.
            except (Exception, SystemExit) as error:
                self._pluggy.unregister(name=plugin.name) if self._pluggy.has_plugin(plugin.name) else None
                self.set_aside(plugin, f"it cannot be loaded: {_told(error)}")
                continue
            self._loaded[plugin.name] = loaded
            self._warn_of_unknown_hooks(plugin)
            kept.append(plugin)
        return kept

    def call(self, hook: str, plugins: Iterable[Plugin], **arguments: Any) -> Iterator[tuple[Plugin, Any]]:
        """Each plug-in's answer to `hook`; one that raises is set aside with a warning."""
        for plugin in plugins:
            others = [other for name, other in self._loaded.items() if name != plugin.name]
            try:
                answers = self._pluggy.subset_hook_caller(hook, others)(**arguments)
            except (Exception, SystemExit) as error:
                self.set_aside(plugin, f"its hook {hook} raised {_told(error)}")
                continue
            for answer in answers:
                yield plugin, answer

    def set_aside(self, plugin: Plugin, reason: str) -> None:
        """Note in one line that something of `plugin` is not used."""
        self.warnings.append(f"plug-in {plugin.origin} is set aside: {' '.join(reason.split())}")

    def _warn_of_unknown_hooks(self, plugin: Plugin) -> None:
        for caller in self._pluggy.get_hookcallers(self._loaded[plugin.name]) or ():
            if not caller.has_spec():
                known = [name for name in vars(spec) if name.startswith("nest_")]
                near = get_close_matches(caller.name, known, n=1)
                hint = f"; did it mean {near[0]}?" if near else ""
                self.warnings.append(f"plug-in {plugin.origin}: there is no hook {caller.name}{hint}")


def _told(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."
