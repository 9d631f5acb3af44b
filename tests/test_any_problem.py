"""Whatever a problem says, the answer is a plan, a diagnosis or plain sentences: never anything else."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nest
from nest.errors import InputError
from nest.io import read_mapping

REPOSITORY = Path(__file__).resolve().parent.parent
MEASURED = read_mapping(REPOSITORY / "examples" / "measured-layers" / "problem.yaml").mapping
DESCRIBED: dict[str, Any] = {
    "nest": 1,
    "model": {
        "transformer": {
            "layers": 3, "hidden": 256, "ffn": 512, "heads": 8, "vocab": 1000, "experts": 4, "top_k": 2, "moe_ffn": 128,
            "dense_layers": 1,
            "mla": {
                "q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
            },
        },
    },
    "training": {
        "global_batch": 16, "sequence_length": 512, "micro_batch": [1, 2], "precision": "bf16",
        "schedule": ["1f1b", "gpipe"], "overlap": {"data": True}, "uneven_batch": True,
    },
    "cluster": {
        "device": {
            "name": "own", "memory": "80 GB", "memory_bandwidth": "3 TB/s", "peak": {"bf16": "1 PFLOP/s"},
            "efficiency": {"matmul": 0.6},
        },
        "levels": [
            {"name": "node", "fanout": 4, "bandwidth": "450 GB/s", "latency": "3 us", "link": "nvlink"},
            {"name": "rack", "fanout": 2, "bandwidth": "50 GB/s", "latency": "6 us"},
        ],
        "reserve": "1 GB",
    },
    "strategies": {"tp": [1, 2], "sp": True},
    "search": {"zero": [0, 1], "rank_order": ["pp-inner"], "recompute": ["none", "full"]},
    "constraints": ["tp <= 4", "dp % 2 == 0", "uniform(zero)"],
    "fixed": {"tp": 2, "recompute": "none"},
}  # fmt: skip
CONFIGURED: dict[str, Any] = {
    **DESCRIBED,
    "model": {
        "model_type": "llama",
        "num_hidden_layers": 3,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        "tie_word_embeddings": False,
    },
}

ODD: list[Any] = [
    None, True, False, 0, 1, 2, 3, 5, -1, 64, 0.5, 1e300, -1e300, 1e-300, 2**53, 10**12, 10**400, float("nan"),
    float("inf"), "", " ", "x", "5", "tp", "none", "450 GB/s", "3 us", "1 GiB", "a" * 400, "\ud800", "\0", [], {}, [0],
    [1, 2], ["a"], [[0, 1]], {"a": 1}, {1: 2}, (1, 2), b"x",
]  # fmt: skip
KEYS = ["", "foo", "tp", "layers", "fanout", "mla", "experts", "topology", "name", "stages", "costs", "mixed", "fixed"]


def paths(value: Any, steps: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if steps:
        yield steps
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in rows:
        yield from paths(item, (*steps, step))


@st.composite
def mutations(draw: st.DrawFn) -> dict[str, Any]:
    """A valid problem of which one or two things are deleted, replaced or added."""
    problem = copy.deepcopy(draw(st.sampled_from([MEASURED, DESCRIBED, CONFIGURED])))
    for _ in range(draw(st.integers(1, 2))):
        steps = draw(st.sampled_from(sorted(paths(problem), key=repr) or [("nest",)]))
        above: Any = problem
        for step in steps[:-1]:
            above = above[step]
        action = draw(st.sampled_from(["delete", "replace", "replace", "add"]))
        odd = copy.deepcopy(draw(st.sampled_from(ODD)))
        if action == "replace":
            above[steps[-1]] = odd
        elif action == "delete":
            above.pop(steps[-1], None) if isinstance(above, dict) else above.pop(steps[-1])
        elif isinstance(above, dict):
            above[draw(st.sampled_from(KEYS))] = odd
        else:
            above.insert(0, odd)
    return problem


def answered(problem: dict[str, Any], solve: bool) -> str:
    """The status of the answer; an answer is written, read and checked without complaint."""
    try:
        plan = nest.solve(problem) if solve else nest.evaluate(problem)
    except InputError as error:
        return "refused" if 0 < len(str(error)) < 5000 else f"told in {len(str(error))} characters"
    text = json.dumps(plan.to_dict(), allow_nan=False)
    report = nest.check(json.loads(text))
    assert report.ok, report.disagreements
    return plan.status


@pytest.mark.longer
def test_the_problems_are_answered_as_they_are() -> None:
    for problem in (MEASURED, DESCRIBED, CONFIGURED):
        assert answered(problem, True) == "optimal"
        assert answered(problem, False) == "feasible"


@pytest.mark.longer
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(mutations(), st.booleans())
def test_any_problem_is_answered_or_refused(problem: dict[str, Any], solve: bool) -> None:
    assert answered(problem, solve) in ("optimal", "feasible", "infeasible", "refused")
