"""The stand-in for an object of a plug-in: offers what it offers, through a guard."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, NoReturn

from nest.errors import InputError
from nest.hooks.guard import Faulty, Guard, PluginFault
from nest.hooks.keywords import OPTIONAL, fitted

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = frozenset(
    {
        ("model_importers", "load"),
        ("model_importers", "sequence_length"),
        ("topology_importers", "load"),
        ("cost_models", "price"),
        ("exporters", "export"),
        ("exporters", "limits"),
        ("exporters", "rank_order"),
        ("exporters", "read"),
    }
)
"""Kinds and members whose `InputError` tells the user what is wrong with a file, a device or a plan, and is no fault.

A cost model takes part only where the problem names it: who asked for measured costs must not get others."""

OF_ITS_KIND = frozenset({("schedules", "with_chunks")})
"""Kinds and members whose result is another object of the kind, with the same name."""


class Guarded:
    """Stands in for an object of a plug-in; attributes are read once, results are checked (`nest.hooks.results`).

    Attributes:
        name: the object's.
    """

    def __init__(self, kind: str, name: str, item: Any, guard: Guard) -> None:
        """Stand in for `item`.

        Args:
            kind: its kind, as in `nest.hooks.guard.KINDS`.
            name: its name.
            item: the object.
            guard: of the plug-in that brings it.
        """
        self.name = name
        self._kind = kind
        self._item = item
        self._guard = guard
        self._lacks: set[str] = set()

    def __repr__(self) -> str:
        return f"Guarded({self._kind}, {self.name!r})"

    def __getattr__(self, member: str) -> Any:
        """The object's attribute or method, from now on an attribute of this one.

        Raises:
            AttributeError: the object has none.
            PluginFault: reading it fails, or it is nonsense.
        """
        if member.startswith("_") or member in self._lacks:
            raise AttributeError(member)
        value = self._call(lambda: _read(self._item, member), member)
        if value is _Missing:
            self._lacks.add(member)
            raise AttributeError(member)
        checked = self._method(member, value) if callable(value) else self._attribute(member, value)
        self.__dict__[member] = checked
        return checked

    @property
    def unguarded(self) -> Any:
        """The object itself."""
        return self._item

    def read_members(self) -> None:
        """Read every member there may be, so that faults show at the start and `isinstance` knows what is there.

        Raises:
            PluginFault: one cannot be read.
        """
        from nest.hooks.results import members_of

        for member in members_of(self._kind):
            getattr(self, member, None)

    def fail(self, reason: str) -> NoReturn:
        """Report what the object did: `reason` follows its name.

        Raises:
            PluginFault: always.
        """
        raise PluginFault(self._kind, self.name, reason)

    def _attribute(self, member: str, value: Any) -> Any:
        from nest.hooks.results import check_of

        check = check_of(self._kind, self.name, member)
        return value if check is None else self._call(lambda: check(value), member)

    def _method(self, member: str, method: Callable[..., Any]) -> Callable[..., Any]:
        from nest.hooks.results import check_of

        check = check_of(self._kind, self.name, member) or _as_it_is
        optional = OPTIONAL.get((self._kind, member), ())
        if optional:
            method = self._call(lambda: fitted(method, optional), member)

        def watched(*arguments: Any, **named: Any) -> Any:
            given = tuple(_own(each) for each in arguments)
            found = self._call(lambda: check(method(*given, **named), *arguments, **named), member)
            return self._another(found) if (self._kind, member) in OF_ITS_KIND else found

        return watched

    def _another(self, item: Any) -> Guarded:
        """The stand-in for an object of the same kind and name that the object made."""
        made = Guarded(self._kind, self.name, item, self._guard)
        made.read_members()
        return made

    def _call(self, function: Callable[[], Any], member: str) -> Any:
        messages = (InputError,) if (self._kind, member) in MESSAGES else ()
        try:
            return self._guard.call(function, member, messages)
        except Faulty as fault:
            raise PluginFault(self._kind, self.name, str(fault)) from fault.__cause__


def blame(item: object, reason: str) -> None:
    """Set `item` aside if a plug-in brings it; what nest brings itself is not done without.

    Args:
        item: a registered object.
        reason: what it did, to follow its name.

    Raises:
        PluginFault: a plug-in brings it.
    """
    if isinstance(item, Guarded):
        item.fail(reason)


class _Missing:
    """Stands for an attribute that an object lacks."""


def _read(item: Any, member: str) -> Any:
    return getattr(item, member, _Missing)


def _own(argument: Any) -> Any:
    """`argument`; a copy of a file's mapping, which an object could change for others: all else is frozen or new."""
    return deepcopy(argument) if isinstance(argument, dict) else argument


def _as_it_is(found: Any, *_: Any, **__: Any) -> Any:
    return found
