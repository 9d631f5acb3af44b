"""Predicted against measured step times as SVG; the same figures give the same bytes."""

from pathlib import Path
from typing import Any

import numpy

from benchmarks.fidelity.predictions import Table

BAND = 0.1
"""Relative error up to which points lie inside the band."""

INK = "#777777"
"""Of text and axes: as far from white as from black, so that the plot can be read on a light and on a dark page."""


COLOURS = ("C0", "C1", "C2", "C3", "C4", "C5", "C6", "C8", "C9")
"""Of groups, in the order of their names: matplotlib's, without the grey that text has."""


def plotted(table: Table, folder: Path) -> tuple[list[str], str]:
    """Write the plot, and give its name with what to tell: what was written or why not."""
    try:
        import matplotlib
    except ImportError:
        return [], "no plot: matplotlib is not installed; pip install 'nest-planner[benchmarks]' brings it"
    matplotlib.use("svg")
    inks: Any = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    with matplotlib.rc_context({**inks, "svg.hashsalt": "nest", "legend.labelcolor": INK}):
        _draw(table, folder / "fidelity.svg")
    return ["fidelity.svg"], "plot: fidelity.svg"


def _draw(table: Table, path: Path) -> None:
    from matplotlib import pyplot

    figure, chart = pyplot.subplots(figsize=(7.5, 6), layout="constrained")
    both = numpy.concatenate([table.measured, table.validated])
    ends = numpy.array([both.min() / 1.5, both.max() * 1.5])
    chart.fill_between(ends, ends * (1 - BAND), ends * (1 + BAND), color=INK, alpha=0.25, linewidth=0, label="10 % off")
    chart.plot(ends, ends, color=INK, linewidth=0.8)
    groups = [each.run.group or "runs" for each in table.runs]
    for index, name in enumerate(sorted(set(groups))):
        chosen = numpy.array([group == name for group in groups])
        off = numpy.abs(table.validated[chosen] / table.measured[chosen] - 1).mean()
        chart.scatter(
            table.measured[chosen],
            table.validated[chosen],
            s=14,
            color=COLOURS[index % len(COLOURS)],
            marker="os^DvPX*"[index % 8],
            linewidths=0,
            alpha=0.8,
            label=f"{name}: {int(chosen.sum())} runs, {off:.1%} off",
        )
    chart.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    chart.set(xlabel="measured step time, s", ylabel="predicted from other families, s")
    chart.grid(which="major", alpha=0.3, color=INK)
    chart.legend(fontsize="small", framealpha=0.0)
    figure.savefig(path, format="svg", metadata={"Date": None}, transparent=True)
    pyplot.close(figure)
