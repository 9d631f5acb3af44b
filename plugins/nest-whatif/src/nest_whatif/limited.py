"""A call with a time limit."""

from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from nest.public.checks import LONGEST, Worker, process_state_restored

Answer = TypeVar("Answer")


def call_within(seconds: float | None, function: Callable[[], Answer]) -> Answer:
    """Call `function` in its own thread; `seconds` None: in this one, without limit.

    Raises:
        nest.hooks.calls.TimedOut: it has not returned; the thread is ended if possible, and abandoned.
    """
    if seconds is None:
        return function()
    context = copy_context()
    with process_state_restored():
        result, raised, _ = Worker().call(lambda: context.run(function), min(seconds, LONGEST))
    if raised is not None:
        raise raised.error
    return result  # type: ignore[no-any-return]
