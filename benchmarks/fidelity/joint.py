"""Fits to all generations at once, fast enough to leave out one source after the other, and two at a time.

What `nest_calibrate.devices.fit` minimises, by steps on straight lines: the slopes found at the fit to all runs serve
every fit that leaves some of them out.
"""

from collections.abc import Sequence

import numpy
from attrs import evolve, frozen
from numpy.typing import NDArray

from benchmarks.fidelity.refit import slopes_of
from benchmarks.fidelity.terms import Term, Without
from nest.catalogue import Calibration, published_devices
from nest.hooks.protocols import CostModel
from nest.instance import Array
from nest_calibrate.devices import (
    DIGITS,
    LAST_GAIN,
    NOISE,
    OUTLIER,
    STEPS,
    Evidence,
    calibration,
    expected,
    predicted,
    together,
    values_of,
    weights,
)
from nest_calibrate.generations import MeasuredRun, evidence, generation
from nest_calibrate.robust_fit import Prior, objective, robust_fit

Mask = NDArray[numpy.bool_]

ROUNDS = 4
"""Most straight lines that a fit follows, one after the other."""

SETTLED = 1e-3
"""A line that lowers the objective by less, relatively, is the last."""


@frozen(eq=False)
class Joint:
    """Runs of all generations, and what is to be found of them.

    Attributes:
        seen: the evidence of each generation.
        places: where its runs stand among all.
        names: of all unknowns.
        prior: what is believed of their logarithms.
        own: where those of each generation stand among them.
    """

    seen: tuple[Evidence, ...]
    places: tuple[NDArray[numpy.int64], ...]
    names: tuple[str, ...]
    prior: Prior
    own: tuple[NDArray[numpy.int64], ...]

    @property
    def count(self) -> int:
        """Number of runs."""
        return sum(len(each) for each in self.places)

    def off(self, at: Array) -> Array:
        """Logarithms of predicted over measured of all runs, for logarithms of all unknowns."""
        found = numpy.zeros(self.count)
        for seen, places, its in zip(self.seen, self.places, self.own, strict=True):
            found[places] = numpy.log(predicted(seen, values_of(seen, at[its])) / seen.seconds)
        return found

    def slopes(self, at: Array) -> Array:
        """How these change with the unknowns. Shape `(runs, unknowns)`."""
        found = numpy.zeros((self.count, len(at)))
        for seen, places, its in zip(self.seen, self.places, self.own, strict=True):
            found[numpy.ix_(places, its)] = slopes_of(seen, at[its])
        return found

    def weighed(self, chosen: Mask) -> Array:
        """The weights of the chosen runs; those of others are 0."""
        found = numpy.zeros(self.count)
        for seen, places in zip(self.seen, self.places, strict=True):
            its = chosen[places]
            if its.any():
                names = [name for name, taken in zip(seen.families, its, strict=True) if taken]
                found[places[its]] = weights(names)
        return found

    def less(self, off: Sequence[Term]) -> "Joint":
        """Return the same runs without the terms `off`: neither their unknowns nor their figures of devices."""
        return _together([_without(each, off) for each in self.seen], self.places)

    def fitted(self, near: "Fitted | None" = None) -> "Fitted":
        """The fit to all runs, with slopes found anew for each line; begun at the prior, or at what `near` ended at."""
        prior = self.prior
        weight = self.weighed(numpy.ones(self.count, dtype=bool))
        at = prior.center if near is None else near.known_to(self)
        here = self.off(at)
        value = objective(weight * here, at, prior, OUTLIER, NOISE)
        for _ in range(ROUNDS):
            slopes = self.slopes(at)
            trial = _along(weight, here, slopes, at, prior)
            for _ in range(ROUNDS):
                there = self.off(trial)
                lower = objective(weight * there, trial, prior, OUTLIER, NOISE)
                if lower < value:
                    break
                trial = (at + trial) / 2
            else:
                break
            done = value - lower < SETTLED * value
            at, here, value = trial, there, lower
            if done:
                break
        return Fitted(self, at, here, self.slopes(at))


