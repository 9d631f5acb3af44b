"""Plans of one task to measure: which to launch next, and when to stop."""

from collections.abc import Mapping, Sequence
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Any

from attrs import evolve, frozen

import nest
from nest.catalogue import TimeSpread
from nest.hooks.registry import Registry
from nest.io import structure, unstructure
from nest.public.planning import as_fixed, decided_plan, device_of, usual_spread, with_decisions
from nest.spec import PlanDocument, Problem

TRUSTED = 1.645
"""The 95 % quantile of a standard normal variable: `TimeSpread.apart` separates so many pairs."""

LEAST = 0.01
"""Least spread between clusters, to the digits of the catalogue."""

FAILURE = 0.4
"""Share of a step that a launch sure to fail counts more.

In 11 sets of published plans the first that runs is then 5.7 % slower than the best, after 1.1 launches. By time alone
it is 7.3 % slower, after 2.3 (`python -m benchmarks.fidelity.choices`).
"""

BELIEVED = 4
"""Launches as which the published scatter of plans of one task counts beside those of this task."""

THIS = "plan"
"""The document's own plan, in `to_measure`."""

TAKEN = "taken"
"""Name of the case in which the search took every unknown fact rightly."""


@frozen
class Choice:
    """A plan of the shortlist beside what is known of it.

    Attributes:
        name: its key in the document; `plan` is the document's own.
        predicted: seconds of a step, by case: `taken`, or the key of a fact that has its other value.
        fit: probability that it does not run out of memory.
        measured: seconds; None: not launched, or it failed.
        failed: whether it ran out of memory.
    """

    name: str
    predicted: Mapping[str, float]
    fit: float = 1.0
    measured: float | None = None
    failed: bool = False

    @property
    def is_open(self) -> bool:
        """True before it was launched."""
        return self.measured is None and not self.failed


