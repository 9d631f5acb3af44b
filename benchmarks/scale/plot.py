"""Growth as SVG, with matplotlib where it is installed; the same figures give the same bytes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale.outcome import Outcome


def plotted(outcomes: Sequence[Outcome], folder: Path) -> tuple[list[str], str]:
    """Write one plot per axis of growth, and give their names with what to tell: what was written or why not."""
    series = [each for each in outcomes if each.details.get("points")]
    if not series:
        return [], "no plot: no growth was measured"
    try:
        import matplotlib
    except ImportError:
        return [], "no plot: matplotlib is not installed; pip install 'nest-planner[benchmarks]' brings it"
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "nest"
    names: list[str] = []
    for axis in sorted({each.details["axis"] for each in series}):
        path = folder / f"growth-{axis}.svg"
        _draw(axis, {each.name: each.details for each in series if each.details["axis"] == axis}, path)
        names.append(path.name)
    return names, f"plots: {', '.join(names)}"


def _draw(axis: str, series: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    from matplotlib import pyplot

    figure, (time, memory) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for name, details in series.items():
        points = details["points"]
        sizes = [point["size"] for point in points]
        slope = "" if details["slope"] is None else f", slope {details['slope']:.2f}"
        time.plot(sizes, [p["formulate"] + p["solve"] for p in points], marker="o", label=f"{name}{slope}")
        memory.plot(sizes, [point["memory"] / 1e6 for point in points], marker="o", label=name)
    for chart, label in ((time, "formulate and solve, s"), (memory, "peak memory, MB")):
        chart.set(xscale="log", yscale="log", xlabel=axis, ylabel=label)
        chart.grid(which="both", alpha=0.3)
    time.legend(fontsize="small")
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
