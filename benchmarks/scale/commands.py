"""The commands that are timed, with their limits: CPU seconds where the yardstick takes 2.0 of them."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.scale import piper, problems
from benchmarks.scale.command import YARDSTICK, YARDSTICK_SECONDS, Command
from benchmarks.scale.measure import Source
from benchmarks.scale.mixed import MEMORY
from benchmarks.scale.processes import REPOSITORY
from nest.io import read_mapping

EXAMPLES = REPOSITORY / "examples"
README = EXAMPLES / "llama-3-70b-on-128-h100" / "problem.yaml"
"""The example that the README begins with."""

DEEPSEEK = EXAMPLES / "deepseek-v3-on-2048-h100" / "problem.yaml"
POOLS = EXAMPLES / "llama-3-70b-on-64-h100-and-128-a100" / "problem.yaml"
LLAMA = partial(problems.real, "llama-3.1-405b", "dgx-h100-superpod-16384", 8192)
MILLION = (8, 16, 16, 16, 32)

SOLVE = ("solve", "{problem}", "--json")
PROVE = ("solve", "{problem}", "--verify", "--json")
PLAN = ("solve", "{problem}", "--output", "{folder}/plan.json")
EXPLAIN = ("explain", "{folder}/plan.json", "--json")
REPORT = ("report", "{folder}/plan.json", "--output", "{folder}/page.html")
OPTIMAL, PROVED = '"status": "optimal"', '"status": "proved"'


def commands(data: Path) -> list[Command]:
    """All of them; those whose data is not under `data` are left out."""
    return [*_questions(), *_planning(data), *_proofs()]


def _questions() -> list[Command]:
    """What is asked of README's example, and what a small problem takes."""
    readme = {"problem": README}
    small = {"problem": partial(problems.heterogeneous, 3, (4, 2), 8)}
    return [
        Command(YARDSTICK, "README's example", SOLVE, readme, wanted=OPTIMAL),
        Command("solve-small", "three layers on 8 devices: start-up", SOLVE, small, cpu=0.5, wanted=OPTIMAL),
        Command("explain", "README's example", EXPLAIN, readme, (PLAN,), cpu=8, memory=1e9),
        Command("report", "README's example, with everything in it", REPORT, readme, (PLAN,), cpu=8, memory=1e9),
        Command("explain-again", "the same, answers kept", EXPLAIN, readme, (PLAN, EXPLAIN), keeps=True),
        Command("report-again", "the same, answers kept", REPORT, readme, (PLAN, REPORT), keeps=True),
        Command(
            "solve-both",
            "README's example, then with 72 GB in place of 80, by one process",
            ("solve", "{problem}", "{changed}", "--json"),
            {**readme, "changed": partial(changed, "cluster", "memory", "72 GB")},
            cpu=YARDSTICK_SECONDS + 0.5,
            wanted=OPTIMAL,
        ),
    ]


def changed(section: str, key: str, value: str) -> Mapping[str, Any]:
    """README's example with another value of a key of a section."""
    problem = read_mapping(README).mapping
    model = str(README.parent / problem["model"])
    return {**problem, "model": model, section: {**problem[section], key: value}}


def _planning(data: Path) -> list[Command]:
    """What plans of large problems take."""
    blocks = partial(problems.deep, 1000, problems.h100(MILLION), 8192)
    layers = partial(problems.heterogeneous, 1000, MILLION, 8192)
    asked: list[tuple[str, str, Source, float, float | None]] = [
        ("deepseek-v3", "DeepSeek-V3 on 2,048 H100, everything open", DEEPSEEK, 5, None),
        ("blocks-million", "1,000 transformer blocks on 1,048,576 H100", blocks, 8, 6e8),
        ("layers-million", "1,000 layers that all differ on 1,048,576 devices", layers, 5, None),
    ]
    path = data / "piper" / "bert32a100.json"
    if path.exists():
        graph = piper.read(json.loads(path.read_text(encoding="utf-8")))
        for devices, seconds in ((64, 3.0), (512, 60.0)):
            made = partial(piper.relaxed, graph, devices, MEMORY)
            asked.append((f"bert32-{devices}", f"Piper's BERT-32, mixed plans on {devices}", made, seconds, None))
    return [
        Command(f"solve-{name}", what, SOLVE, {"problem": made}, cpu=cpu, memory=memory, wanted=OPTIMAL)
        for name, what, made, cpu, memory in asked
    ]


def _proofs() -> list[Command]:
    """`nest solve --verify`, whose figures stand in docs/explanation/verify.md."""
    asked: list[tuple[str, str, Source, float, float | None]] = [
        ("llama-70b", "README's example, proved", README, 10, 5e8),
        ("pools", "Llama 3 70B on 64 H100 and 128 A100, proved", POOLS, 10, 5e8),
        ("llama-405b", "Llama 3.1 405B on 16,384 H100, proved", LLAMA, 120, 5e8),
        ("deepseek-v3", "DeepSeek-V3 on 2,048 H100, proved", DEEPSEEK, 120, None),
    ]
    return [
        Command(f"proof-{name}", what, PROVE, {"problem": made}, cpu=cpu, memory=memory, wanted=PROVED)
        for name, what, made, cpu, memory in asked
    ]
