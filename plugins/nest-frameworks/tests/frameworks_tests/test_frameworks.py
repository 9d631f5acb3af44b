"""What every framework's files have in common: they say what the plan says, or there are none."""

import subprocess
import sys
from math import prod
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings

import nest
from frameworks_tests.plans import SPARSE, plan, problem
from frameworks_tests.random_plans import plans
from frameworks_tests.reading import parsed
from nest.deployment import Deployment, violations
from nest.errors import InputError
from nest.hooks.pipelines import deployed
from nest.hooks.protocols import Exporter
from nest.hooks.registry import registry
from nest.spec import PlanDocument
from nest_frameworks import nest_exporters

NAMES = (
    *("torchtitan", "deepspeed", "accelerate", "maxtext", "galvatron", "pytorch"),
    *("llama-factory", "axolotl", "transformers", "lightning"),
)
EXPORTERS: dict[str, Exporter] = {exporter.name: exporter for exporter in nest_exporters() if exporter.name in NAMES}


def exported(name: str, document: PlanDocument) -> dict[str, Any] | None:
    """The files as their readers see them; None: refused."""
    try:
        return parsed(EXPORTERS[name].export(document))
    except InputError:
        return None


def blocks(shape: Deployment) -> list[int]:
    """Transformer blocks of every run, in order."""
    return [len(run.blocks) for run in shape.runs]


def torchtitan_says_what_the_plan_says(files: dict[str, Any], shape: Deployment) -> None:
    assert {"torchtitan.toml", "torchtitan_plan.py"} & set(files)
    assert ("pipeline_schedule.csv" in files) == (shape.stages > 1)
    if "torchtitan.toml" in files:
        tables = files["torchtitan.toml"]
        _titan(tables["parallelism"], tables["training"], shape, "output")
        assert tables["activation_checkpoint"]["mode"] == shape.recompute[0]
        assert tables["parallelism"]["expert_tensor_parallel_degree"] == shape.etp
        assert shape.sequence_parallel or shape.tp == 1
    if "torchtitan_plan.py" in files:
        told = files["torchtitan_plan.py"]
        _titan(told, told, shape, "lm_head")
        assert told["activation_checkpoint"] == ("FullAC.Config()" if shape.recompute[0] == "full" else None)
        assert told.get("enable_sequence_parallel", False) == shape.sequence_parallel


def _titan(told: dict[str, Any], training: dict[str, Any], shape: Deployment, head: str) -> None:
    data = told["data_parallel_replicate_degree"] * told["data_parallel_shard_degree"]
    assert data == shape.data_parallel
    degrees = ("tensor_parallel_degree", "context_parallel_degree", "pipeline_parallel_degree")
    assert data * prod(told[name] for name in degrees) == shape.world_size
    assert told["expert_parallel_degree"] == shape.ep
    steps = training["global_batch_size"] // (training["local_batch_size"] * data)
    assert training["global_batch_size"] == 32 == steps * training["local_batch_size"] * data
    micro = told.get("pipeline_parallel_microbatch_size", training["local_batch_size"])
    assert steps * training["local_batch_size"] // micro == shape.micro_batches
    ranks = shape.data_parallel * shape.cp
    if shape.zero[0] and ranks > 1:
        assert told["data_parallel_shard_degree"] * shape.cp == min(shape.zero_degree or ranks, ranks)
    assert (told["fsdp_reshard_after_forward"] == "always") == (shape.zero[0] == 3)
    if shape.stages > 1:
        parts = told["module_fqns_per_model_part"]
        names = {"embedding": ["tok_embeddings"], "head": ["norm", head]}
        assert parts == [[fqn for layer in run.layers for fqn in names.get(layer, [layer])] for run in shape.runs]
        assert len(parts) == shape.stages * shape.chunks


