"""What planners reproduce of their own authors' figures: `python -m benchmarks.paper.authors DATA`."""

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from benchmarks.paper.cells import DEVICES, Cell, artifact
from benchmarks.paper.published import COLUMNS, FIGURE_5
from benchmarks.scale import piper
from benchmarks.scale.suite import PUBLISHED_LOADS
from nest.formulate.instance import build_instance
from nest.hooks.registry import registry
from nest.instance import Instance, Solution
from nest.io import structure
from nest.plan.evaluate import evaluate
from nest.report.text.layout import table
from nest.solve.solver import solve
from nest.spec import Problem
from nest_whatif.planner_context import planner_context

GIB = 2.0**30

NEAR = 0.05
"""Share within which a figure counts as reproduced."""

PIPER = {(8, 8): 0.165855750, (8, 80): 0.122007269, (64, 80): 0.015650178}
"""Seconds per sample of BERT-32 by devices and GiB of memory, from the program of Piper's authors (msr-fiddle/piper,
NeurIPS 2021). On 64 devices with less memory what a stage
holds depends on the replicas of later stages, which no plan here has."""


@frozen
class Reproduced:
    """One figure.

    Attributes:
        planner: whose authors published it.
        what: it is of.
        published: as printed.
        ours: what our planner comes to.
        near: whether both agree to 5 %, or in every number of a shape.
    """

    planner: str
    what: str
    published: str
    ours: str
    near: bool


def decided(name: str, problem: dict[str, Any]) -> tuple[Instance, Solution | None]:
    """What a planner decides, priced by nobody."""
    known = registry()
    read = structure(problem, Problem)
    instance = build_instance(read, known)
    context = planner_context(read, instance, known, solve, seed=1, evaluations=1)
    return instance, known.planners()[name].plan(instance, context).solution


def pipers(folder: Path, sizes: Sequence[int] = (8, 64)) -> Iterator[Reproduced]:
    """BERT-32 with a width and data parallelism for each stage, on so many devices."""
    graph = piper.read(json.loads((folder / "bert32a100.json").read_text(encoding="utf-8")))
    for (devices, gib), published in PIPER.items():
        if devices not in sizes:
            continue
        instance, solution = decided("piper", piper.alike(graph, devices, gib * GIB))
        ours = None
        if solution is not None:
            shapes = [instance.candidates[stage.candidate].name.split("x") for stage in solution.stages]
            stages = [(list(each.layers), int(t), int(d)) for each, (t, d) in zip(solution.stages, shapes, strict=True)]
            ours = piper.price(graph, stages, devices, gib * GIB)
        yield _of_piper(f"BERT-32 on {devices} devices of {gib} GiB, seconds per sample", published, ours, 9)


def loads(folder: Path) -> Iterator[Reproduced]:
    """The fullest device of pipelines over branched graphs, tensors sent straight to their readers.

    Published by Piper's authors before it (Tarnawski et al., NeurIPS 2020; msr-fiddle/dnn-partitioning); a CPU may take
    part there, which none of ours does.
    """
    for name, published in PUBLISHED_LOADS.items():
        problem = json.loads((folder / f"layergraphs__{name}_inference.json").read_text(encoding="utf-8"))
        problem["search"]["tensors"] = "direct"
        instance, solution = decided("piper", problem)
        ours = None if solution is None else evaluate(instance, solution).slowest
        yield _of_piper(f"{name} on 6 devices, seconds of the fullest", published, ours, 4)


def _of_piper(what: str, published: float, ours: float | None, digits: int) -> Reproduced:
    told = "no plan" if ours is None else f"{ours:.{digits}f}"
    near = ours is not None and abs(ours / published - 1) <= NEAR
    return Reproduced("piper", what, f"{published:.{digits}f}", told, near)


SCALED = {"nest-paper": COLUMNS.index("nest"), "phaze": COLUMNS.index("phaze")}
"""Planners whose throughput by devices can be compared on the artifact's inputs, and their columns of figure 5."""


def throughputs(folder: Path, planners: Collection[str] = tuple(SCALED)) -> Iterator[Reproduced]:
    """How throughput grows with devices, on the solver inputs from which the paper's authors have it."""
    cells = artifact(folder)
    for planner, column in SCALED.items():
        if planner not in planners:
            continue
        for model in dict.fromkeys(cell.model for cell in cells):
            own = [cell for cell in cells if cell.model == model]
            published = [FIGURE_5[model][DEVICES.index(cell.devices)][column] for cell in own]
            ours = [_throughput(planner, cell) for cell in own]
            sizes = ", ".join(str(cell.devices) for cell in own[1:])
            pairs = list(zip(_grown(published), _grown(ours), strict=True))
            yield Reproduced(
                planner,
                f"throughput of {model} on {sizes} devices over {own[0].devices}",
                *(", ".join("-" if pair[side] is None else f"{pair[side]:.2f}" for pair in pairs) for side in (0, 1)),
                all(theirs and found and abs(found / theirs - 1) <= NEAR for theirs, found in pairs),
            )


