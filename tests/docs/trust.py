"""Tables and figures of docs/explanation/trust.md, from results of `benchmarks.fidelity`."""

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
RESULTS = REPOSITORY / "benchmarks" / "results" / "2026-11-30" / "fidelity"


def found(name: str = "nested") -> dict[str, Any]:
    """The figures of a benchmark."""
    figures: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return figures


def percent(share: float, sign: str = "") -> str:
    """A share with one decimal place, as pages print it."""
    return f"{100 * share:{sign}.1f} %"


def summary() -> Iterator[str]:
    """The answer of the page."""
    figures = found()
    own, covered = figures["own"]["plan"], figures["spreads"]["covered"]
    runs = sum(row["runs"] for row in figures["rows"])
    yield (
        f"On clusters that nest has never seen, predicted step times are off by {percent(figures['mean'])} on average, "
        f"over {runs} published runs. The 80 % range contains the measured time of {percent(covered)} of them."
    )
    errors = [percent(own[count]["mean"]) for count in ("0", "1", "3")]
    sources = f"{len(own['0']['sources'])} sources with more than three runs on one kind of device"
    yield f"On the {sources}, the mean error is {errors[0]}."
    yield f"It falls to {errors[1]} with one run of your own, and to {errors[2]} with three."


def pairs() -> Iterator[str]:
    """How sure the order of two plans is."""
    spreads = found()["spreads"]
    yield (
        f"Of {spreads['pairs']} published pairs with a predicted difference of at least {percent(spreads['apart'])}, "
        f"{percent(spreads['ordered'])} were measured in the predicted order, as a mean over sources."
    )


def errors() -> Iterator[str]:
    """Errors by source, then of all."""
    figures = found()
    one, three = (figures["own"]["plan"][count]["sources"] for count in ("1", "3"))
    yield "| source | runs | in the fit | left out | median | one own run | three |"
    yield "|---|---|---|---|---|---|---|"
    for row in figures["rows"]:
        name, off = row["source"], f"{percent(row['fitted'])} | {percent(row['nested'])} | {percent(row['bias'], '+')}"
        own = " | ".join(percent(each[name]) if name in each else "" for each in (one, three))
        yield f"| {name} | {row['runs']} | {off} | {own} |"
    for kind, (fitted, left_out) in figures["kinds"].items():
        if kind not in ("all", "TPU"):
            yield f"| mean over sources: {kind} | | {percent(fitted)} | {percent(left_out)} | | | |"
    yield f"| mean over runs | {sum(row['runs'] for row in figures['rows'])} | | {percent(figures['mean'])} | | | |"


TERMS = {"none": "all of them", "grace_launch": "host time of Grace", "routing_launches": "host time of MoE routing"}
"""Words for terms of the benchmark."""


def terms() -> Iterator[str]:
    """Mean errors, sources counted alike, without one of the terms of the cost model each."""
    figures = found()
    yield "| switched off | error |"
    yield "|---|---|"
    yield f"| nothing | {percent(figures['kept'])} |"
    for name, error in figures["fixed"].items():
        yield f"| {TERMS.get(name, name)} | {percent(error)} |"


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
    bare = spreads["bare"]
    deviation = hypot(bare["between"], bare["within"])
    told = f"{bare['median']:.2f} times the predicted time, standard deviation {deviation:.2f}"
    yield f"| measured time without calibration of the device | {told} |"


def own_runs() -> Iterator[str]:
    """Errors with own runs, on the same clusters."""
    own, bare = found()["own"], found("uncalibrated")
    (source,) = bare["plan"]["1"]["sources"]
    yield f"Mean over {len(own['plan']['1']['sources'])} sources, beside `{source}`:"
    yield ""
    yield "| own runs | one factor | inside the range | factor of each plan | inside | " + (
        f"`{source}`: one factor | factor of each plan | inside |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for count in own["plan"]:
        shares = [each[count][key] for each in (own["cluster"], own["plan"]) for key in ("mean", "covered")]
        shares += [bare["cluster"][count]["mean"], *(bare["plan"][count][key] for key in ("mean", "covered"))]
        yield f"| {count} | {' | '.join(percent(each) for each in shares)} |"


def fits() -> Iterator[str]:
    """Stated probabilities to fit against the plans that ran, by third."""
    figures = found("fits")
    yield "| error | stated probability | plans | stated | ran | standard error |"
    yield "|---|---|---|---|---|---|"
    for name, key in (("all stacks", "former"), ("own stack", "left_out")):
        for part in figures[key]["parts"]:
            shares = " | ".join(percent(part[share]) for share in ("said", "ran", "error"))
            yield f"| {name} | {part['low']:.2f} to {part['high']:.2f} | {part['plans']} | {shares} |"
    yield ""
    yield f"{figures['ran']} plans ran and {figures['failed']} failed."
    former, left_out = (figures[key]["brier"] for key in ("former", "left_out"))
    yield f"One error for all stacks gives a Brier score of {former:.4f}, an error for each stack {left_out:.4f}."
    for name, each in figures["stacks"].items():
        yield f"Fitted to all of them, {name} has median {each['median']:.2f} and deviation {each['spread']:.2f}."


def choices() -> Iterator[str]:
    """Plans taken by launching several, and their regret."""
    figures = found("choices")
    yield (
        "| order | sets | slower than the best: first plan that ran | launches until it ran "
        "| slower than the best: best plan launched | all launches |"
    )
    yield "|---|---|---|---|---|---|"
    for name, each in figures.items():
        yield (
            f"| {name} | {each['sets']} | {percent(each['first'])} | {each['launches']:.1f} "
            f"| {percent(each['best'])} | {each['in_all']:.1f}, at most {each['most']} |"
        )


MADE = (summary, pairs, errors, terms, ranges, coverage, own_runs, fits, choices)
PARTS = {part.__name__.replace("_", " "): part for part in MADE}


def refreshed(page: str) -> str:
    """`page` with its tables made anew."""
    return generated.refreshed(page, "trust", PARTS)
