"""Random plans whose stages all take as long, in forward and in backward passes, boundaries included."""

from functools import cache
from random import Random
from typing import Any

from nest import evaluate
from nest.formulate.fixed_plan import decided_instance
from nest.formulate.problem import carried_problem
from nest.hooks.registry import registry
from nest.instance import ChunkedSchedule, Instance, Schedule, Solution, admits, chunks_of
from nest.plan.document import solution_of
from nest.spec import PlanDocument
from tests.measured import profile

SCHEDULES = tuple(registry().schedules())
BANDWIDTH, LATENCY = 100.0, 0.01

THIRDS = tuple(name for name in SCHEDULES if name not in ("1f1b", "gpipe", "nest", "interleaved"))
"""Those whose weights are exact in a cone of parts of times only; all of them where the parts take equally long."""


@cache
def uniform_plan(seed: int, schedule: str, *, ports: bool = False) -> PlanDocument:
    """A plan of 1 to 8 stages; what the ends of the pipeline do not receive, they compute longer.

    With `ports`, stages wait for them; what is sent once per batch may hide, and mostly waits for them, too.
    """
    draw = Random(f"{schedule} {seed}")
    made: Schedule = registry().schedules()[schedule]
    if isinstance(made, ChunkedSchedule):
        made = made.with_chunks(draw.randint(2, 4))
    chunks, thirds = chunks_of(made), schedule in THIRDS
    shapes = [(stages, count) for stages in range(1, 9) for count in range(1, 29) if admits(made, stages, count)]
    stages = draw.choice(sorted({stages for stages, _ in shapes}))
    micro_batches = draw.choice([count for each, count in shapes if each == stages])
    replicas, layers = draw.randint(1, 3), stages * chunks * draw.randint(1, 2)
    size = 0.0 if thirds else draw.choice([0.0, 3.0])
    message = LATENCY + size / BANDWIDTH if size else 0.0
    forward = [draw.uniform(0.5, 2.0)] * layers
    backward = [2 * forward[0] if thirds else draw.uniform(0.5, 3.0)] * layers
    forward[0] += message
    backward[-1] += message
    parameters = draw.uniform(1.0, 50.0)
    zero = draw.choice([0, 1]) if thirds else draw.choice([0, 1, 2, 3])
    fixed: dict[str, Any] = {"pp": stages, "replicas": replicas, "zero": zero, "stages": [layers // stages] * stages}
    if chunks > 1:
        fixed = {**fixed, "chunks": chunks}
        del fixed["stages"]
    problem: dict[str, Any] = {
        "nest": 1,
        "profile": profile(
            forward,
            backward,
            state={
                **dict.fromkeys(("weights", "gradients"), [parameters] * layers),
                "optimizer": [6 * parameters] * layers,
                "update": [draw.uniform(0.0, 1.0)] * layers,
            },
            kept={
                "extra": [0.0 if thirds else draw.uniform(0.0, 1.0)] * layers,
                "first": [5.0] * layers,
                "more": [4.0] * layers,
                "peak": [draw.uniform(0.0, 3.0)] * layers,
                # Chunks that keep different amounts would not be uniform.
                "stash_inputs": chunks == 1 and draw.choice([False, True]),
            },
            sent=size,
        ),
        "training": {"global_batch": replicas * micro_batches, "schedule": schedule},
        "cluster": {
            "levels": [{"name": "rack", "fanout": stages * replicas, "bandwidth": BANDWIDTH, "latency": LATENCY}],
            "memory": 1e6,
        },
    }
    if ports:
        busy = [sum(times) * draw.uniform(0.9, 1.5) for times in zip(forward, backward, strict=True)]
        busy = [max(busy) + message * (layer == 0) + message * (layer == layers - 1) for layer in range(layers)]
        problem["profile"]["candidates"][0]["busy"] = [busy]
        problem["training"]["exposed"] = draw.choice([0.0, 0.3, 1.0])
    return evaluate(problem, fix=fixed)


def decided(plan: PlanDocument) -> tuple[Instance, Solution]:
    """A plan's problem in numbers, and its decisions."""
    instance = decided_instance(carried_problem(plan, registry()), plan, registry())
    return instance, solution_of(instance, plan)
