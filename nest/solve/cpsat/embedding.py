"""Assigns the blocks of a plan to the devices of any network, exactly (PROBLEM.md section 7, "solve").

A cheap bound and the placement that the levels give come first, because they meet on regular networks; CP-SAT is asked
where they do not.
"""

import numpy
from attrs import evolve, frozen

from nest.solve.cpsat.embedding_descent import improved
from nest.solve.cpsat.embedding_problem import EmbeddingProblem, Link, Mask, Placement
from nest.tolerances import PROOF

EFFORT = 1.0
"""CP-SAT's deterministic seconds for one plan, some three times as many by the clock; a limit by the clock itself would
make placements depend on the machine."""

MOST_CELLS = 2**10
"""Devices times leaves of blocks up to which CP-SAT is asked: every device of a cluster of 32 in a block of its own.
With 64 it takes 6 to 10 s, and hardly ever gains more than 0.01 %."""


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
        """Whether no placement is better by more than 1e-6 of the batch time (PROBLEM.md section 5)."""
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
    found = Embedding(problem.start, known, bound, "bound")
    if found.optimal:
        return found
    better = evolve(problem, start=improved(problem, least))
    known = better.price(better.start)
    leaves = problem.replicas * sum(len(problem.leaves(stage)) for stage in range(len(problem.widths)))
    if problem.devices * leaves > MOST_CELLS:
        return Embedding(better.start, known, bound, "exchanges")
    from nest.solve.cpsat.embedding_model import ask

    answer = ask(better, known, least, effort)
    placement = better.start
    if answer.placement is not None and problem.price(answer.placement) < known:
        placement = answer.placement
    seconds = problem.price(placement)
    return Embedding(placement, seconds, min(max(bound, answer.bound), seconds), "cp-sat")


def _least(problem: EmbeddingProblem, link: Link) -> float:
    """Seconds that no placement lets a link take less than.

    The worst level of a link can be no better than some set of levels only if enough devices have enough others within
    it: each device of a block has every device of the other blocks of its group.
    """
    # A group of one block with nothing inside meets no level.
    seconds = 0.0
    for limit in sorted(set(link.seconds)):
        seconds = limit
        if _enough(problem, link, within(problem, link, limit)):
            break
    if all(sum(problem.widths[stage] for _, stage in group) == 1 for group in link.groups):
        seconds = 0.0
    return min(seconds, link.aligned_seconds) if link.aligned else seconds


def within(problem: EmbeddingProblem, link: Link, seconds: float) -> Mask:
    """Pairs of devices over which a link takes no more than so many seconds."""
    good = numpy.array([each <= seconds for each in link.seconds])
    found: Mask = good[problem.level] & (problem.level >= 0)
    return found


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
    found = numpy.sort(neighbours)[::-1][: len(needed)]
    return bool((found >= numpy.sort(needed)[::-1]).all())