def deepspeed_says_what_the_plan_says(files: dict[str, Any], shape: Deployment) -> None:
    told = files["deepspeed.json"]
    steps, micro = told["gradient_accumulation_steps"], told["train_micro_batch_size_per_gpu"]
    assert micro * steps * shape.data_parallel == 32
    assert told.get("train_batch_size", 0) == (0 if shape.tp > 1 and shape.stages == 1 else 32)
    assert steps == shape.micro_batches
    one = shape.data_parallel == 1  # Where ZeRO 1 is the same as none.
    assert {max(told["zero_optimization"]["stage"], one)} == {max(stage, one) for stage in shape.zero}
    assert ("activation_checkpointing" in told) == (shape.recompute[0] == "full")
    assert told.get("expert_parallel", {}).get("autoep_size", 1) == shape.ep
    if shape.stages == 1:
        assert told.get("tensor_parallel", {}).get("autotp_size", 1) == shape.tp
        assert "deepspeed_pipeline.py" not in files
        return
    pipeline = files["deepspeed_pipeline.py"]
    assert [end - start for start, end in zip(pipeline["BOUNDS"], pipeline["BOUNDS"][1:], strict=False)] == [
        len(run.layers) for run in shape.runs
    ]
    assert pipeline["LAYERS"] == [name for run in shape.runs for name in run.layers]
    assert (pipeline["STAGES"], pipeline["DATA_PARALLEL"], pipeline["TENSOR_PARALLEL"]) == (
        shape.stages,
        shape.data_parallel,
        shape.tp,
    )
    assert pipeline["activation_checkpoint_interval"] == told["pipeline"]["activation_checkpoint_interval"]
    assert pipeline["activation_checkpoint_interval"] == int(shape.recompute[0] == "full")


def accelerate_says_what_the_plan_says(files: dict[str, Any], shape: Deployment) -> None:
    told, script = files["accelerate.yaml"], files["accelerate_plan.py"]
    sizes = told["parallelism_config"]
    names = ("dp_replicate", "dp_shard", "tp", "cp")
    replicate, shard, tp, cp = (sizes[f"parallelism_config_{name}_size"] for name in names)
    assert replicate * shard * tp * cp == told["num_processes"] == shape.world_size
    assert (tp, cp) == (shape.tp, shape.cp)
    assert not (replicate > 1 and shard == 1 and tp * cp > 1)
    sharded = shape.zero[0] > 0 and shape.data_parallel * shape.cp > 1
    assert (told["distributed_type"] == "FSDP") == sharded
    if sharded:
        assert told["fsdp_config"]["fsdp_reshard_after_forward"] == (shape.zero[0] == 3)
        assert told["fsdp_config"]["fsdp_activation_checkpointing"] == (shape.recompute[0] == "full")
    assert script["GRADIENT_ACCUMULATION_STEPS"] == shape.micro_batches
    assert script["PER_DEVICE_BATCH_SIZE"] * shape.micro_batches * shape.data_parallel == script["GLOBAL_BATCH_SIZE"]


def maxtext_says_what_the_plan_says(files: dict[str, Any], shape: Deployment) -> None:
    told = files["maxtext.sh"]
    inside = {key: int(value) for key, value in told.items() if key.startswith("ici_")}
    outside = {key: int(value) for key, value in told.items() if key.startswith("dcn_")}
    assert prod(inside.values()) == 4
    assert prod(outside.values()) * 4 == shape.world_size

    def degree(axis: str) -> int:
        return inside[f"ici_{axis}_parallelism"] * outside[f"dcn_{axis}_parallelism"]

    assert degree("tensor_sequence" if shape.sequence_parallel else "tensor") == shape.tp
    assert (degree("context"), degree("pipeline"), degree("expert")) == (shape.cp, shape.stages, shape.ep)
    assert degree("data") * degree("fsdp") * degree("expert") == shape.data_parallel
    assert told["shard_optimizer_over_data"] == str(shape.zero[0] == 1).lower()
    steps = int(told["gradient_accumulation_steps"])
    assert int(shape.world_size * float(told["per_device_batch_size"])) * steps == 32
    assert int(told.get("num_pipeline_microbatches", steps)) == shape.micro_batches
    assert blocks(shape) == [int(told.get("num_layers_per_pipeline_stage", 8))] * shape.stages
    assert int(told["base_num_decoder_layers"]) == 8


