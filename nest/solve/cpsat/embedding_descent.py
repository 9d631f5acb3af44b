"""Improves a placement by exchanging two devices at a time, so that large networks get more than their start."""

from collections.abc import Sequence

from attrs import frozen

from nest.solve.cpsat.embedding_problem import Block, EmbeddingProblem, Placement
from nest.tolerances import SUM_ERROR

MOST_TRIALS = 1_000
"""Exchanges tried: each device of a network of 32 with each other, twice. A limit by the clock would make
placements depend on the machine."""


def improved(problem: EmbeddingProblem, least: Sequence[float], trials: int = MOST_TRIALS) -> Placement:
    """The start, or what exchanges make of it: always as good in batch time.

    An exchange is kept when the batch time shrinks, or stays and the links together take less.

    Args:
        problem: with a start that is allowed.
        least: seconds that each link takes at least; blocks whose links all do stay where they are.
        trials: exchanges tried.
    """
    state = _State(
        problem,
        [[list(block) for block in replica] for replica in problem.start],
        [problem.link_seconds(link, problem.start) for link in problem.links],
    )
    improving = True
    while improving and trials > 0:
        improving = False
        for replica, stage in problem.blocks:
            for rank in range(problem.widths[stage]):
                for device in range(problem.devices):
                    if trials <= 0 or all(state.seconds[link] <= least[link] for link in state.links((replica, stage))):
                        break
                    if device not in state.places[replica][stage]:
                        trials -= 1
                        improving |= state.exchange((replica, stage), rank, device)
    return tuple(tuple(tuple(block) for block in replica) for replica in state.places)


@frozen(eq=False)
class _State:
    """A placement that changes, with the seconds of each link."""

    problem: EmbeddingProblem
    places: list[list[list[int]]]
    seconds: list[float]

    def links(self, block: Block) -> list[int]:
        """The links that a block takes part in."""
        return [index for index, link in enumerate(self.problem.links) if any(block in group for group in link.groups)]

    def exchange(self, block: Block, rank: int, device: int) -> bool:
        """Give a rank another device, whose block gets the rank's; taken back unless it pays."""
        replica, stage = block
        mine = self.places[replica][stage]
        other = self._owner(device)
        before = mine[rank]
        touched = [block] if other is None else [block, other]
        mine[rank] = device
        if other is not None:
            theirs = self.places[other[0]][other[1]]
            place = theirs.index(device)
            theirs[place] = before
        if all(self.problem.is_compact(self.places[one][two]) for one, two in touched) and self._pays(touched):
            return True
        mine[rank] = before
        if other is not None:
            theirs[place] = device
        return False

    def _owner(self, device: int) -> Block | None:
        for replica, blocks in enumerate(self.places):
            for stage, block in enumerate(blocks):
                if device in block:
                    return replica, stage
        return None

    def _pays(self, touched: Sequence[Block]) -> bool:
        """Whether the exchange saves more than rounding, which could go round in circles."""
        changed = sorted({link for block in touched for link in self.links(block)})
        seconds = list(self.seconds)
        for link in changed:
            seconds[link] = self.problem.link_seconds(self.problem.links[link], self.places)
        old, new = self.problem.batch_time(self.seconds), self.problem.batch_time(seconds)
        if new > old or (new >= old * (1 - SUM_ERROR) and sum(seconds) >= sum(self.seconds) * (1 - SUM_ERROR)):
            return False
        self.seconds[:] = seconds
        return True
