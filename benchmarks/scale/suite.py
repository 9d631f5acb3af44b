"""The list of what is measured, with its limits."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from benchmarks.scale import problems
from benchmarks.scale.checks import branched, equal_to, settled, solved, within
from benchmarks.scale.measure import Limit, Measure, Series, Source
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
    names = {path: f"artifact-gpt3-{'seconds' if 'seconds' in path.name else 'published'}" for path in largest}
    alone = [Measure(name, "GPT-3 on 1,024 TPUv4", (path,), limit, settled) for path, name in names.items()]
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
        made = tuple(partial(dict, row["problem"]) for row in rows)
        check = equal_to([row["batch_time"] for row in rows])
        found.append(Measure(f"small-{path.stem}", f"{len(rows)} small problems", made, Limit(), check))
    return found


def _real() -> Suite:
    huge, million = (8, 16, 16, 8, 8), (8, 16, 16, 16, 32)
    small, vast = Limit(planning=3), Limit(planning=10, memory=1e9)
    real, deep, unlike = problems.real, partial(problems.deep, 1000), partial(problems.heterogeneous, 1000)
    llama_70b = partial(real, "llama-3-70b", "dgx-h100-superpod-1024", 1024)
    llama_405b = partial(real, "llama-3.1-405b", "dgx-h100-superpod-16384", 8192)
    blocks, layers = "1,000 transformer blocks on", "1,000 layers that all differ, widths 1 to 8,"
    measures: list[tuple[str, str, Source, Limit]] = [
        ("joint", "Llama 3 70B on 1,024 H100, everything open", llama_70b, small),
        ("scale-llama-405b", "Llama 3.1 405B on 16,384 H100", llama_405b, small),
        ("scale-blocks", f"{blocks} 131,072 H100", partial(deep, problems.h100(huge), 8192), vast),
        ("scale-profile", f"{layers} 131,072 devices", partial(unlike, huge, 8192), vast),
        ("scale-blocks-million", f"{blocks} 1,048,576 H100", partial(deep, problems.h100(million), 8192), vast),
        ("scale-profile-million", f"{layers} 1,048,576 devices", partial(unlike, million, 8192), vast),
    ]
    return [Measure(name, what, (made,), limit, solved) for name, what, made, limit in measures]


def _growth() -> Suite:
    devices = [2**power for power in range(10, 18)]
    layers = (50, 100, 200, 400, 700, 1000)
    real, deep, unlike = problems.real, problems.deep, problems.heterogeneous

    def series(name: str, what: str, axis: str, points: Iterable[tuple[int, Source]], *steepest: float) -> Series:
        return Series(f"growth-{name}", what, axis, tuple(points), *steepest)

    clusters = ((n, partial(real, "llama-3.1-405b", f"dgx-h100-superpod-{n}", 8192)) for n in devices)
    fanouts = ((n, partial(unlike, 200, (8, 32, n // 256), 8192)) for n in devices)
    blocks = ((n, partial(deep, n, "dgx-h100-superpod-16384", 8192)) for n in layers)
    differing = ((n, partial(unlike, n, (8, 32, 64), 8192)) for n in layers)
    open_sizes = ((n, partial(problems.micro_batched, n)) for n in (1, 2, 4, 8))
    many = "Llama 3.1 405B on 16,384 H100, so many micro-batches open"
    return [
        series("devices", "Llama 3.1 405B", "devices", clusters, GREATEST_SLOPE),
        series("devices-profile", "200 layers that all differ", "devices", fanouts, GREATEST_SLOPE),
        series("layers", "blocks on 16,384 H100", "layers", blocks),
        series("layers-profile", "layers that all differ on 16,384 devices", "layers", differing),
        series("candidates", many, "micro-batches", open_sizes),
    ]