def galvatron_says_what_the_plan_says(files: dict[str, Any], shape: Deployment) -> None:
    told, script = files["galvatron_config.json"], files["galvatron_overrides.sh"]
    rows = {
        key: [int(value) for value in text.split(",")]
        for key, text in told.items()
        if isinstance(text, str) and "," in text
    }
    assert [int(count) for count in told["pp_division"].split(",")] == blocks(shape)
    for key, value in (("tp_sizes_enc", shape.tp), ("cp_sizes_enc", shape.cp), ("ep_sizes_enc", shape.ep)):
        assert rows[key] == [value] * 8
    kept = [(len(run.blocks), shape.recomputed(run)) for run in shape.runs]
    assert rows["checkpoint"] == [int(place < again) for count, again in kept for place in range(count)]
    assert rows["dp_types_enc"] == [int(shape.zero[0] == 3)] * 8
    assert (told["pp_deg"], told["chunks"], told["global_bsz"]) == (shape.stages, shape.micro_batches, 32)
    assert script["runtime.train.sequence_parallel"] == str(shape.sequence_parallel)


def pytorch_says_what_the_plan_says(files: dict[str, Any], shape: Deployment) -> None:
    told = files["pytorch_plan.py"]
    assert prod(told["MESH"].values()) == shape.world_size == prod(told["EXPERT_MESH"].values())
    assert told["MESH"]["dp_replicate"] * told["MESH"]["dp_shard"] == shape.data_parallel
    assert told["RUNS"] == [(run.stage, list(run.layers)) for run in shape.runs]
    assert (tuple(told["ZERO"]), tuple(told["RECOMPUTE"])) == (shape.zero, shape.recompute)
    assert tuple(told["RECOMPUTE_LAYERS"]) == shape.recompute_layers
    assert told["MICRO_BATCH"] * told["MICRO_BATCHES"] * shape.data_parallel == told["GLOBAL_BATCH"] == 32


SAYS_WHAT_THE_PLAN_SAYS = {
    "torchtitan": torchtitan_says_what_the_plan_says,
    "deepspeed": deepspeed_says_what_the_plan_says,
    "accelerate": accelerate_says_what_the_plan_says,
    "maxtext": maxtext_says_what_the_plan_says,
    "galvatron": galvatron_says_what_the_plan_says,
    "pytorch": pytorch_says_what_the_plan_says,
}


def llama_factory_says_what_the_plan_says(files: dict[str, Any], shape: Deployment) -> None:
    told, sharded = files["llama_factory.yaml"], files[files["llama_factory.yaml"]["deepspeed"]]
    assert sharded["train_batch_size"] == "auto"
    one = shape.data_parallel == 1
    assert {max(sharded["zero_optimization"]["stage"], one)} == {max(stage, one) for stage in shape.zero}
    assert told["disable_gradient_checkpointing"] == (shape.recompute[0] == "none")
    assert "activation_checkpointing" not in sharded
    _batch(told, "per_device_train_batch_size", "cutoff_len", shape)
    assert shape.data_parallel == shape.world_size


def axolotl_says_what_the_plan_says(files: dict[str, Any], shape: Deployment) -> None:
    told = files["axolotl.yaml"]
    sizes = [
        told[name] for name in ("dp_replicate_size", "dp_shard_size", "tensor_parallel_size", "context_parallel_size")
    ]
    assert sizes[0] * sizes[1] == shape.data_parallel
    assert sizes[2:] == [shape.tp, shape.cp]
    assert told["fsdp_config"]["reshard_after_forward"] == (shape.zero[0] == 3)
    assert told["fsdp_config"]["activation_checkpointing"] == (shape.recompute[0] == "full")
    _batch(told, "micro_batch_size", "sequence_len", shape)


