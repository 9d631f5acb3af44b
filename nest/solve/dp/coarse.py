"""Fewer cuts to begin with: plans that cut at some downsets only are found sooner, and bound the optimum from above."""

import numpy
from numpy.typing import NDArray

from nest.instance import Instance
from nest.solve.dp.downsets import Downsets, lattice

COARSE, LITTLE = 65, 200
"""Cuts of the coarse lattice, and fewest cuts that are worth one: below a few hundred the search costs less than what a
coarser one would save. On 1,000 blocks and 131,072 devices the whole search takes 12 s with 65 cuts first, 13 s with
129, 14 s with 100 and 25 s with 25, 100 and 400 in turn (process time, calibrated H100)."""


def coarsening(members: NDArray[numpy.bool_], instance: Instance) -> Downsets | None:
    """A lattice of some of the cuts along one order of the layers; None where the search itself is as quick.

    The cuts are chosen so that the layers between them take about as long as each other to compute.

    Args:
        members: the layers of each downset, smallest first, shape `(downsets, layers)`.
        instance: the problem.
    """
    if len(members) <= LITTLE:
        return None
    chain = _maximal_chain(members)
    first = instance.candidates[0]
    progress = members[chain] @ (first.forward + first.backward)
    wanted = numpy.searchsorted(progress, numpy.linspace(0.0, progress[-1], COARSE))
    kept = sorted({0, len(chain) - 1, *wanted.clip(0, len(chain) - 1).tolist()})
    return lattice(members[chain[kept]])


def _maximal_chain(members: NDArray[numpy.bool_]) -> NDArray[numpy.int64]:
    """Indices of downsets, each in the next, from the empty one to the whole, with none left out between them."""
    found = [0]
    for index in range(1, len(members)):
        if not (members[found[-1]] & ~members[index]).any():
            found.append(index)
    return numpy.array(found)
