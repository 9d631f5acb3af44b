"""Real inputs, small enough that a command takes some hundredths of a second, by what they are."""

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import nest
import tests.bundled  # noqa: F401
from calibrate_tests.test_collective_measurements import OUTPUT
from frameworks_tests.test_megatron_read import DENSE, EXPERTS
from nest.io import unstructure
from nest_testing.samples import model_sources, topology_sources
from tests.plan.test_check import PROBLEM
from tests.plan.test_tampering import MIXED
from tests.pooled_problems import two_pools
from tests.spec.test_measurements import COLLECTIVE, OPERATOR, RUN
from tests.test_any_problem import CONFIGURED, DESCRIBED, MEASURED
from tests.test_first_plan import problem as tight

Input = tuple[str, Any]
"""A file's suffix, and its content: a mapping, or text."""

LOGS = Path(__file__).parents[2] / "plugins" / "nest-calibrate" / "tests" / "calibrate_tests" / "logs"
BASE = Path(__file__).parents[2] / "examples" / "measured-layers" / "problem.yaml"
NODE = {"name": "mm", "op": "aten.mm.default", "inputs": ["x", "p_w"], "shape": [[1, 8]]}
"""Of an exported program, which nest refuses without its plug-in."""
SCRIPT = {"--num-layers": "4", "--pipeline-model-parallel-size": "2", "--global-batch-size": "8"}


@cache
def inputs() -> dict[str, list[Input]]:
    """Inputs by kind."""
    small = {**DESCRIBED, "strategies": {**DESCRIBED["strategies"], "cp": [1], "ep": [1, 2], "etp": [1]}}
    configured = {**CONFIGURED, "strategies": {"tp": [1, 2], "cp": [1]}}
    zero = {**small, "search": {"zero_degree": [2, "all"], "zero": [1, 3]}, "fixed": {"pp": 2}, "constraints": []}
    plain: dict[str, Any] = {**PROBLEM, "fixed": {"pp": 2}}
    ring = {"torus": {"shape": [2, 2], "bandwidth": 10.0, "latency": 0.01}}
    torus = {**PROBLEM, "cluster": {"memory": 60.0, "topology": ring}}
    chunked = [
        {**each, "training": {**PROBLEM["training"], "schedule": name}, "constraints": ["pp > 1"]}
        for each, name in ((PROBLEM, "interleaved"), (torus, "zb-v"), (PROBLEM, "dualpipe-v"))
    ]
    searched = [MEASURED, torus, MIXED, two_pools(), *chunked]
    problems = [*searched, PROBLEM, plain, small, configured, zero]
    plans = [nest.solve(each).to_dict() for each in (*searched, tight(3.0))]
    plans += [
        nest.solve(PROBLEM, verify=True).to_dict(),
        nest.evaluate(plain).to_dict(),
        nest.evaluate(small).to_dict(),
    ]
    plans += [json.loads(path.read_text()) for path in (Path(str(files("nest_testing"))) / "data").glob("*.json")]
    model = {"transformer": DESCRIBED["model"]["transformer"]}
    collectives = [
        {**COLLECTIVE, "bytes": 2**n, "seconds": 1e-5 + 2.0**n / 3e10, "link": "nvlink4"} for n in range(9, 25)
    ]
    operators = [{**OPERATOR, "shape": {**OPERATOR["shape"], "rows": 2**n}, "seconds": 1e-6 * 2**n} for n in range(6)]
    runs = [{**RUN, "problem": {**DESCRIBED, "fixed": {"pp": 2}}, "measured": {"batch_time": 0.1 * n}} for n in (1, 2)]
    study = {"nest": 1, "base": str(BASE), "vary": {"cluster.memory": ["16 GB", "1 GB"]}, "time_limit": "5 s"}
    return {
        "study": [(".json", study), (".json", {**study, "points": [{"training.global_batch": 16, "fixed.pp": 2}]})],
        "problem": [(".json", each) for each in problems],
        "plan": [(".json", each) for each in sorted(plans, key=lambda each: json.dumps(each))],
        "model": [*((".json", unstructure(each)) for each in model_sources()), (".json", model), (".json", [NODE])],
        "network": _networks(),
        "collectives": [(".jsonl", _lines(collectives)), (".txt", OUTPUT)],
        "runs": [(".jsonl", _lines([*operators, *runs])), (".jsonl", _lines(operators))],
        "script": [(".sh", _script({**DENSE, **SCRIPT})), (".sh", _script({**EXPERTS, **SCRIPT}))],
        "log": [(".log", path.read_text()) for path in sorted(LOGS.glob("*.log"))],
        "profile": [(".json", {"tiers": [{"link": "infiniband-ndr"}], "devices_per_host": 4, "device": "h100-sxm"})],
    }


def _networks() -> list[Input]:
    found: list[Input] = []
    for each in topology_sources():
        if isinstance(each, Path):
            found.append((each.suffix, each.read_text()))
        elif not isinstance(each, str):
            found.append((".json", unstructure(each)))
    return found


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def _script(flags: dict[str, str]) -> str:
    words = " \\\n  ".join(f"{flag} {value}".strip() for flag, value in flags.items())
    return f"#!/bin/bash\ntorchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py \\\n  {words}\n"
