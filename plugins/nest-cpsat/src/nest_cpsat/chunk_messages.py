"""Messages across boundaries between chunks, in the model of a case of several chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nest_cpsat.placement import Term


@frozen(eq=False)
class Message:
    """A possible message across a boundary."""

    level: int
    seconds: float  # In either direction.
    holds: Term  # Variable that selects it.


def together(around: Sequence[Sequence[Message]]) -> list[list[Message]]:
    """Merge messages over boundaries that the same variables decide."""
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
