"""Figures 5 and 6 as SVG, with matplotlib where it is installed; the same figures give the same bytes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.paper.cells import Cell
from benchmarks.paper.report import REFERENCE, Results


def plotted(results: Results, folder: Path, by_devices: Sequence[Cell], by_micro_batch: Sequence[Cell]) -> str:
    """Write both, and tell what was written or why not."""
    try:
        import matplotlib
    except ImportError:
        return "no plot: matplotlib is not installed; pip install 'nest-planner[benchmarks]' brings it"
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "nest"
    _bars(results, by_devices, lambda cell: cell.devices, "devices", folder / "figure-5.svg")
    _bars(results, by_micro_batch, lambda cell: cell.micro_batch, "micro-batch", folder / "figure-6.svg")
    return "plots: figure-5.svg, figure-6.svg"


def _bars(results: Results, cells: Sequence[Cell], size: Callable[[Cell], int], axis: str, path: Path) -> None:
    """One panel a model, one group of bars a size: throughput over Manual's at the first size that has one."""
    from matplotlib import pyplot

    models = tuple(dict.fromkeys(cell.model for cell in cells))
    figure, panels = pyplot.subplots(
        1, len(models), figsize=(3.2 * len(models), 3.2), layout="constrained", squeeze=False
    )
    width = 0.8 / len(results.planners)
    for panel, model in zip(panels[0], models, strict=True):
        own = [cell for cell in cells if cell.model == model]
        throughputs = [results.of(cell).throughput(REFERENCE) for cell in own]
        base = next((each for each in throughputs if each), None)
        for place, name in enumerate(results.planners):
            shares = [(results.of(cell).throughput(name) or 0.0) / (base or 1.0) for cell in own]
            panel.bar([index + place * width for index in range(len(own))], shares, width, label=name)
        panel.set_xticks([index + 0.4 - width / 2 for index in range(len(own))], [str(size(cell)) for cell in own])
        panel.set_title(model, fontsize=9)
        panel.set_xlabel(axis)
    panels[0][0].set_ylabel(f"throughput, {REFERENCE} at the first size = 1", fontsize=8)
    # Beside the panels: inside it would hide bars.
    handles, labels = panels[0][-1].get_legend_handles_labels()
    title = "no bar: no plan fits"
    figure.legend(handles, labels, fontsize=7, loc="outside right upper", title=title, title_fontsize=7)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
