"""How long a search may take, and on how many threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING

from nest.errors import InputError, NoPlanYet

if TYPE_CHECKING:
    from nest.instance import Array, SearchProgress

AFTERWARDS = 0.4
"""Seconds of a limit, or a tenth of it, left for what follows a search: the plan is priced anew and written."""

PATIENCE = 0.3
"""Seconds for which a search without any plan goes on after its time is up: a limit is kept to a second."""

STOPPED_PATIENCE = 3.0
"""The same, in seconds, where somebody ended the search, who can do so again."""

FEW = 32
"""Candidates that are priced and searched in a moment, however late it is (0.5 s on 2,048 devices)."""


class Deadline:
    """When searches end: after so many seconds, or as soon as somebody says so.

    Attributes:
        seconds: that it lasts; None: until somebody says so.
        stopped: whether somebody has said so.
    """

    def __init__(self, seconds: float | None = None, patience: float = PATIENCE) -> None:
        """Begin now.

        Args:
            seconds: that it lasts; None: until it is stopped.
            patience: seconds for which a search without a plan goes on after that.
        """
        self.seconds = seconds
        self.stopped = False
        self._begun = time.monotonic()
        self._end = inf if seconds is None else self._begun + seconds - min(AFTERWARDS, seconds / 10)
        self._patience = patience

    @classmethod
    def of(cls, time_limit: float | Deadline | None) -> Deadline:
        """The deadline itself, or one that begins now and lasts so many seconds.

        Raises:
            InputError: that is no time.
        """
        if isinstance(time_limit, Deadline):
            return time_limit
        check_effort(time_limit)
        return cls(time_limit)

    def stop(self) -> None:
        """Let the time be up; safe in a handler of signals."""
        self.stopped = True
        self._patience = max(self._patience, STOPPED_PATIENCE)
        self._end = min(self._end, time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether the time is up for a search that has a plan."""
        return self.left <= 0

    @property
    def over(self) -> bool:
        """Whether it is for one that has none, too."""
        return self.left <= -self._patience

    def patient(self) -> Deadline:
        """One that passes when this one is over: for a search that has no plan."""
        return Deadline(None if self.left == inf else max(self.left + self._patience, 0.0) / 0.9, patience=0.0)

    @property
    def left(self) -> float:
        """Seconds until the time is up, infinite without a limit; negative after that."""
        return self._end - time.monotonic()

    def beyond(self, share: float, of: float | None = None) -> bool:
        """Whether this share of the time is gone, or of the seconds that were left at some moment."""
        whole = self.seconds if of is None else of
        return self.passed or (whole is not None and self.left < (1 - share) * whole)

    def check(self) -> None:
        """Go on without a plan only while there is patience.

        Raises:
            NoPlanYet: there is none left.
        """
        if self.over:
            raise self.no_plan_yet()

    def no_plan_yet(self) -> NoPlanYet:
        """What is raised when it is over before there is a plan."""
        if self.stopped or self.seconds is None:
            return NoPlanYet("stopped before any plan was found.", stopped=True)
        return NoPlanYet(
            f"no plan was found within {self.seconds:g} s; give the search more time, or fewer choices: a target, or "
            "degrees under `strategies`."
        )


class Waiting:
    """Who waits for candidates to be priced: until when, and whom it tells. Of a model that is kept others wait next.

    Attributes:
        deadline: when the time is up.
        progress: told now and then which share of the candidates is priced.
    """

    def __init__(self, deadline: Deadline, progress: Callable[[SearchProgress], None] | None) -> None:
        """Begin now."""
        self.follow(deadline, progress)

    def follow(self, deadline: Deadline, progress: Callable[[SearchProgress], None] | None) -> None:
        """From now on it is somebody else who waits."""
        self.deadline, self.progress, self._begun = deadline, progress, time.monotonic()

    def check(self) -> None:
        """As that of the deadline."""
        self.deadline.check()

    def watch(self) -> None:
        """The same, where nothing is priced yet, which is told."""
        from nest.instance import SearchProgress

        self.check()
        if self.progress is not None:
            self.progress(SearchProgress(None, 0.0, 0.0, time.monotonic() - self._begun, 0.0))


def check_effort(time_limit: float | None, workers: int = 1) -> None:
    """Refuse what is no time, or no number of threads.

    Args:
        time_limit: seconds; None: as long as it takes.
        workers: threads.

    Raises:
        InputError: it is none; the text says what it must be.
    """
    if time_limit is not None:
        if isinstance(time_limit, bool) or not isinstance(time_limit, (int, float)):
            raise InputError(f"the time limit must be a positive number of seconds, is {time_limit!r}.")
        if not 0 < time_limit < float("inf"):
            raise InputError(f"the time limit must be a positive number of seconds, is {time_limit:g}.")
    if workers < 1:
        raise InputError(f"the number of workers must be at least 1, is {workers}.")


def spread(of: int, wanted: int) -> Sequence[int]:
    """So many of the numbers below `of`, evenly spread, ascending."""
    return [place * of // wanted for place in range(wanted)]


FIRST_BOUNDS = 0.85
"""Share of the time in which the plans of all candidates must be bounded."""


def attempts(candidates: int) -> Iterator[tuple[Sequence[int] | None, float | None]]:
    """Candidates to search, None for all, with the share of the time in which their plans must be bounded.

    Nothing more is found before all plans are bounded, so where that takes too long some of the candidates must do: an
    eighth of them, and then as few as find any plan.
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
    """The places of a few of many numbers, ascending: the smaller the numbers, the more of them."""
    count = len(work)
    wanted = min(wanted, count)
    order = work.argsort(kind="stable")
    return sorted({int(order[place * place * count // (wanted * wanted)]) for place in range(wanted)})