def transformers_says_what_the_plan_says(files: dict[str, Any], shape: Deployment) -> None:
    told, launch = files["training_args.json"], files["accelerate.yaml"]
    sharded = "fsdp_config" in launch
    checkpointed = sharded and launch["fsdp_config"]["fsdp_activation_checkpointing"]
    assert (told["gradient_checkpointing"] or checkpointed) == (shape.recompute[0] == "full")
    assert not (told["gradient_checkpointing"] and sharded)
    _batch({**told, "length": shape.sequence_length}, "per_device_train_batch_size", "length", shape)


def _batch(told: dict[str, Any], micro: str, length: str, shape: Deployment) -> None:
    assert told[micro] * told["gradient_accumulation_steps"] * shape.data_parallel == shape.global_batch
    assert told["gradient_accumulation_steps"] == shape.micro_batches
    assert told[length] == shape.sequence_length


def lightning_says_what_the_plan_says(files: dict[str, Any], shape: Deployment) -> None:
    told = files["lightning_plan.py"]
    assert (told["DATA_PARALLEL"], told["TENSOR_PARALLEL"]) == (shape.data_parallel, shape.tp)
    assert told["TRAINER"]["num_nodes"] * told["TRAINER"]["devices"] == shape.world_size
    assert told["TRAINER"]["accumulate_grad_batches"] == shape.micro_batches
    assert told["BATCH_SIZE"] * shape.micro_batches * shape.data_parallel == told["GLOBAL_BATCH"] == 32
    assert told["RESHARD"] == (shape.zero[0] == 3)
    assert told["RECOMPUTE"] == min(shape.recompute_layers[0] or 8, 8) * (shape.recompute[0] == "full")
    assert told["SEQUENCE_PARALLEL"] == shape.sequence_parallel


SAYS_WHAT_THE_PLAN_SAYS |= {
    "llama-factory": llama_factory_says_what_the_plan_says,
    "axolotl": axolotl_says_what_the_plan_says,
    "transformers": transformers_says_what_the_plan_says,
    "lightning": lightning_says_what_the_plan_says,
}


@pytest.mark.longer
@settings(max_examples=30, suppress_health_check=[HealthCheck.filter_too_much])
@given(plans())
def test_files_say_what_the_plan_says(document: PlanDocument) -> None:
    """All frameworks are asked of each plan, as to draw one takes longest."""
    shape = deployed(document)
    for name in NAMES:
        files = exported(name, document)
        if files is not None:
            SAYS_WHAT_THE_PLAN_SAYS[name](files, shape)


@pytest.mark.longer
@settings(max_examples=16, suppress_health_check=[HealthCheck.filter_too_much])
@given(plans())
def test_what_is_refused_is_told_in_sentences_and_nothing_else_is(document: PlanDocument) -> None:
    from nest_frameworks.common import problem_of

    for name, exporter in EXPORTERS.items():
        beyond = violations(document, exporter.limits(problem_of(document)), name)  # type: ignore[attr-defined]
        if beyond:
            with pytest.raises(InputError, match=r"\.$"):
                exporter.export(document)
        else:
            assert exporter.export(document) == exporter.export(document)


@pytest.mark.longer
@pytest.mark.parametrize("name", NAMES)
def test_an_infeasible_plan_is_refused(name: str) -> None:
    nothing = evolve(plan({"dp": 16}), status="infeasible", candidate=None, stages=(), data_parallel=None)
    with pytest.raises(InputError, match="infeasible"):
        EXPORTERS[name].export(nothing)


@pytest.mark.longer
@pytest.mark.parametrize("name", NAMES)
def test_a_plan_of_31_of_32_blocks_is_refused(name: str) -> None:
    whole = plan({"dp": 16, "zero": 3, "recompute": "full"})
    stage = evolve(whole.stages[0], layers=tuple(layer for layer in whole.stages[0].layers if layer != "layers.3"))
    with pytest.raises(InputError, match="has 7 transformer blocks"):
        EXPORTERS[name].export(evolve(whole, stages=(stage,)))


