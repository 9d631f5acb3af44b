"""Sets of published plans for one task: the plan taken, and the launches until it runs.

`python -m benchmarks.fidelity.choices FILE...` prints it.

A set has plans that ran and plans that did not. Those that are as likely to fit as not are launched in an order: by
predicted time, or by what `nest shortlist` begins with (`nest_calibrate.shortlist.worth`).
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import fmean

from attrs import frozen

import nest
from benchmarks.fidelity.ranking import split
from nest.io import structure
from nest.spec import Problem
from nest_calibrate.shortlist import worth

LAUNCHES = 3
"""Plans that run before the best of them is taken."""

Order = Callable[[float, float], float]
"""Key of a plan's seconds and its probability to fit; plans of the least are launched first."""

ORDERS: Mapping[str, Order] = {"by time": lambda seconds, _: seconds, "as nest shortlist": worth}


@frozen
class Launched:
    """A plan of a set: predicted `seconds`, probability to `fit`, and `measured` seconds; None: it did not run."""

    seconds: float
    fit: float
    measured: float | None


@frozen
class Taken:
    """Plans taken out of a set, as measured time over the best less 1, and launches.

    Attributes:
        first: regret of the first that runs.
        launches: until then.
        best: regret of the best of `LAUNCHES` that run.
        in_all: launches until then.
    """

    first: float
    launches: int
    best: float
    in_all: int


def taken(plans: Sequence[Launched], order: Order) -> Taken | None:
    """Launch the plans of a set in an order; None: nothing that ran is likely to fit."""
    best = min((each.measured for each in plans if each.measured is not None), default=inf)
    launched = sorted((each for each in plans if each.fit >= 0.5), key=lambda each: order(each.seconds, each.fit))
    ran = [(count, each.measured) for count, each in enumerate(launched, 1) if each.measured is not None]
    if not ran:
        return None
    few = ran[:LAUNCHES]
    return Taken(few[0][1] / best - 1, few[0][0], min(seconds for _, seconds in few) / best - 1, few[-1][0])


def sets_of(lines: Sequence[Mapping[str, object]]) -> dict[str, list[Launched]]:
    """Priced plans by task, of tasks with plans that ran and plans that did not."""
    sets: dict[str, list[Launched]] = {}
    for line in lines:
        problem, measured = structure(line["problem"], Problem), line["measured"]
        assert isinstance(measured, Mapping)
        plan = nest.evaluate(problem)
        ran = measured.get("batch_time") if measured.get("fits", True) else None
        kernels = problem.training.kernels or ""
        each = Launched(plan.batch_time or inf, plan.fit_probability or 0.0, ran)
        sets.setdefault(f"{split(problem)[0]} {kernels}", []).append(each)
    return {task: plans for task, plans in sets.items() if len({each.measured is None for each in plans}) == 2}


def report(sets: Sequence[Sequence[Launched]]) -> list[str]:
    """Means over all sets, a line for each order."""
    lines = [f"{'launched':18}{'sets':>5}{'regret':>8}{'worst':>8}{'launches':>10}{'best of 3':>11}{'launches':>10}"]
    for name, order in ORDERS.items():
        found = [each for plans in sets if (each := taken(plans, order)) is not None]
        first, best = fmean(each.first for each in found), fmean(each.best for each in found)
        lines.append(
            f"{name:18}{len(found):5}{first:8.1%}{max(each.first for each in found):8.1%}"
            f"{fmean(each.launches for each in found):10.2f}{best:11.1%}{fmean(each.in_all for each in found):10.2f}"
        )
    return lines


def main(files: Sequence[str]) -> None:
    """Print the report on the runs of files of JSON lines."""
    lines = [json.loads(line) for file in files for line in Path(file).read_text(encoding="utf-8").splitlines()]
    print("\n".join(report([*sets_of(lines).values()])))


if __name__ == "__main__":
    main(sys.argv[1:])
