"""The figures as tables, and what they say of the baselines."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.paper.cells import Cell
from benchmarks.paper.measure import EQUAL, OURS, Outcome
from nest.io import write_files
from nest.report.text.layout import table
from nest.units import format_bytes

REFERENCE = "manual"
"""The baseline that throughputs are divided by, as in the paper."""


class Results:
    """Outcomes by cell."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = tuple(outcomes)
        self._by_cell = {each.cell: each for each in outcomes}
        self.planners = tuple(row.planner for row in outcomes[0].rows)

    def of(self, cell: Cell) -> Outcome:
        """What was found for a cell."""
        return self._by_cell[cell]


def base_of(results: Results, cells: Sequence[Cell], model: str) -> float | None:
    """The throughput that a model's shares are over: the reference's in the first cell in which it has a plan."""
    same = [results.of(cell).throughput(REFERENCE) for cell in cells if cell.model == model]
    return next((each for each in same if each), None)


def figure_5_text(results: Results, cells: Sequence[Cell]) -> str:
    """Throughput by devices, over the reference's at the smallest size at which that has a plan that fits."""
    bases = {cell.model: base_of(results, cells, cell.model) for cell in cells}
    return _by_size(results, "devices", [(cell, cell.devices, bases[cell.model]) for cell in cells])


def figure_6_text(results: Results, cells: Sequence[Cell]) -> str:
    """Throughput by micro-batch, over the reference's with the smallest micro-batches that have a plan."""
    bases = {cell.model: base_of(results, cells, cell.model) for cell in cells}
    return _by_size(results, "micro-batch", [(cell, cell.micro_batch, bases[cell.model]) for cell in cells])


def table_3_text(results: Results, cells: Sequence[Cell]) -> str:
    """Throughput over the reference's in the same cell."""
    bases = [results.of(cell).throughput(REFERENCE) for cell in cells]
    return _by_size(results, "devices", [(cell, cell.devices, base) for cell, base in zip(cells, bases, strict=True)])


def _by_size(results: Results, size: str, found: Sequence[tuple[Cell, int, float | None]]) -> str:
    rows = [[cell.model, str(at), *_shares(results.of(cell), base)] for cell, at, base in found]
    return table(("model", size, *results.planners), rows, range(1, 2 + len(results.planners)))


def grids_text(results: Results, cells: Sequence[Cell]) -> str:
    """Samples per second of our plan on grids, and throughput of each planner over ours on the same network."""
    rows = []
    for cell in cells:
        outcome = results.of(cell)
        ours = outcome.throughput(OURS)
        rows.append([cell.model, cell.cluster, "-" if ours is None else f"{ours:.4g}", *_shares(outcome, ours)])
    return table(("model", "network", "samples/s", *results.planners), rows, range(2, 3 + len(results.planners)))


def added_text(results: Results, cells: Sequence[Cell]) -> str:
    """Each planner's throughput with a strategy over its own without."""
    plain = {(cell.model, cell.sequence): results.of(cell) for cell in cells if cell.added is None}
    rows = []
    for cell in cells:
        if cell.added is not None:
            outcome, without = results.of(cell), plain[cell.model, cell.sequence]
            gains = []
            for name in results.planners:
                now, before = outcome.throughput(name), without.throughput(name)
                gains.append(f"{now / before:.3f}" if now and before else "-")
            rows.append([cell.model, str(cell.sequence), cell.added, *gains, outcome.rows[0].decisions])
    header = ("model", "tokens", "strategy", *results.planners, "decisions of nest")
    return table(header, rows, (1, *range(3, 3 + len(results.planners))))


def gains_text(results: Results) -> str:
    """By network and baseline: how often ours is as fast, how much faster else, how often the baseline has no plan.

    The artifact's inputs are counted apart: there hardly any communication counts.
    """
    groups: dict[str, list[Outcome]] = {}
    for each in results.outcomes:
        groups.setdefault(each.cell.cluster, []).append(each)
    header = (
        "cells of",
        "baseline",
        "plans",
        "as fast as ours",
        "median gain",
        "largest gain",
        "no plan that fits",
        "at most over",
    )
    rows = [row for name, outcomes in groups.items() for row in _gains(name, outcomes, results.planners)]
    return table(header, rows, range(2, 8))


