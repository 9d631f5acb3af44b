"""Time limits of searches, and numbers of threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING

from nest.errors import InputError, NoPlanYet

if TYPE_CHECKING:
    from nest.instance import Array, SearchProgress

AFTERWARDS = 0.4  # Seconds of a limit, or a tenth of it, reserved for pricing and writing the plan.
PATIENCE = 0.3  # Seconds that a search without a plan continues after the limit, which is kept to a second.
STOPPED_PATIENCE = 3.0  # Same after a user's interrupt, which can be repeated.
FEW = 32  # Candidates priced and searched in a moment even after the deadline (0.5 s on 2,048 devices).


class Deadline:
    """End of a search: after some seconds, or when stopped.

    Attributes:
        seconds: duration; None: until stopped.
        stopped: a user has stopped it.
    """

    def __init__(self, seconds: float | None = None, patience: float = PATIENCE) -> None:
        """Begin now; a search without a plan continues for `patience` seconds after `seconds`."""
        self.seconds = seconds
        self.stopped = False
        self._begun = time.monotonic()
        self._end = inf if seconds is None else self._begun + seconds - min(AFTERWARDS, seconds / 10)
        self._patience = patience

    @classmethod
    def of(cls, time_limit: float | Deadline | None) -> Deadline:
        """Convert a time limit in seconds to a deadline that begins now.

        Raises:
            InputError: not a time.
        """
        if isinstance(time_limit, Deadline):
            return time_limit
        check_effort(time_limit)
        return cls(time_limit)

    def stop(self) -> None:
        """End now; safe in a signal handler."""
        self.stopped = True
        self._patience = max(self._patience, STOPPED_PATIENCE)
        self._end = min(self._end, time.monotonic())

    @property
    def passed(self) -> bool:
        """True if the time is up for a search with a plan."""
        return self.left <= 0

    @property
    def over(self) -> bool:
        """True if the time is up for a search without a plan, too."""
        return self.left <= -self._patience

    def patient(self) -> Deadline:
        """Deadline that passes when this one is over: for a search without a plan."""
        return Deadline(None if self.left == inf else max(self.left + self._patience, 0.0) / 0.9, patience=0.0)

    @property
    def left(self) -> float:
        """Seconds left, infinite without a limit; negative afterwards."""
        return self._end - time.monotonic()

    def beyond(self, share: float, of: float | None = None) -> bool:
        """True if this share of the time is gone, or of the seconds left at some moment."""
        whole = self.seconds if of is None else of
        return self.passed or (whole is not None and self.left < (1 - share) * whole)

    def check(self) -> None:
        """Continue without a plan only while there is patience.

        Raises:
            NoPlanYet: there is none left.
        """
        if self.over:
            raise self.no_plan_yet()

    def no_plan_yet(self) -> NoPlanYet:
        """Error for a search that ends without a plan."""
        if self.stopped or self.seconds is None:
            return NoPlanYet("stopped before any plan was found.", stopped=True)
        return NoPlanYet(
            f"found no plan within {self.seconds:g} s; give the search more time, a target, or fewer degrees under "
            "`strategies`."
        )


class Waiting:
    """Waiting for candidates to be priced; a kept model may serve another waiter later.

    Attributes:
        progress: called with the share of candidates priced.
    """

    def __init__(self, deadline: Deadline, progress: Callable[[SearchProgress], None] | None) -> None:
        self.follow(deadline, progress)

    def follow(self, deadline: Deadline, progress: Callable[[SearchProgress], None] | None) -> None:
        """Switch to another waiter."""
        self.deadline, self.progress, self._begun = deadline, progress, time.monotonic()

    def check(self) -> None:
        """See `Deadline.check`."""
        self.deadline.check()

    def watch(self) -> None:
        """Same, and report that nothing is priced yet."""
        from nest.instance import SearchProgress

        self.check()
        if self.progress is not None:
            self.progress(SearchProgress(None, 0.0, 0.0, time.monotonic() - self._begun, 0.0))


def check_effort(time_limit: float | None, workers: int = 1) -> None:
    """Validate a time limit in seconds and a number of threads.

    Raises:
        InputError: invalid; the text says what is allowed.
    """
    if time_limit is not None:
        if isinstance(time_limit, bool) or not isinstance(time_limit, (int, float)):
            raise InputError(f"the time limit must be a positive number of seconds, is {time_limit!r}.")
        if not 0 < time_limit < float("inf"):
            raise InputError(f"the time limit must be a positive number of seconds, is {time_limit:g}.")
    if workers < 1:
        raise InputError(f"the number of workers must be at least 1, is {workers}.")


def spread(of: int, wanted: int) -> Sequence[int]:
    """`wanted` evenly spread numbers below `of`, ascending."""
    return [place * of // wanted for place in range(wanted)]


FIRST_BOUNDS = 0.85  # Share of the time in which the plans of all candidates must be bounded.


def attempts(candidates: int) -> Iterator[tuple[Sequence[int] | None, float | None]]:
    """Candidates to search, None for all, with the share of the time in which their plans must be bounded.

    Nothing is found before all plans are bounded, so if that takes too long, an eighth of the candidates is tried, then
    as few as find any plan.
    """
    if candidates > FEW:
        yield None, FIRST_BOUNDS
        yield spread(candidates, max(candidates // 8, FEW)), (1 + FIRST_BOUNDS) / 2
        few = FEW // 4
        while few < candidates:
            yield spread(candidates, few), None
            few *= 4
    yield None, None


def least_first(work: Array, wanted: int) -> list[int]:
    """Places of a few of many numbers, ascending: more of the smaller ones."""
    count = len(work)
    wanted = min(wanted, count)
    order = work.argsort(kind="stable")
    return sorted({int(order[place * place * count // (wanted * wanted)]) for place in range(wanted)})
