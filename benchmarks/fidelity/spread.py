"""How far times lie from predictions on a cluster that no run was known of, and what runs of its own change."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import ceil

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from nest.catalogue import TimeSpread
from nest.instance import EstimateError
from nest.plan.document import RANGE_PROBABILITY
from nest_calibrate.cluster import level

Array = NDArray[numpy.float64]

COVERED = RANGE_PROBABILITY
"""Share of the runs that a range is to hold."""

REACH = float(numpy.log(EstimateError(1.0, 1.0).factor((1 - COVERED) / 2)))
"""Standard deviations of a normal variable within which that share of it lies."""

LEAST = 0.01
"""The least that any of them is said to be, to the digits they are told with."""

BELIEVED = 4
"""Clusters as which the spread between clusters of all generations counts for each."""

TRUSTED = 0.95
"""Share of the pairs that are called different which must be measured in that order."""

OWN_RUNS = 3
"""Runs of its own that a cluster is calibrated with."""

DRAWS = 200
"""Sets of own runs tried for each cluster."""

FEW_RUNS = 40
"""Runs of a cluster up to which these sets are spaced evenly among all there are; of more, they are drawn."""


@frozen
class Strangers:
    """Runs, each predicted from fits without its source. Arrays of shape `(runs,)`.

    Attributes:
        off: logarithm of measured over predicted seconds.
        sources: who published each.
        clusters: where each ran, as far as is told: its source and its device.
        generations: of its device.
    """

    off: Array
    sources: Sequence[str]
    clusters: Sequence[str]
    generations: Sequence[str]

    def chosen(self, its: NDArray[numpy.bool_]) -> "Strangers":
        """Some of them."""
        return Strangers(
            self.off[its],
            *(numpy.array(each)[its].tolist() for each in (self.sources, self.clusters, self.generations)),
        )


@frozen
class OwnRuns:
    """Other runs of clusters of which `OWN_RUNS` are known, all of them counting alike.

    Attributes:
        mean: absolute relative error.
        covered: share inside the range that then holds.
        half_width: of these ranges.
        least: absolute relative error with the median of all of a cluster's runs for its level: what however many runs
            leave.
    """

    mean: float
    covered: float
    half_width: float
    least: float


@frozen
class Spreads:
    """What errors of runs whose source was left out say of ranges and of runs of one's own; every run counts alike.

    Attributes:
        found: by generation of devices, the spreads between clusters and within them.
        apart: from what difference on plans of one task are told apart.
        pairs: such plans that differ by more.
        ordered: share of these pairs that are measured in the order predicted.
        covered: share of runs inside the range of a cluster without runs of its own, from spreads without its source.
        half_width: of these ranges on average, as a share of the prediction: half of what lies between their ends.
        own: what `OWN_RUNS` of a cluster's own change; None: no cluster has more.
    """

    found: Mapping[str, TimeSpread]
    apart: float
    pairs: int
    ordered: float
    covered: float
    half_width: float
    own: OwnRuns | None


def spreads(runs: Strangers, told_apart: tuple[float, int, float]) -> Spreads:
    """The spreads, and what ranges and own runs come to with them.

    Args:
        runs: predicted from other sources.
        told_apart: as `apart` gives it.
    """
    least = max(told_apart[0], LEAST)
    found = by_generation(runs, least)
    inside, widths = zip(*_left_out(runs, least), strict=True)
    clusters = list(_with_own_runs(runs, found))
    own = None
    if clusters:
        *figures, counts = zip(*clusters, strict=True)
        own = OwnRuns(*(float(numpy.average(each, weights=counts)) for each in figures))
    return Spreads(
        found,
        *told_apart,
        float(numpy.mean(numpy.concatenate(inside))),
        float(numpy.mean(numpy.concatenate(widths))),
        own,
    )


def by_generation(runs: Strangers, apart: float) -> dict[str, TimeSpread]:
    """The spreads of each generation, by name.

    Few clusters tell little of how far clusters lie apart: the variance between those of a generation is taken together
    with that between all, which counts as `BELIEVED` clusters do (Gelman et al., Bayesian Data Analysis, section 2.6:
    the scaled inverse chi-squared distribution).
    """
    names = numpy.array(runs.generations)
    of_all = spread(runs, apart).between
    found = {}
    for name in sorted(set(runs.generations)):
        its = runs.chosen(names == name)
        own, count = spread(its, apart), len(set(its.clusters))
        variance = (count * own.between**2 + BELIEVED * of_all**2) / (count + BELIEVED)
        found[name] = evolve(own, between=float(numpy.sqrt(variance)))
    return found


def spread(runs: Strangers, apart: float) -> TimeSpread:
    """The spreads of some runs.

    The spread within clusters is such that `COVERED` of all runs lie as near to the mean of their cluster as a normal
    variable would; that of all runs, likewise around 0, holds both, and what is left is between clusters. Clusters of a
    single run tell nothing of what is within.
    """
    clusters = numpy.array(runs.clusters)
    groups = [runs.off[clusters == name] for name in sorted(set(runs.clusters))]
    inside = numpy.concatenate([numpy.zeros(1), *(each - each.mean() for each in groups if len(each) > 1)])
    within, both = (float(numpy.quantile(numpy.abs(each), COVERED)) / REACH for each in (inside, runs.off))
    between = float(numpy.sqrt(max(both**2 - within**2, LEAST**2)))
    return TimeSpread(between, max(within, LEAST), apart)


def half_width(deviation: float) -> float:
    """Half of a range of `COVERED`, as a share of the prediction."""
    return float(numpy.sinh(REACH * deviation))


def _left_out(runs: Strangers, apart: float) -> Iterator[tuple[NDArray[numpy.bool_], Array]]:
    """Of the runs of each source and generation: which lie inside their range, and its half width for each."""
    sources, generations = numpy.array(runs.sources), numpy.array(runs.generations)
    for name in sorted(set(runs.sources)):
        others = runs.chosen(sources != name) if (sources != name).any() else runs
        known = by_generation(others, apart)
        for generation in sorted(set(generations[sources == name].tolist())):
            usual = known.get(generation) or spread(others, apart)
            its = runs.off[(sources == name) & (generations == generation)]
            yield (
                numpy.abs(its) <= REACH * usual.stranger.spread,
                numpy.full(len(its), half_width(usual.stranger.spread)),
            )


def _with_own_runs(
    runs: Strangers, found: Mapping[str, TimeSpread]
) -> Iterator[tuple[float, float, float, float, int]]:
    """Of each cluster, when `OWN_RUNS` of it are known: the figures of `OwnRuns`, and how many runs it has."""
    clusters = numpy.array(runs.clusters)
    for name in sorted(set(runs.clusters)):
        its = clusters == name
        own, usual = runs.off[its], found[runs.generations[int(numpy.argmax(its))]]
        if len(own) <= OWN_RUNS:
            continue
        errors, inside = [], []
        for chosen in _draws(len(own)):
            center, deviation = level(own[list(chosen)].tolist(), usual)
            rest = numpy.delete(own, chosen) - center
            errors.append(numpy.abs(numpy.exp(-rest) - 1).mean())
            inside.append((numpy.abs(rest) <= REACH * deviation).mean())
        width = half_width(level([0.0] * OWN_RUNS, usual)[1])
        least = float(numpy.abs(numpy.exp(numpy.median(own) - own) - 1).mean())
        yield float(numpy.mean(errors)), float(numpy.mean(inside)), width, least, len(own)


def _draws(count: int) -> Iterator[tuple[int, ...]]:
    """Some sets of `OWN_RUNS` of so many runs."""
    if count > FEW_RUNS:
        drawn = numpy.random.default_rng(0)
        for _ in range(DRAWS):
            yield tuple(sorted(drawn.choice(count, OWN_RUNS, replace=False).tolist()))
        return
    every = list(combinations(range(count), OWN_RUNS))
    yield from every[:: max(1, len(every) // DRAWS)]


def apart(predicted: Array, measured: Array, tasks: Sequence[str]) -> tuple[float, int, float]:
    """By how much two plans of one task must differ for their order to be trusted.

    Args:
        predicted: seconds. Shape `(runs,)`.
        measured: seconds. Same shape.
        tasks: what each run trains on what; plans are compared where that is one.

    Returns:
        The least difference of predictions, as a share of the shorter, beyond which `TRUSTED` of the pairs are measured
        in the order predicted; how many pairs differ by as much; and which share of these are.
    """
    found: list[tuple[float, bool]] = []
    for name in sorted(set(tasks)):
        its = numpy.flatnonzero([each == name for each in tasks])
        for one, two in combinations(its.tolist(), 2):
            first, second = sorted((one, two), key=lambda run: float(predicted[run]))
            found.append((float(predicted[second] / predicted[first] - 1), bool(measured[first] <= measured[second])))
    found.sort(reverse=True)
    right, kept, share = 0, 0, 1.0
    for count, (_, ordered) in enumerate(found, 1):
        right += ordered
        if right >= TRUSTED * count:
            kept, share = count, right / count
    return found[kept - 1][0] if kept else 1.0, kept, share


def spread_text(found: Spreads, told: str) -> str:
    """The file of the catalogue (`nest/library/time_spread.toml`) that holds the spreads, in TOML.

    What can be trusted is rounded up.
    """
    rows = ["# How far step times lie from predictions: written by `python -m benchmarks.fidelity --sources`", ""]
    rows += [f"apart = {ceil(100 * found.apart - 1e-9) / 100:.2f}", f'sources = ["{told}"]']
    for name, its in found.found.items():
        rows += ["", f"[generations.{name}]", f"between = {its.between:.2f}", f"within = {its.within:.2f}"]
    return "\n".join(rows) + "\n"
