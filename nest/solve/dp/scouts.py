"""A few of many candidates, among which a first plan is looked for."""

import numpy

from nest.instance import Array, Instance
from nest.solve.effort import least_first

SCOUTED, SCOUTS, SCOUT_SHARE, MOST_SCOUTS = 64, 16, 16, 64
"""Candidates from which on a plan is looked for among few of them first, so that what computes for longer than it takes
need not be listed (Llama 3 70B on 128 H100 takes 1.2 times as long without; 2026-11-23); how many they are at least,
which share of all, and how many at most."""


def scouts(instance: Instance) -> list[int]:
    """A few of the candidates, ascending: the less their devices work on a sample, the more of them."""
    count = len(instance.candidates)
    return least_first(work(instance), min(max(count // SCOUT_SHARE, SCOUTS), MOST_SCOUTS))


def work(instance: Instance) -> Array:
    """Device seconds that the layers of each candidate compute for a sample, shape `(candidates,)`."""
    work = [each.width / each.samples * float((each.forward + each.backward).sum()) for each in instance.candidates]
    return numpy.array(work)
