"""What a plan must add up to over its stages: the widest block it uses, and the devices a constraint counts."""

from collections.abc import Iterable

from attrs import field, frozen


@frozen
class Tally:
    """A count kept along the stages, from the last to the first.

    Its states are pairs of devices used so far (0 where nobody counts them) and whether a block of the width that
    is demanded was among them.

    Attributes:
        demanded: width that one block at least must have; 0: none.
        totals: numbers of devices a replica may use in all; None: any.
    """

    demanded: int = 0
    totals: frozenset[int] | None = None
    _most: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_most", max(self.totals, default=-1) if self.totals is not None else 0)

    def least(self, devices: int) -> int:
        """The fewest devices, `devices` or more, that all stages may use; those if none counts or none is allowed."""
        return min((total for total in self.totals or () if total >= devices), default=devices)

    def most(self, devices: int) -> int:
        """The most devices that all stages may use, of `devices` at hand."""
        return devices if self.totals is None else min(devices, self._most)

    @property
    def start(self) -> tuple[int, bool]:
        """The state before any stage."""
        return (0, self.demanded == 0)

    def step(self, state: tuple[int, bool], width: int) -> tuple[int, bool] | None:
        """The state after one more block; None where no plan can continue."""
        used, met = state
        if self.totals is not None:
            used += width
            if used > self._most:
                return None
        return used, met or width == self.demanded

    def accepts(self, state: tuple[int, bool]) -> bool:
        """Whether a plan may end with `state`."""
        return state[1] and (self.totals is None or state[0] in self.totals)

    def after(self, states: Iterable[tuple[int, bool]], widths: Iterable[int]) -> list[tuple[int, bool]]:
        """All states after one more block, ascending."""
        stepped = {self.step(state, width) for state in states for width in widths}
        return sorted(state for state in stepped if state is not None)