@pytest.mark.parametrize("name", NAMES)
def test_an_uneven_batch_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="whole micro-batches"):
        EXPORTERS[name].export(
            plan({"dp": 16, "zero": 3, "micro_batch": 1, "recompute": "full"}, global_batch=30, uneven_batch=True)
        )


REFUSALS = {
    ("torchtitan", "ZeRO 1 at most"): {"pp": 2, "dp": 8, "zero": 3},
    ("torchtitan", "ZeRO 2 or 3"): {"dp": 16, "zero": 1},
    ("torchtitan", "'selective'"): {"dp": 16, "zero": 3, "recompute": "selective"},
    ("deepspeed", "refuses ZeRO 2 and 3"): {"pp": 2, "dp": 8, "zero": 2},
    ("deepspeed", "'sp'"): {"tp": 2, "sp": True, "dp": 8},
    ("deepspeed", "'cp'"): {"cp": 2, "dp": 8},
    ("deepspeed", "zero_degree"): {"dp": 16, "zero": 3, "zero_degree": 4},
    ("accelerate", "no pipeline"): {"pp": 2, "dp": 8},
    ("accelerate", "without sharding"): {"tp": 2, "dp": 8, "zero": 0},
    ("accelerate", "gathers the weights again"): {"dp": 8, "zero": 2, "tp": 2},
    ("maxtext", "as GPipe"): {"pp": 2, "dp": 8, "recompute": "full"},
    ("maxtext", "1, 2, 2, 3 transformer blocks"): {"pp": 4, "dp": 4, "stages": [1, 2, 2, 3]},
    ("maxtext", "ZeRO stage 2"): {"dp": 16, "zero": 2, "recompute": "full"},
    ("maxtext", "uses all devices of a cluster"): {"dp": 8, "zero": 3, "recompute": "full"},
    ("galvatron", "'selective'"): {"dp": 16, "recompute": "selective"},
    ("galvatron", "zero_degree"): {"dp": 16, "zero": 3, "zero_degree": 4},
    ("llama-factory", "no pipeline"): {"pp": 2, "dp": 8},
    ("llama-factory", "'tp'"): {"tp": 2, "dp": 8},
    ("axolotl", "16 bits alone"): {"dp": 16, "zero": 0},
    ("axolotl", "no pipeline"): {"pp": 2, "dp": 8, "zero": 3},
    ("transformers", "no pipeline"): {"pp": 2, "dp": 8},
    ("lightning", "no pipeline"): {"pp": 2, "dp": 8, "zero": 3},
    ("lightning", "by FSDP2"): {"dp": 16, "zero": 1},
    ("lightning", "'cp'"): {"cp": 2, "dp": 8, "zero": 3},
    ("pytorch", "as many micro-batches as stages"): {"pp": 8, "dp": 2, "micro_batch": 4},
    ("torchtitan", "as many micro-batches as stages"): {"pp": 8, "dp": 2, "micro_batch": 4},
    ("nanotron", "for every stage but one"): {"pp": 8, "dp": 2, "micro_batch": 4},
    ("pytorch", "ZeRO 1 at most"): {"pp": 2, "dp": 8, "zero": 2},
    ("pytorch", "'dualpipe', but PyTorch has .*'zb-v', 'dualpipe-v'"): {"pp": 4, "dp": 2, "schedule": "dualpipe"},
    ("torchtitan", "'dualpipe', but torchtitan has .*'zb-v', 'dualpipe-v'"): {"pp": 4, "dp": 2, "schedule": "dualpipe"},
    ("megatron", "'dualpipe', but Megatron-LM has '1f1b', 'interleaved'"): {"pp": 4, "dp": 2, "schedule": "dualpipe"},
    ("megatron", "'zb-v', but Megatron-LM has '1f1b', 'interleaved'"): {"pp": 4, "dp": 2, "schedule": "zb-v"},
}


