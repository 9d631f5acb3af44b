"""The command: `python -m benchmarks.paper [ARTIFACT] [--quick] [--only GROUP]... [--planner NAME]...`."""

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
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
from benchmarks.paper.cells import Cell, artifact, every, figure_5, figure_6, on_grids, table_3, today, with_added
from benchmarks.paper.measure import measured
from benchmarks.paper.plot import plotted
from benchmarks.paper.report import (
    REFERENCE,
    Results,
    added_text,
    figure_5_text,
    figure_6_text,
    gains_text,
    grids_text,
    table_3_text,
    verdict,
    write,
)
from benchmarks.scale.machine import facts
from nest.errors import InputError
from nest.hooks.registry import registry
from nest_whatif.compare import chosen_planners

ARTIFACT = "artifact"
GROUPS: dict[str, Callable[[bool], tuple[Cell, ...]] | None] = {
    "figure-5": figure_5,
    "figure-6": figure_6,
    "table-3": table_3,
    "today": today,
    "grids": on_grids,
    "added": with_added,
    ARTIFACT: None,
}
"""Groups of cells by name, in the order of `Groups`; those of the artifact are in its folder."""

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
    parser.add_argument("--only", action="append", choices=GROUPS, help="a group of cells; repeatable (all)")
    parser.add_argument("--planner", action="append", metavar="NAME", help=f"repeatable, {REFERENCE} besides (all)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="cells planned at the same time (1)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write paper.md, paper.json and plots here")
    options = parser.parse_args(given)
    groups = Groups.of(options.artifact, options.quick, options.only)
    planners = None
    if options.planner is not None:
        try:
            planners = chosen_planners((REFERENCE, *options.planner), registry())
        except InputError as error:
            parser.error(str(error))
    if not groups.cells:
        parser.error("there is no such cell; the artifact's are in its folder.")
    outcomes = []
    for outcome in measured(groups.cells, options.jobs, planners):
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
        if groups.by_devices and groups.by_micro_batch:
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
        grids: a mesh and a torus.
        added: strategies that share a sequence.
        given: Figure 5 on the artifact's inputs, as published and repaired.
    """

    by_devices: tuple[Cell, ...]
    by_micro_batch: tuple[Cell, ...]
    on_gpus: tuple[Cell, ...]
    today: tuple[Cell, ...]
    grids: tuple[Cell, ...]
    added: tuple[Cell, ...]
    given: tuple[tuple[Cell, ...], ...]

    @classmethod
    def of(cls, folder: Path | None, quick: bool, only: Collection[str] | None = None) -> "Groups":
        """Cells of the groups in `only` (None: all), with the artifact's where its folder is given."""
        wanted = GROUPS if only is None else only
        found = (make(quick) if name in wanted else () for name, make in GROUPS.items() if make is not None)
        given = () if folder is None or ARTIFACT not in wanted else (artifact(folder), artifact(folder, REPAIRED))
        return cls(*found, given)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Each once."""
        own = (self.by_devices, self.by_micro_batch, self.on_gpus, self.today, self.grids, self.added)
        return every((*own, *self.given))

    def figures(self, results: Results) -> list[tuple[str, str]]:
        """Titles and tables of the groups that have cells."""
        by_devices, by_micro_batch, on_gpus = self.by_devices, self.by_micro_batch, self.on_gpus
        tables: list[tuple[str, Callable[[Results, Sequence[Cell]], str], Sequence[Cell]]] = [
            ("Figure 5: TPUv4 fat-tree, micro-batch 1", figure_5_text, by_devices),
            ("Figure 5 beside the paper's", beside_figure_5, by_devices),
            ("Where 2.43 comes from", headline_text, by_devices),
            ("Figure 6: TPUv4 fat-tree, by micro-batch", figure_6_text, by_micro_batch),
            ("Figure 6 beside the paper's", beside_figure_6, by_micro_batch),
            ("Table 3: H100 spine-leaf, micro-batch 1", table_3_text, on_gpus),
            ("Table 3 beside the artifact's", beside_table_3, on_gpus),
            *((title, figure_5_text, group) for title, group in zip(INPUTS, self.given, strict=False)),
            ("Models of today", today_text, self.today),
            ("Mesh and torus", grids_text, self.grids),
            ("What an added strategy gains", added_text, self.added),
            ("Memory", memory_text, by_devices),
        ]
        found = [(title, text(results, cells)) for title, text, cells in tables if cells]
        effort = [results.of(cell) for cell in every((by_devices, on_gpus))]
        return [*found, ("Search time: median, longest", effort_text(effort))] if effort else found


if __name__ == "__main__":
    sys.exit(main())
