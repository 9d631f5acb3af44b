"""Hetu-Galvatron: a plan layer by layer, the one format that states recomputation for each of them.

Keys: galvatron/utils/config_utils.py (`config2strategy`) and galvatron/core/runtime/hybrid_parallel_config.py
(`get_hybrid_parallel_configs_api`) of github.com/PKU-DAIR/Hetu-Galvatron, commit cea12ff; what the file has no key for
are fields of galvatron/core/runtime/args_schema.py, which its launcher takes as `runtime.SECTION.FIELD=VALUE`.
"""

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from nest.deployment import Deployment
from nest.spec import PlanDocument, Problem
from nest_frameworks.common import checked, problem_of
from nest_frameworks.limits import ULYSSES, Asked, gradient_format, meshes

JSON_FILE = "galvatron_config.json"
SCRIPT_FILE = "galvatron_overrides.sh"
FOLDER = '$(dirname "${BASH_SOURCE[0]}")'
"""The folder of the script, in bash."""

PIPELINES = {"1f1b": "pipedream_flush", "gpipe": "gpipe"}
"""`pipeline_type` by the name of the schedule (args_schema.py)."""

DEFAULTS = {0: "ddp", 1: "zero2", 2: "zero2", 3: "zero3"}
"""`default_dp_type` by ZeRO stage. With `async_grad_reduce` FSDP keeps gradients and weights whole until the last
micro-batch (runtime/pipeline/pipeline.py, `enter_no_sync_context`), so that `zero2` then is ZeRO 1."""


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`galvatron_config.json` and `galvatron_overrides.sh`.

    Raises:
        InputError: Galvatron cannot run the plan, and why.
    """
    problem = problem_of(plan)
    shape = checked(plan, meshes.galvatron(Asked.of(problem)), "Galvatron")
    strategy = json.dumps(_strategy(shape), indent=4) + "\n"
    return {JSON_FILE: strategy, SCRIPT_FILE: _script(shape, problem)}


def _strategy(shape: Deployment) -> dict[str, Any]:
    blocks = shape.blocks
    ulysses = shape.degree(ULYSSES)

    def alike(value: int) -> str:
        return _encoded([value] * blocks)

    recomputed = [int(place < shape.recomputed(run)) for run in shape.runs for place in range(len(run.blocks))]
    return {
        "pp_deg": shape.stages,
        "tp_sizes_enc": alike(max(shape.tp, ulysses)),
        "tp_consecutive_flags": alike(1),
        "cp_sizes_enc": alike(shape.cp),
        "dp_types_enc": alike(int(shape.zero[0] == 3)),
        "use_sp": alike(int(ulysses > 1)),
        "ep_sizes_enc": alike(shape.ep),
        "tp_of_ep_sizes_enc": alike(shape.etp),
        "checkpoint": _encoded(recomputed),
        "global_bsz": shape.global_batch,
        "chunks": shape.micro_batches,
        "pp_division": _encoded(len(run.blocks) for run in shape.runs),
        "pipeline_type": PIPELINES.get(shape.schedule, "gpipe"),
        "default_dp_type": DEFAULTS[shape.zero[0]],
        "vtp": max(shape.tp, ulysses),
        "vsp": int(ulysses > 1),
        "vcp": shape.cp,
        "vocab_sdp": int(shape.zero[0] == 3),
        "embed_sdp": int(shape.zero[0] == 3),
    }


def _encoded(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def _script(shape: Deployment, problem: Problem) -> str:
    """A bash array of what the launcher is overrides beside the strategy file."""
    every_micro_batch = shape.zero[0] >= 2 and shape.micro_batches > 1
    overrides: dict[str, object] = {
        "runtime.parallel.mixed_precision": problem.training.precision,
        "runtime.parallel.async_grad_reduce": not every_micro_batch,
        "runtime.train.sequence_parallel": shape.sequence_parallel,
        "runtime.train.global_batch_size": shape.global_batch,
        "runtime.train.chunks": shape.micro_batches,
        "runtime.model.num_layers": shape.blocks,
        # Left out, it reduces in the format of products (core/runtime/parallel.py, `reduce_dtype`).
        "runtime.parallel.reduce_in_fp32": gradient_format(problem.training) == "fp32",
    }
    if shape.sequence_length is not None:
        overrides["runtime.train.seq_length"] = shape.sequence_length
    if shape.cp > 1:
        overrides["runtime.parallel.cp_mode"] = "ring"
    # Galvatron refuses the path of a file without a folder (utils/config_utils.py, `read_json_config`).
    lines = [f'  runtime.parallel.galvatron_config_path="{FOLDER}/{JSON_FILE}"']
    lines += [f"  {shlex.quote(f'{key}={value}')}" for key, value in overrides.items()]
    head = ["#!/usr/bin/env bash", '# torchrun ... train_dist.py scripts/train_dist.yaml "${GALVATRON_OVERRIDES[@]}"']
    return "\n".join([*head, "GALVATRON_OVERRIDES=(", *lines, ")"]) + "\n"