def _gains(group: str, outcomes: Sequence[Outcome], planners: Sequence[str]) -> list[list[str]]:
    """Cells in which no planner can have a plan, as ours is proved to have none, count for nobody."""
    possible = [each for each in outcomes if each.status != "infeasible"]
    rows = []
    for name in planners:
        if name == OURS:
            continue
        gains = [gain for each in possible if (gain := each.gain(name)) is not None]
        faster = [gain for gain in gains if gain > 1 + EQUAL]
        missing = [row.missing for each in possible for row in each.rows if row.planner == name and row.missing]
        rows.append(
            [
                group,
                name,
                str(len(gains)),
                str(len(gains) - len(faster)),
                f"{median(gains):.3f}" if gains else "-",
                f"{max(gains):.3f}" if gains else "-",
                str(len(possible) - len(gains)),
                format_bytes(max(missing)) if missing else "-",
            ]
        )
    return rows


def verdict(results: Results) -> str:
    """Whether a baseline beats ours anywhere, and how long it took."""
    refuted = [each.cell.name for each in results.outcomes if each.refuted]
    seconds = sum(each.seconds for each in results.outcomes)
    cells = f"{len(results.outcomes)} cells, {seconds / 60:.1f} minutes"
    if refuted:
        return f"{cells}. A BASELINE BEATS OUR PLAN, which is a bug of ours: {'; '.join(refuted)}."
    open_cells = sum(each.status == "feasible" for each in results.outcomes)
    proved = "every plan of ours that there is, is proved optimal" if not open_cells else f"{open_cells} not proved"
    none = [f"{each.cell.name}: {each.rows[0].decisions}" for each in results.outcomes if each.status == "infeasible"]
    told = f" No plan fits in {len(none)}: {' '.join(none)}" if none else ""
    return f"{cells}; no baseline is faster in any of them; {proved}.{told}"


def text(results: Results, figures: Sequence[tuple[str, str]]) -> str:
    """All of it as Markdown."""
    parts = [f"## {title}\n\n```text\n{body}\n```\n" for title, body in (*figures, ("Gains", gains_text(results)))]
    return "\n".join(parts) + f"\n{verdict(results)}\n\n{_decisions(results)}"


def _decisions(results: Results) -> str:
    rows = []
    for model in dict.fromkeys(each.cell.model for each in results.outcomes):
        for each in results.outcomes:
            if each.cell.model == model:
                where = f"{each.cell.cluster} {each.cell.devices} mb{each.cell.micro_batch} {each.cell.schedule}"
                rows += [
                    [f"{model} {where}", row.planner, row.decisions, format_bytes(row.missing) if row.missing else ""]
                    for row in each.rows
                ]
    return "## Plans\n\n```text\n" + table(("cell", "planner", "decisions", "does not fit by"), rows) + "\n```\n"


def write(folder: Path, results: Results, figures: Sequence[tuple[str, str]], machine: dict[str, str]) -> None:
    """`paper.md`, `paper.json`, and under `launch` what each framework is given to run the plans that it can."""
    heading = "# The paper's set-ups\n\n" + "".join(f"- {name}: {value}\n" for name, value in machine.items()) + "\n"
    (folder / "paper.md").write_text(heading + text(results, figures), encoding="utf-8")
    for outcome in results.outcomes:
        for row in outcome.rows:
            for framework, files in (row.launch or {}).items():
                write_files(folder / "launch" / outcome.cell.folder / row.planner / framework, files)
    document = {"machine": machine, "cells": [each.to_dict() for each in results.outcomes]}
    (folder / "paper.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _shares(outcome: Outcome, base: float | None) -> list[str]:
    """Each planner's throughput over `base`; `-` where it has no plan that fits."""
    found = []
    for row in outcome.rows:
        share = None if row.throughput is None or not base else row.throughput / base
        found.append("-" if share is None else f"{share:.2f}")
    return found