@pytest.mark.longer
@pytest.mark.parametrize(("name", "reason"), REFUSALS, ids=[f"{name}: {reason}" for name, reason in REFUSALS])
def test_what_a_framework_cannot_run_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        registry().exporters()[name].export(plan({"micro_batch": 1, **REFUSALS[name, reason]}))


@pytest.mark.longer
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("accelerate", "'ep'"),
        ("maxtext", "splits experts"),
        ("deepspeed", "does not split experts"),
        ("torchtitan", "etp"),
    ],
)
def test_experts_a_framework_cannot_lay_so_are_refused(name: str, reason: str) -> None:
    fixed = {"tp": 2, "dp": 8, "ep": 4, "etp": 2 if name == "deepspeed" else 1, "zero": 3, "recompute": "full"}
    if name == "torchtitan":
        fixed |= {"ep": 1}
    with pytest.raises(InputError, match=reason):
        EXPORTERS[name].export(plan(fixed, SPARSE))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "pytorch"])
def test_precisions_a_framework_has_no_word_for_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"training\.precision is 'fp8'"):
        EXPORTERS[name].export(plan({"dp": 16, "zero": 3}, precision="fp8"))


@pytest.mark.longer
def test_galvatron_states_recomputation_stage_by_stage() -> None:
    document = plan({"pp": 2, "dp": 8, "micro_batch": 1})
    first = evolve(document.stages[0], recompute="full")
    files = exported("galvatron", evolve(document, stages=(first, document.stages[1])))
    assert files is not None
    assert files["galvatron_config.json"]["checkpoint"] == "1,1,1,1,0,0,0,0"
    assert exported("torchtitan", evolve(document, stages=(first, document.stages[1]))) is None


def test_galvatrons_script_names_its_file_from_any_folder(tmp_path: Path) -> None:
    """A file without a folder is an error of Galvatron's (`read_json_config`)."""
    script = tmp_path / "galvatron_overrides.sh"
    script.write_text(EXPORTERS["galvatron"].export(plan({"dp": 16}))[script.name])
    for folder, source in ((tmp_path, script.name), (tmp_path.parent, f"{tmp_path.name}/{script.name}")):
        told = subprocess.run(
            ["bash", "-c", f'. {source}; echo "$GALVATRON_OVERRIDES"'], cwd=folder, capture_output=True, text=True
        ).stdout
        path = told.strip().removeprefix("runtime.parallel.galvatron_config_path=")
        assert "/" in path
        assert (folder / path).resolve() == tmp_path / "galvatron_config.json"


@pytest.mark.parametrize("name", ["deepspeed", "galvatron"])
def test_ranks_of_sequence_parallelism_share_samples(name: str) -> None:
    """As the plug-in `nest-ulysses` plans it: four devices a block, one data-parallel rank each."""
    document = plan({"dp": 4, "zero": 3, "micro_batch": 1})
    assert document.candidate is not None
    degrees = {**document.candidate.degrees, "ulysses": 4}
    files = exported(name, evolve(document, candidate=evolve(document.candidate, degrees=degrees, width=4)))
    assert files is not None
    if name == "deepspeed":
        told = files["deepspeed.json"]
        # Without both DeepSpeed makes no groups of sequence parallelism.
        assert (told["sequence_parallel_size"], told["data_parallel_size"]) == (4, 4)
        assert told["train_batch_size"] == 4 * told["gradient_accumulation_steps"]
    else:
        told = files["galvatron_config.json"]
        assert told["use_sp"] == ",".join("1" * 8)
        assert told["tp_sizes_enc"] == ",".join("4" * 8)
        assert told["vsp"] == 1


