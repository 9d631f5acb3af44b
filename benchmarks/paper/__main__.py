"""The command: `python -m benchmarks.paper [ARTIFACT] [--quick] [--output FOLDER]`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from benchmarks.paper.beside import (
    beside_figure_5,
    beside_figure_6,
    beside_table_3,
    effort_text,
    headline_text,
    memory_text,
    today_text,
)
from benchmarks.paper.cells import Cell, artifact, every, figure_5, figure_6, table_3, today
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
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cells planned at the same time (1)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write paper.md, paper.json and plots here")
    options = parser.parse_args(given)
    groups = Groups.of(options.artifact, options.quick)
    outcomes = []
    for outcome in measured(groups.cells, options.jobs):
        outcomes.append(outcome)
        print(f"{len(outcomes)} of {len(groups.cells)}: {outcome.cell.name}, {outcome.seconds:.1f} s", file=sys.stderr)
    results = Results(outcomes)
    figures = groups.figures(results)
    for title, body in (*figures, ("Gains", gains_text(results))):
        print(f"{title}\n\n{body}\n")
    print(verdict(results))
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        write(options.output, results, figures, facts())
        print(plotted(results, options.output, groups.by_devices, groups.by_micro_batch))
    return 1 if any(each.refuted for each in outcomes) else 0


@frozen
class Groups:
    """The cells of each figure.

    Attributes:
        by_devices: Figure 5.
        by_micro_batch: Figure 6.
        on_gpus: Table 3.
        today: models of today.
        given: Figure 5 on the artifact's inputs, as published and repaired.
    """

    by_devices: tuple[Cell, ...]
    by_micro_batch: tuple[Cell, ...]
    on_gpus: tuple[Cell, ...]
    today: tuple[Cell, ...]
    given: tuple[tuple[Cell, ...], ...]

    @classmethod
    def of(cls, folder: Path | None, quick: bool) -> "Groups":
        """All of them, those of the artifact where its folder is given."""
        given = () if folder is None else (artifact(folder), artifact(folder, REPAIRED))
        return cls(figure_5(quick), figure_6(quick), table_3(quick), today(quick), given)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Each once."""
        return every((self.by_devices, self.by_micro_batch, self.on_gpus, self.today, *self.given))

    def figures(self, results: Results) -> list[tuple[str, str]]:
        """Titles and tables."""
        by_devices, by_micro_batch, on_gpus = self.by_devices, self.by_micro_batch, self.on_gpus
        found = [
            ("Figure 5: TPUv4 fat-tree, micro-batch 1", figure_5_text(results, by_devices)),
            ("Figure 5 beside the paper's", beside_figure_5(results, by_devices)),
            ("Where 2.43 comes from", headline_text(results, by_devices)),
            ("Figure 6: TPUv4 fat-tree, by micro-batch", figure_6_text(results, by_micro_batch)),
            ("Figure 6 beside the paper's", beside_figure_6(results, by_micro_batch)),
            ("Table 3: H100 spine-leaf, micro-batch 1", table_3_text(results, on_gpus)),
            ("Table 3 beside the artifact's", beside_table_3(results, on_gpus)),
        ]
        found += [
            (title, figure_5_text(results, group)) for title, group in zip(INPUTS, self.given, strict=False) if group
        ]
        effort = [results.of(cell) for cell in every((by_devices, on_gpus))]
        return [
            *found,
            ("Models of today", today_text(results, self.today)),
            ("Memory", memory_text(results, by_devices)),
            ("Search time: median, longest", effort_text(effort)),
        ]


if __name__ == "__main__":
    sys.exit(main())
