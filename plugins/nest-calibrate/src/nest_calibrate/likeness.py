"""How much runs of a cluster tell of one plan there: the more alike, the more (a Gaussian process over plans)."""

from collections.abc import Mapping, Sequence
from math import hypot, log, log2

import numpy
from attrs import frozen

from nest.catalogue import TimeSpread
from nest.instance import Array

RUN_DEGREES = 2
"""Degrees of freedom of runs around what is expected: the likeliest for published runs, sources left out."""

SIZES = ("tp", "cp", "ep")
"""Degrees that divide the operators of a layer."""

FAR = 30
"""Degrees of freedom of a cluster's factors: a single run far off is an outlier, several that agree are believed.

The fewest of 8, 15, 30 and 60 that predict published runs, sources left out, as well as normal factors: one own run
9.2 % off, and three 7.4 % (9.6 and 7.5 % with 8; 9.3 and 7.4 % with 15).
"""

SETTLED_WEIGHTS = 1e-6
"""Change of the weights of runs in one round below which they count as settled."""

ROUNDS = 10_000
"""Most rounds of weighing runs. Published runs settle within 100, and 1,500 drawn sets of 2 to 8 runs within 700."""


@frozen
class Shape:
    """Features of a plan that the error of its predicted time depends on.

    Attributes:
        shares: of its step time by kind, in the order of their names.
        sizes: logarithms to base 2 of its degrees `SIZES` and its tokens per sample.
    """

    shares: tuple[float, ...]
    sizes: tuple[float, ...]


@frozen
class Likeness:
    """Covariance of the logarithms of measured over predicted times, as shares of their variance.

    Attributes:
        common: of all plans of one cluster.
        alike: of two plans that are the same but for the scatter of runs; it decays with the distance of plans.
        decay: of the logarithm of this part, for plans that share no kind of time.
        doubling: distance of two plans one of whose sizes differs by a factor of two.
    """

    common: float
    alike: float
    decay: float
    doubling: float

    @property
    def scatter(self) -> float:
        """Share of the variance that two runs of one plan do not have in common."""
        return 1 - self.common - self.alike

    def between(self, ones: Sequence[Shape], others: Sequence[Shape]) -> Array:
        """Covariance without scatter, as shares of the variance. Shape `(ones, others)`.

        The distance of two plans is half the sum of the differences of their shares of time, and `doubling` for each
        doubling of a size.
        """
        moved, doubled = (
            numpy.abs(numpy.array([[getattr(each, name)] for each in ones]) - [getattr(each, name) for each in others])
            for name in ("shares", "sizes")
        )
        distance = moved.sum(axis=2) / 2 + self.doubling * doubled.sum(axis=2)
        return numpy.asarray(self.common + self.alike * numpy.exp(-self.decay * distance))


USUAL = Likeness(common=0.3, alike=0.5, decay=3.0, doubling=0.1)
"""The best of 16 tried to predict published runs from others of their clusters (`benchmarks.fidelity.own_runs`).

The choice is the same whichever source is left out.
"""


def shape(seconds: Mapping[str, float], degrees: Mapping[str, int], tokens: float | None) -> Shape:
    """Describe a plan by the seconds of its step by kind (`summary.time_shares`), its degrees and tokens per sample."""
    whole = sum(seconds.values())
    sizes = [*(degrees.get(name, 1) for name in SIZES), tokens or 1]
    return Shape(tuple(seconds[kind] / whole for kind in sorted(seconds)), tuple(log2(each) for each in sizes))


def factors(
    logarithms: Sequence[float],
    runs: Sequence[Shape],
    plans: Sequence[Shape],
    usual: TimeSpread,
    likeness: Likeness = USUAL,
) -> tuple[Array, Array]:
    """Expected logarithms of measured over predicted times of plans, from some runs of their cluster.

    The posterior mean of a Gaussian process (Rasmussen and Williams, Gaussian Processes for Machine Learning, section
    2.2). The scatter of runs follows Student's t, as in `level`, and so do the factors of a cluster: each round weighs
    runs and factors by their distance in the round before, until `SETTLED_WEIGHTS` (Lange, Little and Taylor,
    Journal of the American Statistical Association 84, 1989). The first round takes all for normal variables.

    Args:
        logarithms: of measured over predicted times of `runs`.
        runs: of the cluster; at least one.
        plans: to predict.
        usual: of clusters, and of runs of one cluster.
        likeness: of plans.

    Returns:
        These logarithms, and the standard deviations of the logarithms of measured times. Shape `(plans,)` each.
    """
    center, deviation = log(usual.median), hypot(usual.between, usual.within)
    known = (numpy.array(logarithms) - center) / deviation
    among, to_plans = likeness.between(runs, runs), likeness.between(plans, runs)
    weights, wider, scatter = numpy.ones(len(known)), 1.0, likeness.scatter
    for _ in range(ROUNDS):
        pulls = numpy.linalg.solve(among * wider + numpy.diag(scatter / weights), known) * wider
        off = known - among @ pulls
        before = numpy.array([*weights, wider])
        weights = (RUN_DEGREES + 1) / (RUN_DEGREES + off**2 / scatter)
        wider = (FAR + float(pulls @ among @ pulls)) / (FAR + len(known))
        if numpy.abs(before - [*weights, wider]).max() < SETTLED_WEIGHTS:
            break
    told = numpy.linalg.solve(among + numpy.diag(scatter / weights), to_plans.T)
    left = 1 - numpy.einsum("ij,ji->i", to_plans, told)
    return center + deviation * to_plans @ pulls, deviation * numpy.sqrt(left)