def test_what_slices_cannot_hold_is_refused() -> None:
    levels = [
        {"name": "pod", "fanout": 3, "bandwidth": "400 GB/s"},
        {"name": "all", "fanout": 2, "bandwidth": "9 GB/s"},
    ]
    given_problem = problem({"dp": 3, "pp": 2, "zero": 3, "recompute": "full"}, schedule="gpipe", global_batch=24)
    document = nest.evaluate({**given_problem, "cluster": {"device": "h100-sxm", "levels": levels}})
    told = exported("maxtext", evolve(document, rank_order="dp-inner"))
    assert told is not None
    assert told["maxtext.sh"]["dcn_pipeline_parallelism"] == "2"
    assert told["maxtext.sh"]["ici_fsdp_parallelism"] == "3"
    with pytest.raises(InputError, match="splits its mesh axes evenly between slices"):
        EXPORTERS["maxtext"].export(evolve(document, rank_order="pp-inner"))


def on(cluster: dict[str, Any], fixed: dict[str, Any], **training: Any) -> PlanDocument:
    """A plan on another cluster."""
    return nest.evaluate({**problem({"micro_batch": 1, "zero": 3, **fixed}, **training), "cluster": cluster})


WIDE = {"device": "h100-sxm", "levels": [{"fanout": 8, "bandwidth": 4e11}, {"fanout": 3, "bandwidth": 5e10}]}


@pytest.mark.longer
@pytest.mark.parametrize(
    ("cluster", "devices", "machines"),
    [
        ({"name": "dgx-h100-superpod"}, 32, 4),
        (WIDE, 16, 2),
        (WIDE, 4, 1),
        ({**WIDE, "hosts": ["a", "b", "c", "d", "e", "f"]}, 16, 4),
        ({**WIDE, "devices_per_host": 2}, 16, 8),
    ],
    ids=["named", "levels", "part of one", "hosts", "machines in a level"],
)
def test_accelerate_starts_as_many_machines_as_the_plan_uses(
    cluster: dict[str, Any], devices: int, machines: int
) -> None:
    told = exported("accelerate", on(cluster, {"dp": devices}))
    assert told is not None
    assert told["accelerate.yaml"]["num_machines"] == machines
    assert told["accelerate.yaml"]["num_processes"] == devices


@pytest.mark.longer
@pytest.mark.parametrize(("devices", "order"), [(12, "dp-inner"), (8, "pp-inner")])
def test_accelerate_refuses_machines_with_unequal_shares(devices: int, order: str) -> None:
    document = on(WIDE, {"dp": devices, "rank_order": order}, global_batch=24)
    with pytest.raises(InputError, match=r"every machine|machine by machine"):
        EXPORTERS["accelerate"].export(document)


FORMATS = [
    ("torchtitan", {"gradients": "bf16"}),
    ("accelerate", {"gradients": "fp32"}),
    ("galvatron", {"gradients": "fp16"}),
    *((name, {"master_weights": False}) for name in ("torchtitan", "accelerate", "galvatron", "deepspeed", "maxtext")),
    *((name, {"optimizer": "adam-8bit"}) for name in ("torchtitan", "galvatron", "maxtext")),
]


@pytest.mark.longer
@pytest.mark.parametrize(("name", "training"), FORMATS, ids=[f"{name}: {training}" for name, training in FORMATS])
def test_formats_that_no_key_says_are_refused(name: str, training: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"training.{next(iter(training))}"):
        EXPORTERS[name].export(plan({"dp": 16, "zero": 3, "micro_batch": 1}, **training))


@pytest.mark.longer
def test_what_is_not_asked_is_not_loaded() -> None:
    """Listing exporters loads none, and one asked for its limits loads nothing that writes files."""
    script = (
        "import sys\n"
        "from nest.hooks.registry import registry\n"
        "from nest.io import structure\n"
        "from nest.spec import Problem\n"
        "exporters = registry().exporters()\n"
        "modules = lambda: {name.split('.')[1] for name in sys.modules if name.startswith('nest_frameworks.')}\n"
        "loaded = lambda: modules() - {'reader'}  # The record that names their modules.\n"
        "assert all(each.summary for each in exporters.values()) and not loaded(), loaded()\n"
        f"exporters['deepspeed'].limits(structure({problem({'dp': 16})!r}, Problem))\n"
        "assert loaded() == {'limits'}, loaded()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
