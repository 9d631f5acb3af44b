"""Piper's published optima, held between ours from below and our plan's price from above (piper.py)."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.scale import piper
from benchmarks.scale.checks import statuses
from benchmarks.scale.measure import Answer, Check, Finding, Limit, Measure, Series

MEMORY = 80 * 2.0**30
PUBLISHED = {8: 0.122007269, 64: 0.015650178, 512: 0.002272520, 2048: 0.000663713}
"""Seconds per sample of BERT-32 by devices of 80 GiB, from its authors' program (data/README.md).

Those for less memory are left out: what a stage holds depends there on the replicas of later stages, which ours does
not model.
"""

LIMITS = {64: 3.0, 512: 60.0, 2048: 60.0}
"""Seconds that planning may take, by devices."""

DIGITS = 1e-6
"""Relative: the published figures have nine decimals."""


def mixed_measures(folder: Path) -> list[Measure | Series]:
    """BERT-32 with data parallelism per stage, for each published number of devices."""
    path = folder / "bert32a100.json"
    if not path.exists():
        return []
    graph = piper.read(json.loads(path.read_text(encoding="utf-8")))
    return [
        Measure(
            f"mixed-bert32-{devices}",
            f"Piper's BERT-32 on {devices:,} devices",
            (partial(piper.relaxed, graph, devices, MEMORY),),
            Limit(planning=LIMITS.get(devices)),
            between(graph, devices, published),
        )
        for devices, published in PUBLISHED.items()
    ]


def between(graph: piper.PiperGraph, devices: int, published: float) -> Check:
    """Our optimum of the relaxed problem is not above the published one, nor is that above the price of our plan."""

    def check(answers: Sequence[Answer]) -> Finding:
        (answer,) = answers
        if answer["status"] != "optimal":
            return Finding(statuses(answers), False)
        stages = answer["stages"]
        lower = max(stage["time"] for stage in stages)
        parts = [tuple(int(part) for part in stage["candidate"].split("x")) for stage in stages]
        plan = [(stage["layers"], *part) for stage, part in zip(stages, parts, strict=True)]
        upper = piper.price(graph, [(nodes, width, count) for nodes, width, count in plan], devices, MEMORY)
        told = "not a plan of Piper's" if upper is None else f"{upper:.9f}"
        right = lower <= published * (1 + DIGITS) and (upper is None or published <= upper * (1 + DIGITS))
        return Finding(f"{lower:.9f} <= {published:.9f} published <= {told}", right)

    return check
