"""Whole sources left out: the coefficients fitted without a source, and what they predict of it."""

from collections.abc import Mapping, Sequence

import numpy
from attrs import frozen
from numpy.typing import NDArray

from benchmarks.fidelity.baseline import constant_share
from benchmarks.fidelity.ranking import split
from benchmarks.fidelity.report import cell, percent
from benchmarks.fidelity.runs import Told
from benchmarks.fidelity.spread import COVERED, OWN_RUNS, Spreads, Strangers, apart, spreads
from benchmarks.fidelity.statistics import Errors, errors, weighted_median
from nest.hooks.protocols import CostModel
from nest.plan.evaluate import evaluate
from nest_calibrate.devices import fit, folded, predicted
from nest_calibrate.generations import MeasuredRun, evidence, generation

Array = NDArray[numpy.float64]

HEADINGS = {
    "catalogue": "catalogue",
    "fitted": "fitted to all of these",
    "others": "other sources",
    "constant": "a constant share",
}
"""Of the predictions, as tables name them."""

MOST = 0.9
"""The quantile of errors that is told beside their mean and median."""

NAME = 24
"""Characters of the first column."""


@frozen(eq=False)
class Predictions:
    """Seconds of every run. Arrays of shape `(runs,)`.

    Attributes:
        sources: who published each run: its `group`.
        devices: on which each ran.
        generations: of these.
        tasks: what each run trains on what: plans of one task may be compared.
        measured: as published.
        catalogue: what `nest evaluate` says.
        fitted: with coefficients fitted to all runs of the generation of devices, those predicted among them.
        others: with coefficients fitted to the runs of other sources on devices of the generation; where there are
            none, with what is expected of coefficients before any measurement.
        constant: at the share of the peak that is best for the runs of other sources; not a number where there are
            none.
    """

    sources: tuple[str, ...]
    devices: tuple[str, ...]
    generations: tuple[str, ...]
    tasks: tuple[str, ...]
    measured: Array
    catalogue: Array
    fitted: Array
    others: Array
    constant: Array


@frozen
class Alike:
    """Absolute relative errors with every source counted alike.

    Attributes:
        mean: of the sources' means.
        median: the error that half of the weight lies below, each run weighted by one over the runs of its source.
    """

    mean: float
    median: float


@frozen
class SourceErrors:
    """Errors by source and of all, by prediction.

    Attributes:
        priced: runs.
        refused: runs that cannot be priced, by reason; they are in no fit.
        untimed: runs of sources whose times are not taken; they are in no fit, either.
        rows: errors of each source, in the order of names, and of `all`.
        alike: of all with every source counted alike.
        most: the 90th percentile of absolute relative errors of all runs, predicted from other sources.
        spreads: what these say of ranges and of runs of one's own.
    """

    priced: int
    refused: Mapping[str, int]
    untimed: int
    rows: Mapping[str, Mapping[str, Errors]]
    alike: Mapping[str, Alike]
    most: float
    spreads: Spreads


def source(run: MeasuredRun) -> str:
    """Who published a run."""
    return run.run.group or "runs"


def predictions(runs: Sequence[MeasuredRun], costs: CostModel, told: Told) -> Predictions:
    """All predictions of `runs`; fits begin at what is expected, as those to other families do."""
    sources = tuple(source(each) for each in runs)
    numbers = {name: number for number, name in enumerate(sorted(set(sources)))}
    generations = [generation(each.breakdown.pricing.device) for each in runs]
    fitted, others, constant = (numpy.zeros(len(runs)) for _ in range(3))
    places = [
        numpy.array([index for index, each in enumerate(generations) if each == name], dtype=numpy.int64)
        for name in sorted(set(generations))
    ]
    seen = [evidence([runs[index] for index in its], costs) for its in places]
    told("fitting to all")
    together = fit(seen, [numpy.ones(len(its), dtype=bool) for its in places])
    for its, own, values in zip(places, seen, together, strict=True):
        constant[its] = constant_share([runs[index] for index in its], [sources[index] for index in its], len(numbers))
        fitted[its] = predicted(own, values)
    of_source = [numpy.array([numbers[sources[index]] for index in its]) for its in places]
    told("fitting without one source in turn")
    for held, without in folded(seen, of_source):
        for its, own, left_out, values in zip(places, seen, held, without, strict=True):
            others[its[left_out]] = predicted(own, values)[left_out]
    return Predictions(
        sources=sources,
        devices=tuple(each.device.name for each in runs),
        generations=tuple(generations),
        tasks=tuple(f"{source(each)}: {split(each.run.problem)[0]}" for each in runs),
        measured=numpy.array([each.run.measured.batch_time for each in runs]),
        catalogue=numpy.array([evaluate(each.breakdown.instance, each.breakdown.solution).batch_time for each in runs]),
        fitted=fitted,
        others=others,
        constant=constant,
    )


