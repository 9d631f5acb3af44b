"""Registry of all objects by kind and name, from built-ins and plug-ins."""

from __future__ import annotations

import os
from contextvars import ContextVar
from functools import cache, partial
from threading import RLock, local
from typing import TYPE_CHECKING, Any, TypeVar

from nest.errors import InputError, InternalError
from nest.hooks.bundled import DISTRIBUTION
from nest.hooks.calls import SECONDS, CallError, Guarded, PluginError
from nest.hooks.kinds import KINDS, listed, name_of, refusal, reserved_names
from nest.hooks.loader import (
    DISABLED,
    HOOKS,
    NAMED,
    Loader,
    Plugin,
    PluginState,
    built_in_plugins,
    given_plugins,
    installed_plugins,
    named_plugins,
    switched_off,
)
from nest.version import __version__

# What the annotations name stays unloaded: `nest --help` passes through here.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from nest.hooks import protocols

Answer = TypeVar("Answer")

_NO_OTHER = ("model_importers", "topology_importers", "planners", "exporters", "plan_readers", "stacks", "engines")
"""Kinds without a replacement for an object that fails."""

_planning: ContextVar[Registry | None] = ContextVar("_planning", default=None)


class _Credits(local):
    """Objects used in each thread's current run."""

    def __init__(self) -> None:
        self.used: set[tuple[str, str]] = set()


