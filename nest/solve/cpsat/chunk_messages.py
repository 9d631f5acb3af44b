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
    found: list[list[Message]] = []
    for possible in around:
        known = next((each for each in found if _alike(each, possible)), None)
        if known is None:
            found.append(list(possible))
        else:
            both = zip(known, possible, strict=True)
            known[:] = [Message(one.level, one.seconds + two.seconds, one.holds) for one, two in both]
    return found


def _alike(one: Sequence[Message], other: Sequence[Message]) -> bool:
    return [each.level for each in one] == [each.level for each in other] and all(
        here.holds is there.holds for here, there in zip(one, other, strict=True)
    )
