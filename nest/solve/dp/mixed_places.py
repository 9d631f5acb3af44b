"""Where the stages of a mixed plan may be, told apart by the boundaries that they and those behind them can have."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property

from attrs import frozen

from nest.solve.dp.configurations import Offsets, State, Tally
from nest.solve.dp.mixed_recurrence import NONE, Member

Place = tuple[int, int, tuple[State, int]]
"""The member that a stage uses, its offset, and what the stages so far add up to with how many are behind it."""


@frozen(eq=False, slots=False)
class MixedPlaces:
    """Offsets of the stages of a mixed plan.

    Attributes:
        members: what stages may use.
        offsets: the devices of a replica.
        tally: what the stages must add up to.
        stages: how many there are.
        spend: called with how many places are looked at; may raise.
    """

    members: Sequence[Member]
    offsets: Offsets
    tally: Tally
    stages: int
    spend: Callable[[int], None]

    @cached_property
    def _kinds(self) -> dict[Hashable, int]:
        return {}

    @cached_property
    def _known(self) -> dict[tuple[int, int, int], dict[tuple[int, int, int], int]]:
        return {}

    @cached_property
    def _widths(self) -> list[int]:
        return sorted({member.width for member in self.members})

    def first(self) -> Iterable[Place]:
        """Of each width and kind the first."""
        for left in range(self.stages):  # The last ones first, so that none asks for many behind it at once.
            begin: dict[tuple[int, int, int], int] = {}
            for width in self._widths:
                for offset in range(0, self.offsets.size - width + 1, width):
                    kind = self._kind(offset, width, left)
                    if kind is not None:
                        begin.setdefault((width, NONE, kind), offset)
        return [place for _, place in self._at(begin, self.tally.start, self.stages - 1)]

    def following(self, place: Place) -> Iterable[tuple[int, int, Place]]:
        """Of each width, level of the boundary in front and kind the first."""
        member, offset, (state, left) = place
        behind = self._behind(offset, self.members[member].width, left)
        return [(level, level, place) for level, place in self._at(behind, state, left - 1)]

    def _at(self, begin: dict[tuple[int, int, int], int], state: State, left: int) -> Iterator[tuple[int, Place]]:
        for (width, level, _), offset in begin.items():
            after = self.tally.step(state, width)
            if after is not None and (left or self.tally.accepts(after)):
                for index, member in enumerate(self.members):
                    if member.width == width:
                        yield level, (index, offset, (after, left))

    def _kind(self, offset: int, width: int, left: int) -> int | None:
        """A number that is equal where the same can follow a block, so many behind it; None: there is no room."""
        if not left:
            return 0
        behind = frozenset(self._behind(offset, width, left))
        return self._kinds.setdefault(behind, len(self._kinds) + 1) if behind else None

    def _behind(self, offset: int, width: int, left: int) -> dict[tuple[int, int, int], int]:
        """Of what can follow a block its width, the level that leads there and its kind, with the first such offset."""
        key = offset + width, offset, left
        if key not in self._known:
            found: dict[tuple[int, int, int], int] = {}
            for other in self._widths:
                begin = -(-(offset + width) // other) * other
                for place in range(begin, self.offsets.size - other + 1, other):
                    kind = self._kind(place, other, left - 1)
                    if kind is not None:
                        level = int((self.offsets.ends[:, offset] >= place + other).argmax())
                        found.setdefault((other, level, kind), place)
                self.spend(max(self.offsets.size - begin, 0) // other)
            self._known[key] = found
        return self._known[key]