class Registry:
    """Registered objects by kind and name: built-ins first, then plug-ins by distribution.

    Objects of plug-ins are guarded: a failing call raises `PluginError`, and `run` continues without them. Threads may
    share a registry: each kind is filled once before use.
    """

    def __init__(self, extra: Iterable[Any] = (), *, strict: bool = False) -> None:
        """Find installed and named plug-ins, and those of `extra`; built-ins of a kind load on first use.

        Raises:
            InputError: a plug-in fails, and that ends nest (`strict`).
        """
        self._loader = Loader(strict)
        installed = [*installed_plugins(), *named_plugins()]
        self._off, unknown = switched_off(installed)
        self._loader.warnings += [
            f"{DISABLED} names {name!r}, but no plug-in of that name is installed" for name in unknown
        ]
        self._used = [*(plugin for plugin in installed if plugin not in self._off), *given_plugins(extra)]
        self._plugins = self._loader.register(self._used)
        self._built_ins: dict[str, Plugin] = {}
        self._objects: dict[str, dict[str, Any]] = {}
        self._origins: dict[tuple[str, str], Plugin] = {}
        self._absent: set[tuple[str, str]] = set()
        self._credits = _Credits()
        self._latest: dict[str, tuple[object, Any]] = {}
        self._lasting: dict[str, Any] = {}
        # One for each kind: a plug-in's hook, which runs in a thread of its own, may ask for another kind.
        self._locks = {kind: RLock() for kind in KINDS}
        self._lock = RLock()

    def memoized(self, name: str, key: object, make: Callable[[], Answer]) -> Answer:
        """Cache `make()` under a name until another key is requested or an object is disabled."""
        key = len(self.warnings), key
        found = self._latest.get(name)
        if found is None or found[0] != key:
            found = self._latest[name] = key, make()
        answer: Answer = found[1]
        return answer

    def keep(self, name: str, value: Any) -> None:
        """Keep a value between questions, replacing the last of that name."""
        self._lasting[name] = value

    def take(self, name: str) -> Any:
        """Take a kept value, which nobody else gets meanwhile; None: there is none."""
        return self._lasting.pop(name, None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each plug-in, hook or object disabled so far."""
        return tuple(self._loader.warnings)

    @property
    def strict(self) -> bool:
        """True if a plug-in error ends nest."""
        return self._loader.strict

    def be_strict(self, strict: bool = True) -> None:
        """Set whether plug-in errors end nest; `InputError` if one has failed before."""
        self._loader.strict = strict
        self._loader.check_strict()

    def run(self, planning: Callable[[], Answer]) -> Answer:
        """Call `planning`; if an object of a plug-in fails, call it again without that object.

        A run inside another leaves errors to the outer one, whose objects would no longer be registered.

        Raises:
            InputError: a plug-in fails, and that ends nest.
        """
        if _planning.get() is self:
            return planning()
        if self._loader.strict:
            self.distributions()
        token = _planning.set(self)
        try:
            while True:
                self._loader.renew()
                self._credits.used.clear()
                try:
                    return planning()
                except PluginError as error:
                    self.disable(error)
        finally:
            _planning.reset(token)

    def disable(self, error: PluginError) -> None:
        """Disable the object that failed, and record why, and its replacement.

        Raises:
            InputError: plug-in errors end nest.
        """
        kind, name = error.kind, error.name
        plugin = self._origins.get((kind, name))
        if plugin is None and (kind, name) not in self._absent:
            raise InternalError(f"there is no object {name!r} among {kind} to disable; it {error.reason}.")
        with self._locks[kind]:
            self._absent.add((kind, name))
            if plugin is None or self._origins.pop((kind, name), None) is None:  # Another thread was first.
                return
            self._objects[kind] = {other: item for other, item in self._objects[kind].items() if other != name}
            self._objects.pop("ordered strategies", None)
        self._loader.disable(plugin, f"its {KINDS[kind].phrase} {name!r} {error.reason}", self._in_its_place(kind))

    def missing(self, kind: str) -> frozenset[str]:
        """Names of disabled objects of `kind` without a replacement."""
        self._collect(kind)
        return frozenset(name for of, name in self._absent if of == kind and name not in self._objects[kind])

    def _in_its_place(self, kind: str) -> str:
        if kind == "strategies":
            return "; its degree is 1"
        usual = next(iter(self._objects.get(kind, ())), None)
        if usual is None or kind in _NO_OTHER:
            return ""
        others = "the problem's other schedules, or " if kind == "schedules" else ""
        return f"; in its place: {others}{usual}"

    def strategies(self) -> Mapping[str, protocols.Strategy]:
        """Sub-graph strategies, each after those in its `after`.

        Raises:
            InputError: the `after` of some strategies form a cycle; the text names their distributions.
        """
        with self._locks["strategies"]:
            if "ordered strategies" not in self._objects:
                self._objects["ordered strategies"] = self._ordered(self._collect("strategies"))
            return self._objects["ordered strategies"]

    def model_importers(self) -> Mapping[str, protocols.ModelImporter]:
        """Model importers."""
        return self._collect("model_importers")

    def topology_importers(self) -> Mapping[str, protocols.TopologyImporter]:
        """Topology importers."""
        return self._collect("topology_importers")

    def cost_models(self) -> Mapping[str, protocols.CostModel]:
        """Cost models, the default first."""
        return self._collect("cost_models")

    def collective_models(self) -> Mapping[str, protocols.CollectiveModel]:
        """Collective models, the default first."""
        return self._collect("collective_models")

    def layer_times(self) -> Mapping[str, protocols.LayerTimes]:
        """Models of layer times, the default first."""
        return self._collect("layer_times")

    def schedules(self) -> Mapping[str, protocols.Schedule]:
        """Pipeline schedules, the default first."""
        return self._collect("schedules")

    def planners(self) -> Mapping[str, protocols.Planner]:
        """Alternative planners."""
        return self._collect("planners")

    def exporters(self) -> Mapping[str, protocols.Exporter]:
        """Exporters."""
        return self._collect("exporters")

    def plan_readers(self) -> Mapping[str, protocols.PlanReader]:
        """Readers of frameworks' launch files."""
        return self._collect("plan_readers")

    def stacks(self) -> Mapping[str, protocols.Stack]:
        """Software stacks."""
        return self._collect("stacks")

    def engines(self) -> Mapping[str, protocols.Engine]:
        """Engines that run sweeps."""
        return self._collect("engines")

    def origin(self, kind: str, name: str) -> tuple[str, str]:
        """Distribution and version of the object of `kind` called `name`; `KeyError` if there is none."""
        self._collect(kind)
        return self._origins[kind, name].release

    def distributions(self) -> dict[str, str]:
        """Versions of distributions with registered objects, by name."""
        if not self._plugins:  # No built-in need be loaded to know that.
            return {DISTRIBUTION: __version__}
        for kind in KINDS:
            self._collect(kind)
        return dict(sorted(each.release for each in self._origins.values()))

    def installed(self) -> dict[str, str]:
        """Versions of distributions with active plug-ins, nest's own included, by name."""
        return {DISTRIBUTION: __version__, **dict(each.release for each in self._used)}

    def count_use(self, kind: str, name: str) -> None:
        """Record that the object of `kind` called `name` was used in the current `run`."""
        self._credits.used.add((kind, name))

    def contributing(self, objects: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Versions of distributions of objects, by kind and name, and of those recorded, nest's own included."""
        versions = {DISTRIBUTION: __version__}
        if not self._plugins:  # No built-in need be loaded to know that.
            return versions
        versions |= dict(self._origins[key].release for key in (*objects, *self._credits.used) if key in self._origins)
        return dict(sorted(versions.items()))

    def unguarded(self, kind: str, name: str) -> Any:
        """The object of `kind` called `name` without a guard: for trials, not for planning.

        Raises:
            KeyError: there is none.
        """
        item = self._collect(kind)[name]
        return item.unguarded if isinstance(item, Guarded) else item

    def states(self) -> tuple[PluginState, ...]:
        """Every distribution with plug-ins, built-ins first, with its objects and faults."""
        for kind in KINDS:
            self._collect(kind)
        loaded = [*self._built_ins.values(), *self._plugins]
        plugins = [*loaded, *(plugin for plugin in self._used if plugin not in self._plugins)]
        states = []
        for release in dict.fromkeys(plugin.release for plugin in (*plugins, *self._off)):
            own = [plugin for plugin in plugins if plugin.release == release]
            implemented = {hook for plugin in own for hook in self._loader.hooks(plugin)}
            names: dict[str, list[str]] = {hook: [] for hook in HOOKS if hook in implemented}
            for (kind, name), owner in self._origins.items():
                if owner in own and f"nest_{kind}" in names:
                    names[f"nest_{kind}"].append(name)
            faults = tuple(reason for plugin, reason in self._loader.errors if plugin in own)
            off = any(plugin.release == release for plugin in self._off)
            states.append(PluginState(*release, {hook: tuple(each) for hook, each in names.items()}, faults, off))
        return tuple(states)

    def commands(
        self, make: Callable[[], Answer], names: Callable[[Answer], tuple[str, ...]]
    ) -> Iterator[tuple[Plugin, Answer, tuple[str, ...]]]:
        """Plug-ins that add commands, each with a command line of its own (`make`), and its commands' `names`.

        Errors of `names` are the plug-in's.
        """
        for plugin in self._plugins:
            own = make()
            if self._loader.call("nest_commands", plugin, bool, app=own) is None:
                continue
            try:
                added = self._loader.watch(plugin, partial(names, own))
            except CallError as error:
                self._loader.disable(plugin, f"a command it adds {error}")
                continue
            yield plugin, own, added

    def refuse(self, plugin: Plugin, reason: str) -> None:
        """Record that something of `plugin` is not used; `InputError` if plug-in errors end nest."""
        self._loader.disable(plugin, reason)

    def _plugins_of(self, hook: str) -> list[Plugin]:
        """Plug-ins that may have a hook; nest's own declare theirs."""
        own = built_in_plugins(hook)
        with self._lock:
            for each in own:
                if each.name not in self._built_ins:
                    self._loader.register([each])
                    self._built_ins[each.name] = each
        return [*(self._built_ins[each.name] for each in own), *self._plugins]

    def _collect(self, kind: str) -> dict[str, Any]:
        with self._locks[kind]:
            if kind not in self._objects:  # No other thread has filled it meanwhile.
                refusal(kind, None)  # Imports take their time, which is not the plug-ins'.
                items: dict[str, Any] = {}
                hook = f"nest_{kind}"
                for plugin in self._plugins_of(hook):
                    for item in self._loader.call(hook, plugin, listed) or ():
                        self._admit(kind, plugin, item, items)
                self._objects[kind] = items
            return self._objects[kind]

    def _admit(self, kind: str, plugin: Plugin, item: Any, items: dict[str, Any]) -> None:
        """Add `item` to `items`, unless it is broken or its name is taken."""
        returned = f"nest_{kind} returned {type(item).__name__}"
        try:
            problem, name = self._loader.watch(plugin, lambda: (refusal(kind, item), name_of(item)))
        except CallError as error:  # Attributes may be properties that raise anything.
            self._loader.disable(plugin, f"{returned}, which {error}")
            return
        if problem is not None:
            if kind != "strategies" or name not in reserved_names():
                self._absent.add((kind, name))
            self._loader.disable(plugin, f"{returned}, {problem}")
        elif name in items:
            holder = self._origins[kind, name].origin
            self._loader.disable(plugin, f"{holder} has registered {name!r} among {kind} already")
        elif (offered := self._guarded(kind, plugin, name, item)) is not None:
            items[name] = offered
            self._origins[kind, name] = plugin

    def _guarded(self, kind: str, plugin: Plugin, name: str, item: Any) -> Any:
        """`item`, or its stand-in; None: it is disabled."""
        if plugin.built_in:
            return item
        guarded = Guarded(kind, name, item, self._loader.guard(plugin))
        try:
            guarded.read_members()
        except PluginError as error:
            self._absent.add((kind, name))
            self._loader.disable(plugin, f"its {KINDS[kind].phrase} {name!r} {error.reason}", self._in_its_place(kind))
            return None
        return guarded

    def _ordered(self, strategies: dict[str, protocols.Strategy]) -> dict[str, protocols.Strategy]:
        """Sort strategies by `after`, else as registered."""
        waiting = dict(strategies)
        ordered: dict[str, protocols.Strategy] = {}
        while waiting:
            free = next((n for n, s in waiting.items() if not any(a in waiting for a in s.after)), None)
            if free is None:
                names = ", ".join(f"{name} ({self._origins['strategies', name].origin})" for name in waiting)
                raise InputError(
                    f"these strategies each come after another of them: {names}. "
                    f"Switch one of the distributions off with the environment variable {DISABLED}."
                )
            ordered[free] = waiting.pop(free)
        return ordered


def registry(extra: Iterable[Any] = (), *, strict: bool = False) -> Registry:
    """Registry of the process, or a new one with `extra` modules or objects as further plug-ins.

    There are separate process registries with and without `strict`, where plug-in errors end nest.

    Raises:
        InputError: a plug-in fails, and that ends nest.
    """
    modules = tuple(extra)
    if modules:
        return Registry(modules, strict=strict)
    with _LOCK:
        return _shared(strict, *(os.environ.get(name, "") for name in (NAMED, DISABLED, SECONDS)))


@cache
def _shared(strict: bool, *environment: str) -> Registry:
    return Registry(strict=strict)


_LOCK = RLock()
"""Held while the registry of the process is made: `cache` would make one per waiting thread."""
