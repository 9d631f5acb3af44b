"""Single decisions as flags of Megatron-LM, or as keys of frameworks around it, for a file nest would not write."""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from nest.io import yaml_text
from nest_frameworks.megatron.notation import Flags, given_words
from nest_frameworks.megatron.training_flags import recompute_flags
from nest_frameworks.spelling import spelled

DIALECTS = {"megatron-bridge": "bridge", "ms-swift": "relatives.swift", "nemo": "relatives.nemo"}
"""Modules of frameworks whose keys are each one flag of Megatron-LM."""

SIZES = {
    "tp": "--tensor-model-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "cp": "--context-parallel-size",
    "ep": "--expert-model-parallel-size",
    "micro_batch": "--micro-batch-size",
}
SWITCHES = {
    "sp": "--sequence-parallel",
    "overlap.tensor": "--tp-comm-overlap",
    "overlap.experts": "--overlap-moe-expert-parallel-comm",
}

_STAGES = r"layout|(first|last)[-_]pipeline|layers[-_]per[-_]virtual"
_WITH = {
    "pp": rf"{_STAGES}|virtual",
    "chunks": _STAGES,
    "recompute": r"recompute[-_]activations|recompute[-_]method\W+block",
    "zero": r"fsdp|optimizer[-_]instances|overlap[-_](grad|param)",
    "overlap.data": r"fsdp",
}
"""Flags of a file that would have to change with a decision."""


def flags_of(decided: Mapping[str, Any], text: str) -> Flags | None:
    """Flags of decisions for the user's file `text`, those left out as None; None: more than these would change."""
    more = any(re.search(_WITH[name], text) for name in decided if name in _WITH)
    if more or ({"tp", "pp", "cp", "micro_batch"} & {*decided} and not re.search(r"global[-_]batch[-_]size", text)):
        return None
    sharded = re.search(r"use[-_]distributed[-_]optimizer", text) is not None
    flags: Flags = {}
    for name, value in decided.items():
        if name in SIZES:
            flags[SIZES[name]] = value
        elif name in SWITCHES:
            flags[SWITCHES[name]] = bool(value)
        elif name == "chunks":
            flags["--num-virtual-stages-per-pipeline-rank"] = value if value != 1 else None
        elif name == "zero" and value in (0, 1):
            flags["--use-distributed-optimizer"] = bool(value)
        elif name == "overlap.data":
            flags |= {"--overlap-grad-reduce": bool(value), "--overlap-param-gather": bool(value) and sharded}
        elif name == "recompute" and value in ("none", "selective", "full"):
            every = recompute_flags("full", ())
            given: Flags = every if value == "full" else {"--recompute-granularity": value} if value != "none" else {}
            flags |= dict.fromkeys(every) | given
        elif name != "schedule":
            return None
    return flags


def keys_of(framework: str, decided: Mapping[str, Any], text: str) -> str:
    """Lines with the flags or keys of single decisions, as the user's file `text` spells them; empty: not for all.

    An empty line: they have none.
    """
    flags = flags_of(decided, text)
    if flags is None or framework not in {"megatron", *DIALECTS}:
        return ""
    if framework == "megatron":
        words = given_words({"": flags})
        content = re.sub(r" (?=--)", "\n", " ".join(words))
    else:
        dialect = import_module(f"nest_frameworks.megatron.{DIALECTS[framework]}").DIALECT
        if any(value is not None and not dialect.sections(flags, {flag}) for flag, value in flags.items()):
            return ""
        content = yaml_text(dialect.sections(flags, flags))
    return spelled(content, text) or "\n"
