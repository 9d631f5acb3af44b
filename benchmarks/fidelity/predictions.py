"""What is predicted of measured runs: with the catalogue, with fits to other families, and by a constant share."""

from collections.abc import Mapping, Sequence

import numpy
from attrs import frozen
from numpy.typing import NDArray

from benchmarks.fidelity.baseline import constant_share
from benchmarks.fidelity.runs import Told
from nest.hooks.protocols import CostModel
from nest.plan.evaluate import evaluate
from nest_calibrate.devices import Evidence, folded, parts, predicted
from nest_calibrate.generations import FOLDS, MeasuredRun, evidence, generation

Array = NDArray[numpy.float64]


@frozen(eq=False)
class Fold:
    """Runs held out, and what was fitted to all others of their generation.

    Attributes:
        held: which are held out. Shape `(runs of the generation,)`.
        values: of the unknowns, by name.
    """

    held: NDArray[numpy.bool_]
    values: Mapping[str, float]


@frozen(eq=False)
class Generation:
    """The runs on devices of one generation.

    Attributes:
        name: of the generation.
        places: where they stand among all runs.
        runs: taken apart.
        evidence: the same for fits.
        folds: parts held out in turn.
    """

    name: str
    places: NDArray[numpy.int64]
    runs: tuple[MeasuredRun, ...]
    evidence: Evidence
    folds: tuple[Fold, ...]

    @property
    def validated(self) -> Array:
        """Seconds of each run, predicted from other families."""
        return spread(self.evidence, self.folds)


@frozen(eq=False)
class Table:
    """Seconds of every run. Arrays of shape `(runs,)`; not a number where nothing is predicted.

    Attributes:
        runs: taken apart.
        generations: the same by generation.
        measured: as published.
        catalogue: what `nest evaluate` says.
        validated: the cost model with coefficients fitted to other families.
        constant: one share of the peak per device and precision, the best for other families.
        peer: what another tool predicted, as published beside the run.
    """

    runs: tuple[MeasuredRun, ...]
    generations: tuple[Generation, ...]
    measured: Array
    catalogue: Array
    validated: Array
    constant: Array
    peer: Array


def table(runs: Sequence[MeasuredRun], costs: CostModel, told: Told, folds: int = FOLDS) -> Table:
    """All predictions of `runs`."""
    found = generations(runs, costs, told, folds)
    return Table(
        runs=tuple(runs),
        generations=found,
        measured=numpy.array([each.run.measured.batch_time for each in runs]),
        catalogue=numpy.array([evaluate(each.breakdown.instance, each.breakdown.solution).batch_time for each in runs]),
        validated=gathered(found, [each.validated for each in found], len(runs)),
        constant=gathered(
            found, [constant_share(each.runs, each.evidence.families, folds) for each in found], len(runs)
        ),
        peer=numpy.array([float(each.run.peer.get("iter_time_s", "nan")) for each in runs]),
    )


def generations(
    runs: Sequence[MeasuredRun], costs: CostModel, told: Told, folds: int = FOLDS
) -> tuple[Generation, ...]:
    """The runs by generation, by name, each fitted without one part of its families in turn."""
    names = [generation(each.breakdown.pricing.device) for each in runs]
    places = {
        name: numpy.array([index for index, each in enumerate(names) if each == name], dtype=numpy.int64)
        for name in sorted(set(names))
    }
    own = {name: tuple(runs[index] for index in its) for name, its in places.items()}
    seen = {name: evidence(its, costs) for name, its in own.items()}
    told(f"fitting {', '.join(places)}")
    found: dict[str, list[Fold]] = {name: [] for name in places}
    for held, values in folded(list(seen.values()), [parts(each.families, folds) for each in seen.values()]):
        for name, its, fitted in zip(places, held, values, strict=True):
            if its.any():
                found[name].append(Fold(its, fitted))
    return tuple(Generation(name, places[name], own[name], seen[name], tuple(found[name])) for name in places)


def spread(seen: Evidence, folds: Sequence[Fold]) -> Array:
    """Seconds of every measurement with the values of the fold that holds it out."""
    found = numpy.zeros(len(seen.families))
    for fold in folds:
        found[fold.held] = predicted(seen, fold.values)[fold.held]
    return found


def gathered(found: Sequence[Generation], values: Sequence[Array], count: int) -> Array:
    """Values of the runs of each generation as values of all runs."""
    together = numpy.full(count, numpy.nan)
    for each, own in zip(found, values, strict=True):
        together[each.places] = own
    return together