def _throughput(planner: str, cell: Cell) -> float | None:
    """Samples per second of a planner's plan of a cell."""
    instance, solution = decided(planner, cell.problem())
    return None if solution is None else instance.space.global_batch / evaluate(instance, solution).batch_time


def _grown(values: Sequence[float | None]) -> list[float | None]:
    """All but the first, over the first."""
    return [value / values[0] if value and values[0] else None for value in values[1:]]


@frozen
class AlpaCase:
    """A GPT that Alpa's authors publish a plan of (alpa-projects/alpa, benchmark/alpa/suite_auto_gpt.py).

    Attributes:
        name: theirs.
        hidden: its width.
        layers: in number.
        heads: of attention.
        devices: of p3.16xlarge machines.
        micro_batches: of 1,024 sequences of 1,024 tokens.
        stages: devices of the submesh of each stage.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    devices: int
    micro_batches: int
    stages: tuple[int, ...]


ALPA = (
    AlpaCase("350M", 1024, 24, 16, 1, 512, (1,)),
    AlpaCase("760M", 1536, 24, 16, 2, 128, (1, 1)),
    AlpaCase("1.3B", 2048, 24, 32, 4, 128, (2, 2)),
    AlpaCase("2.6B", 2560, 32, 32, 8, 128, (2, 2, 4)),
    AlpaCase("6.7B", 4096, 32, 32, 16, 64, (8, 8)),
    AlpaCase("15B", 5120, 48, 40, 32, 128, (8,) * 4),
    AlpaCase("39B", 8192, 48, 64, 64, 1024, (4,) * 16),
)

RUNTIME = 5.8e9
"""Bytes that the catalogue has CUDA and PyTorch hold on a V100 beside tensors. Alpa counts tensors alone against the
16 GB of the device, so as many more are given."""


def alpa_problem(case: AlpaCase) -> dict[str, Any]:
    """Its GPT on machines of 8 V100 with 16 GB, 25 Gbit/s a machine, recomputation on as in their suite."""
    inside = {"name": "machine", "fanout": min(case.devices, 8), "bandwidth": 150e9, "latency": 3e-6}
    between = {"name": "network", "fanout": case.devices // 8, "bandwidth": 25e9 / 8 / 8, "latency": 20e-6}
    return {
        "nest": 1,
        "model": {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "n_layer": case.layers,
            "n_embd": case.hidden,
            "n_head": case.heads,
            "n_positions": 1024,
            "vocab_size": 51200,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "attn_pdrop": 0.0,
            "resid_pdrop": 0.0,
        },
        "training": {
            "global_batch": 1024,
            "sequence_length": 1024,
            "micro_batch": [size for size in (1, 2, 4, 8) if size * case.micro_batches <= 1024],
            "memory_margin": 0,
            "stack": "none",
            "precision": "fp16",
            "gradients": "fp16",
            "master_gradients": False,
            "schedule": "1f1b",
        },
        "cluster": {
            "device": "v100-sxm-32g",
            "memory": 16e9 + RUNTIME,
            "levels": [inside, between] if case.devices > 8 else [inside],
        },
        "strategies": {"cp": [1]},
        "constraints": [f"micro_batches == {case.micro_batches}"],
        "search": {"rank_order": ["pp-inner", "dp-inner"], "zero": [0, 1], "recompute": ["full"], "target": "none"},
    }


def alpas() -> Iterator[Reproduced]:
    """The submeshes of the stages of Alpa's published GPT plans."""
    for case in ALPA:
        instance, solution = decided("alpa", alpa_problem(case))
        stages: tuple[int, ...] = ()
        if solution is not None:
            stages = tuple(instance.candidates[each.candidate].width * solution.replicas for each in solution.stages)
        yield Reproduced(
            "alpa",
            f"submeshes of the stages of GPT {case.name} on {case.devices} V100",
            _shape(case.stages),
            _shape(stages) or "no plan",
            stages == case.stages,
        )


def _shape(stages: Sequence[int]) -> str:
    return f"{len(stages)} x {stages[0]}" if len(set(stages)) == 1 else ", ".join(map(str, stages))


def text(rows: Sequence[Reproduced]) -> str:
    """All of them as a table."""
    cells = [(row.planner, row.what, row.published, row.ours, "yes" if row.near else "no") for row in rows]
    return table(("planner", "what", "its authors", "ours", "within 5 %"), cells)


def reproduced(data: Path | None) -> list[Reproduced]:
    """Every figure that can be looked at; all but Alpa's need their folders of `data`."""
    found: list[Reproduced] = []
    parts: dict[str, Callable[[Path], Iterable[Reproduced]]] = {"piper": pipers, "dag": loads, "artifact": throughputs}
    for name, part in parts.items():
        if data is not None and (data / name).is_dir():
            found += part(data / name)
    return [*found, *alpas()]


if __name__ == "__main__":
    print(text(reproduced(Path(sys.argv[1]) if len(sys.argv) > 1 else None)))
