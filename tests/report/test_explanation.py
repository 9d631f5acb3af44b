"""Explanations in sentences: what is said of ends that tests of searches seldom meet."""

from typing import Any

import pytest

from nest.report.explanation import explanation_text

PLAN: dict[str, Any] = {
    "status": "optimal",
    "plan": "tp 2, pp 1, replicas 4, micro-batch 1",
    "batch_time": 2.0,
    "diagnosis": None,
    "best_batch_time": 2.0,
    "best_status": "optimal",
    "best_diagnosis": None,
    "searched": True,
    "parts": [],
    "binding": [],
    "constraints": [],
    "alternatives": [],
    "flips": [],
    "solves": 3,
}
FOUND: dict[str, Any] = {
    "plan": "pp 2, replicas 4, micro-batch 1",
    "batch_time": 2.1,
    "relative": 0.05,
    "changes": [{"name": "tp", "before": "2", "now": "1"}, {"name": "pp", "before": "1", "now": "2"}],
    "reason": "the pipeline bubble takes 5.00% of the batch time more",
    "refusal": None,
    "proved": True,
}
NONE: dict[str, Any] = {**FOUND, "plan": None, "batch_time": None, "relative": None, "changes": [], "reason": None}


def alternative(**told: Any) -> str:
    other = {"decision": "tp", "value": "2", "asked": "tp != 2", "instead": "1", **FOUND, **told}
    return explanation_text({**PLAN, "parts": ["alternatives"], "alternatives": [other]}).splitlines()[-1]


def flip(**told: Any) -> str:
    other = {
        "parameter": "bandwidth of rack", "unit": "bytes/s", "value": 50e9, "direction": "less", "same_at": 40e9,
        "changed_at": 39.8e9, "kept": 0.001, "outcome": FOUND, "proved": True, **told,
    }  # fmt: skip
    return explanation_text({**PLAN, "parts": ["flips"], "flips": [other]}).splitlines()[-1]


def price(**told: Any) -> str:
    other = {"place": "constraints[0]", "written": "pp == 1", "instead": "", "costs": True, **FOUND, **told}
    return explanation_text({**PLAN, "parts": ["constraints"], "constraints": [other]}).splitlines()[-1]


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ({}, "tp 1 instead of 2, with pp 1 -> 2: +5.00%, as the pipeline bubble takes 5.00% of the batch time more"),
        ({"reason": None, "relative": 0.0}, "tp 1 instead of 2, with pp 1 -> 2: as fast"),
        ({"relative": 1e-6}, "tp 1 instead of 2, with pp 1 -> 2: slower by less than 0.01%"),
        ({**NONE, "refusal": "Memory is tightest."}, "tp other than 2: no plan. Memory is tightest."),
        (
            {**NONE, "asked": "", "refusal": "fixed.tp decides it"},
            "not to be had otherwise: tp 2 (fixed.tp decides it)",
        ),
    ],
)
def test_alternatives(told: dict[str, Any], line: str) -> None:
    assert alternative(**told) == f"- {line}"


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (
            {},
            "bandwidth of rack (now 50 GB/s): down to 40 GB/s its decisions stay the best; with less, at 39.8 GB/s, "
            "the best has tp 2 -> 1, pp 1 -> 2 (2.1 s a batch)",
        ),
        (
            {"changed_at": None, "outcome": None, "proved": False},
            "nothing changes with bandwidth of rack (now 50 GB/s) down to 40 GB/s (not searched to the end)",
        ),
        (
            {"parameter": "memory", "unit": "bytes", "value": 2**36, "same_at": 2**35, "changed_at": 2**35 * (1 - 1e-6),
             "kept": None},
            "memory (now 64 GiB): down to 32 GiB its decisions stay the best; with less, the best has tp 2 -> 1, "
            "pp 1 -> 2, as this one no longer fits (2.1 s a batch)",
        ),
        (
            {"parameter": "memory", "unit": "bytes", "value": 2**36, "same_at": 2**35, "changed_at": 2**35 * (1 - 1e-6),
             "kept": None, "outcome": NONE},
            "memory (now 64 GiB): down to 32 GiB its decisions stay the best; with less, no plan is feasible",
        ),
        (
            {"parameter": "global batch", "unit": "samples", "value": 64, "same_at": 64, "changed_at": 32},
            "global batch (now 64 samples): at 32 samples, the best has tp 2 -> 1, pp 1 -> 2 (2.1 s a batch)",
        ),
    ],
)  # fmt: skip
def test_flips(told: dict[str, Any], line: str) -> None:
    assert flip(**told) == f"- {line}"


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (
            {"relative": -0.05, "reason": "recomputation takes 5.00% of the batch time less"},
            "without `pp == 1`: 5.00% faster (tp 2 -> 1, pp 1 -> 2): recomputation takes 5.00% of the batch time less",
        ),
        ({"relative": -1e-6}, "without `pp == 1`: faster by less than 0.01% (tp 2 -> 1, pp 1 -> 2)"),
        ({"relative": 0.0, "costs": False}, "no cost: `pp == 1`"),
        ({**NONE, "costs": False, "refusal": "Why not."}, "without `pp == 1`: no plan was found. Why not."),
    ],
)
def test_prices(told: dict[str, Any], line: str) -> None:
    assert price(**told) == f"- {line}"


def test_a_part_without_anything_says_so() -> None:
    assert explanation_text({**PLAN, "parts": ["constraints"]}).endswith("- nothing that was asked for")
