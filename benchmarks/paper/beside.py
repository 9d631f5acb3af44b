"""The published columns beside ours, what planners cost, and what their plans take of memory."""

from collections.abc import Iterable, Sequence
from statistics import geometric_mean, median

from benchmarks.paper.cells import DEVICES, MICRO_BATCHES, Cell
from benchmarks.paper.measure import OURS, Outcome
from benchmarks.paper.published import COLUMNS, FIGURE_5, FIGURE_6, HEADLINE, RUN_SECONDS, TABLE_3, Row, headline
from benchmarks.paper.report import REFERENCE, Results, base_of
from nest.report.text.layout import table
from nest.units import format_bytes, format_seconds

ITS_OWN = {"nest": "nest-paper"}
"""The paper's own algorithm is a planner here."""

AS_FAST = 0.01
"""Share of the step time within which plans are called equally fast when their memory is compared."""


def beside_figure_5(results: Results, cells: Sequence[Cell]) -> str:
    """Shares over Manual at its smallest feasible size: the paper's and, behind the stroke, ours."""
    rows = [
        (cell, FIGURE_5[cell.model][DEVICES.index(cell.devices)], base_of(results, cells, cell.model)) for cell in cells
    ]
    return _beside(results, "devices", [(cell, str(cell.devices), row, base) for cell, row, base in rows])


def beside_figure_6(results: Results, cells: Sequence[Cell]) -> str:
    """Shares over Manual with micro-batches of 1."""
    found = []
    for cell in cells:
        if cell.model in FIGURE_6:
            row = FIGURE_6[cell.model][MICRO_BATCHES.index(cell.micro_batch)]
            found.append((cell, str(cell.micro_batch), row, base_of(results, cells, cell.model)))
    return _beside(results, "micro-batch", found)


def beside_table_3(results: Results, cells: Sequence[Cell]) -> str:
    """Shares over Manual in the same cell, of those that the artifact prints."""
    found = [
        (cell, str(cell.devices), TABLE_3[cell.model, cell.devices], results.of(cell).throughput(REFERENCE))
        for cell in cells
        if (cell.model, cell.devices) in TABLE_3
    ]
    return _beside(results, "devices", found)


def _beside(results: Results, size: str, found: Iterable[tuple[Cell, str, Row, float | None]]) -> str:
    header = ["model", size, *(f"{name}, paper / ours" for name in COLUMNS), OURS]
    rows = []
    for cell, at, published, base in found:
        outcome = results.of(cell)
        pairs = [
            f"{_share(theirs)} / {_over(outcome.throughput(ITS_OWN.get(name, name)), base)}"
            for name, theirs in zip(COLUMNS, published, strict=True)
        ]
        rows.append([cell.model, at, *pairs, _over(outcome.throughput(OURS), base)])
    return table(header, rows, range(1, len(header)))


def _over(throughput: float | None, base: float | None) -> str:
    return "-" if throughput is None or not base else _share(throughput / base)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"


def headline_text(results: Results, cells: Sequence[Cell]) -> str:
    """NEST's published gains over each baseline of Figure 5, and those that are left here."""
    rows = []
    for name, (count, mean, most) in headline().items():
        gains = [gain for cell in cells if (gain := results.of(cell).gain(name)) is not None]
        ours = (f"{geometric_mean(gains):.2f}", f"{max(gains):.2f}") if gains else ("-", "-")
        rows.append([name, str(count), f"{mean:.2f}", f"{most:.2f}", str(len(gains)), *ours])
    header = ("baseline", "cells", "paper's mean", "paper's largest", "cells here", "our mean", "our largest")
    found = table(header, rows, range(1, 7))
    said = f"Means are geometric. The abstract has {HEADLINE}, up to which NEST is said to be faster; no ratio of two"
    return f"{found}\n\n{said} printed figures is that, and the mean over Alpa-E is the nearest to it."


def effort_text(outcomes: Sequence[Outcome]) -> str:
    """Wall-clock time of each planner's search by devices, the median and the longest; and the paper's whole runs."""
    sizes = sorted({each.cell.devices for each in outcomes})
    names = tuple(dict.fromkeys(row.planner for each in outcomes for row in each.rows))
    rows = []
    for name in names:
        cells = []
        for size in sizes:
            taken = [row.seconds for o in outcomes if o.cell.devices == size for row in o.rows if row.planner == name]
            cells.append(f"{format_seconds(median(taken))}, {format_seconds(max(taken))}" if taken else "-")
        rows.append([name, *cells])
    last = []
    for size in sizes:
        taken = [run[DEVICES.index(size)] for run in RUN_SECONDS.values()] if size in DEVICES else []
        last.append(f"{format_seconds(median(taken))}, {format_seconds(max(taken))}" if taken else "-")
    rows.append(["the paper's run", *last])
    return table(("planner", *(f"{size} devices" for size in sizes)), rows, range(1, len(sizes) + 1))


def memory_text(results: Results, cells: Sequence[Cell]) -> str:
    """Fewest devices of Figure 5 on which a planner has a plan that fits, and memory where it is as fast as ours."""
    models = tuple(dict.fromkeys(cell.model for cell in cells))
    rows = []
    for name in results.planners:
        fewest = []
        for model in models:
            fitting = [cell.devices for cell in cells if cell.model == model and results.of(cell).throughput(name)]
            fewest.append(str(min(fitting)) if fitting else "-")
        rows.append([name, *fewest, *_equal_memory(results, cells, name)])
    header = (
        "planner",
        *(f"{model} fits on" for model in models),
        "as fast as ours",
        "memory over ours",
        "least",
        "most",
    )
    return table(header, rows, range(1, len(header)))


def _equal_memory(results: Results, cells: Sequence[Cell], name: str) -> tuple[str, str, str, str]:
    shares = []
    for cell in cells:
        outcome = results.of(cell)
        ours, theirs = (next((row for row in outcome.rows if row.planner == each), None) for each in (OURS, name))
        gain = outcome.gain(name)
        if ours and theirs and ours.memory and theirs.memory and gain is not None and gain <= 1 + AS_FAST:
            shares.append(theirs.memory / ours.memory)
    if not shares:
        return "0", "-", "-", "-"
    return str(len(shares)), f"{median(shares):.2f}", f"{min(shares):.2f}", f"{max(shares):.2f}"


def today_text(results: Results, cells: Sequence[Cell]) -> str:
    """Plans of today's models: how fast over ours, their memory, whether a replay agrees, and who runs them."""
    rows = []
    for cell in cells:
        outcome = results.of(cell)
        for row in outcome.rows:
            gain = outcome.gain(row.planner)
            runs = "-" if row.launch is None else ", ".join(row.launch) or "none as it is"
            rows.append(
                [
                    f"{cell.model}, {cell.devices} of {cell.cluster}",
                    row.planner,
                    "-" if gain is None else f"{1 / gain:.3f}",
                    "-" if row.memory is None else format_bytes(row.memory),
                    "-" if row.replayed is None else f"{row.replayed:.4f}",
                    format_seconds(row.seconds),
                    row.decisions,
                    runs,
                ]
            )
    header = ("cell", "planner", "of ours", "memory", "replay/price", "search", "decisions", "runs on")
    return table(header, rows, (2, 3, 4, 5))