def source_errors(found: Predictions, refused: Mapping[str, int], untimed: int) -> SourceErrors:
    """What the predictions amount to."""
    names = sorted(set(found.sources))
    chosen = {name: numpy.array([each == name for each in found.sources]) for name in names}
    chosen["all"] = numpy.full(len(found.sources), True)
    return SourceErrors(
        priced=len(found.sources),
        refused=dict(refused),
        untimed=untimed,
        rows={
            name: {
                column: told
                for column in HEADINGS
                if (told := errors(getattr(found, column)[its], found.measured[its])) is not None
            }
            for name, its in chosen.items()
        },
        alike={
            column: told
            for column in HEADINGS
            if (told := alike(getattr(found, column), found.measured, found.sources)) is not None
        },
        most=float(numpy.quantile(numpy.abs(found.others / found.measured - 1.0), MOST)),
        spreads=spreads(
            Strangers(
                numpy.log(found.measured / found.others),
                found.sources,
                tuple(f"{name} on {device}" for name, device in zip(found.sources, found.devices, strict=True)),
                found.generations,
            ),
            apart(found.catalogue, found.measured, found.tasks),
        ),
    )


def alike(predicted: Array, measured: Array, sources: Sequence[str]) -> Alike | None:
    """Errors of `predicted` with every source counted alike; None where nothing is predicted."""
    off = numpy.abs(predicted / measured - 1.0)
    weights = numpy.array([1.0 / sources.count(each) for each in sources])
    off, weights = off[~numpy.isnan(off)], weights[~numpy.isnan(off)]
    if not len(off):
        return None
    return Alike(float((weights * off).sum() / weights.sum()), weighted_median(off, weights))


def text(found: SourceErrors) -> list[str]:
    """All figures, as lines."""
    count = found.priced + sum(found.refused.values())
    lines = [f"{count} runs: {found.priced} priced, {count - found.priced} refused; {found.untimed} more not timed"]
    lines += [f"{count:4} {why}" for why, count in sorted(found.refused.items(), key=lambda item: (-item[1], item[0]))]
    lines += ["", f"{'step time':{NAME}}{'runs':>5}" + "".join(f"{each:>30}" for each in HEADINGS.values())]
    lines += [" " * (NAME + 5) + "     mean median   bias  worst" * len(HEADINGS)]
    for name, row in found.rows.items():
        lines += [""] if name == "all" else []
        cells = "".join(f"   {cell(row.get(each))}" for each in HEADINGS)
        lines.append(f"{name:{NAME}}{row['others'].count:>5}{cells}")
    told = (found.alike[each] for each in HEADINGS if each in found.alike)
    lines.append(
        f"{'sources alike':{NAME + 5}}" + "".join(f"   {percent(e.mean)} {percent(e.median)}{'':14}" for e in told)
    )
    its = found.spreads
    lines += [
        "",
        f"other sources: {MOST:.0%} of all errors are at most {100 * found.most:.1f}%",
        *(
            f"{name}: spread of the logarithm between clusters {each.between:.3f}, within them {each.within:.3f}"
            for name, each in its.found.items()
        ),
        f"ranges of {COVERED:.0%}: {its.covered:.1%} of runs inside, half a range is {its.half_width:.1%} of the time",
        f"plans of one task that differ by {its.apart:.1%} or more: {its.ordered:.1%} of {its.pairs} in order",
    ]
    if its.own is not None:
        told = f"mean error {its.own.mean:.1%}, {its.own.covered:.1%} inside, half a range {its.own.half_width:.1%}"
        lines.append(f"with {OWN_RUNS} runs of their own: {told}; {its.own.least:.1%} with the median of all")
    return [line.rstrip() for line in lines]
