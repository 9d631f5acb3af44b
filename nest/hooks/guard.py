"""Objects of plug-ins, used so that a faulty one harms nothing: every call is watched and its result looked at."""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from nest.errors import InputError
from nest.hooks.surroundings import surroundings_kept
from nest.hooks.worker import Overdue, Raised, Worker, inside, told

if TYPE_CHECKING:
    from collections.abc import Callable

CALL_LIMIT = 5.0
"""Seconds one call into a plug-in may take: half of the 10 s that people attend to something that does not answer
(Nielsen, Usability Engineering, 1993, section 5.5). What nest brings itself answers within milliseconds."""

TOTAL_SHARE = 6.0
"""All calls into one plug-in during one walk may take so many times the limit of one: 30 s."""

UNCOUNTED = 0.01
"""The share of the limit of one call that counts towards no total: 50 ms. The search for a plan of a large model asks a
strategy some 10,000 times, which takes a minute although every answer comes within milliseconds."""

SECONDS = "NEST_PLUGIN_SECONDS"
"""The environment variable that changes the limit of one call, and with it that of all."""

LONGEST = 1e6
"""Seconds: more than a week is no limit, and what waits for threads takes no more than `threading.TIMEOUT_MAX`."""

KINDS = {
    "strategies": "Strategy",
    "model_importers": "ModelImporter",
    "topology_importers": "TopologyImporter",
    "cost_models": "CostModel",
    "collective_models": "CollectiveModel",
    "layer_times": "LayerTimes",
    "schedules": "Schedule",
    "planners": "Planner",
    "exporters": "Exporter",
    "stacks": "Stack",
}
"""Kinds of registered object, with their protocols in `nest.hooks.protocols`; hooks are `nest_<kind>`."""


WORDS = {
    "strategies": "strategy",
    "model_importers": "model importer",
    "topology_importers": "topology importer",
    "cost_models": "cost model",
    "collective_models": "collective model",
    "layer_times": "model of layer times",
    "schedules": "schedule",
    "planners": "planner",
    "exporters": "exporter",
    "stacks": "software stack",
}
"""One object of each kind, for people."""

Answer = TypeVar("Answer")


class Nonsense(ValueError):  # noqa: N818 - says what a value is
    """What a plug-in returned cannot be used; the text says why, without naming the plug-in."""


class Faulty(Exception):  # noqa: N818 - says what a plug-in is
    """A call into a plug-in failed; the text follows the name of what was called: `raised ValueError: ...`."""


class Slow(Faulty):
    """A call into a plug-in took too long."""


class PluginFault(Exception):  # noqa: N818 - not an error of nest or its user: whoever walks goes on without the object
    """An object of a plug-in is faulty.

    Attributes:
        kind: its kind, as in `KINDS`.
        name: its name.
        reason: what it did, to follow its name.
    """

    def __init__(self, kind: str, name: str, reason: str) -> None:
        self.kind = kind
        self.name = name
        self.reason = reason
        super().__init__(f"{WORDS[kind]} {name!r} {reason}")


def call_limit() -> float:
    """Seconds one call may take.

    Raises:
        InputError: the environment variable holds no positive number.
    """
    written = os.environ.get(SECONDS, "").strip()
    try:
        seconds = float(written) if written else CALL_LIMIT
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError(f"the environment variable {SECONDS} is {written!r}; it must be a positive number of seconds.")
    return min(seconds, LONGEST)


class Guard:
    """Calls into one plug-in: in a thread of its own, and for so long only."""

    def __init__(self, limit: float) -> None:
        """Guard a plug-in.

        Args:
            limit: seconds one call may take.
        """
        self._limit = limit
        self._left = limit * TOTAL_SHARE
        self._worker: Worker | None = None
        self._lock = Lock()  # Several threads of one process may plan.

    def renew(self) -> None:
        """Give the plug-in its whole time again."""
        self._left = self._limit * TOTAL_SHARE

    def call(
        self, function: Callable[[], Answer], member: str = "", messages: tuple[type[Exception], ...] = ()
    ) -> Answer:
        """What `function` returns.

        Args:
            function: calls into the plug-in.
            member: what it calls, for the text.
            messages: errors that are meant for the user and so no fault.

        Raises:
            Faulty: it raised something, took too long, or found what the plug-in returned to be nonsense.
            PluginFault: it called into another plug-in, which is faulty.
        """
        try:
            return function() if inside() else self._watched(function, member)
        except (Faulty, PluginFault):
            raise
        except messages:
            raise
        except Nonsense as error:
            raise Faulty(f"returned nonsense{_from(member)}: {error}") from None
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not inside():  # Interrupts reach the main thread only.
                raise
            raise Faulty(f"raised {told(error)}{_in(member)}") from error

    def _watched(self, function: Callable[[], Answer], member: str) -> Answer:
        with self._lock:
            limit = min(self._limit, self._left)
            worker, self._worker = self._worker if self._worker and self._worker.alive else Worker(), None
            try:
                with surroundings_kept():
                    found, raised, seconds = worker.call(function, limit)
            except Overdue:
                self._left -= limit
                if limit < self._limit:
                    raise self._used_up(member) from None
                raise Slow(f"did not come back{_from(member)} within {self._limit:g} s") from None
            # Only a worker that is waiting again may be asked again: no interrupt may leave an answer behind.
            self._worker = worker
            self._left -= max(seconds - self._limit * UNCOUNTED, 0.0)
        if raised is not None:
            _raise(raised, member)
        if self._left <= 0:
            raise self._used_up(member)
        return found  # type: ignore[no-any-return]

    def _used_up(self, member: str) -> Faulty:
        return Slow(f"used up the {self._limit * TOTAL_SHARE:g} s of all calls into a plug-in{_in(member)}")


def _raise(raised: Raised, member: str) -> None:
    if isinstance(raised.error, (Nonsense, Faulty, PluginFault, InputError)):
        raise raised.error
    raise Faulty(f"raised {raised.text}{_in(member)}") from raised.error


def _in(member: str) -> str:
    return f" in {member}" if member else ""


def _from(member: str) -> str:
    return f" from {member}" if member else ""
