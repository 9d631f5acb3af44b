"""Calls into plug-ins: each in its own thread and with a time limit, so that a call that never returns is abandoned.

A signal would interrupt only the main thread, and a process would need picklable arguments. Handing over a call and its
answer takes 16 microseconds, 60 on a busy machine (2026-11-21, 2 cores of an AMD EPYC, Python 3.11); a solve makes some
10,000 calls. `Guarded` stands in for a plug-in's object, calls it this way and checks its results.
"""

from __future__ import annotations

import os
from collections import deque
from copy import deepcopy
from queue import Empty, SimpleQueue
from threading import Lock, Thread, local
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from attrs import NOTHING

from nest.errors import InputError
from nest.hooks.kinds import KINDS, OPTIONAL, InvalidResult, called_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from nest.hooks.unchanged import Kept

CALL_LIMIT = 5.0
"""Seconds of one call into a plug-in: half of the 10 s for which people attend to something that does not answer
(Nielsen, Usability Engineering, 1993, section 5.5). Built-ins answer within milliseconds."""

TOTAL_SHARE = 6.0
"""Factor over the limit of one call for all calls into one plug-in during one walk: 30 s."""

UNCOUNTED = 0.01
"""Share of the limit of one call that counts towards no total: 50 ms. The search for a plan of a large model calls a
strategy some 10,000 times, which takes a minute although every answer comes within milliseconds."""

SECONDS = "NEST_PLUGIN_SECONDS"
"""Environment variable for the limit of one call, and so of all."""

LONGEST = 1e6
"""Seconds: more than a week is no limit, and threads wait for at most `threading.TIMEOUT_MAX`."""

Answer = TypeVar("Answer")

_here = local()


class CallError(Exception):
    """A failed call into a plug-in; the text follows the name of the called member: `raised ValueError: ...`."""


class CallTimeoutError(CallError):
    """A call into a plug-in took too long."""


class PluginError(Exception):
    """A failed object of a plug-in: no error of nest or its user; planning continues without the object.

    Attributes:
        kind: its kind, as in `KINDS`.
        name: its name.
        reason: follows its name.
    """

    def __init__(self, kind: str, name: str, reason: str) -> None:
        self.kind = kind
        self.name = name
        self.reason = reason
        super().__init__(f"{KINDS[kind].phrase} {name!r} {reason}")


class TimedOut(Exception):  # noqa: N818 - an event, put into words by whoever waited
    """A call has not returned in time."""


class Raised(NamedTuple):
    """An exception of a call, with its class and message in one line."""

    error: BaseException
    text: str


def inside() -> bool:
    """True in a worker's thread."""
    return getattr(_here, "serving", False)


def message(error: BaseException) -> str:
    """Class and message of an error in one line of at most 300 characters."""
    try:
        words = " ".join(str(error).split())
    except Exception:  # A foreign error may fail to say what it is.
        words = ""
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


