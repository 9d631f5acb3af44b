"""How far predicted batch times are from measured ones: `python benchmarks/fidelity.py RUNS`.

RUNS holds a training run a line, as JSON: `problem` (with a `fixed` plan), `measured` (`batch_time` in seconds and, for
some, `peak_memory` in bytes) and `group` (who published it). Every problem is priced with `nest.evaluate`; nothing is
fitted. benchmarks/README.md says how to read the figures.
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Any

import nest
from nest.errors import NestError

APART = 0.05
"""Runs whose measured times differ by less are not compared: repeated runs differ by a few per cent."""

Row = Mapping[str, Any]
Priced = tuple[Row, float, float]
"""A run, its predicted over its measured batch time, and its predicted peak memory in bytes."""


def price(rows: Iterable[Row]) -> tuple[list[Priced], Counter[str]]:
    """The runs that can be priced, and how many cannot, by reason."""
    priced: list[Priced] = []
    refused: Counter[str] = Counter()
    for row in rows:
        try:
            plan = nest.evaluate(row["problem"])
        except NestError as error:
            refused[reason(str(error))] += 1
        else:
            assert plan.batch_time is not None
            ratio = plan.batch_time / row["measured"]["batch_time"]
            priced.append((row, ratio, max(stage.memory for stage in plan.stages)))
    return priced, refused


def reason(message: str) -> str:
    """The first clause of a refusal, with figures left out."""
    return re.sub(r"\b\d+\b", "N", re.split(r"[;.] |\n", message)[0])


def ordered(priced: Sequence[Priced]) -> tuple[int, int]:
    """Pairs of plans for one task whose measured seconds per sample differ, and those that are predicted in this order.

    One task is one model, sequence length and precision on one cluster.
    """
    tasks: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row, ratio, _ in priced:
        training = row["problem"]["training"]
        measured = row["measured"]["batch_time"] / training["global_batch"]
        tasks[task(row["problem"])].append((measured, measured * ratio))
    pairs = [
        (one, other)
        for runs in tasks.values()
        for one, other in combinations(runs, 2)
        if abs(one[0] - other[0]) > APART * min(one[0], other[0])
    ]
    return len(pairs), sum((one[0] < other[0]) == (one[1] < other[1]) for one, other in pairs)


def task(problem: Mapping[str, Any]) -> str:
    """What is trained and where, whatever the plan."""
    training = {name: problem["training"].get(name) for name in ("sequence_length", "precision", "optimizer")}
    return json.dumps([problem["model"], problem["cluster"], training], sort_keys=True)


def line(name: str, priced: Sequence[Priced]) -> str:
    """Figures of some runs: how many, median, lowest and highest ratio, mean absolute error, median memory ratio."""
    ratios = [ratio for _, ratio, _ in priced]
    error = fmean(abs(ratio - 1) for ratio in ratios)
    memory = [peak / row["measured"]["peak_memory"] for row, _, peak in priced if "peak_memory" in row["measured"]]
    shown = f"{median(memory):.2f} ({len(memory)})" if memory else "-"
    return (
        f"{name:36}{len(ratios):5}{median(ratios):9.2f}{min(ratios):8.2f}{max(ratios):8.2f}"
        f"{100 * error:11.1f} %{shown:>13}"
    )


def report(rows: Sequence[Row]) -> str:
    """The figures, as text."""
    priced, refused = price(rows)
    lines = [f"{len(rows)} runs: {len(priced)} priced, {len(rows) - len(priced)} refused"]
    lines += [f"{count:4} {why}" for why, count in sorted(refused.items(), key=lambda item: (-item[1], item[0]))]
    if priced:
        heading = f"{'batch time, predicted over measured':36}{'runs':>5}{'median':>9}{'least':>8}{'most':>8}"
        lines += ["", f"{heading}{'mean error':>13}{'memory':>13}"]
        groups: dict[str, list[Priced]] = defaultdict(list)
        for each in priced:
            groups[each[0]["group"]].append(each)
        lines += [line(name, groups[name]) for name in sorted(groups)]
        lines.append(line("all", priced))
        pairs, right = ordered(priced)
        told = f"whose seconds per sample differ by more than {APART:.0%}: {right} predicted in the right order"
        lines += ["", f"{pairs} pairs of plans for one task {told}"]
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python benchmarks/fidelity.py RUNS")
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    print(report([json.loads(each) for each in text.splitlines() if each.strip()]))
