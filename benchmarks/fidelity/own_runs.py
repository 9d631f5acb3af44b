"""Errors on a cluster some of whose runs are known: by one factor for all plans, and by a factor for each plan."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy
from attrs import frozen
from numpy.typing import NDArray

from benchmarks.fidelity.spread import REACH, Array, Known, Strangers, alike
from nest.catalogue import TimeSpread, time_spread
from nest_calibrate.cluster import level
from nest_calibrate.likeness import USUAL, Likeness, factors

OWN_RUNS = (0, 1, 3)
"""Runs of its own that a cluster is calibrated with."""

DRAWS = 40
"""Sets of own runs tried for each cluster."""

LIKENESSES = tuple(Likeness(*each) for each in product((0.3, 0.4), (0.4, 0.5), (3.0, 6.0), (0.0, 0.1)))
"""Candidates for `nest_calibrate.likeness.USUAL`.

The best is at an edge of each of the four. Of 272 (common 0.1 to 0.5, alike 0.3 to 0.6, decay 1.5 to 12, doubling 0 to
0.2, with scatter), the others of all sources choose four, and predict worse: one own run 9.4 % off, and three 7.5 %.
"""

Estimate = Callable[[Strangers, NDArray[numpy.int64], TimeSpread], tuple[Array, Array]]
"""Logarithms of measured over predicted times of all runs of a cluster from those chosen, and their deviations."""


class Drawn(NamedTuple):
    """Mean absolute relative error of a cluster's other runs over all draws, share inside the range, and its source."""

    error: float
    inside: float
    source: str


@frozen
class OwnRuns:
    """Other runs of clusters of which some are known, sources alike.

    Attributes:
        mean: absolute relative error.
        covered: share inside the range that then holds.
        sources: absolute relative error by source, of its clusters with more than the largest of `OWN_RUNS`.
    """

    mean: float
    covered: float
    sources: Mapping[str, float]


@frozen
class Own:
    """Errors with own runs, by their number.

    Attributes:
        cluster: by one factor for all plans (`nest calibrate cluster`).
        plan: by a factor for each plan (`nest calibrate cluster --for`).
        likenesses: of plans, chosen by all other sources, by source.
    """

    cluster: Mapping[int, OwnRuns]
    plan: Mapping[int, OwnRuns]
    likenesses: Mapping[str, Likeness]


def with_own_runs(runs: Strangers, known: Mapping[str, Known]) -> Own:
    """Errors of each cluster's other runs when some of its runs are known; none: no cluster has enough.

    Every number of runs is tried on the same clusters, those with more than the largest of `OWN_RUNS`. `known` are the
    spreads without each source. The likeness of plans that predicts a source is the best of `LIKENESSES` for the
    others, where a source of `n` runs counts as the root of `n`.
    """
    by_cluster = {count: _drawn(runs, known, count, _by_cluster) for count in OWN_RUNS}
    tried = {each: {count: _drawn(runs, known, count, _by_plan(each)) for count in OWN_RUNS[1:]} for each in LIKENESSES}
    best = _best(tried, by_cluster, runs) if by_cluster[0] else {}
    by_plan = {
        count: [tried[best[row.source]][count][index] for index, row in enumerate(by_cluster[count])]
        for count in OWN_RUNS[1:]
    }
    return Own(_all(by_cluster), _all({0: by_cluster[0], **by_plan}), best)


def without_calibration(bare: Strangers) -> Own:
    """Errors on devices without a calibration by own runs, `bare` being predicted from published figures."""
    known = dict.fromkeys(bare.sources, Known({"": time_spread(calibrated=False)}, None))
    by_cluster = {count: _drawn(bare, known, count, _by_cluster) for count in OWN_RUNS}
    by_plan = {count: _drawn(bare, known, count, _by_plan(USUAL)) for count in OWN_RUNS[1:]}
    return Own(_all(by_cluster), _all({0: by_cluster[0], **by_plan}), dict.fromkeys(bare.sources, USUAL))


def _by_cluster(runs: Strangers, chosen: NDArray[numpy.int64], usual: TimeSpread) -> tuple[Array, Array]:
    center, deviation = level(runs.off[chosen].tolist(), usual)
    return numpy.full(len(runs.off), center), numpy.full(len(runs.off), deviation)


def _by_plan(likeness: Likeness) -> Estimate:
    def estimate(runs: Strangers, chosen: NDArray[numpy.int64], usual: TimeSpread) -> tuple[Array, Array]:
        own = [runs.shapes[each] for each in chosen]
        return factors(runs.off[chosen].tolist(), own, runs.shapes, usual, likeness)

    return estimate


def _drawn(runs: Strangers, known: Mapping[str, Known], count: int, estimate: Estimate) -> list[Drawn]:
    """Errors of each cluster when `count` of its runs are known."""
    clusters, random = numpy.array(runs.clusters), numpy.random.default_rng(0)
    rows = []
    for name in sorted(set(runs.clusters)):
        part = runs.chosen(clusters == name)
        if len(part.off) <= max(OWN_RUNS):
            continue
        usual = known[part.sources[0]].of(part.generations[0], any(part.experts))
        errors, inside = [], []
        for _ in range(DRAWS):
            chosen = random.choice(len(part.off), count, replace=False)
            centers, deviations = estimate(part, chosen, usual)
            rest = numpy.delete(part.off - centers, chosen)
            errors.append(numpy.abs(numpy.expm1(-rest)).mean())
            inside.append((numpy.abs(rest) <= REACH * numpy.delete(deviations, chosen)).mean())
        rows.append(Drawn(float(numpy.mean(errors)), float(numpy.mean(inside)), part.sources[0]))
    return rows


def _all(found: Mapping[int, Sequence[Drawn]]) -> dict[int, OwnRuns]:
    return {count: _own(rows) for count, rows in found.items() if rows}


def _own(rows: Sequence[Drawn]) -> OwnRuns:
    errors, inside, sources = (numpy.array(each) for each in zip(*rows, strict=True))
    of_each = {name: float(errors[sources == name].mean()) for name in sorted(set(sources.tolist()))}
    return OwnRuns(alike(errors, sources), alike(inside, sources), of_each)


def _best(
    tried: Mapping[Likeness, Mapping[int, Sequence[Drawn]]], usual: Mapping[int, Sequence[Drawn]], runs: Strangers
) -> dict[str, Likeness]:
    """The likeness of least error, over that of one factor per cluster, for all sources but each, by its name."""
    count = Counter(runs.sources)
    names = sorted({row.source for row in usual[0]})
    weights = numpy.array([count[name] ** 0.5 for name in names])

    def left_out(rows: Sequence[Drawn]) -> Array:
        """Mean error of the sources but each; of a single source its own."""
        errors = numpy.array([row.error for row in rows])
        of_each = numpy.array([[row.source == name for row in rows] for name in names])
        weighed = weights * (of_each @ errors / of_each.sum(axis=1))
        return weighed if len(names) == 1 else (weighed.sum() - weighed) / (weights.sum() - weights)

    costs = [sum(left_out(rows) / left_out(usual[own]) for own, rows in found.items()) for found in tried.values()]
    return {name: LIKENESSES[best] for name, best in zip(names, numpy.argmin(costs, axis=0), strict=True)}


def own_lines(found: Own) -> list[str]:
    """Errors with own runs, as lines."""
    return [
        f"own runs {count}, {name}: mean error {own.mean:.1%} with {len(own.sources)} sources alike, "
        f"{own.covered:.1%} inside"
        for name, each in (("one factor", found.cluster), ("factor per plan", found.plan))
        for count, own in each.items()
    ]
