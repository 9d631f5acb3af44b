"""The command: `python -m benchmarks.scale DATA [--only NAME...] [--against COMMIT] [--output FOLDER] [--list]`.

`--only accelerators` measures what each accelerator gains instead, `--accelerators NAME...` some of them.
"""

import argparse
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.scale.accelerators import ACCELERATORS
from benchmarks.scale.beside import all_timed
from benchmarks.scale.command import YARDSTICK, Command, Timing
from benchmarks.scale.commands import commands
from benchmarks.scale.gains import all_gains, complaints, gains_page, rows
from benchmarks.scale.growth import grown
from benchmarks.scale.machine import facts
from benchmarks.scale.measure import Measure, Series
from benchmarks.scale.outcome import Outcome, carried_out
from benchmarks.scale.plot import plotted
from benchmarks.scale.report import (
    COMMAND_HEADINGS,
    COMMAND_WIDTHS,
    HEADINGS,
    cells,
    closing,
    command_cells,
    line,
    write,
)
from benchmarks.scale.suite import suite

GAINS = "accelerators"
"""The name of what is measured for `--only` alone: it takes hours."""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, parsed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description="Measures planning against limits.")
    parser.add_argument(
        "data", type=Path, help="folder with artifact/, dag/, small/ and piper/; absent ones are skipped"
    )
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="NAME", help="names, beginnings or patterns of names"
    )
    parser.add_argument("--against", metavar="COMMIT", help="time commands alone, by turns here and in this commit")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write scale.md, scale.json and plots here")
    parser.add_argument("--list", action="store_true", help="list the measures and measure nothing")
    parser.add_argument("--accelerators", nargs="+", default=["*"], metavar="NAME", help="those that are switched off")
    parser.add_argument("--rows", nargs="+", default=["*"], metavar="NAME", help="what they are switched off on")
    parser.add_argument("--repeat", type=positive, default=3, metavar="N", help="times each is measured (3)")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="seconds a process may take (120)")
    return parser.parse_args(given)


def positive(text: str) -> int:
    """A count of at least one."""
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return count


def wanted(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is, begins with or matches one of the patterns."""
    return any(name.startswith(pattern) or fnmatch(name, pattern) for pattern in patterns)


def measured(measures: Sequence[Measure | Series], times: int, timeout: float) -> list[Outcome]:
    """Carry the measures out one after the other, printing each as it ends."""
    outcomes = []
    with TemporaryDirectory() as folder:
        for measure in measures:
            if isinstance(measure, Series):
                outcomes.append(grown(measure, Path(folder), times, timeout))
            else:
                outcomes.append(carried_out(measure, Path(folder), times, timeout))
            print(line(cells(outcomes[-1])), flush=True)
    return outcomes


def gained(options: argparse.Namespace) -> int:
    """Measure what accelerators gain; 1 when one changes an answer or gains too little on all rows, 2 without any."""
    names = [name for name in ACCELERATORS if wanted(name, options.accelerators)]
    asked = [row for row in rows(options.data) if wanted(row.name, options.rows)]
    if not names or not asked:
        print("there is no such accelerator or row; --list shows them", file=sys.stderr)
        return 2
    if options.list:
        for row in asked:
            print(f"{row.name:26}{row.what}")
        for name in names:
            print(f"{name:26}{ACCELERATORS[name].what}")
        return 0
    machine = facts()
    with TemporaryDirectory() as folder:
        gains = all_gains(asked, names, Path(folder), options.timeout, lambda told: print(told, flush=True))
    page = gains_page(machine, gains, [row.name for row in asked])
    print(page)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "accelerators.md").write_text(page, encoding="utf-8")
    return 1 if complaints(gains) else 0


def main() -> int:
    """Run the command; 1 when a measure fails, 2 when there is none of the wanted names."""
    options = arguments()
    if options.only == [GAINS]:
        return gained(options)
    measures, skipped = suite(options.data)
    for told in skipped:
        print(told, file=sys.stderr)
    chosen = [each for each in measures if wanted(each.name, options.only) and options.against is None]
    every = commands(options.data)
    asked = [each for each in every if wanted(each.name, options.only)]
    if not chosen and not asked:
        print(f"no measure is called {' or '.join(options.only)}; --list shows the names", file=sys.stderr)
        return 2
    if options.list:
        for measure in chosen:
            limit = measure.limit.told() if isinstance(measure, Measure) else f"slope {measure.steepest or '-'}"
            print(f"{measure.name:26}{limit:38}{measure.what}")
        for command in asked:
            print(f"{command.name:26}{command.limit:38}{command.what}")
        return 0
    machine = facts() if options.against is None else {**facts(), "against": options.against}
    print("\n".join(f"{name}: {value}" for name, value in machine.items()))
    if chosen:
        print("\n" + line(HEADINGS))
    outcomes = measured(chosen, options.repeat, options.timeout)
    try:
        timings = _timed(asked, every, options)
    except ValueError as error:
        print(f"--against {options.against}: {error}", file=sys.stderr)
        return 2
    print("\n" + "\n".join(closing(outcomes, timings)))
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        plots, told = plotted(outcomes, options.output)
        print(told)
        write(options.output, machine, outcomes, plots, timings)
    return 1 if any(each.failures for each in (*outcomes, *timings)) else 0


def _timed(asked: Sequence[Command], every: Sequence[Command], options: argparse.Namespace) -> list[Timing]:
    """Time the commands, the yardstick first, printing each as it ends; nothing where none is asked for."""
    if not asked:
        return []
    yardstick = next(each for each in every if each.name == YARDSTICK)
    print("\n" + line(COMMAND_HEADINGS, COMMAND_WIDTHS))
    return all_timed(
        [yardstick, *(each for each in asked if each is not yardstick)],
        options.repeat,
        options.timeout,
        options.against,
        lambda timing: print(line(command_cells(timing), COMMAND_WIDTHS), flush=True),
    )


if __name__ == "__main__":
    sys.exit(main())
