"""Counts what a search computes, and lets whoever watches it step in."""

from collections.abc import Callable

from attrs import define


class OutOfTime(Exception):  # noqa: N818 - not an error: the search goes back to the best plan it has
    """Raised inside a search whose time is up."""


def _nothing() -> None:
    """Nobody watches."""


@define
class Meter:
    """Work done so far.

    Attributes:
        states: costs of a stage between two cuts computed inside recurrences and bounds.
        watch: called after each step of a few milliseconds; may raise `OutOfTime`.
    """

    states: int = 0
    watch: Callable[[], None] = _nothing

    def count(self, states: int) -> None:
        """Note `states` more, and let the watcher look."""
        self.states += states
        self.watch()