class Worker:
    """Daemon thread that runs calls one by one; the process does not wait for it at exit."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, Raised | None, float]] = SimpleQueue()
        self._thread = Thread(target=_serve, args=(self._calls, self._answers), name="nest plug-in", daemon=True)
        self._thread.start()

    def __del__(self) -> None:
        self._calls.put(None)

    @property
    def alive(self) -> bool:
        """True if the thread exists; it does not in a fork of the process that made it."""
        return self._thread.is_alive()

    def call(self, function: Callable[[], Any], seconds: float) -> tuple[Any, Raised | None, float]:
        """Call `function`; return its result, its exception, and the seconds it took.

        Raises:
            TimedOut: it has not returned within `seconds`; the worker must not be used again.
        """
        self._calls.put(function)
        try:
            return self._answers.get(timeout=seconds)
        except Empty:
            self._end()
            raise TimedOut from None

    def _end(self) -> None:
        """Stop the thread: at once if it computes, else once its wait returns."""
        if self._thread.ident is not None:
            import ctypes

            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), ctypes.py_object(SystemExit))


def _serve(
    calls: SimpleQueue[Callable[[], Any] | None], answers: SimpleQueue[tuple[Any, Raised | None, float]]
) -> None:
    _here.serving = True
    while (function := calls.get()) is not None:
        start = perf_counter()
        result, raised = None, None
        try:
            result = function()
        except BaseException as error:  # Also SystemExit: it must end neither this thread nor, unseen, the caller.
            raised = Raised(error, message(error))
        answers.put((result, raised, perf_counter() - start))
        function = result = raised = None


def call_limit() -> float:
    """Seconds of one call.

    Raises:
        InputError: the environment variable is no positive number.
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
    """Calls into one plug-in, in its own thread and with time limits."""

    def __init__(self, limit: float) -> None:
        """Guard a plug-in with `limit` seconds per call."""
        self._limit = limit
        self._left = limit * TOTAL_SHARE
        self._worker: Worker | None = None
        self._lock = Lock()  # Several threads of one process may plan.

    def renew(self) -> None:
        """Reset the plug-in's total time."""
        self._left = self._limit * TOTAL_SHARE

    def call(
        self, function: Callable[[], Answer], member: str = "", messages: tuple[type[Exception], ...] = ()
    ) -> Answer:
        """Call `function`, which calls `member` of the plug-in.

        Raises:
            CallError: it raised something other than `messages`, took too long, or returned an invalid result.
            PluginError: it called into another plug-in, which failed.
        """
        try:
            return function() if inside() else self._watched(function, member)
        except (CallError, PluginError):
            raise
        except messages:
            raise
        except InvalidResult as error:
            place = f" from {member}" if member else ""
            raise CallError(f"returned an invalid result{place}: {error}") from None
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not inside():  # Interrupts reach the main thread only.
                raise
            raise CallError(f"raised {message(error)}{_in(member)}") from error

    def _watched(self, function: Callable[[], Answer], member: str) -> Answer:
        from nest.hooks.process_state import process_state_restored

        with self._lock:
            limit = min(self._limit, self._left)
            worker, self._worker = self._worker if self._worker and self._worker.alive else Worker(), None
            try:
                with process_state_restored():
                    result, raised, seconds = worker.call(function, limit)
            except TimedOut:
                self._left -= limit
                if limit < self._limit:
                    raise self._used_up(member) from None
                raise CallTimeoutError(f"timed out after {self._limit:g} s{_in(member)}") from None
            # Only a worker that is waiting again may be asked again: no interrupt may leave an answer behind.
            self._worker = worker
            self._left -= max(seconds - self._limit * UNCOUNTED, 0.0)
        if raised is not None:
            _raise(raised, member)
        if self._left <= 0:
            raise self._used_up(member)
        return result  # type: ignore[no-any-return]

    def _used_up(self, member: str) -> CallError:
        return CallTimeoutError(f"used up the {self._limit * TOTAL_SHARE:g} s of all calls into a plug-in{_in(member)}")


def _raise(raised: Raised, member: str) -> None:
    if isinstance(raised.error, (InvalidResult, CallError, PluginError, InputError)):
        raise raised.error
    raise CallError(f"raised {raised.text}{_in(member)}") from raised.error


def _in(member: str) -> str:
    return f" in {member}" if member else ""


MESSAGES = frozenset(
    {
        ("model_importers", "load"),
        ("model_importers", "sequence_length"),
        ("topology_importers", "load"),
        ("cost_models", "price"),
        ("exporters", "export"),
        ("exporters", "limits"),
        ("exporters", "refuse"),
        ("exporters", "rank_order"),
        ("planners", "with_options"),
        ("plan_readers", "read"),
        ("plan_readers", "read_launch"),
    }
)
"""Kinds and members whose `InputError` is meant for the user: a fault of a file, a device or a plan.

A cost model takes part only if the problem names it: a request for measured costs must not get others."""

OF_ITS_KIND = frozenset({("schedules", "with_chunks"), ("planners", "with_options")})
"""Kinds and members that return another object of the kind with the same name."""

MADE = ("strategies", "apply")
"""Kind and member whose results other objects use, so later calls may not change them."""

MOST_GIVEN = 8
"""Arguments whose contents are remembered, as the same ones recur: a block, a training, a device."""


