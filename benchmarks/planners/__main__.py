"""The command: `python -m benchmarks.planners`. benchmarks/planners/README.md says what it shows."""

import argparse
import json
import sys
from collections.abc import Sequence

from attrs import asdict

from benchmarks.planners.run import planners, rows
from benchmarks.planners.table import summaries, text
from benchmarks.planners.tracks import TRACKS, tasks
from nest.errors import InputError
from nest.report.text.layout import WIDE, paragraph

TIME_LIMIT = 60.0
"""Seconds that a program has for a problem, unless `--time-limit` says otherwise."""


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; 1 when a plan is faster than the optimum, so that the benchmark is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planners", description="Step times of planners over the known optimum."
    )
    parser.add_argument("--track", action="append", choices=TRACKS, help="may be repeated; left out, all")
    parser.add_argument(
        "--planner", action="append", metavar="NAME", help="nest or a planner; may be repeated; left out, all"
    )
    parser.add_argument(
        "--adapter", action="append", metavar="NAME=COMMAND", help="a program that reads a problem, writes a plan"
    )
    parser.add_argument(
        "--time-limit", type=_seconds, default=TIME_LIMIT, metavar="S", help="seconds for each problem (60)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    options = parser.parse_args(given)
    try:
        chosen = planners(options.planner or (), options.adapter or (), options.time_limit)
    except InputError as error:
        parser.error(str(error))
    found = {track: list(rows(chosen, tasks(track))) for track in dict.fromkeys(options.track or TRACKS)}
    if options.json:
        shown = {track: {"planners": summaries(own), "rows": list(map(asdict, own))} for track, own in found.items()}
        print(json.dumps(shown, indent=1))
    else:
        parts = [f"{track}: {TRACKS[track]}\n\n{text(own, WIDE)}" for track, own in found.items()]
        print("\n\n".join(parts))
    wrong = [row for own in found.values() for row in own if row.refutes]
    for row in wrong:
        print(
            paragraph(f"{row.planner}, {row.problem}: faster than the optimum; please report it.", WIDE),
            file=sys.stderr,
        )
    return 1 if wrong else 0


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError("a time limit is a number of seconds above 0.")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
