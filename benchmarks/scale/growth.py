"""How planning time grows with size."""

from collections.abc import Sequence
from math import log
from pathlib import Path
from statistics import linear_regression

from benchmarks.scale.measure import Series
from benchmarks.scale.outcome import Outcome, in_process, written


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Least-squares slope of log time over log size; 1 is linear.

    Args:
        points: size and time, both positive, of at least two sizes.
    """
    return linear_regression([log(size) for size, _ in points], [log(time) for _, time in points]).slope


def grown(series: Series, folder: Path, times: int, timeout: float) -> Outcome:
    """Run a series, smallest size first, in process; the times and memory told are those of the largest size."""
    points, failures, last = [], [], None
    memory = 0.0
    for size, problem in series.points:
        last = in_process(written((problem,), folder, f"{series.name}-{size}"), times, timeout)
        memory = max(memory, last.memory)
        status = last.wrong or last.answers[0]["status"]
        if status != "optimal":
            failures.append(f"{size} {series.axis}: {status}")
        else:
            points.append(
                {
                    "size": size,
                    "formulate": last.total("formulate"),
                    "solve": last.total("solve"),
                    "memory": last.memory,
                    "statistics": last.answers[0]["statistics"],
                }
            )
    steep = slope([(each["size"], each["formulate"] + each["solve"]) for each in points]) if len(points) > 1 else None
    if steep is not None and series.steepest is not None and steep > series.steepest:
        failures.append(f"slope {steep:.2f} is above {series.steepest:g}")
    return Outcome(
        name=series.name,
        what=f"{series.what}, {_span(series)}: slope {'-' if steep is None else format(steep, '.2f')}",
        formulate=points[-1]["formulate"] if points else None,
        solve=points[-1]["solve"] if points else None,
        process=None,
        memory=memory,
        limit="-" if series.steepest is None else f"slope {series.steepest:g}",
        failures=tuple(failures),
        details={"axis": series.axis, "slope": steep, "points": points},
    )


def _span(series: Series) -> str:
    sizes = [size for size, _ in series.points]
    return f"{min(sizes):,} to {max(sizes):,} {series.axis}"
