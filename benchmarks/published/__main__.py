"""The command: `python -m benchmarks.published [NAME...] [--time-limit S] [--output FILE]`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.published.measure import measured
from benchmarks.published.report import differences, optima, page, prices
from benchmarks.published.runs import published
from benchmarks.scale.machine import facts
from nest.errors import InputError

LIMIT = 120.0
"""Seconds a search may take."""


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; 2 when there is no run of a name."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.published", description="Published training runs beside what nest says of them."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="runs of benchmarks/published/runs.toml (all)")
    parser.add_argument("--time-limit", type=float, default=LIMIT, metavar="S", help=f"of each search ({LIMIT:.0f})")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write what was found as Markdown")
    options = parser.parse_args(given)
    try:
        runs = published(options.names)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    machine = facts()
    outcomes = []
    for run in runs:
        outcomes.append(measured(run, options.time_limit))
        print(f"{len(outcomes)} of {len(runs)}: {run.title}, {outcomes[-1].seconds:.1f} s", file=sys.stderr)
    print("\n".join([*prices(outcomes), "", *optima(outcomes)]))
    for outcome in outcomes:
        print("\n".join(["", *differences(outcome)]))
    if options.output is not None:
        command = " ".join(["python -m benchmarks.published", *options.names, f"--time-limit {options.time_limit:g}"])
        options.output.write_text(page(outcomes, command, machine), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
