"""The registry: every registered object by kind and name, from built-ins and plug-ins alike."""

from __future__ import annotations

import os
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from nest.errors import InputError, InternalError
from nest.hooks.admission import name_of, refusal, taken_words
from nest.hooks.guard import KINDS, SECONDS, WORDS, Faulty, Nonsense, PluginFault
from nest.hooks.guarded import Guarded
from nest.hooks.manager import (
    DISABLED,
    DISTRIBUTION,
    Manager,
    Plugin,
    built_in_plugins,
    given_plugins,
    installed_plugins,
    own_version,
    switched_off,
)
from nest.hooks.states import PluginState, states

# What the annotations name stays unloaded: `nest --help` passes through here.
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from nest.hooks.protocols import (
        CollectiveModel,
        CostModel,
        Exporter,
        LayerTimes,
        ModelImporter,
        Planner,
        Schedule,
        Stack,
        Strategy,
        TopologyImporter,
    )

Answer = TypeVar("Answer")

_walking: ContextVar[Registry | None] = ContextVar("_walking", default=None)


class Registry:
    """Registered objects by kind and name: built-ins first, then plug-ins by distribution.

    Objects of plug-ins are handed out guarded: a call that fails raises `PluginFault`. `run` goes on without them.

    Attributes:
        warnings: a line for each plug-in, hook or object that was set aside so far.
    """

    def __init__(self, extra: Iterable[Any] = (), *, strict: bool = False) -> None:
        """Find installed plug-ins; built-ins are loaded when first asked for.

        Args:
            extra: modules or objects with hook functions, as further plug-ins.
            strict: whether a faulty plug-in is an error.

        Raises:
            InputError: a plug-in is faulty, and that is an error.
        """
        self._manager = Manager(strict)
        installed = installed_plugins()
        self._off, unknown = switched_off(installed)
        self._manager.warnings += [
            f"{DISABLED} names {name!r}, but no plug-in of that name is installed" for name in unknown
        ]
        self._used = [*(plugin for plugin in installed if plugin not in self._off), *given_plugins(extra)]
        self._plugins = self._manager.register(self._used)
        self._built_ins: list[Plugin] | None = None
        self._objects: dict[str, dict[str, Any]] = {}
        self._origins: dict[tuple[str, str], Plugin] = {}
        self._absent: set[tuple[str, str]] = set()
        self._credited: set[tuple[str, str]] = set()

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each thing that was set aside so far."""
        return tuple(self._manager.warnings)

    @property
    def strict(self) -> bool:
        """Whether a faulty plug-in is an error."""
        return self._manager.strict

    def be_strict(self, strict: bool = True) -> None:
        """Let faulty plug-ins be an error from now on, or no longer.

        Raises:
            InputError: a plug-in was found to be faulty before.
        """
        self._manager.strict = strict
        self._manager.check_strict()

    def run(self, walk: Callable[[], Answer]) -> Answer:
        """What `walk` returns; where an object of a plug-in fails, `walk` is called again without that object.

        A walk inside another leaves faults to the outer one, whose objects would no longer be those registered.

        Raises:
            InputError: a plug-in is faulty, and that is an error.
        """
        if _walking.get() is self:
            return walk()
        if self._manager.strict:
            self.distributions()
        token = _walking.set(self)
        try:
            while True:
                self._manager.renew()
                self._credited.clear()
                try:
                    return walk()
                except PluginFault as fault:
                    self.set_aside(fault)
        finally:
            _walking.reset(token)

    def set_aside(self, fault: PluginFault) -> None:
        """Do without the object that is at fault, and note in one line why, and what takes its place.

        Raises:
            InputError: faulty plug-ins are an error.
        """
        kind, name = fault.kind, fault.name
        plugin = self._origins.get((kind, name))
        if plugin is None and (kind, name) not in self._absent:
            raise InternalError(f"there is no object {name!r} among {kind} to set aside; it {fault.reason}.")
        self._absent.add((kind, name))
        if plugin is None or self._origins.pop((kind, name), None) is None:  # Another thread was first.
            return
        self._objects[kind] = {other: item for other, item in self._objects[kind].items() if other != name}
        self._objects.pop("ordered strategies", None)
        self._manager.set_aside(plugin, f"its {WORDS[kind]} {name!r} {fault.reason}", self._in_its_place(kind))

    def absent(self, kind: str) -> frozenset[str]:
        """Names of the objects of `kind` that were set aside and that no other object has."""
        self._collect(kind)
        return frozenset(name for of, name in self._absent if of == kind and name not in self._objects[kind])

    def _in_its_place(self, kind: str) -> str:
        if kind == "strategies":
            return "; its degree is 1"
        usual = next(iter(self._objects.get(kind, ())), None)
        if usual is None or kind in ("model_importers", "topology_importers", "planners", "exporters", "stacks"):
            return ""
        others = "the problem's other schedules, or " if kind == "schedules" else ""
        return f"; in its place: {others}{usual}"

    def strategies(self) -> Mapping[str, Strategy]:
        """Sub-graph strategies, each behind those its `after` names.

        Raises:
            InputError: the `after` of some strategies form a cycle; the text names their distributions.
        """
        if "ordered strategies" not in self._objects:
            self._objects["ordered strategies"] = self._ordered(self._collect("strategies"))
        return self._objects["ordered strategies"]

    def model_importers(self) -> Mapping[str, ModelImporter]:
        """Model importers."""
        return self._collect("model_importers")

    def topology_importers(self) -> Mapping[str, TopologyImporter]:
        """Topology importers."""
        return self._collect("topology_importers")

    def cost_models(self) -> Mapping[str, CostModel]:
        """Cost models, the default first."""
        return self._collect("cost_models")

    def collective_models(self) -> Mapping[str, CollectiveModel]:
        """Collective models, the default first."""
        return self._collect("collective_models")

    def layer_times(self) -> Mapping[str, LayerTimes]:
        """Models of layer times, the default first."""
        return self._collect("layer_times")

    def schedules(self) -> Mapping[str, Schedule]:
        """Pipeline schedules, the default first."""
        return self._collect("schedules")

    def planners(self) -> Mapping[str, Planner]:
        """Planners to compare with."""
        return self._collect("planners")

    def exporters(self) -> Mapping[str, Exporter]:
        """Exporters."""
        return self._collect("exporters")

    def stacks(self) -> Mapping[str, Stack]:
        """Software stacks."""
        return self._collect("stacks")

    def origin(self, kind: str, name: str) -> tuple[str, str]:
        """Distribution and version of the object of `kind` called `name`.

        Raises:
            KeyError: there is none.
        """
        self._collect(kind)
        plugin = self._origins[kind, name]
        return plugin.distribution, plugin.version

    def distributions(self) -> dict[str, str]:
        """Distributions that registered something, by name, with their versions."""
        if not self._plugins:  # No built-in need be loaded to know that.
            return {DISTRIBUTION: own_version()}
        for kind in KINDS:
            self._collect(kind)
        return dict(sorted({each.distribution: each.version for each in self._origins.values()}.items()))

    def installed(self) -> dict[str, str]:
        """Distributions that bring plug-ins and are not switched off, nest's own among them, with their versions."""
        return {DISTRIBUTION: own_version(), **{each.distribution: each.version for each in self._used}}

    def credit(self, kind: str, name: str) -> None:
        """Note that the object of `kind` called `name` was used in the walk that `run` goes on."""
        self._credited.add((kind, name))

    def contributing(self, objects: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Distributions of objects, each its kind and name, and of those credited, by name, with their versions.

        Nest's own is among them.
        """
        found = {DISTRIBUTION: own_version()}
        if not self._plugins:  # No built-in need be loaded to know that.
            return found
        for key in (*objects, *self._credited):
            if key in self._origins:
                found[self._origins[key].distribution] = self._origins[key].version
        return dict(sorted(found.items()))

    def unguarded(self, kind: str, name: str) -> Any:
        """The object of `kind` called `name` itself, without a guard: for trying it out, not for planning.

        Raises:
            KeyError: there is none.
        """
        found = self._collect(kind)[name]
        return found.unguarded if isinstance(found, Guarded) else found

    def states(self) -> tuple[PluginState, ...]:
        """Every distribution that has plug-ins, built-ins first, with what it offers and what is wrong with it."""
        plugins = [*self._all_plugins(), *(plugin for plugin in self._used if plugin not in self._plugins)]
        for kind in KINDS:
            self._collect(kind)
        hooks = {
            plugin.name: {
                hook: tuple(
                    name for (kind, name), owner in self._origins.items() if (f"nest_{kind}", owner) == (hook, plugin)
                )
                for hook in self._manager.hooks(plugin)
            }
            for plugin in plugins
        }
        return states(plugins, self._off, hooks, self._manager.faults)

    def commands(
        self, make: Callable[[], Answer], names: Callable[[Answer], tuple[str, ...]]
    ) -> Iterator[tuple[Plugin, Answer, tuple[str, ...]]]:
        """The plug-ins that add commands, each with what it added them to and the commands' names.

        Args:
            make: makes a command line, one for each plug-in.
            names: the names of the commands of one; what it raises is the plug-in's fault.
        """
        for plugin in self._plugins:
            own = make()
            if self._manager.call("nest_commands", plugin, bool, app=own) is None:
                continue
            try:
                added = self._manager.watch(plugin, partial(names, own))
            except Faulty as fault:
                self._manager.set_aside(plugin, f"a command it adds {fault}")
                continue
            yield plugin, own, added

    def refuse(self, plugin: Plugin, reason: str) -> None:
        """Note in one line that something of `plugin` is not used.

        Raises:
            InputError: faulty plug-ins are an error.
        """
        self._manager.set_aside(plugin, reason)

    def _all_plugins(self) -> list[Plugin]:
        if self._built_ins is None:
            self._built_ins = self._manager.register(built_in_plugins())
        return [*self._built_ins, *self._plugins]

    def _collect(self, kind: str) -> dict[str, Any]:
        if kind not in self._objects:
            refusal(kind, None)  # Imports take their time, which is not the plug-ins'.
            found: dict[str, Any] = {}
            for plugin in self._all_plugins():
                for item in self._manager.call(f"nest_{kind}", plugin, _listed) or ():
                    self._admit(kind, plugin, item, found)
            self._objects[kind] = found
        return self._objects[kind]

    def _admit(self, kind: str, plugin: Plugin, item: Any, found: dict[str, Any]) -> None:
        """Add `item` to `found`, unless it is broken or its name is taken."""
        returned = f"nest_{kind} returned {type(item).__name__}"
        try:
            problem, name = self._manager.watch(plugin, lambda: (refusal(kind, item), name_of(item)))
        except Faulty as fault:  # Attributes may be properties that raise anything.
            self._manager.set_aside(plugin, f"{returned}, which {fault}")
            return
        if problem is not None:
            if kind != "strategies" or name not in taken_words():
                self._absent.add((kind, name))
            self._manager.set_aside(plugin, f"{returned}, {problem}")
        elif name in found:
            holder = self._origins[kind, name].origin
            self._manager.set_aside(plugin, f"{holder} has registered {name!r} among {kind} already")
        elif (offered := self._guarded(kind, plugin, name, item)) is not None:
            found[name] = offered
            self._origins[kind, name] = plugin

    def _guarded(self, kind: str, plugin: Plugin, name: str, item: Any) -> Any:
        """`item`, or what stands in for it; None: it is set aside."""
        if plugin.built_in:
            return item
        guarded = Guarded(kind, name, item, self._manager.guard(plugin))
        try:
            guarded.read_members()
        except PluginFault as fault:
            self._absent.add((kind, name))
            self._manager.set_aside(plugin, f"its {WORDS[kind]} {name!r} {fault.reason}", self._in_its_place(kind))
            return None
        return guarded

    def _ordered(self, strategies: dict[str, Strategy]) -> dict[str, Strategy]:
        """Strategies in an order that respects `after`, as registered where it leaves a choice."""
        waiting = dict(strategies)
        ordered: dict[str, Strategy] = {}
        while waiting:
            free = next((n for n, s in waiting.items() if not any(a in waiting for a in s.after)), None)
            if free is None:
                told = ", ".join(f"{name} ({self._origins['strategies', name].origin})" for name in waiting)
                raise InputError(
                    f"these strategies each come after another of them: {told}. "
                    f"Switch one of the distributions off with the environment variable {DISABLED}."
                )
            ordered[free] = waiting.pop(free)
        return ordered


def _listed(answers: list[Any]) -> list[Any]:
    """The objects of a plug-in's answers, one by one: nothing could end `list` of what has no end.

    Raises:
        Nonsense: there is no answer.
    """
    if not answers:  # pluggy leaves None out.
        raise Nonsense("None is no list")
    return [item for answer in answers for item in answer]


def registry(extra: Iterable[Any] = (), *, strict: bool = False) -> Registry:
    """The registry: one for the process, or a new one with `extra` modules or objects as further plug-ins.

    Args:
        extra: modules or objects with hook functions.
        strict: whether a faulty plug-in is an error; the registry of the process is another one then.

    Raises:
        InputError: a plug-in is faulty, and that is an error.
    """
    modules = tuple(extra)
    if modules:
        return Registry(modules, strict=strict)
    return _shared(os.environ.get(DISABLED, ""), os.environ.get(SECONDS, ""), strict)


@cache
def _shared(disabled: str, seconds: str, strict: bool) -> Registry:
    return Registry(strict=strict)
