"""What may cross the boundaries between chunks, in the model of a case of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nest.solve.cpsat.placement import Term


@frozen(eq=False)
class Message:
    """What may cross a boundary, and at which level.

    Attributes:
        level: of the boundary.
        seconds: that it takes, either way.
        holds: whether that is it.
    """

    level: int
    seconds: float
    holds: Term


def together(around: Sequence[Sequence[Message]]) -> list[list[Message]]:
    """Messages over boundaries of which the same decides, as those of one."""
    found: dict[tuple[tuple[int, int], ...], list[Message]] = {}
    for possible in around:
        key = tuple((each.level, id(each.holds)) for each in possible)
        known = found.get(key, [Message(each.level, 0.0, each.holds) for each in possible])
        both = zip(known, possible, strict=True)
        found[key] = [Message(one.level, one.seconds + two.seconds, one.holds) for one, two in both]
    return list(found.values())
