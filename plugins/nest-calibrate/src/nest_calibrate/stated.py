"""Facts of a run's source beside its problem, as keys (`stated` of docs/reference/measurements.md)."""

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from nest.spec import Problem

WORDS: Mapping[str, Mapping[Any, Mapping[str, str]]] = {
    "attention_kernel": {
        **{each: {"attention_kernel": each} for each in ("flash2", "flash3", "cudnn")},
        "unfused": {"attention": "unfused"},
    },
    "dispatcher": {"alltoall": {"dispatch": "all-to-all"}},
    "grouped_gemm": {True: {"expert_products": "grouped"}, False: {"expert_products": "sequential"}},
    "fused_norm": {True: {"norms": "fused"}, False: {"norms": "eager"}},
    "graphs": {
        "layers": {"graphs": "layers"},
        "iteration": {"graphs": "iteration"},
        "layers or iteration": {"graphs": "layers"},
        "not stated for the whole iteration": {"graphs": "none"},
    },
    "host": {each: {"host": each} for each in ("x86", "grace")},
    "kernels": {"compiled": {"kernels": "fused"}, "eager": {"kernels": "eager"}},
}
"""Facts of a source, what they may say, and the keys of `training` that say so; others are for people."""


def with_stated(problem: Problem, stated: Mapping[str, Any]) -> Problem:
    """`problem` with keys of `training` that it leaves out as its source states them."""
    said: dict[str, Any] = {}
    for fact, words in WORDS.items():
        value = stated.get(fact)
        said |= words.get(value, {}) if isinstance(value, str | bool) else {}
    left_out = {key: value for key, value in said.items() if getattr(problem.training, key) is None}
    return evolve(problem, training=evolve(problem.training, **left_out)) if left_out else problem
