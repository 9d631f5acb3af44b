"""Assigns the blocks of a plan to the devices of any network, exactly (PROBLEM.md section 7, "solve").

A cheap bound and the placement that the levels give come first, because they meet on regular networks. Where they do
not, exchanges of two devices at a time improve the placement, and small networks are given to CP-SAT, whose model lives
in `nest.solve.cpsat` with all else that needs OR-Tools.
"""

from collections.abc import Sequence

import numpy
from attrs import evolve, frozen

from nest.solve.placement.problem import Block, EmbeddingProblem, Link, Mask, Placement
from nest.tolerances import PROOF, SUM_ERROR

EFFORT = 1.0
"""CP-SAT's deterministic seconds for one plan, some three times as many by the clock; a limit by the clock itself would
make placements depend on the machine."""

MOST_CELLS = 2**10
"""Devices times leaves of blocks up to which CP-SAT is asked: every device of a cluster of 32 in a block of its own.
With 64 it takes 6 to 10 s, and hardly ever gains more than 0.01 %."""

MOST_TRIALS = 1_000
"""Exchanges tried: each device of a network of 32 with each other, twice. A limit by the clock would make
placements depend on the machine."""


@frozen
class Embedding:
    """What was found.

    Attributes:
        placement: never worse than the start.
        batch_time: seconds.
        lower_bound: seconds that no placement is below.
        method: `bound`: the start meets the cheap bound; `cp-sat`: CP-SAT was asked; `exchanges`: too large for that,
            so only exchanges of devices were tried.
    """

    placement: Placement
    batch_time: float
    lower_bound: float
    method: str

    @property
    def optimal(self) -> bool:
        """Whether no placement is better by more than 1e-6 of the step time (PROBLEM.md section 5)."""
        return self.batch_time - self.lower_bound <= PROOF * self.batch_time


def embed(problem: EmbeddingProblem, effort: float = EFFORT) -> Embedding:
    """The best placement that is found with so much effort, and a bound on all.

    Args:
        problem: with a start that is allowed.
        effort: CP-SAT's deterministic seconds.

    Raises:
        ValueError: the start is not allowed.
    """
    if not problem.allowed(problem.start):
        raise ValueError("the placement to start from is not allowed")
    known = problem.price(problem.start)
    least = [_least(problem, link) for link in problem.links]
    bound = min(problem.batch_time(least), known)
    embedding = Embedding(problem.start, known, bound, "bound")
    if embedding.optimal:
        return embedding
    better = evolve(problem, start=_exchanged(problem, least))
    known = better.price(better.start)
    leaves = problem.replicas * sum(len(problem.leaves(stage)) for stage in range(len(problem.widths)))
    if problem.devices * leaves > MOST_CELLS:
        return Embedding(better.start, known, bound, "exchanges")
    from nest.solve.cpsat.embedding_model import ask

    answer, proven = ask(better, known, least, effort)
    placement = answer if answer is not None and problem.price(answer) < known else better.start
    seconds = problem.price(placement)
    return Embedding(placement, seconds, min(max(bound, proven), seconds), "cp-sat")


def _least(problem: EmbeddingProblem, link: Link) -> float:
    """Seconds that no placement lets a link take less than.

    The worst level of a link can be no better than some set of levels only if enough devices have enough others within
    it: each device of a block has every device of the other blocks of its group.
    """
    # A group of one block with nothing inside meets no level.
    seconds = 0.0
    for limit in sorted(set(link.seconds)):
        seconds = limit
        if _enough(problem, link, problem.within(link, limit)):
            break
    if all(sum(problem.widths[stage] for _, stage in group) == 1 for group in link.groups):
        seconds = 0.0
    return min(seconds, link.aligned_seconds) if link.aligned else seconds


def _enough(problem: EmbeddingProblem, link: Link, good: Mask) -> bool:
    """Whether there can be so many devices with so many neighbours."""
    neighbours = good.sum(axis=1)
    needed: list[int] = []
    for group in link.groups:
        together = sum(problem.widths[stage] for _, stage in group)
        for _, stage in group:
            width = problem.widths[stage]
            needed += [together - (1 if link.inside else width)] * width
    # Hall's condition for thresholds: the k-th most demanding device is matched with the k-th best connected.
    sorted_counts = numpy.sort(neighbours)[::-1][: len(needed)]
    return bool((sorted_counts >= numpy.sort(needed)[::-1]).all())


def _exchanged(problem: EmbeddingProblem, least: Sequence[float]) -> Placement:
    """The start, or what exchanges make of it: always as good in step time.

    An exchange is kept when the step time shrinks, or stays and the links together take less.

    Args:
        problem: with a start that is allowed.
        least: seconds that each link takes at least; blocks whose links all do stay where they are.
    """
    trials = MOST_TRIALS
    state = _Exchanges(
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
class _Exchanges:
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