@frozen
class Ranking:
    """Plans after some launches.

    Attributes:
        choices: the fastest expected first, failed ones last.
        expected: seconds of a step, by name; measured ones as measured.
        gains: expected gain of launching a plan, as a share of the best measured time, by name of those not launched.
        cases: probability of each case, by name.
        level: measured over predicted time of the likeliest case; None: nothing was measured.
        following: name of the plan to launch next; None: stop.
    """

    choices: tuple[Choice, ...]
    expected: Mapping[str, float]
    gains: Mapping[str, float]
    cases: Mapping[str, float]
    level: float | None
    following: str | None

    @property
    def best(self) -> Choice | None:
        """Fastest measured plan; None: nothing was measured."""
        return min(
            (each for each in self.choices if each.measured), key=lambda each: each.measured or 0.0, default=None
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain mappings, lists and numbers."""
        plans = [
            {
                "name": each.name,
                "predicted": each.predicted[TAKEN],
                "measured": each.measured,
                "failed": each.failed,
                "expected": self.expected[each.name],
                "gain": self.gains.get(each.name),
            }
            for each in self.choices
        ]
        return {"nest": 1, "plans": plans, "cases": dict(self.cases), "level": self.level, "next": self.following}


def names_of(plan: PlanDocument) -> tuple[str, ...]:
    """Plans to measure of a document: at least its own."""
    return plan.to_measure or (THIS,)


def choices_of(plans: Mapping[str, PlanDocument], measured: Mapping[str, float | None]) -> list[Choice]:
    """The plans of a document by `plan_of`; None as a measured time: it ran out of memory."""
    found, facts = [], plans[THIS].unknown
    for name, each in plans.items():
        times = {fact.key: fact.batch_time if name == THIS else fact.others[name] for fact in facts}
        fit, failed = each.fit_probability, name in measured and measured[name] is None
        times = {TAKEN: each.batch_time or 0.0, **times}
        found.append(Choice(name, times, 1.0 if fit is None else fit, measured.get(name), failed))
    return found


def worth(seconds: float, fit: float) -> float:
    """Seconds by which plans are launched in order: failures, of probability `1 - fit`, make them longer."""
    return seconds * (1 + FAILURE * (1 - fit))


def plan_of(plan: PlanDocument, name: str, known: Registry) -> PlanDocument:
    """A plan of a document, priced as a document of its own."""
    if name == THIS:
        return plan
    stated: Mapping[str, Any] = unstructure(getattr(plan, name))
    decided = decided_plan(plan, stated["decisions"], f"{name}.decisions")
    problem = with_decisions(structure(plan.problem, Problem), as_fixed(decided))
    return nest.evaluate(evolve(problem, constraints=()), plugins=known)


def spread_of(plan: PlanDocument) -> TimeSpread:
    """Spread of step times on the cluster of a plan: of clusters like it, less where its own runs calibrate it."""
    cluster = structure(plan.problem, Problem).cluster
    usual = usual_spread(device_of(cluster))
    own = getattr(cluster.calibration, "time_spread", None)
    if own is None:
        return usual
    return evolve(usual, between=sqrt(max(own**2 - usual.within**2, LEAST**2)), median=1.0)


def ranked(choices: Sequence[Choice], usual: TimeSpread, least: float) -> Ranking:
    """Rank plans by what their launches tell.

    In each case (every fact as taken, or one of them otherwise) measured over predicted times tell the level of the
    cluster and how likely the case is: cases begin equally likely, and the ratios of
    plans scatter around one level. The scatter is what makes plans `TimeSpread.apart` hard to tell apart. Published
    plans count as `BELIEVED` launches of it: surprising ratios widen it, and ratios follow Student's t (Gelman et al.,
    Bayesian Data Analysis, section 3.2). A plan is worth a launch if it is expected to save the share `least` of a step
    (expected improvement: Jones, Schonlau and Welch, Journal of Global Optimization 13, 1998). Of these plans the least
    by `worth` is launched.

    Args:
        choices: plans of one task.
        usual: spread of clusters like this one.
        least: share of a step.
    """
    scatter = log(1 + usual.apart) / TRUSTED / sqrt(2)
    known = [each for each in choices if each.measured is not None]
    likely, centers, scatters = {}, {}, {}
    for case in choices[0].predicted:
        ratios = [log((each.measured or 0.0) / each.predicted[case]) for each in known]
        centers[case] = _level(ratios, log(usual.median), usual.between, scatter)
        far = _distance(ratios, log(usual.median), usual.between, scatter)
        likely[case] = (1 + far / BELIEVED) ** (-(BELIEVED + len(ratios)) / 2)
        scatters[case] = scatter * sqrt((BELIEVED + far) / (BELIEVED + len(ratios)))
    cases = {case: each / sum(likely.values()) for case, each in likely.items()}
    best = min((each.measured or 0.0 for each in known), default=None)
    expected, gains = {}, {}
    for each in choices:
        times = {case: each.predicted[case] * exp(centers[case]) for case in cases}
        expected[each.name] = each.measured or sum(cases[case] * times[case] for case in cases)
        if each.is_open and best is not None:
            gain = sum(cases[case] * _gain(best, times[case], scatters[case]) for case in cases)
            gains[each.name] = each.fit * gain / best
    opened = [each for each in choices if each.is_open and gains.get(each.name, least) >= least]
    times = expected if known else {each.name: each.predicted[TAKEN] for each in choices}
    following = min(((worth(times[each.name], each.fit), each.name) for each in opened), default=(0.0, None))[1]
    order = sorted(choices, key=lambda each: (each.failed, expected[each.name]))
    surest = max(cases, key=lambda case: cases[case])
    return Ranking(tuple(order), expected, gains, cases, exp(centers[surest]) if known else None, following)


def _level(ratios: Sequence[float], center: float, between: float, scatter: float) -> float:
    """Expected level, which ratios move from `center` (Gelman et al., Bayesian Data Analysis, section 2.5)."""
    if not ratios:
        return center
    share = between**2 / (between**2 + scatter**2 / len(ratios))
    return center + share * (sum(ratios) / len(ratios) - center)


def _distance(ratios: Sequence[float], center: float, between: float, scatter: float) -> float:
    """Squared distance of ratios that share a level around `center`, in standard deviations (Mahalanobis)."""
    if not ratios:
        return 0.0
    mean = sum(ratios) / len(ratios)
    around = sum((each - mean) ** 2 for each in ratios) / scatter**2
    return around + (mean - center) ** 2 / (between**2 + scatter**2 / len(ratios))


def _gain(best: float, expected: float, scatter: float) -> float:
    """Expected seconds by which a plan of `expected` seconds beats `best`, 0 where it does not."""
    deviation = expected * scatter * sqrt(2)
    z = (best - expected) / deviation
    return deviation * (z * NormalDist().cdf(z) + NormalDist().pdf(z))
