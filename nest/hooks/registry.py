"""The registry: every registered object by kind and name, from built-ins and plug-ins alike."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from nest.errors import InputError
from nest.hooks.manager import DISABLED, Manager, Plugin, built_in_plugins, given_plugins, installed_plugins

# What the annotations name stays unloaded: `nest --help` passes through here.
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import typer

    from nest.hooks.protocols import (
        CollectiveModel,
        CostModel,
        Exporter,
        LayerTimes,
        ModelImporter,
        Schedule,
        Strategy,
        TopologyImporter,
    )

KINDS = {
    "strategies": "Strategy",
    "model_importers": "ModelImporter",
    "topology_importers": "TopologyImporter",
    "cost_models": "CostModel",
    "collective_models": "CollectiveModel",
    "layer_times": "LayerTimes",
    "schedules": "Schedule",
    "exporters": "Exporter",
}
"""Kinds of registered object, with their protocols in `nest.hooks.protocols`; hooks are `nest_<kind>`."""


class Registry:
    """Registered objects by kind and name: built-ins first, then plug-ins by distribution.

    Attributes:
        warnings: a line for each plug-in, hook or object that was set aside so far.
    """

    def __init__(self, extra: Iterable[Any] = ()) -> None:
        """Find installed plug-ins; built-ins are loaded when first asked for.

        Args:
            extra: modules or objects with hook functions, as further plug-ins.
        """
        self._manager = Manager()
        self._plugins = self._manager.register([*installed_plugins(), *given_plugins(extra)])
        self._built_ins: list[Plugin] | None = None
        self._objects: dict[str, dict[str, Any]] = {}
        self._origins: dict[tuple[str, str], Plugin] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each thing that was set aside so far."""
        return tuple(self._manager.warnings)

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

    def exporters(self) -> Mapping[str, Exporter]:
        """Exporters."""
        return self._collect("exporters")

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
        for kind in KINDS:
            self._collect(kind)
        plugins = {plugin.distribution: plugin.version for plugin in self._origins.values()}
        return dict(sorted(plugins.items()))

    def add_commands(self, app: typer.Typer) -> None:
        """Let every plug-in add commands to the command line."""
        for _ in self._manager.call("nest_commands", self._plugins, app=app):
            pass

    def _all_plugins(self) -> list[Plugin]:
        if self._built_ins is None:
            self._built_ins = self._manager.register(built_in_plugins())
        return [*self._built_ins, *self._plugins]

    def _collect(self, kind: str) -> dict[str, Any]:
        if kind not in self._objects:
            found: dict[str, Any] = {}
            for plugin, answer in self._manager.call(f"nest_{kind}", self._all_plugins()):
                try:
                    offered = list(answer)
                except Exception as error:
                    self._manager.set_aside(plugin, f"nest_{kind} must return a list: {error}")
                    continue
                for item in offered:
                    self._admit(kind, plugin, item, found)
            self._objects[kind] = found
        return self._objects[kind]

    def _admit(self, kind: str, plugin: Plugin, item: Any, found: dict[str, Any]) -> None:
        """Add `item` to `found`, unless it is broken or its name is taken."""
        try:
            problem = _problem(kind, item)
        except Exception as error:  # Attributes may be properties that raise anything.
            problem = f"whose attributes raise {type(error).__name__}: {error}"
        if problem is not None:
            self._manager.set_aside(plugin, f"nest_{kind} returned {type(item).__name__}, {problem}")
        elif item.name in found:
            holder = self._origins[kind, item.name].origin
            self._manager.set_aside(plugin, f"{holder} has registered {item.name!r} among {kind} already")
        else:
            found[item.name] = item
            self._origins[kind, item.name] = plugin

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


def _problem(kind: str, item: Any) -> str | None:
    """What keeps `item` from being used as an object of `kind`; None: nothing."""
    from nest.hooks import protocols

    protocol = getattr(protocols, KINDS[kind])
    offered = {*getattr(protocol, "__annotations__", ()), *vars(protocol)}
    missing = sorted(name for name in offered if not name.startswith("_") and not hasattr(item, name))
    if missing:
        return f"which lacks {', '.join(missing)}"
    if not isinstance(item.name, str) or not item.name:
        return "whose name is not a word"
    after = getattr(item, "after", ())
    if kind == "strategies" and (isinstance(after, str) or not all(isinstance(name, str) for name in after)):
        return "whose `after` is not a tuple of names"
    return None


def registry(extra: Iterable[Any] = ()) -> Registry:
    """The registry: one for the process, or a new one with `extra` modules or objects as further plug-ins."""
    modules = tuple(extra)
    return Registry(modules) if modules else _shared(os.environ.get(DISABLED, ""))


@cache
def _shared(disabled: str) -> Registry:
    return Registry()
