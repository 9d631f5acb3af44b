"""What became of the plug-ins: one record for each distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from nest.hooks.manager import HOOKS, Plugin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@frozen
class PluginState:
    """A distribution that has plug-ins.

    Attributes:
        distribution: its name.
        version: its version; empty when it has none.
        hooks: the hooks it implements, with the names of the objects that are registered.
        faults: what of it was set aside, and why.
        off: whether it is switched off.
    """

    distribution: str
    version: str
    hooks: Mapping[str, tuple[str, ...]]
    faults: tuple[str, ...]
    off: bool

    @property
    def state(self) -> str:
        """`active`, `set aside: ...`, `switched off ...`, or two of them."""
        told = ["active"] if self._is_of_use() else []
        told += [f"set aside: {fault}" for fault in self.faults]
        told += ["switched off (NEST_DISABLED_PLUGINS)"] if self.off else []
        return "; ".join(told) or "active"

    def _is_of_use(self) -> bool:
        return any(self.hooks.values()) or ("nest_commands" in self.hooks and not self.faults)


def states(
    plugins: Iterable[Plugin],
    off: Iterable[Plugin],
    hooks: Mapping[str, Mapping[str, tuple[str, ...]]],
    faults: Iterable[tuple[Plugin, str]],
) -> tuple[PluginState, ...]:
    """The distributions of `plugins`, in their order, and then those of plug-ins that are `off`.

    Args:
        plugins: those used, and those that could not be loaded.
        off: those switched off.
        hooks: for each plug-in, by name, the hooks it implements, with the names of its registered objects.
        faults: plug-ins with what is wrong with them.
    """
    used, unused = list(plugins), list(off)
    found = []
    for origin in dict.fromkeys((plugin.distribution, plugin.version) for plugin in (*used, *unused)):
        own = [plugin for plugin in used if (plugin.distribution, plugin.version) == origin]
        together: dict[str, tuple[str, ...]] = {}
        for plugin in own:
            for hook, names in hooks.get(plugin.name, {}).items():
                together[hook] = (*together.get(hook, ()), *names)
        entries = {plugin.name for plugin in own}
        wrong = tuple(reason for plugin, reason in faults if plugin.name in entries)
        switched = any((plugin.distribution, plugin.version) == origin for plugin in unused)
        ordered = {hook: together[hook] for hook in sorted(together, key=HOOKS.index)}
        found.append(PluginState(*origin, ordered, wrong, switched))
    return tuple(found)
