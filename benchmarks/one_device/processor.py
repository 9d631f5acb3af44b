"""A small Llama on processes of this machine's processor, beside what nest says from `nest profile` of it.

`python -m benchmarks.one_device.processor FOLDER`; needs nest-torch, PyTorch and transformers, and an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
import transformers
from torch import distributed

import nest_torch
from benchmarks.published.report import table
from nest.io import unstructure
from nest.spec import CollectiveMeasurement, OperatorMeasurement, PlanDocument, read_measurements

WARM, STEPS = 3, 10
"""Steps that are not timed, as they make the optimizer's state; and those whose median counts."""

SEQUENCE = 256
PLANS: tuple[tuple[int, Mapping[str, int]], ...] = (
    (1, {}),
    (2, {"dp": 2}),
    (2, {"tp": 2}),
    (2, {"pp": 2}),
    (4, {"dp": 4}),
    (4, {"tp": 2, "dp": 2}),
    (4, {"pp": 2, "dp": 2}),
)
"""Processes and the degrees of their plan."""

TRAVELS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""How often a ring sends each part of a buffer around (docs/explanation/problem.md, section 1)."""

TRAINING = {
    "global_batch": 8,
    "micro_batch": [1],
    "precision": "fp32",
    "kernels": "eager",
    "loss": "eager",
    "overlap": {"data": False},
}
"""Each call is an operator, and the cores that compute also communicate."""

KEPT = str(2**32)
ALONE = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "MALLOC_TRIM_THRESHOLD_": KEPT,
    "MALLOC_MMAP_THRESHOLD_": KEPT,
}
"""A thread for each process, which keeps the memory that it frees: fresh pages take longer than small operators."""


def made() -> Any:
    """The module, in single precision."""
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=4096,
            hidden_size=384,
            intermediate_size=1024,
            num_hidden_layers=4,
            num_attention_heads=6,
            max_position_embeddings=SEQUENCE,
            use_cache=False,
        )
    )


def profiled(folder: Path, processes: int, seconds: float) -> dict[str, Any]:
    """The device as each of some processes has it, all at work.

    Its roofs are the fastest product and the longest stream. A table for `costs: measured` has the times of the
    operators of all plans.
    """
    graph, problem = folder / "graph.json", folder / "problem.json"
    with torch.device("meta"):
        graph.write_text(json.dumps(unstructure(nest_torch.capture(made(), (), keywords=inputs(), fused=False))))
    begun = {"name": "processor", "memory": 4e9, "memory_bandwidth": 1e10, "peak": {"fp32": 1e11}}
    cluster = {"device": begun, "levels": [{"fanout": 2, "bandwidth": 1e9}]}
    problem.write_text(json.dumps({"nest": 1, "model": "graph.json", "cluster": cluster, "training": TRAINING}))
    found = folder / f"operators_{processes}.jsonl"
    common = ("profile", "--device", "cpu", "--precision", "fp32", "--processes", str(processes), "--output")
    _nest(*common, str(found), "--model", str(problem), "--seconds", str(seconds))
    kinds = ("--kind", "update", "--kind", "launch", "--kind", "copy", "--seconds", str(seconds / 4))
    _nest(*common, str(folder / "others.jsonl"), *kinds)
    found.write_text(found.read_text() + (folder / "others.jsonl").read_text())
    rows = [each for each in read_measurements(found) if isinstance(each, OperatorMeasurement)]
    begun["peak"] = {"fp32": max(_flops(each) / each.seconds for each in rows)}
    stream = max(rows, key=lambda each: each.bytes or 0)
    begun["memory_bandwidth"] = (stream.bytes or 0) / stream.seconds
    _nest("measured", "profile", str(found), "--device", "processor", "--output", str(folder / f"{processes}.json"))
    return begun


def _flops(measured: OperatorMeasurement) -> float:
    sizes = ("batch", "rows", "columns", "contracted")
    return 2.0 * numpy.prod([measured.size(name) for name in sizes]) if measured.kind == "matmul" else 0.0


def level(folder: Path, processes: int, placed: int, seconds: float) -> dict[str, Any]:
    """Latency and bandwidth between processes: least squares of relative errors over rings of every size."""
    found = folder / f"gloo_{processes}_{placed}.jsonl"
    options = ["--device", "cpu", "--precision", "fp32", "--seconds", str(seconds), "--output", str(found)]
    options += ["--placed", str(placed)]
    _nest("profile", "--processes", str(processes), *options)
    rows = [each for each in read_measurements(found) if isinstance(each, CollectiveMeasurement)]
    rings = [(TRAVELS[each.kind] * (each.members - 1), each) for each in rows if each.kind in TRAVELS]
    terms = numpy.array([(steps, steps * each.bytes / each.members) for steps, each in rings])
    times = numpy.array([each.seconds for _, each in rings])
    (latency, per_byte), *_ = numpy.linalg.lstsq(terms / times[:, None], numpy.ones(len(times)))
    return {"name": "host", "fanout": processes, "latency": max(float(latency), 0.0), "bandwidth": 1 / float(per_byte)}


def planned(device: Mapping[str, Any], host: Mapping[str, Any], fixed: Mapping[str, int]) -> PlanDocument:
    """The fastest plan of these degrees; operators are those of eager mode."""
    with torch.device("meta"):
        module = made()
    more = {"training": TRAINING, "fixed": dict(fixed), "fused": False, "costs": "measured"}
    return nest_torch.plan(module, inputs(), {"device": dict(device), "levels": [dict(host)]}, **more)


def inputs() -> dict[str, Any]:
    """A sample."""
    return {"input_ids": torch.zeros(1, SEQUENCE, dtype=torch.long)}


def measured(plan: Path, processes: int) -> list[float]:
    """Seconds of each timed step, as the first process of the plan's sees them."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    here = ["-m", "benchmarks.one_device.processor", "--plan", str(plan), str(plan.parent)]
    done = subprocess.run([*command, *here], env=ALONE, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        sys.exit(done.stderr)
    return list(json.loads(done.stdout.splitlines()[-1]))


def train(plan: Path) -> None:
    """Train by a plan as one of its processes; the first prints the seconds of each step."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    parallel = nest_torch.apply(
        made(), str(plan), nest_torch.mesh(str(plan), "cpu"), example_inputs=inputs(), check=False
    )
    groups: dict[Any, list[Any]] = {}  # PyTorch's fused kernel takes parameters of one mesh.
    for each in parallel.parameters():
        groups.setdefault(getattr(each, "device_mesh", None), []).append(each)
    optimizer = torch.optim.AdamW([{"params": each} for each in groups.values()], lr=1e-4, fused=True)
    torch.manual_seed(parallel.data_rank)
    tokens = torch.randint(0, 4096, (parallel.batch, SEQUENCE + 1))
    seconds = []
    for _ in range(WARM + STEPS):
        distributed.barrier()
        start = time.perf_counter()
        parallel.step({"input_ids": tokens[:, :-1]}, tokens[:, 1:])
        optimizer.step()
        optimizer.zero_grad()
        distributed.barrier()
        seconds.append(time.perf_counter() - start)
    if distributed.get_rank() == 0:
        print(json.dumps(seconds[WARM:]))
    distributed.destroy_process_group()


def _nest(*arguments: str) -> None:
    done = subprocess.run(["nest", *arguments], env=ALONE, capture_output=True, text=True, check=False)
    print(done.stderr, end="", file=sys.stderr)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    """Profile, plan, train, compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one_device.processor", description=__doc__)
    parser.add_argument("folder", type=Path, help="where profiles and plans go")
    parser.add_argument("--seconds", type=float, default=20, help="of each profile")
    parser.add_argument("--plan", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plan is not None:
        train(given.plan)
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    rows, devices = [], {}
    levels: dict[tuple[int, int], dict[str, Any]] = {(1, 0): {"name": "host", "fanout": 1, "bandwidth": 1e9}}
    for processes, fixed in PLANS:
        if processes not in devices:
            devices[processes] = profiled(given.folder, processes, given.seconds)
        link = processes, fixed.get("tp", 0)
        if link not in levels:
            levels[link] = level(given.folder, *link, given.seconds)
        os.environ["NEST_MEASURED_TABLE"] = str(given.folder / f"{processes}.json")
        plan = planned(devices[processes], levels[link], fixed)
        name = " ".join(f"{key} {degree}" for key, degree in fixed.items()) or "whole"
        path = given.folder / f"{name.replace(' ', '_')}_{processes}.json"
        path.write_text(json.dumps(plan.to_dict()))
        seconds = statistics.median(measured(path, processes))
        span = plan.batch_time_range
        low, high = span.low, span.high
        told = f"{plan.batch_time:.3f} ({low:.3f} to {high:.3f})"
        inside = "yes" if low <= seconds <= high else "no"
        rows.append((str(processes), name, told, f"{seconds:.3f}", f"{seconds / plan.batch_time:.2f}", inside))
    print("\n".join(table(("processes", "plan", "predicted, s", "measured, s", "ratio", "in range"), rows)))


if __name__ == "__main__":
    main()
