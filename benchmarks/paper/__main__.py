"""The command: `python -m benchmarks.paper [ARTIFACT] [--quick] [--output FOLDER]`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper.cells import artifact, every, figure_5, figure_6, table_3
from benchmarks.paper.measure import measured
from benchmarks.paper.plot import plotted
from benchmarks.paper.report import (
    Results,
    figure_5_text,
    figure_6_text,
    gains_text,
    table_3_text,
    verdict,
    write,
)
from benchmarks.scale.machine import facts

REPAIRED = "__seconds"
INPUTS = (
    "Figure 5 on the artifact's solver inputs",
    "Figure 5 on the artifact's solver inputs, compute and communication both in seconds",
)


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; 1 when a baseline beats our plan, which is a bug of ours."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper", description="The NEST paper's figures, measured by us."
    )
    parser.add_argument(
        "artifact", type=Path, nargs="?", help="folder with the artifact's solver inputs, for Figure 5 on these, too"
    )
    parser.add_argument("--quick", action="store_true", help="a few small cells only")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write paper.md, paper.json and plots here")
    options = parser.parse_args(given)
    by_devices, by_micro_batch, on_gpus = (each(options.quick) for each in (figure_5, figure_6, table_3))
    given_inputs = (
        () if options.artifact is None else (artifact(options.artifact), artifact(options.artifact, REPAIRED))
    )
    cells = every((by_devices, by_micro_batch, on_gpus, *given_inputs))
    outcomes = []
    for outcome in measured(cells):
        outcomes.append(outcome)
        print(f"{len(outcomes)} of {len(cells)}: {outcome.cell.name}, {outcome.seconds:.1f} s", file=sys.stderr)
    results = Results(outcomes)
    figures = [
        ("Figure 5: TPUv4 fat-tree, micro-batch 1", figure_5_text(results, by_devices)),
        ("Figure 6: TPUv4 fat-tree, by micro-batch", figure_6_text(results, by_micro_batch)),
        ("Table 3: H100 spine-leaf, micro-batch 1", table_3_text(results, on_gpus)),
    ]
    for title, group in zip(INPUTS, given_inputs, strict=False):
        if group:
            figures.append((title, figure_5_text(results, group)))
    for title, body in (*figures, ("Gains", gains_text(results))):
        print(f"{title}\n\n{body}\n")
    print(verdict(results))
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        write(options.output, results, figures, facts())
        print(plotted(results, options.output, by_devices, by_micro_batch))
    return 1 if any(each.refuted for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
