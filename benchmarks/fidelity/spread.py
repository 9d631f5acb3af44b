"""How far times lie from predictions on a cluster without known runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import ceil, hypot
from statistics import NormalDist

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from benchmarks.fidelity.statistics import weighted_quantile
from nest.catalogue import TimeSpread
from nest.instance import EstimateError
from nest.plan.document import RANGE_PROBABILITY
from nest_calibrate.likeness import Shape

Array = NDArray[numpy.float64]

COVERED = RANGE_PROBABILITY
"""Share of the runs that a range holds."""

REACH = float(numpy.log(EstimateError(1.0, 1.0).factor((1 - COVERED) / 2)))
"""Standard deviations of a normal variable within which that share of it lies."""

LEAST = 0.01
"""Least spread, to the digits of the catalogue."""

BELIEVED = 4
"""Sources as which the spread between clusters of all generations counts for each."""

TRUSTED = 0.95
"""Share of the pairs called different that must be measured in that order."""


@frozen
class Strangers:
    """Runs, each predicted from fits without its source. Arrays of shape `(runs,)`.

    Attributes:
        off: logarithm of measured over predicted seconds.
        sources: who published each.
        clusters: where each ran: its source and its device.
        generations: of its device.
        experts: whether its model has experts.
        shapes: of their plans.
    """

    off: Array
    sources: Sequence[str]
    clusters: Sequence[str]
    generations: Sequence[str]
    experts: Sequence[bool]
    shapes: Sequence[Shape]

    def chosen(self, its: NDArray[numpy.bool_]) -> "Strangers":
        """Some of them."""
        rest = (self.sources, self.clusters, self.generations, self.experts, self.shapes)
        return Strangers(self.off[its], *(numpy.array(each)[its].tolist() for each in rest))


@frozen
class Known:
    """Spreads of the generations of devices by name, and of models with experts on any of them."""

    generations: Mapping[str, TimeSpread]
    experts: TimeSpread | None

    def of(self, generation: str, experts: bool) -> TimeSpread:
        """The spread of a run: the wider of both where both apply; of an unknown generation the widest."""
        known = self.generations
        found = [known[generation]] if generation in known else list(known.values())
        found += [self.experts] if experts and self.experts else []
        return max(found, key=lambda each: each.stranger.spread)


@frozen
class Spreads:
    """Ranges from errors of runs whose source was left out.

    Attributes:
        known: the spreads.
        bare: of devices predicted by published figures alone.
        apart: relative difference from which plans of one task are told apart.
        pairs: of such plans that differ by more.
        ordered: share of these pairs measured in the predicted order.
        covered: share of runs inside the range, from spreads without their source.
        covered_alike: the same with sources alike.
        half_widths: of these ranges, by generation and kind of model, as a share of the prediction.
    """

    known: Known
    bare: TimeSpread
    apart: float
    pairs: int
    ordered: float
    covered: float
    covered_alike: float
    half_widths: Mapping[str, float]


def spreads(
    runs: Strangers, bare: Strangers, told_apart: tuple[float, int, float], others: Mapping[str, Known]
) -> Spreads:
    """Estimate the spreads, and the coverage that follows from them.

    Args:
        runs: predicted from other sources.
        bare: predicted from published figures of their devices.
        told_apart: as `apart` gives it.
        others: as `known_without` gives it.
    """
    sources = numpy.array(runs.sources)
    inside, widths = numpy.zeros(len(sources), dtype=bool), numpy.zeros(len(sources))
    for name, without in others.items():
        its = sources == name
        inside[its], widths[its] = _ranges(runs.chosen(its), without)
    kinds = numpy.array(
        [
            f"{name}, {'experts' if experts else 'dense'}"
            for name, experts in zip(runs.generations, runs.experts, strict=True)
        ]
    )
    least = max(told_apart[0], LEAST)
    return Spreads(
        known_from(runs, least),
        uncalibrated(bare, least),
        *told_apart,
        float(inside.mean()),
        alike(inside, sources),
        {name: float(widths[kinds == name].mean()) for name in sorted(set(kinds.tolist()))},
    )


def known_without(runs: Strangers, apart: float) -> dict[str, Known]:
    """The spreads without each source, by its name; with a single source, its own."""
    sources = numpy.array(runs.sources)
    parts = {name: sources != name for name in sorted(set(runs.sources))}
    return {name: known_from(runs.chosen(its) if its.any() else runs, max(apart, LEAST)) for name, its in parts.items()}


def known_from(runs: Strangers, apart: float) -> Known:
    """The spreads of generations and of models with experts.

    Few sources tell little of how far clusters lie apart. So the variance between clusters of a part of the runs is
    pooled with that between all, which counts as `BELIEVED` sources (Gelman et al., Bayesian Data Analysis, section
    2.6: the scaled inverse chi-squared distribution). `student` widens it for the number of all sources.
    """
    of_all, wider = spread(runs, apart), student(len(set(runs.sources)) - 1)

    def pooled(its: NDArray[numpy.bool_]) -> TimeSpread:
        part = runs.chosen(its)
        own, count = spread(part, apart), len(set(part.sources))
        variance = (count * own.between**2 + BELIEVED * of_all.between**2) / (count + BELIEVED)
        return evolve(own, between=wider * float(numpy.sqrt(variance)))

    names, experts = numpy.array(runs.generations), numpy.array(runs.experts, dtype=bool)
    generations = {name: pooled(names == name) for name in sorted(set(runs.generations))}
    return Known(generations, pooled(experts) if experts.any() else None)


def spread(runs: Strangers, apart: float) -> TimeSpread:
    """The spreads of some runs, where a source of `n` runs counts as the root of `n`.

    `COVERED` of the runs lie as near to the mean of their cluster as those of a normal variable with the spread within
    clusters would. The spread of all runs around 0, found likewise, holds both; the rest is between clusters. Clusters
    of a single run tell nothing of the spread within.
    """
    clusters, counts = numpy.array(runs.clusters), numpy.array([runs.sources.count(each) for each in runs.sources])
    weights, inside, repeated = counts**-0.5, numpy.zeros(len(counts)), numpy.zeros(len(counts), dtype=bool)
    for name in set(runs.clusters):
        its = clusters == name
        inside[its] = runs.off[its] - runs.off[its].mean()
        repeated[its] = its.sum() > 1
    within = LEAST
    if repeated.any():
        within = max(weighted_quantile(numpy.abs(inside[repeated]), weights[repeated], COVERED) / REACH, LEAST)
    both = weighted_quantile(numpy.abs(runs.off), weights, COVERED) / REACH
    return TimeSpread(float(numpy.sqrt(max(both**2 - within**2, LEAST**2))), within, apart)


def uncalibrated(bare: Strangers, apart: float) -> TimeSpread:
    """The spread around the median of predictions from published figures alone, sources alike."""
    center = alike(bare.off, numpy.array(bare.sources))
    found = spread(evolve(bare, off=bare.off - center), apart)
    wider = student(len(set(bare.sources)) - 1)
    return evolve(found, between=wider * found.between, median=float(numpy.exp(center)))


def student(degrees: int) -> float:
    """How much wider a range of Student's t is than that of a normal variable (Abramowitz and Stegun, 26.7.5)."""
    count, z = max(degrees, 1), NormalDist().inv_cdf((1 + COVERED) / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return 1 + (first / count + second / count**2 + third / count**3) / z


def _ranges(runs: Strangers, known: Known) -> tuple[NDArray[numpy.bool_], Array]:
    """Which runs lie inside their range, and half of each range as a share of the prediction."""
    usual = [known.of(*each).stranger.spread for each in zip(runs.generations, runs.experts, strict=True)]
    reach = REACH * numpy.array(usual)
    return numpy.abs(runs.off) <= reach, numpy.sinh(reach)


def alike(values: NDArray[numpy.generic], sources: NDArray[numpy.str_]) -> float:
    """The mean of the means of all sources."""
    return float(numpy.mean([values[sources == name].mean() for name in sorted(set(sources.tolist()))]))


def apart(predicted: Array, measured: Array, tasks: Sequence[str], sources: Sequence[str]) -> tuple[float, int, float]:
    """By how much two plans of one task must differ for their order to be trusted.

    Args:
        predicted: seconds. Shape `(runs,)`.
        measured: seconds. Same shape.
        tasks: of each run; plans of one task are compared.
        sources: of each run; those with pairs count alike.

    Returns:
        The least difference of predictions, as a share of the shorter, beyond which `TRUSTED` of the pairs are measured
        in the predicted order; the number of such pairs; and their share.
    """
    found: list[tuple[float, bool, str]] = []
    for name in sorted(set(tasks)):
        its = numpy.flatnonzero([each == name for each in tasks])
        for one, two in combinations(its.tolist(), 2):
            first, second = sorted((one, two), key=lambda run: float(predicted[run]))
            differ = float(predicted[second] / predicted[first] - 1)
            found.append((differ, bool(measured[first] <= measured[second]), sources[one]))
    pairs = Counter(source for *_, source in found)
    found.sort(reverse=True)
    right, total, kept, share = 0.0, 0.0, 0, 1.0
    for count, (_, ordered, source) in enumerate(found, 1):
        total += 1 / pairs[source]
        right += ordered / pairs[source]
        if right >= TRUSTED * total:
            kept, share = count, right / total
    return found[kept - 1][0] if kept else 1.0, kept, share


def spread_lines(found: Spreads) -> list[str]:
    """All figures, as lines."""
    lines = [
        f"ranges of {COVERED:.0%}: {found.covered:.1%} of runs inside, {found.covered_alike:.1%} with sources alike"
    ]
    lines += [f"half a range, {name}: {width:.1%} of the time" for name, width in found.half_widths.items()]
    bare = found.bare
    lines += [
        f"uncalibrated devices: {bare.median:.2f} times the time, spread {hypot(bare.between, bare.within):.2f}",
        f"plans of one task {found.apart:.1%} apart or more: {found.ordered:.1%} in order with sources alike, "
        f"{found.pairs} pairs",
    ]
    return lines


def spread_text(found: Spreads, told: str) -> str:
    """The file of the catalogue (`nest/library/time_spread.toml`) that holds the spreads, in TOML.

    The difference that can be trusted is rounded up.
    """
    rows = ["# Spread of step times around predictions, by `python -m benchmarks.fidelity --nested --spread`", ""]
    rows += [f"apart = {ceil(100 * found.apart - 1e-9) / 100:.2f}", f'sources = ["{told}"]']
    parts = {f"generations.{name}": each for name, each in found.known.generations.items()}
    parts |= {"experts": found.known.experts} if found.known.experts else {}
    for name, its in {**parts, "uncalibrated": found.bare}.items():
        rows += ["", f"[{name}]"] + ([f"median = {its.median:.2f}"] if its.median != 1 else [])
        rows += [f"between = {its.between:.2f}", f"within = {its.within:.2f}"]
    return "\n".join(rows) + "\n"
