"""Whether plans for one task are put in the right order."""

import json
from collections.abc import Sequence
from itertools import combinations

import numpy
from attrs import frozen
from numpy.typing import NDArray

from benchmarks.fidelity.statistics import rank_correlation, regret
from nest.io import unstructure
from nest.spec import Problem
from nest.spec.measurements import RunMeasurement

Array = NDArray[numpy.float64]

CLOSE = 0.05
"""Regret up to which the plan predicted best counts as good, and difference from which on two plans have an order:
repeated runs of one plan differ by 3 to 5 % in the published data (`nest_calibrate.devices.NOISE`)."""


@frozen
class TaskSet:
    """Plans that were measured for one task.

    Attributes:
        runs: places of the runs of each plan.
        group: who published them.
    """

    runs: tuple[tuple[int, ...], ...]
    group: str


@frozen
class Agreement:
    """How well the plans of sets are put in order.

    Attributes:
        sets: with at least two plans.
        plans: in all of them.
        correlation: median of the sets' rank correlations; None where no set has an order.
        least: the smallest.
        regret: median of measured time of the plan predicted best over the best, less 1.
        worst: the largest.
        close: share of sets in which it is at most `CLOSE`.
        pairs: of plans of one set whose measured times differ by more than `CLOSE`.
        right: those that are predicted in the measured order.
    """

    sets: int
    plans: int
    correlation: float | None
    least: float | None
    regret: float
    worst: float
    close: float
    pairs: int
    right: int


def split(problem: Problem) -> tuple[str, str]:
    """What a plan is for (model, cluster, batch, sequence length, precision), and the plan: all else that is said."""
    written = unstructure(problem)
    training = dict(written.get("training", {}))
    asked = [training.pop(name, None) for name in ("global_batch", "sequence_length", "precision")]
    task = [written.pop("model", None), written.pop("cluster", None), asked]
    return json.dumps(task, sort_keys=True), json.dumps({**written, "training": training}, sort_keys=True)


def task_sets(runs: Sequence[RunMeasurement]) -> list[TaskSet]:
    """The tasks for which at least two different plans were measured, in the order of their first runs."""
    tasks: dict[str, dict[str, list[int]]] = {}
    for place, run in enumerate(runs):
        task, plan = split(run.problem)
        tasks.setdefault(task, {}).setdefault(plan, []).append(place)
    return [
        TaskSet(tuple(tuple(places) for places in plans.values()), runs[next(iter(plans.values()))[0]].group)
        for plans in tasks.values()
        if len(plans) > 1
    ]


def agreement(sets: Sequence[TaskSet], predicted: Array, measured: Array) -> Agreement | None:
    """How well `predicted` seconds put the plans of each set in order; runs of one plan are averaged. None: no sets."""
    if not sets:
        return None
    correlations, regrets, right = [], [], []
    for each in sets:
        guess, seen = (
            numpy.array([values[list(places)].mean() for places in each.runs]) for values in (predicted, measured)
        )
        correlations.append(rank_correlation(guess, seen))
        regrets.append(regret(guess, seen))
        right += orders(guess, seen)
    ordered = [value for value in correlations if value is not None]
    return Agreement(
        sets=len(sets),
        plans=sum(len(each.runs) for each in sets),
        correlation=float(numpy.median(ordered)) if ordered else None,
        least=min(ordered) if ordered else None,
        regret=float(numpy.median(regrets)),
        worst=max(regrets),
        close=sum(value <= CLOSE for value in regrets) / len(sets),
        pairs=len(right),
        right=sum(right),
    )


def orders(predicted: Array, measured: Array) -> list[bool]:
    """Of each pair whose measured times differ by more than `CLOSE`, whether their order is predicted."""
    return [
        bool((predicted[one] < predicted[other]) == (measured[one] < measured[other]))
        for one, other in combinations(range(len(measured)), 2)
        if abs(measured[one] - measured[other]) > CLOSE * min(measured[one], measured[other])
    ]
