"""From a plan to flags and back: the same decisions, the same bytes, the same step time."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

import nest
from frameworks_tests.megatron_plans import LEVELS, problems
from frameworks_tests.plans import problem as asked
from nest.formulate.from_flags import start
from nest.formulate.model import resolve_model
from nest.hooks.architectures import architecture_of
from nest.hooks.pipelines import deployed
from nest.io import structure, unstructure
from nest.spec import PlanDocument, Problem
from nest_frameworks.limits import Asked
from nest_frameworks.limits.megatron import feed_forwards
from nest_frameworks.megatron.flags import export
from nest_frameworks.megatron.parallel_flags import PIPELINE_INNER_ORDER, order_of
from nest_frameworks.megatron.reading.read import read_megatron
from tests.conformance.plans import PROBLEMS


def back(plan: PlanDocument, text: str, name: str, folder: Path) -> PlanDocument:
    """The plan that exported flags describe on the same cluster."""
    flags, cluster = folder / name, folder / "cluster.json"
    flags.write_text(text)
    cluster.write_text(json.dumps({"cluster": plan.problem["cluster"]}))
    found = start(flags, "megatron", cluster=str(cluster))
    assert [note for note in found.notes if "all devices of the cluster are taken" not in note] == []
    shape = deployed(plan)
    decisions: dict[str, Any] = {"dp": shape.data_parallel}
    if order_of(shape, Asked.of(structure(plan.problem, Problem)).transformer) != PIPELINE_INNER_ORDER:
        decisions["rank_order"] = shape.rank_order  # Which flags leave to the files that place ranks.
    return nest.evaluate(found.problem, fix=decisions)


DEFAULTS = {
    "accumulate_allreduce_grads_in_fp32": "False",
    "add_bias_linear": "True",
    "attention_backend": "AttnBackend.auto",
    "context_parallel_size": "1",
    "cp_comm_type": "['p2p']",
    "cross_entropy_fusion_impl": "native",
    "cuda_graph_impl": "none",
    "data_parallel_sharding_strategy": "no_shard",
    "exp_avg_dtype": "torch.float32",
    "exp_avg_sq_dtype": "torch.float32",
    "expert_model_parallel_size": "1",
    "fp8": "None",
    "group_query_attention": "False",
    "kv_lora_rank": "32",
    "main_grads_dtype": "torch.float32",
    "moe_layer_freq": "1",
    "moe_router_topk": "2",
    "moe_token_dispatcher_type": "allgather",
    "mtp_num_layers": "None",
    "num_distributed_optimizer_instances": "1",
    "num_experts": "None",
    "num_query_groups": "1",
    "optimizer": "adam",
    "overlap_p2p_comm": "True",
    "pipeline_model_parallel_layout": "None",
    "qk_head_dim": "128",
    "recompute_granularity": "None",
    "recompute_modules": "['core_attn']",
    "transformer_impl": "transformer_engine",
    "v_head_dim": "128",
    "virtual_pipeline_model_parallel_size": "None",
}
"""Arguments of core_v0.16.1 that are printed whether or not a flag is given."""


def printed(text: str) -> str:
    """The flags of a map, as Megatron-LM prints them when it starts."""
    content = YAML(typ="safe", pure=True).load(StringIO(text))
    given = {flag.removeprefix("--").replace("-", "_"): value for flag, value in content["MODEL_ARGS"].items()}
    if given.pop("disable_bias_linear", False):
        given["add_bias_linear"] = False
    if given.pop("no_overlap_p2p_communication", False):
        given["overlap_p2p_comm"] = False
    named = {{"fp8_format": "fp8", "fp4_format": "fp4"}.get(name, name): value for name, value in given.items()}
    rows = {**DEFAULTS, **{name: str(value).replace("\\", "") for name, value in named.items()}}
    told = [f"  {name} {'.' * max(48 - len(name), 3)} {value}" for name, value in sorted(rows.items())]
    return "\n".join(["-" * 24 + " arguments " + "-" * 24, *told, "-" * 20 + " end of arguments " + "-" * 21, ""])


@settings(max_examples=10)
@given(problems())
def test_printed_arguments_say_what_flags_say(problem: dict[str, Any]) -> None:
    flags = export(nest.evaluate(problem))["megatron_args.yaml"]
    written, logged = read_megatron(flags), read_megatron(printed(flags))
    assert logged.settings == written.settings
    assert logged.notes == ()


@settings(max_examples=8)
@given(problems(), st.sampled_from(["megatron_flags.sh", "megatron_args.yaml"]))
def test_flags_say_the_plan(tmp_path_factory: pytest.TempPathFactory, problem: dict[str, Any], name: str) -> None:
    plan = nest.evaluate(problem)
    files = export(plan)
    again = back(plan, files[name], name, tmp_path_factory.mktemp("flags"))
    assert deployed(again) == deployed(plan)
    assert again.batch_time == plan.batch_time
    assert [stage.memory for stage in again.stages] == [stage.memory for stage in plan.stages]
    assert export(again) == files


@pytest.mark.longer
@pytest.mark.parametrize("kind", PROBLEMS)
def test_plans_of_every_kind_come_back(kind: str, tmp_path: Path) -> None:
    plan = nest.evaluate(PROBLEMS[kind])
    files = export(plan)
    for name, text in files.items():
        again = back(plan, text, name, tmp_path)
        assert again.batch_time == plan.batch_time
        assert export(again) == files


def test_some_models_drawn_have_experts() -> None:
    shapes = [feed_forwards(Asked.of(structure(PROBLEMS[kind], Problem)).transformer) for kind in PROBLEMS]
    assert any(sparse for _, sparse in shapes)
    assert any(not sparse for _, sparse in shapes)


@pytest.mark.longer
def test_chunks_that_a_search_decides_come_back(tmp_path: Path) -> None:
    """13 blocks and one that predicts further tokens do not divide into 4 stages of 2 chunks."""
    problem = {
        "nest": 1,
        "model": {
            "transformer": {"layers": 13, "hidden": 256, "ffn": 1024, "heads": 8, "vocab": 4000, "mtp_layers": 1}
        },
        "training": {"global_batch": 64, "sequence_length": 256, "schedule": ["interleaved"], "micro_batch": [1]},
        "cluster": {"device": "h100-sxm", "levels": LEVELS},
        "search": {"target": "megatron"},
        "constraints": ["pp == 4", "chunks == 2", "tp == 1", "cp == 1"],
    }
    plan = nest.solve(problem)
    assert plan.runs_on is not None
    assert "megatron" in plan.runs_on
    files = export(plan)
    assert "--pipeline-model-parallel-layout" in files["megatron_flags.sh"]
    again = back(plan, files["megatron_flags.sh"], "megatron_flags.sh", tmp_path)
    assert again.batch_time == plan.batch_time
    assert [stage.chunks for stage in again.stages] == [stage.chunks for stage in plan.stages]
    assert [stage.memory for stage in again.stages] == [stage.memory for stage in plan.stages]


@pytest.mark.parametrize("name", ["ernie-4.5-0.3b", "glm-4.5", "glm-4.5-air", "phi-3-mini", "phi-4"])
def test_models_by_name_come_back(name: str, tmp_path: Path) -> None:
    plan = nest.evaluate({**asked({"dp": 16, "zero": 1}), "model": name})
    (tmp_path / "cluster.json").write_text(json.dumps({"cluster": plan.problem["cluster"]}))
    for file, text in export(plan).items():
        (tmp_path / file).write_text(text)
        found = start(tmp_path / file, "megatron", cluster=str(tmp_path / "cluster.json")).problem
        ours, theirs = (architecture_of(each) for each in (resolve_model(name, None), unstructure(found.model)))
        assert ours is not None
        assert theirs is not None
        assert evolve(ours, family="") == evolve(theirs, family=""), file
