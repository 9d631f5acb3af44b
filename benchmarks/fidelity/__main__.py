"""The command: `python -m benchmarks.fidelity [RUNS...] [--output FOLDER] [--ablation | --sources]`."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import asdict

from benchmarks.fidelity.ablation import ablation
from benchmarks.fidelity.figures import figures, peaks_of
from benchmarks.fidelity.plot import plotted
from benchmarks.fidelity.predictions import table
from benchmarks.fidelity.report import document, effects_text, text, write
from benchmarks.fidelity.runs import priced, read_runs
from benchmarks.fidelity.sources import predictions, source_errors
from benchmarks.fidelity.sources import text as sources_text
from benchmarks.fidelity.spread import spread_text
from benchmarks.fidelity.terms import TERMS
from nest.errors import InputError
from nest.formulate.shard import chosen
from nest.hooks.protocols import CostModel
from nest.hooks.registry import registry
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
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write fidelity.md, .json and .svg here")
    parser.add_argument("--ablation", action="store_true", help="switch each term of the cost model off in turn, too")
    parser.add_argument("--only", nargs="+", metavar="TERM", help="terms to switch off (all)")
    parser.add_argument(
        "--sources",
        nargs="?",
        const="sources",
        metavar="NAME",
        help="leave out whole sources in turn, and nothing else; write NAME.md and .json (sources)",
    )
    parser.add_argument(
        "--untimed", nargs="+", default=[], metavar="SOURCE", help="sources whose times are not to be taken"
    )
    parser.add_argument(
        "--spread", type=Path, metavar="FILE", help="with --sources: write the spreads of errors to this file, too"
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


def left_out(
    taken: Sequence[MeasuredRun],
    refused: Mapping[str, int],
    untimed: int,
    costs: CostModel,
    options: argparse.Namespace,
) -> int:
    """Leave out whole sources in turn, print and write what comes of it."""
    found = source_errors(predictions(taken, costs, tell), refused, untimed)
    tell("")
    printed = sources_text(found)
    print("\n".join(printed))
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        write(options.output, options.sources, f"{called(options)} --sources", printed, asdict(found), [])
    if options.spread is not None:
        command = f"{called(options)} --sources: {found.priced} runs of {len(found.rows) - 1} sources"
        options.spread.write_text(spread_text(found.spreads, command))
    return 0


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; 2 when the runs cannot be read."""
    options = arguments(given)
    known = registry()
    costs = chosen(known.cost_models(), None, "costs", "cost model")
    try:
        runs = read_runs(options.runs)
        timed = [line for line in runs if (line.measurement.group or "runs") not in options.untimed]
        taken, refused = priced(timed, known, tell)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    if options.sources is not None:
        return left_out(taken, refused, len(runs) - len(timed), costs, options)
    seen = table(taken, costs, tell, options.folds)
    tell("pricing memory")
    found = figures(seen, peaks_of(taken), refused)
    tell("")
    printed = text(found)
    print("\n".join(printed))
    command = called(options)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        plots, told = plotted(seen, options.output)
        print(told, file=sys.stderr)
        write(options.output, "fidelity", command, printed, document(found), plots)
    if options.ablation:
        terms = [each for each in TERMS if options.only is None or each.name in options.only]
        effects = ablation(seen, costs, terms, tell)
        tell("")
        printed = effects_text(effects)
        print("\n" + "\n".join(printed))
        if options.output is not None:
            write(options.output, "ablation", f"{command} --ablation", printed, [asdict(each) for each in effects], [])
    return 0


if __name__ == "__main__":
    sys.exit(main())
