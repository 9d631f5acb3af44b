"""Small plans for exporters, made by `nest.evaluate` of fixed decisions."""

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from attrs import evolve

import nest
from nest.formulate.from_flags import Start, start
from nest.hooks.pipelines import deployed
from nest.spec import PlanDocument

DENSE: Mapping[str, Any] = {"layers": 8, "hidden": 512, "ffn": 1536, "heads": 8, "kv_heads": 4, "vocab": 4096}
SPARSE: Mapping[str, Any] = {**DENSE, "experts": 8, "top_k": 2, "moe_ffn": 768}
LEVELS = (
    {"name": "node", "fanout": 4, "bandwidth": "400 GB/s", "link": "nvlink"},
    {"name": "rack", "fanout": 4, "bandwidth": "50 GB/s", "link": "infiniband"},
)


def problem(fixed: Mapping[str, Any], model: Mapping[str, Any] = DENSE, **training: Any) -> dict[str, Any]:
    """A problem on 16 devices in 4 nodes."""
    return {
        "nest": 1,
        "model": {"transformer": dict(model)},
        "training": {"global_batch": 32, "sequence_length": 256, **training},
        "cluster": {"device": "h100-sxm", "levels": [dict(level) for level in LEVELS]},
        "fixed": dict(fixed),
    }


def plan(fixed: Mapping[str, Any], model: Mapping[str, Any] = DENSE, **training: Any) -> PlanDocument:
    """The plan of these decisions, a copy of its own."""
    return deepcopy(_evaluated(json.dumps(problem(fixed, model, **training))))


@lru_cache(maxsize=256)
def _evaluated(text: str) -> PlanDocument:
    """Many tests ask for the same plan."""
    return nest.evaluate(json.loads(text))


def on_stack(document: PlanDocument, stack: str) -> PlanDocument:
    """The decisions of a plan on another software stack, all else of the training as usual."""
    said = document.problem["training"]
    training = {key: said[key] for key in ("global_batch", "sequence_length", "schedule")}
    return nest.evaluate({**document.problem, "training": {**training, "stack": stack}})


def read_back(document: PlanDocument, text: str, file: Path, framework: str) -> Start:
    """What a framework's file says on the cluster of the plan that it was written for."""
    cluster = file.parent / "cluster.json"
    file.write_text(text)
    cluster.write_text(json.dumps({"cluster": document.problem["cluster"]}))
    return start(file, framework, cluster=str(cluster))


def assert_same_run(document: PlanDocument, again: PlanDocument) -> None:
    """A plan that was written and read again is deployed alike, as fast, and as large."""
    ours, theirs = deployed(document), deployed(again)
    if ours.data_parallel * ours.cp == 1:  # Nothing is sharded over one rank.
        ours, theirs = evolve(ours, zero=()), evolve(theirs, zero=())
    if theirs.zero_degree is None:  # As many as there are, or nothing to shard.
        ours = evolve(ours, zero_degree=None)
    assert theirs == ours
    assert again.batch_time == document.batch_time
    assert [stage.memory for stage in again.stages] == [stage.memory for stage in document.stages]
