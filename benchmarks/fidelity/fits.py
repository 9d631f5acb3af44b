"""Probability to fit, calibrated on published sets with plans that ran and plans that ran out of memory.

`python -m benchmarks.fidelity.fits FILE... [--except TEXT] [--catalogue FILE] [--output FOLDER]` prints it.

Each family of runs is predicted by the error of its stack (`nest_calibrate.memory.of_stacks`), fitted without that
family. Published runs are else survivors: nobody lists the plans that failed.
"""

import argparse
import sys
from collections.abc import Sequence
from math import sqrt
from pathlib import Path

from attrs import asdict, frozen

from benchmarks.fidelity.report import write
from nest.catalogue import estimate_error
from nest.formulate.risk import RISK, likely_enough
from nest.hooks.registry import registry
from nest.instance import EstimateError
from nest.io import write_text
from nest_calibrate.memory import Verdict, both_verdicts, error_text, evaluated, of_stacks, read_runs, verdict

PARTS = 3
"""Parts of the stated probabilities, of equal width."""

SOURCES = (
    "nest calibrate memory measured.jsonl measured_2.jsonl out_of_memory.jsonl: likelihood of 579 runs, 12 sources "
    "alike",
)
"""Origin of the error of all stacks, which this command does not fit."""


@frozen
class Part:
    """Plans whose stated probability to fit lies from `low` to `high`.

    Attributes:
        plans: number of them.
        said: their mean probability.
        ran: share that ran.
        error: standard error of that share, if the probabilities are true.
    """

    low: float
    high: float
    plans: int
    said: float
    ran: float
    error: float


@frozen
class Calibration:
    """How true stated probabilities are.

    Attributes:
        parts: plans by stated probability.
        brier: mean of `(probability - 1)^2` over plans that ran and `probability^2` over those that failed (Brier,
            Monthly Weather Review 78, 1950).
        refused: plans that ran, said to fail at even odds.
        promised: plans that failed, said to fit.
        unsearched: plans that ran, less likely to fit than searches require (`nest.formulate.risk.RISK`).
        admitted: plans that failed, as likely to fit as they require.
    """

    parts: tuple[Part, ...]
    brier: float
    refused: int
    promised: int
    unsearched: int
    admitted: int


@frozen
class Fits:
    """Probabilities to fit by the error of all stacks, and by that of each stack with families left out.

    Attributes:
        former: by `nest.catalogue.estimate_error` of all stacks.
        left_out: by the error of the stack, fitted without the family.
        stacks: errors fitted to all runs.
        ran: plans that ran.
        failed: plans that ran out of memory.
        families: of runs.
        groups: of runs.
    """

    former: Calibration
    left_out: Calibration
    stacks: dict[str, EstimateError]
    ran: int
    failed: int
    families: int
    groups: int


def calibration(said: Sequence[float], ran: Sequence[bool]) -> Calibration:
    """How true the probabilities `said` of plans are that `ran` or failed."""
    plans = list(zip(said, ran, strict=True))
    parts = []
    for index in range(PARTS):
        low, high = index / PARTS, (index + 1) / PARTS
        its = [plan for plan in plans if low <= plan[0] < high or plan[0] == high == 1]
        if its:
            error = sqrt(sum(each * (1 - each) for each, _ in its)) / len(its)
            count = len(its)
            parts.append(Part(low, high, count, sum(p for p, _ in its) / count, sum(r for _, r in its) / count, error))
    return Calibration(
        tuple(parts),
        sum((each - happened) ** 2 for each, happened in plans) / len(plans),
        sum(happened and each < 0.5 for each, happened in plans),
        sum(not happened and each >= 0.5 for each, happened in plans),
        sum(happened and not likely_enough(each) for each, happened in plans),
        sum(not happened and likely_enough(each) for each, happened in plans),
    )


def fits(seen: Sequence[Verdict], families: Sequence[str], former: EstimateError) -> Fits:
    """Compare `former` with errors of stacks, each family predicted by a fit without it.

    Args:
        seen: runs of sources that list failures.
        families: of each run.
        former: error of all stacks, where every fit begins.
    """
    runs, left_out = list(zip(seen, families, strict=True)), {}
    for name in sorted(set(families)):
        without = of_stacks([each for each, family in runs if family != name], former)
        for index, (each, family) in enumerate(runs):
            if family == name:
                left_out[index] = without.get(each.stack or "", former).within(each.room / each.estimate)
    ran = [each.ran for each in seen]
    return Fits(
        calibration([former.within(each.room / each.estimate) for each in seen], ran),
        calibration([left_out[index] for index in range(len(seen))], ran),
        of_stacks(seen, former),
        sum(ran),
        len(ran) - sum(ran),
        len(set(families)),
        len({each.group for each in seen}),
    )


def lines(found: Fits) -> list[str]:
    """The report: thirds of the stated probability, said against ran, then scores."""
    rows = [
        f"{found.ran} plans ran and {found.failed} ran out of memory: {found.families} families, {found.groups} sources"
    ]
    for name, each in (("all stacks", found.former), ("own stack, family left out", found.left_out)):
        rows.append(f"{name}: Brier {each.brier:.4f}, refused {each.refused}, promised {each.promised}")
        rows.append(f"  at {1 - RISK:.0%}: refused {each.unsearched}, promised {each.admitted}")
        rows += [
            f"  {part.low:.2f} to {part.high:.2f}: {part.plans:3} plans, said {part.said:.3f}, ran {part.ran:.3f} "
            f"(standard error {part.error:.3f}, {(part.ran - part.said) / part.error:+.1f} of them)"
            for part in each.parts
        ]
    return rows + [f"{name}: median {each.median:.3f}, spread {each.spread:.3f}" for name, each in found.stacks.items()]


def main(given: Sequence[str] | None = None) -> None:
    """Print the report on the runs of files of JSON lines."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity.fits")
    parser.add_argument("files", type=Path, nargs="+", help="runs as JSON lines")
    parser.add_argument("--except", dest="left", metavar="TEXT", help="leave out runs with this text in their id")
    parser.add_argument("--catalogue", type=Path, metavar="FILE", help="write the errors of stacks to this file")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write fits.md and fits.json here")
    options = parser.parse_args(given)
    runs = read_runs(options.files)
    failed = {each.measurement.group for each in runs if each.measurement.measured.fits is False}
    kept = [each for each in runs if each.measurement.group in failed]
    kept = [each for each in kept if options.left is None or options.left not in each.measurement.id]
    plans = list(evaluated(kept, registry()))
    seen = [verdict(run, plan, whole.training.stack) for run, whole, plan in plans]
    families = {id(each): run.family for each, (run, _, _) in zip(seen, plans, strict=True)}
    both = both_verdicts(seen)
    found = fits(both, [families[id(each)] for each in both], estimate_error())
    printed = lines(found)
    print("\n".join(printed))
    names = " ".join(path.name for path in options.files)
    command = f"python -m benchmarks.fidelity.fits {names}" + (f" --except={options.left}" if options.left else "")
    if options.catalogue is not None:
        of_each = f"stacks: {command}: likelihood of {len(both)} runs of {found.groups} sources with failures"
        write_text(options.catalogue, error_text(estimate_error(), [*SOURCES, of_each], found.stacks))
    if options.output is not None:
        write(options.output, "fits", command, printed, asdict(found))


if __name__ == "__main__":
    main(sys.argv[1:])