class Guarded:
    """Stand-in for an object of a plug-in: reads attributes once, and checks results (`nest.hooks.results`).

    Arguments stay unchanged: in-place changes are undone, and are an error.
    """

    def __init__(self, kind: str, name: str, item: Any, guard: Guard) -> None:
        self.name = name
        self._kind = kind
        self._item = item
        self._guard = guard
        self._lacks: set[str] = set()
        self._given: deque[tuple[Any, Kept]] = deque(maxlen=MOST_GIVEN)
        self._made: Kept | None = None

    def __repr__(self) -> str:
        return f"Guarded({self._kind}, {self.name!r})"

    def __getattr__(self, member: str) -> Any:
        """Read the object's attribute or method, and keep it as an attribute of this one.

        Raises:
            AttributeError: the object has none.
            PluginError: reading it fails, or it is invalid.
        """
        from nest.hooks.results import check_of

        if member.startswith("_") or member in self._lacks:
            raise AttributeError(member)
        value = self._call(lambda: getattr(self._item, member, NOTHING), member)
        if value is NOTHING:
            self._lacks.add(member)
            raise AttributeError(member)
        check = check_of(self._kind, self.name, member)
        checked = self._method(member, value, check) if callable(value) else self._call(lambda: check(value), member)
        self.__dict__[member] = checked
        return checked

    @property
    def unguarded(self) -> Any:
        """The object itself."""
        return self._item

    def read_members(self) -> None:
        """Read every possible member, so that errors show at the start and `isinstance` works.

        Raises:
            PluginError: one cannot be read.
        """
        from nest.hooks.results import members_of

        for member in members_of(self._kind):
            getattr(self, member, None)

    def _method(self, member: str, method: Callable[..., Any], check: Callable[..., Any]) -> Callable[..., Any]:
        if optional := OPTIONAL.get((self._kind, member)):
            method = self._call(lambda: called_with(method, optional), member)

        def watched(*arguments: Any, **named: Any) -> Any:
            given = tuple(_own(each) for each in arguments)
            kept = [self._noted(each) for each in arguments]
            try:
                result = self._call(lambda: check(method(*given, **named), *arguments, **named), member)
            finally:
                self._put_back(kept, member)
            if (self._kind, member) == MADE:
                self._made = type(kept[0])(result, besides=kept[0])
            return self._another(result) if (self._kind, member) in OF_ITS_KIND else result

        return watched

    def _noted(self, argument: Any) -> Kept:
        """Contents of `argument`; remembered for recent arguments."""
        from nest.hooks.unchanged import Kept

        noted = next((kept for given, kept in tuple(self._given) if given is argument), None)
        if noted is None:
            noted = Kept(argument)
            self._given.append((argument, noted))
        return noted

    def _put_back(self, kept: list[Kept], member: str) -> None:
        """Undo the object's changes to its arguments and earlier results.

        Raises:
            PluginError: it changed something.
        """
        made = () if self._made is None else (self._made,)
        told = [changed for each in (*kept, *made) if (changed := each.put_back())]
        if told:
            raise PluginError(self._kind, self.name, f"changed {told[0]} in place in {member}")

    def _another(self, item: Any) -> Guarded:
        """Stand-in for an object of the same kind and name made by the object."""
        made = Guarded(self._kind, self.name, item, self._guard)
        made.read_members()
        return made

    def _call(self, function: Callable[[], Any], member: str) -> Any:
        messages = (InputError,) if (self._kind, member) in MESSAGES else ()
        try:
            return self._guard.call(function, member, messages)
        except CallError as error:
            raise PluginError(self._kind, self.name, str(error)) from error.__cause__


def attribute(item: object, reason: str) -> None:
    """Attribute a failure to the registered object `item`; `reason` follows its name.

    Raises:
        PluginError: it belongs to a plug-in; built-ins are not skipped.
    """
    if isinstance(item, Guarded):
        raise PluginError(item._kind, item.name, reason)


def _own(argument: Any) -> Any:
    """Copy a file's mapping, which an object could change for others; all else is frozen or new."""
    return deepcopy(argument) if isinstance(argument, dict) else argument
