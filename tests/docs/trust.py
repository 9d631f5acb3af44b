"""Tables of docs/explanation/trust.md, from the results of `python -m benchmarks.fidelity --nested`."""

import json
from collections.abc import Iterator
from math import hypot
from pathlib import Path
from typing import Any

from nest.catalogue import time_spread
from nest.plan.document import time_range
from tests.docs import generated
from tests.docs.document import REPOSITORY

PAGE = Path("docs/explanation/trust.md")
RESULTS = REPOSITORY / "benchmarks" / "results" / "2026-11-30" / "fidelity" / "nested.json"


def found() -> dict[str, Any]:
    """The figures of the benchmark."""
    figures: dict[str, Any] = json.loads(RESULTS.read_text())
    return figures


def percent(share: float, sign: str = "") -> str:
    """A share with one decimal place, as pages print it."""
    return f"{100 * share:{sign}.1f} %"


def errors() -> Iterator[str]:
    """Errors by source, then of all."""
    figures = found()
    yield "| source | runs | left out | median | one own run |"
    yield "|---|---|---|---|---|"
    for row in figures["rows"]:
        own = percent(row["own"]) if row["runs"] > 1 else ""
        yield f"| {row['source']} | {row['runs']} | {percent(row['nested'])} | {percent(row['bias'], '+')} | {own} |"
    for kind, (_, left_out) in figures["kinds"].items():
        if kind not in ("all", "TPU"):
            yield f"| mean over sources: {kind} | | {percent(left_out)} | | |"
    yield f"| mean over runs | {sum(row['runs'] for row in figures['rows'])} | {percent(figures['mean'])} | | |"


def terms() -> Iterator[str]:
    """Mean errors, sources counted alike, without one of the terms of the cost model each."""
    figures = found()
    yield "| switched off | error |"
    yield "|---|---|"
    yield f"| nothing | {percent(figures['kept'])} |"
    for name, error in figures["fixed"].items():
        yield f"| {name.replace('none', 'all of them')} | {percent(error)} |"


def ranges() -> Iterator[str]:
    """Spreads of the catalogue, and the ranges that follow."""
    spreads = found()["spreads"]
    yield "| runs on | between clusters | within them | range |"
    yield "|---|---|---|---|"
    kinds = {name.capitalize(): time_spread(name) for name in spreads["known"]["generations"]}
    experts = time_spread("hopper", experts=True)
    for name, each in {**kinds, "any of these, with experts": experts, "an uncalibrated device": time_spread()}.items():
        span = time_range(1.0, each.stranger)
        assert span is not None
        yield (
            f"| {name} | {each.between:.2f} | {each.within:.2f} | {100 * (span.low - 1):+.0f} to "
            f"{100 * (span.high - 1):+.0f} % |"
        )


def coverage() -> Iterator[str]:
    """How many runs lie inside their ranges, and errors with own runs."""
    spreads = found()["spreads"]
    yield "| | |"
    yield "|---|---|"
    yield f"| measured times inside the 80 % range, over all runs | {percent(spreads['covered'])} |"
    yield f"| the same, as a mean over sources | {percent(spreads['covered_alike'])} |"
    for name, width in spreads["half_widths"].items():
        yield f"| half the width of the range, {name} | {percent(width)} |"
    for count, own in spreads["own"].items():
        runs = f"{count} own run{'s' if int(count) > 1 else ''}"
        yield f"| error with {runs}, mean over {own['sources']} sources | {percent(own['mean'])} |"
        yield f"| measured times inside the range with {runs} | {percent(own['covered'])} |"
    bare = spreads["bare"]
    deviation = hypot(bare["between"], bare["within"])
    told = f"{bare['median']:.2f} times the predicted time, standard deviation {deviation:.2f}"
    yield f"| measured time without calibration of the device | {told} |"


PARTS = {"errors": errors, "terms": terms, "ranges": ranges, "coverage": coverage}


def refreshed(page: str) -> str:
    """`page` with its tables made anew."""
    return generated.refreshed(page, "trust", PARTS)