@frozen(eq=False)
class Fitted:
    """A fit to all runs: the unknowns' logarithms, what is off at them, and the slopes there."""

    joint: Joint
    at: Array
    off: Array
    slopes: Array

    def known_to(self, other: Joint) -> Array:
        """The logarithms of the unknowns of `other`, all of which are among these."""
        found = other.prior.center.copy()
        for mine, here, its, there in zip(self.joint.seen, self.joint.own, other.seen, other.own, strict=True):
            known = dict(zip([each.name for each in mine.unknowns], self.at[here], strict=True))
            found[there] = [known[each.name] for each in its.unknowns]
        return found

    def without(self, held: Mask) -> tuple[Array, Array]:
        """The unknowns fitted to runs that are not `held`, and logarithms of predicted over measured of all runs."""
        prior = self.joint.prior
        weight = self.joint.weighed(~held)
        at, here = self.at, self.off
        best = objective(weight * here, at, prior, OUTLIER, NOISE)
        for _ in range(ROUNDS):
            trial = _along(weight, here, self.slopes, at, prior)
            there = self.joint.off(trial)
            value = objective(weight * there, trial, prior, OUTLIER, NOISE)
            if value >= best:
                break
            done = best - value < SETTLED * best
            at, here, best = trial, there, value
            if done:
                break
        return at, here

    def nearly(self, held: Mask) -> Array:
        """Predict as `without` does, along one straight line through the fit to all runs, without pricing."""
        prior = self.joint.prior
        at = _along(self.joint.weighed(~held), self.off, self.slopes, self.at, prior)
        return self.off + self.slopes @ (at - self.at)


def _along(weight: Array, here: Array, slopes: Array, point: Array, prior: Prior) -> Array:
    """Where a fit to residuals that grow with `slopes` from what they are at `point` ends."""
    counted = weight > 0
    own, base, lines = weight[counted], here[counted], slopes[counted]

    def residuals(trial: Array) -> Array:
        return numpy.asarray(own * (base + lines @ (trial - point)))

    return robust_fit(residuals, prior, OUTLIER, NOISE, steps=STEPS, settled=LAST_GAIN)


def joint(runs: Sequence[MeasuredRun], costs: CostModel, off: Sequence[Term] = ()) -> Joint:
    """The runs of all generations, without the terms `off`."""
    for term in off:
        if term.price is not None:
            costs = Without(costs, term.price)
    names = [generation(each.breakdown.pricing.device) for each in runs]
    places = [numpy.array([i for i, each in enumerate(names) if each == name]) for name in sorted(set(names))]
    return _together([_without(evidence([runs[i] for i in its], costs), off) for its in places], places)


def _together(seen: Sequence[Evidence], places: Sequence[NDArray[numpy.int64]]) -> Joint:
    every, own = together(seen)
    return Joint(tuple(seen), tuple(places), tuple(each.name for each in every), expected(every), tuple(own))


def _without(seen: Evidence, off: Sequence[Term]) -> Evidence:
    devices = dict(seen.devices)
    for term in off:
        if term.device is not None:
            devices = {name: term.device(device) for name, device in devices.items()}
    unknowns = tuple(each for each in seen.unknowns if not any(term.unknown(each.name) for term in off))
    return evolve(seen, unknowns=unknowns, devices=devices)


def calibrated(fit: Fitted, runs: Sequence[MeasuredRun], left_out: Array, command: str) -> list[Calibration]:
    """The calibrations of all generations, as the catalogue holds them; `command` made them.

    `left_out` are logarithms of predicted over measured with each run's source left out.
    """
    found = []
    for seen, places, its in zip(fit.joint.seen, fit.joint.places, fit.joint.own, strict=True):
        known = calibration(generation(runs[places[0]].device), values_of(seen, fit.at[its], DIGITS))
        before = numpy.log(seen.predict(seen.devices) / seen.seconds)
        told = [_told(each) for each in (fit.off[places], left_out[places], before)]
        source = (
            f"{command}, begun at published figures: robust least squares over {len(places)} measurements of "
            f"{len(set(seen.families))} families; mean and median of absolute relative errors {told[0]}, "
            f"with each source left out {told[1]}, without it {told[2]}"
        )
        # Of parts that the catalogue has not, it has no use.
        sustained = {name: share for name, share in known.sustained.items() if name in published_devices()}
        found.append(evolve(known, sustained=sustained, sources=(source,)))
    return found


def _told(off: Array) -> str:
    errors = numpy.abs(numpy.exp(off) - 1.0)
    return f"{100 * errors.mean():.1f} % and {100 * numpy.median(errors):.1f} %"
