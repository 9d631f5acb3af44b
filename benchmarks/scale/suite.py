"""The list of what is measured, with its limits."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.scale import problems
from benchmarks.scale.checks import branched, equal_to, settled, solved, within
from benchmarks.scale.measure import Limit, Measure, Series
from benchmarks.scale.mixed import mixed_measures

Suite = list[Measure | Series]

DAG_LIMIT = Limit(planning=10, memory=1e9)
PUBLISHED_LOADS = {"bert24": 17.7899, "gnmt": 32.9107, "resnet50": 33.7747}
"""Largest stage times of the published program, which bound ours from below (data/README.md)."""
MUST_BE_SOLVED = ("layergraphs", "operatorgraphs__bert")
"""Files that no stated size excuses: graphs of layers, and operator graphs of up to 800 nodes and 3,000 downsets."""

TOWERS = ((5, 8, 6), (4, 10, 6), (3, 24, 6))
"""Chains side by side, how long they are, and devices: up to 59,051 downsets, which CP-SAT proves."""

MANY_CUTS = Limit(planning=60, memory=2e9)
"""Limits where cuts are far too many to list: a plan and a bound within a minute."""

GREATEST_SLOPE = 1.3
"""What still counts as close to linear in devices."""


def suite(data: Path) -> tuple[Suite, list[str]]:
    """Everything that can be measured, and what cannot as its data is not under `data`, in words."""
    measures: Suite = []
    skipped = []
    parts: dict[str, Callable[[Path], Suite]] = {
        "artifact": _artifact,
        "dag": _branched,
        "small": _small,
        "piper": mixed_measures,
    }
    for folder, part in parts.items():
        if (data / folder).is_dir():
            measures += part(data / folder)
        else:
            skipped.append(f"{folder}: skipped, there is no folder {data / folder}")
    return [*measures, *_towers(), *_real(), *_growth()], skipped


def _artifact(folder: Path) -> Suite:
    files = tuple(sorted(folder.glob("*.json")))
    largest = tuple(path for path in files if "__gpt3__n1024__" in path.name)
    everything = Measure("artifact", f"{len(files)} solver inputs of the paper", files, Limit(), settled)
    limit = Limit(planning=1, process=2, memory=3e8)
    alone = [
        Measure(
            f"artifact-gpt3-{'seconds' if 'seconds' in path.name else 'published'}",
            "GPT-3 on 1,024 TPUv4",
            (path,),
            limit,
            settled,
        )
        for path in largest
    ]
    return [everything, *alone]


def _branched(folder: Path) -> Suite:
    found: Suite = []
    for path in sorted(folder.glob("*.json")):
        least = next((load for name, load in PUBLISHED_LOADS.items() if f"layergraphs__{name}_" in path.name), None)
        check = branched(least, not path.name.startswith(MUST_BE_SOLVED))
        name = path.stem.removeprefix("layergraphs__").replace("operatorgraphs__", "operators-")
        found.append(Measure(f"dag-{name.removesuffix('_inference')}", "branched graph", (path,), DAG_LIMIT, check))
    gnmt = folder / "layergraphs__gnmt_inference.json"
    if gnmt.exists():
        busy = partial(problems.busy, gnmt)
        what = "GNMT without idle layers"
        found.append(Measure("dag-gnmt-busy", what, (busy,), DAG_LIMIT, branched(None, False)))
    return found


def _towers() -> Suite:
    proved = [
        Measure(
            f"towers-{count}x{length}",
            f"{count} chains of {length} layers side by side",
            (partial(problems.towers, count, length, devices),),
            DAG_LIMIT,
            branched(None, False),
        )
        for count, length, devices in TOWERS
    ]
    many = partial(problems.towers, 5, 100, 6)
    return [*proved, Measure("towers-5x100", "5 chains of 100 layers side by side", (many,), MANY_CUTS, within(0.05))]


def _small(folder: Path) -> Suite:
    found: Suite = []
    for path in sorted(folder.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        made = tuple(partial(_problem_of, row) for row in rows)
        check = equal_to([row["batch_time"] for row in rows])
        found.append(Measure(f"small-{path.stem}", f"{len(rows)} small problems", made, Limit(), check))
    return found


def _problem_of(row: dict[str, Any]) -> dict[str, Any]:
    problem: dict[str, Any] = row["problem"]
    return problem


def _real() -> Suite:
    huge, million = (8, 16, 16, 8, 8), (8, 16, 16, 16, 32)
    vast = Limit(planning=10, memory=1e9)
    return [
        Measure(
            "joint",
            "Llama 3 70B on 1,024 H100, everything open",
            (partial(problems.real, "llama-3-70b", "dgx-h100-superpod-1024", 1024),),
            Limit(planning=3),
            solved,
        ),
        Measure(
            "scale-llama-405b",
            "Llama 3.1 405B on 16,384 H100",
            (partial(problems.real, "llama-3.1-405b", "dgx-h100-superpod-16384", 8192),),
            Limit(planning=3),
            solved,
        ),
        Measure(
            "scale-blocks",
            "1,000 transformer blocks on 131,072 H100",
            (partial(problems.deep, 1000, problems.h100(huge), 8192),),
            vast,
            solved,
        ),
        Measure(
            "scale-profile",
            "1,000 layers that all differ, widths 1 to 8, 131,072 devices",
            (partial(problems.heterogeneous, 1000, huge, 8192),),
            vast,
            solved,
        ),
        Measure(
            "scale-blocks-million",
            "1,000 transformer blocks on 1,048,576 H100",
            (partial(problems.deep, 1000, problems.h100(million), 8192),),
            vast,
            solved,
        ),
        Measure(
            "scale-profile-million",
            "1,000 layers that all differ, widths 1 to 8, 1,048,576 devices",
            (partial(problems.heterogeneous, 1000, million, 8192),),
            vast,
            solved,
        ),
    ]


def _growth() -> Suite:
    devices = [2**power for power in range(10, 18)]
    layers = (50, 100, 200, 400, 700, 1000)
    return [
        Series(
            "growth-devices",
            "Llama 3.1 405B",
            "devices",
            tuple((n, partial(problems.real, "llama-3.1-405b", f"dgx-h100-superpod-{n}", 8192)) for n in devices),
            GREATEST_SLOPE,
        ),
        Series(
            "growth-devices-profile",
            "200 layers that all differ",
            "devices",
            tuple((n, partial(problems.heterogeneous, 200, (8, 32, n // 256), 8192)) for n in devices),
            GREATEST_SLOPE,
        ),
        Series(
            "growth-layers",
            "blocks on 16,384 H100",
            "layers",
            tuple((n, partial(problems.deep, n, "dgx-h100-superpod-16384", 8192)) for n in layers),
        ),
        Series(
            "growth-layers-profile",
            "layers that all differ on 16,384 devices",
            "layers",
            tuple((n, partial(problems.heterogeneous, n, (8, 32, 64), 8192)) for n in layers),
        ),
        Series(
            "growth-candidates",
            "Llama 3.1 405B on 16,384 H100, so many micro-batches open",
            "micro-batches",
            tuple((n, partial(problems.micro_batched, n)) for n in (1, 2, 4, 8)),
        ),
    ]
