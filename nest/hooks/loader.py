"""Loading plug-ins and calling their hooks, each on its own so that a broken one harms no other."""

from __future__ import annotations

from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy
from attrs import frozen

from nest.errors import InputError, InternalError
from nest.hooks import spec
from nest.hooks.discovery import DISABLED, Plugin
from nest.hooks.guard import CallError, CallTimeoutError, Guard, call_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

HOOKS = tuple(name for name in vars(spec) if name.startswith("nest_"))
"""Every hook there is."""

Answer = TypeVar("Answer")


class Loader:
    """Loads plug-ins and calls their hooks one plug-in at a time; what fails is disabled.

    Built-ins run unguarded: what they raise is a bug in nest, and nothing to go on without.

    Attributes:
        strict: whether a plug-in error ends nest.
        warnings: a line for each plug-in error, and for what is odd but no error.
        errors: plug-ins with what is wrong with them.
    """

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict
        self.warnings: list[str] = []
        self.errors: list[tuple[Plugin, str]] = []
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
        """Load and register `plugins`; those that cannot be are disabled. Returns the others."""
        registered = []
        for plugin in plugins:
            try:
                self._managers[plugin.name] = self.watch(plugin, partial(_registered, plugin))
            except CallError as error:
                self.disable(plugin, f"loading it {error}")
                continue
            self._warn_of_unknown_hooks(plugin)
            registered.append(plugin)
        return registered

    def watch(self, plugin: Plugin, function: Callable[[], Answer]) -> Answer:
        """What `function`, which calls into `plugin`, returns.

        Raises:
            CallError: the plug-in is no built-in, and fails.
        """
        return function() if plugin.built_in else self.guard(plugin).call(function)

    def hooks(self, plugin: Plugin) -> tuple[str, ...]:
        """Names of the hooks that a plug-in implements, in the order of `nest.hooks.spec`."""
        if plugin.name not in self._managers:
            return ()
        callers = self._managers[plugin.name].hook
        return tuple(name for name in HOOKS if getattr(callers, name).get_hookimpls())

    def call(self, hook: str, plugin: Plugin, read: Callable[[list[Any]], Answer], **arguments: Any) -> Answer | None:
        """What `read` makes of a plug-in's answers to `hook`; None: it has no such hook, or fails and is disabled.

        A plug-in that timed out is called no more.
        """
        if hook not in self.hooks(plugin):
            return None
        caller = getattr(self._managers[plugin.name].hook, hook)
        try:
            return self.watch(plugin, lambda: read(caller(**arguments)))
        except CallError as error:
            if isinstance(error, CallTimeoutError):
                del self._managers[plugin.name]
            self.disable(plugin, f"its hook {hook} {error}")
            return None

    def disable(self, plugin: Plugin, reason: str, instead: str = "") -> None:
        """Note in one line that something of `plugin` is not used.

        Args:
            plugin: the plug-in.
            reason: what is wrong with it.
            instead: what takes its place, if anything does.

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
        """Refuse to go on where plug-in errors end nest and there is one.

        Raises:
            InputError: the first of them.
        """
        if self.strict and self.errors:
            plugin, text = self.errors[0]
            raise InputError(f"plug-in error in {plugin.origin}, which --strict-plugins does not allow: {text}.")

    def _warn_of_unknown_hooks(self, plugin: Plugin) -> None:
        manager = self._managers[plugin.name]
        for caller in manager.get_hookcallers(manager.get_plugin(plugin.name)) or ():
            if not caller.has_spec():
                near = get_close_matches(caller.name, HOOKS, n=1)
                hint = f"; did it mean {near[0]}?" if near else ""
                self.errors.append((plugin, f"there is no hook {caller.name}{hint}"))
                self.warnings.append(f"plug-in {plugin.origin}: there is no hook {caller.name}{hint}")
                self.check_strict()


def _registered(plugin: Plugin) -> pluggy.PluginManager:
    """A manager of the plug-in alone: one that loads too late can join no other."""
    manager = pluggy.PluginManager(spec.PROJECT)
    manager.add_hookspecs(spec)
    loaded = plugin.load()
    needed = getattr(loaded, "hook_version", spec.VERSION)
    if type(needed) is not int or needed > spec.VERSION:
        raise CallError(f"is refused: it needs version {needed!r:.20} of the hooks, and this nest has {spec.VERSION}")
    hash(loaded)  # pluggy keeps plug-ins in sets
    manager.register(loaded, name=plugin.name)
    return manager


@frozen
class PluginState:
    """A distribution that has plug-ins.

    Attributes:
        distribution: its name.
        version: its version; empty when it has none.
        hooks: the hooks it implements, with the names of the objects that are registered.
        faults: what of it is disabled, and why.
        off: whether it is switched off.
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
