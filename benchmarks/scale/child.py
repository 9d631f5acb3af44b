"""The process that is measured in process: `python -m benchmarks.scale.child FILE...` prints an answer a line.

Solvers are imported before the first clock starts; readers of files load with the first file, and count as reading.
"""

import json
import sys
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

from nest.errors import NestError
from nest.formulate.instance import build_instance
from nest.formulate.problem import self_contained
from nest.hooks.registry import Registry, registry
from nest.instance import Instance, Solution
from nest.io import read
from nest.plan.evaluate import evaluate
from nest.solve.solver import solve_on_levels as solve
from nest.spec import Problem


def answer(path: Path, known: Registry) -> dict[str, Any]:
    """What planning the problem at `path` gives, and the seconds that reading, formulating and solving it take."""
    clock = [perf_counter()]
    try:
        problem = self_contained(read(path, Problem), path.parent)
        clock.append(perf_counter())
        instance = build_instance(problem, known)
        clock.append(perf_counter())
        result = solve(instance)
    except NestError as error:
        return {"status": "refused", "message": str(error), **_spent([*clock, perf_counter()])}
    clock.append(perf_counter())
    return {
        "status": result.status,
        "batch_time": result.batch_time,
        "lower_bound": result.lower_bound,
        "stages": [] if result.solution is None else _stages(instance, result.solution),
        "statistics": dict(result.statistics),
        **_spent(clock),
    }


def _spent(clock: list[float]) -> dict[str, float]:
    spent = [end - start for start, end in pairwise(clock)]
    return dict(zip(("read", "formulate", "solve"), [*spent, 0.0, 0.0], strict=False))


def _stages(instance: Instance, solution: Solution) -> list[dict[str, Any]]:
    times = [stage.time for stage in evaluate(instance, solution).stages]
    return [
        {"layers": list(stage.layers), "candidate": instance.candidates[stage.candidate].name, "time": time}
        for stage, time in zip(solution.stages, times, strict=True)
    ]


if __name__ == "__main__":
    plugins = registry()
    for name in sys.argv[1:]:
        print(json.dumps(answer(Path(name), plugins), default=str), flush=True)
