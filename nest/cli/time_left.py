"""How long something still takes, said only where its pace allows."""

from bisect import bisect_left

SHORTEST = 3.0
"""Seconds to watch before anything is said."""

STEADY = 1.6
"""How much faster the pace of the last quarter of the time may be than that of the last half, or slower."""

FARTHEST = 20.0
"""How many times as long as it was watched something may take for anything to be said: no small beginnings."""

SETTLING = 0.3
"""Share of what is new in an estimate; the rest is the estimate before, counted down."""


class TimeLeft:
    """An estimate from positions on the way to a goal: a share of 1, or steps of so many.

    The pace is what was covered in the last half of the time; where the last quarter says otherwise, nothing is said.
    The goal may move: a search is done when its bound reaches the best plan, which gets better meanwhile.
    """

    def __init__(self) -> None:
        self._times: list[float] = []
        self._positions: list[float] = []
        self._said: tuple[float, float] | None = None

    def tell(self, now: float, position: float, goal: float) -> float | None:
        """Seconds left at the time `now`; None where nobody can tell.

        Args:
            now: seconds on a clock that never goes back.
            position: how far it is.
            goal: the position at which it is done.
        """
        if self._positions and position < self._positions[-1]:  # It began anew.
            self._times.clear()
            self._positions.clear()
            self._said = None
        self._times.append(now)
        self._positions.append(position)
        found = self._measured(now, position, goal)
        if found is not None and self._said is not None:
            then, before = self._said
            counted_down = max(before - (now - then), 0.0)
            found = SETTLING * found + (1 - SETTLING) * counted_down
        self._said = None if found is None else (now, found)
        return found

    def _measured(self, now: float, position: float, goal: float) -> float | None:
        whole = now - self._times[0]
        if whole < SHORTEST:
            return None
        half, quarter = self._pace(now - whole / 2), self._pace(now - whole / 4)
        if min(half, quarter) <= 0 or not 1 / STEADY <= half / quarter <= STEADY:
            return None
        left = max(goal - position, 0.0) * 2 / (half + quarter)
        return left if left <= FARTHEST * whole else None

    def _pace(self, since: float) -> float:
        """Covered a second since a moment."""
        first = min(bisect_left(self._times, since), len(self._times) - 2)
        spent = self._times[-1] - self._times[first]
        return (self._positions[-1] - self._positions[first]) / spent if spent > 0 else 0.0


def rounded(seconds: float | None) -> str | None:
    """Time left as roughly as it is known: `about 8 s left`, `about 40 s left`, `about 5 min left`."""
    return None if seconds is None else f"about {_words(seconds)} left"


def at_most(seconds: float | None) -> str | None:
    """Time left where what is done may end earlier: `40 s left at most`."""
    return None if seconds is None else f"{_words(seconds)} left at most"


def _words(seconds: float) -> str:
    if seconds < 9.5:
        return f"{max(round(seconds), 1)} s"
    if seconds < 57.5:
        return f"{5 * round(seconds / 5)} s"
    if seconds < 3570:
        return f"{max(round(seconds / 60), 1)} min"
    return f"{seconds / 3600:.1f} h"
