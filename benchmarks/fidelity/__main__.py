"""The command: `python -m benchmarks.fidelity [RUNS...] [--output FOLDER] [--nested | ...]`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy
from attrs import asdict

from benchmarks.fidelity.ablation import ablation
from benchmarks.fidelity.figures import figures, peaks_of
from benchmarks.fidelity.joint import calibrated, joint
from benchmarks.fidelity.nested import nested, strangers
from benchmarks.fidelity.nested import text as nested_text
from benchmarks.fidelity.own_runs import own_lines, without_calibration
from benchmarks.fidelity.predictions import table
from benchmarks.fidelity.report import effects_text, text, write
from benchmarks.fidelity.runs import by_published_figures, priced, read_runs
from benchmarks.fidelity.spread import spread_text
from benchmarks.fidelity.terms import TERMS
from nest.errors import InputError
from nest.formulate.shard import chosen
from nest.hooks.protocols import CostModel
from nest.hooks.registry import registry
from nest.io import write_text
from nest_calibrate.entries import calibration_text, file_name
from nest_calibrate.generations import FOLDS, MeasuredRun

PUBLISHED = Path(__file__).with_name("published.jsonl")
"""The small table that comes with the project."""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, parsed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fidelity", description="Compares predicted with measured training runs."
    )
    parser.add_argument(
        "runs", type=Path, nargs="*", default=[PUBLISHED], help="measured runs as JSON lines (default: published.jsonl)"
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write fidelity.md and .json here")
    parser.add_argument("--ablation", action="store_true", help="switch each term of the cost model off in turn, too")
    parser.add_argument("--only", nargs="+", metavar="TERM", help="terms to switch off (all)")
    parser.add_argument(
        "--nested", action="store_true", help="leave out whole sources of fits and of all choices, and nothing else"
    )
    parser.add_argument(
        "--uncalibrated",
        nargs="+",
        metavar="SOURCE",
        help="predict these sources by published figures of their devices and by own runs, and nothing else",
    )
    parser.add_argument(
        "--calibrate", type=Path, metavar="FOLDER", help="write the calibrations of generations here, and nothing else"
    )
    parser.add_argument(
        "--untimed", nargs="+", default=[], metavar="SOURCE", help="sources whose times are not to be taken"
    )
    parser.add_argument(
        "--spread", type=Path, metavar="FILE", help="with --nested: write the spreads of errors to this file, too"
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, metavar="N", help="with --nested: at a time (all cores)"
    )
    parser.add_argument("--folds", type=int, default=FOLDS, metavar="N", help=f"parts held out in turn ({FOLDS})")
    return parser.parse_args(given)


def tell(what: str) -> None:
    """Say on a terminal what is being done, over what was said before."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{what:60}\r")
        sys.stderr.flush()


def called(options: argparse.Namespace) -> str:
    """The command line that gives the figures of these runs."""
    files = [] if options.runs == [PUBLISHED] else [str(each) for each in options.runs]
    left = ["--untimed", *options.untimed] if options.untimed else []
    return " ".join(["python -m benchmarks.fidelity", *files, *left])


def calibrate(taken: Sequence[MeasuredRun], costs: CostModel, options: argparse.Namespace) -> int:
    """Write what is fitted to all runs, with the errors where each source is left out."""
    tell("fitting")
    fit = joint(taken, costs).fitted()
    sources = numpy.array([each.run.group or "runs" for each in taken])
    left_out = numpy.zeros(len(taken))
    for name in sorted(set(sources.tolist())):
        tell(f"leaving out {name}")
        left_out[sources == name] = fit.without(sources == name)[1][sources == name]
    tell("")
    files = " ".join(
        [*(path.name for path in options.runs), *(["--untimed", *options.untimed] if options.untimed else [])]
    )
    for found in calibrated(fit, taken, left_out, f"python -m benchmarks.fidelity {files} --calibrate"):
        write_text(options.calibrate / file_name(found.name), calibration_text(found))
        print(found.name, found.sources[0])
    return 0


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; 2 when the runs cannot be read."""
    options = arguments(given)
    known = registry()
    costs = chosen(known.cost_models(), None, "costs", "cost model")
    try:
        runs = read_runs(options.runs)
        timed = [line for line in runs if (line.measurement.group or "runs") not in options.untimed]
        if options.uncalibrated:
            timed = [line for line in timed if line.measurement.group in options.uncalibrated]
        taken, refused = priced(timed, known, tell)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    if options.calibrate is not None:
        return calibrate(taken, costs, options)
    if options.uncalibrated:
        measured = numpy.array([each.run.measured.batch_time for each in taken])
        bare = strangers(taken, numpy.log(measured / by_published_figures(taken, known)))
        tell("")
        own = without_calibration(bare)
        printed = own_lines(own)
        print("\n".join(printed))
        if options.output is not None:
            command = f"{called(options)} --uncalibrated {' '.join(options.uncalibrated)}"
            write(options.output, "uncalibrated", command, printed, asdict(own))
        return 0
    if options.nested:
        bare = by_published_figures(taken, known)
        together = nested(taken, bare, costs, tell, processes=options.processes)
        tell("")
        printed = nested_text(together)
        print("\n".join(printed))
        if options.output is not None:
            write(options.output, "nested", f"{called(options)} --nested", printed, asdict(together))
        if options.spread is not None:
            seen = f"{len(taken)} runs of {len(together.rows)} sources"
            command = f"{called(options)} --nested --spread: {seen}"
            options.spread.write_text(spread_text(together.spreads, command))
        return 0
    seen = table(taken, costs, tell, options.folds)
    tell("pricing memory")
    found = figures(seen, peaks_of(taken), refused)
    tell("")
    printed = text(found)
    print("\n".join(printed))
    command = called(options)
    if options.output is not None:
        write(options.output, "fidelity", command, printed, asdict(found))
    if options.ablation:
        terms = [each for each in TERMS if options.only is None or each.name in options.only]
        effects = ablation(seen, costs, terms, tell)
        tell("")
        printed = effects_text(effects)
        print("\n" + "\n".join(printed))
        if options.output is not None:
            write(options.output, "ablation", f"{command} --ablation", printed, [asdict(each) for each in effects])
    return 0


if __name__ == "__main__":
    sys.exit(main())
