"""Sets of published plans for one task: the plan taken, and the launches until it runs.

`python -m benchmarks.fidelity.choices FILE...` prints it.

A set has plans that ran and plans that did not. Those that are as likely to fit as not are launched: three that run by
predicted time, or what `nest shortlist` says, failed launches included, until it stops or three were launched.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import fmean

from attrs import asdict, evolve, frozen

import nest
from benchmarks.fidelity.ranking import split
from benchmarks.fidelity.report import write
from nest.catalogue import TimeSpread
from nest.formulate.risk import WITHIN
from nest.io import structure
from nest.spec import Problem
from nest_calibrate.shortlist import TAKEN, Choice, ranked, spread_of

LAUNCHES = 3
"""Plans that run, or launches, before the best of them is taken."""


@frozen
class Launched:
    """A plan of a set.

    Attributes:
        seconds: predicted.
        fit: probability.
        measured: seconds; None: it did not run.
        others: predicted seconds under other values of unknown facts, by key.
    """

    seconds: float
    fit: float
    measured: float | None
    others: Mapping[str, float] = {}


Launcher = Callable[[Sequence[Launched], TimeSpread], Sequence[Launched]]
"""Plans to launch of a set, on a cluster of such a spread, in order."""


@frozen
class Taken:
    """Plans taken out of a set, as measured time over the best less 1, and launches.

    Attributes:
        first: regret of the first that runs.
        launches: until then.
        best: regret of the best of all launched.
        in_all: launches.
    """

    first: float
    launches: int
    best: float
    in_all: int


def by_time(plans: Sequence[Launched], _: TimeSpread) -> Sequence[Launched]:
    """Launch by predicted time until `LAUNCHES` plans run."""
    order = sorted(plans, key=lambda each: each.seconds)
    ran = [count for count, each in enumerate(order, 1) if each.measured is not None]
    return order[: ran[:LAUNCHES][-1]] if ran else []


def as_shortlist(plans: Sequence[Launched], usual: TimeSpread) -> Sequence[Launched]:
    """Launch what `nest shortlist` says until it stops, at most `LAUNCHES` times if one of them runs."""
    facts = sorted({key for each in plans for key in each.others})
    choices = [
        Choice(
            str(index), {TAKEN: each.seconds, **{key: each.others.get(key, each.seconds) for key in facts}}, each.fit
        )
        for index, each in enumerate(plans)
    ]
    launched: list[Launched] = []
    while len(launched) < LAUNCHES or all(each.measured is None for each in launched):
        following = ranked(choices, usual, WITHIN).following
        if following is None:
            break
        plan = plans[int(following)]
        choices[int(following)] = evolve(choices[int(following)], measured=plan.measured, failed=plan.measured is None)
        launched.append(plan)
    return launched


LAUNCHERS: Mapping[str, Launcher] = {"by time": by_time, "as nest shortlist": as_shortlist}


def taken(plans: Sequence[Launched], usual: TimeSpread, launcher: Launcher) -> Taken | None:
    """Launch the plans of a set; None: nothing that ran is likely to fit."""
    best = min((each.measured for each in plans if each.measured is not None), default=inf)
    launched = launcher([each for each in plans if each.fit >= 0.5], usual)
    ran = [(count, each.measured) for count, each in enumerate(launched, 1) if each.measured is not None]
    if not ran:
        return None
    return Taken(ran[0][1] / best - 1, ran[0][0], min(seconds for _, seconds in ran) / best - 1, len(launched))


def sets_of(lines: Sequence[Mapping[str, object]]) -> dict[str, tuple[list[Launched], TimeSpread]]:
    """Priced plans by task, of tasks with plans that ran and plans that did not, and the spread of their cluster."""
    sets: dict[str, tuple[list[Launched], TimeSpread]] = {}
    for line in lines:
        problem, measured = structure(line["problem"], Problem), line["measured"]
        assert isinstance(measured, Mapping)
        plan = nest.evaluate(problem)
        ran = measured.get("batch_time") if measured.get("fits", True) else None
        others = {fact.key: fact.batch_time for fact in plan.unknown}
        each = Launched(plan.batch_time or inf, plan.fit_probability or 0.0, ran, others)
        kernels = problem.training.kernels or ""
        sets.setdefault(f"{split(problem)[0]} {kernels}", ([], spread_of(plan)))[0].append(each)
    return {task: found for task, found in sets.items() if len({each.measured is None for each in found[0]}) == 2}


@frozen
class Means:
    """Means over sets of plans.

    Attributes:
        sets: with a plan that runs.
        first: regret of the first that runs.
        worst: the largest of these.
        launches: until then.
        best: regret of the best launched.
        in_all: launches.
        most: the largest of these.
    """

    sets: int
    first: float
    worst: float
    launches: float
    best: float
    in_all: float
    most: int


def means(sets: Sequence[tuple[Sequence[Launched], TimeSpread]]) -> dict[str, Means]:
    """Means over all sets by how plans are launched."""
    return {
        name: Means(
            len(found),
            fmean(each.first for each in found),
            max(each.first for each in found),
            fmean(each.launches for each in found),
            fmean(each.best for each in found),
            fmean(each.in_all for each in found),
            max(each.in_all for each in found),
        )
        for name, launcher in LAUNCHERS.items()
        if (found := [each for plans, usual in sets if (each := taken(plans, usual, launcher)) is not None])
    }


def report(found: Mapping[str, Means]) -> list[str]:
    """The means, a line for each way to launch."""
    header = f"{'launched':18}{'sets':>5}{'first':>8}{'worst':>8}{'launches':>10}{'best':>8}{'launches':>10}{'most':>6}"
    return [
        header,
        *(
            f"{name:18}{each.sets:5}{each.first:8.1%}{each.worst:8.1%}{each.launches:10.2f}{each.best:8.1%}"
            f"{each.in_all:10.2f}{each.most:6}"
            for name, each in found.items()
        ),
    ]


def main(given: Sequence[str] | None = None) -> None:
    """Print the report on the runs of files of JSON lines."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity.choices")
    parser.add_argument("files", type=Path, nargs="+", help="runs as JSON lines")
    parser.add_argument("--source", help="only runs of this source")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write choices.md and choices.json here")
    options = parser.parse_args(given)
    lines = [json.loads(line) for file in options.files for line in file.read_text(encoding="utf-8").splitlines()]
    kept = [line for line in lines if options.source in (None, line.get("group"))]
    found = means([*sets_of(kept).values()])
    printed = report(found)
    print("\n".join(printed))
    if options.output is not None:
        names = " ".join(path.name for path in options.files)
        command = f"python -m benchmarks.fidelity.choices {names}"
        command += f" --source {options.source}" if options.source else ""
        write(options.output, "choices", command, printed, {name: asdict(each) for name, each in found.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
