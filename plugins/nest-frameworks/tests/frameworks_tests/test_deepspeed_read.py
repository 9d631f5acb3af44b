"""What files of DeepSpeed and Accelerate run: there and back, and files as people write them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import nest
from frameworks_tests.plans import DENSE, SPARSE, assert_same_run, on_stack, plan, problem
from frameworks_tests.random_plans import plans
from nest.deployment import LaunchOptions
from nest.errors import InputError
from nest.formulate.from_flags import start
from nest.hooks.pipelines import deployed
from nest.spec import PlanDocument
from nest_frameworks import accelerate, deepspeed
from nest_frameworks.accelerate import read as read_accelerate
from nest_frameworks.deepspeed import BATCH, MICRO, STEPS
from nest_frameworks.deepspeed import read as read_deepspeed

FILES = {"deepspeed": (deepspeed, deepspeed.JSON_FILE), "accelerate": (accelerate, accelerate.YAML_FILE)}
STACKS = {"deepspeed": "deepspeed", "accelerate": "transformers"}


def same(document: PlanDocument, name: str, folder: Path) -> bool:
    """Whether the file, with what the script says, gives the plan back; false: there is no file."""
    module, file = FILES[name]
    try:
        text = module.export(document)[file]
    except InputError:
        return False
    shape = deployed(document)
    written, said = folder / file, folder / "problem.json"
    written.write_text(text)
    kept = {key: document.problem[key] for key in ("nest", "model", "cluster")}
    kept["training"] = {"global_batch": shape.global_batch, "sequence_length": shape.sequence_length}
    said.write_text(json.dumps({**kept, "fixed": {"micro_batch": shape.micro_batch}}))
    script: dict[str, Any] = {"rank_order": shape.rank_order}
    if shape.stages > 1:
        script |= {"tp": shape.tp, "stages": [list(stage.layers) for stage in document.stages]}
    if name == "accelerate" and "recompute" in document.problem["fixed"]:
        script["recompute"] = shape.recompute[0]  # Of plain data parallelism the script says it.
    # With AutoTP the file does not say how many ranks there are.
    nodes = LaunchOptions(4, 4) if name == "deepspeed" and shape.tp > 1 and shape.stages == 1 else None
    found = start(written, name, said, options=nodes)
    assert not [note for note in found.notes if "not read" in note or "not priced" in note], found.notes
    again = nest.evaluate(found.problem, fix=script)
    assert_same_run(document, again)
    return True


@pytest.mark.longer
@settings(max_examples=10)
@given(plans())
def test_files_say_the_plan(tmp_path_factory: pytest.TempPathFactory, document: PlanDocument) -> None:
    for name, stack in STACKS.items():
        same(on_stack(document, stack), name, tmp_path_factory.mktemp("files"))


@pytest.mark.longer
@pytest.mark.parametrize(
    ("name", "fixed", "model", "training"),
    [
        ("deepspeed", {"dp": 16, "zero": 3}, DENSE, {}),
        ("deepspeed", {"dp": 16, "zero": 2, "recompute": "full"}, DENSE, {"overlap": {"data": False}}),
        ("deepspeed", {"dp": 8, "tp": 2, "zero": 1}, DENSE, {"precision": "fp16", "gradients": "fp32"}),
        ("deepspeed", {"dp": 16, "zero": 2}, DENSE, {"offload": ["optimizer"]}),
        ("deepspeed", {"dp": 4, "tp": 2, "pp": 2, "zero": 1, "stages": [3, 5]}, DENSE, {"precision": "fp32"}),
        ("deepspeed", {"dp": 16, "ep": 4, "zero": 2}, SPARSE, {}),
        ("accelerate", {"dp": 16, "zero": 3, "recompute": "full"}, DENSE, {}),
        ("accelerate", {"dp": 8, "tp": 2, "zero": 3, "zero_degree": 4, "micro_batch": 2}, DENSE, {}),
        ("accelerate", {"dp": 4, "cp": 2, "tp": 2, "zero": 3}, DENSE, {"context_exchange": "ring"}),
        ("accelerate", {"dp": 16, "zero": 2, "micro_batch": 2}, DENSE, {"precision": "fp16"}),
        ("accelerate", {"dp": 16}, DENSE, {}),
    ],
)
def test_every_decision_comes_back(
    name: str, fixed: dict[str, Any], model: Any, training: dict[str, Any], tmp_path: Path
) -> None:
    assert same(plan(fixed, model, stack=STACKS[name], **training), name, tmp_path)


TRAINER = {
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu", "pin_memory": True},
        "sub_group_size": 1e9,
        "reduce_bucket_size": "auto",
        "stage3_gather_16bit_weights_on_model_save": True,
    },
    "gradient_clipping": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
}
"""Keys as in huggingface.co/docs/transformers/deepspeed, ZeRO-3."""


def test_what_the_trainer_fills_in_is_the_problems() -> None:
    found = read_deepspeed(json.dumps(TRAINER))
    assert found.devices is None
    assert found.settings["training"] == {
        "optimizer": "adamw",
        "offload": ["optimizer"],
        "stack": "deepspeed",
        "overlap": {"data": True},
    }
    assert found.settings["fixed"] == {"zero": 3, "pp": 1, "tp": 1, "sp": False}
    told = " ".join(found.notes)
    assert "offload_param: the optimizer's state and step are on the host" in told
    assert "train_micro_batch_size_per_gpu" in told
    assert "not read" not in told


@pytest.mark.parametrize(
    ("batch", "nodes", "expected"),
    [
        (
            {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4},
            None,
            (64, 2, 8),
        ),
        ({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}, 2, (128, 2, 16)),
        ({"train_micro_batch_size_per_gpu": 2}, 1, (16, 2, 8)),
        ({"train_batch_size": 64}, 1, (64, 8, 8)),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 4}, 1, (64, 2, 8)),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}, None, (64, 2, None)),
    ],
)
def test_a_batch_is_completed_as_deepspeed_does(
    batch: dict[str, int], nodes: int | None, expected: tuple[int, int, int | None]
) -> None:
    found = read_deepspeed(json.dumps(batch), LaunchOptions(nodes))
    training, fixed = found.settings["training"], found.settings["fixed"]
    assert (training["global_batch"], fixed["micro_batch"], fixed.get("dp")) == expected
    assert found.devices == expected[2]


@pytest.mark.parametrize(
    ("content", "nodes", "told"),
    [
        ({"train_micro_batch_size_per_gpu": 2}, None, "give --nodes"),
        (
            {BATCH: 7, MICRO: 2, STEPS: 2},
            None,
            "is not",
        ),
        (
            {BATCH: 7, MICRO: 2, STEPS: 2},
            1,
            "8 data-par",
        ),
        ({"train_batch_size": 8, "tensor_parallel": {"autotp_size": 3}}, 1, "no multiple of 3"),
        ({"zero_optimization": {"stage": 4}, "train_batch_size": 8}, None, "must be 0, 1, 2 or 3"),
        ({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, None, "takes one of them"),
        ({"speed": 3}, None, "none of DeepSpeed's keys"),
    ],
)
def test_mistakes_are_told(content: dict[str, Any], nodes: int | None, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_deepspeed(json.dumps(content), LaunchOptions(nodes))


def test_the_switch_of_a_parallel_loss_is_read_and_written() -> None:
    """0.19.8, module_inject/auto_tp.py: a head gathers its output unless `vocab_parallel_lm_head` is set."""
    section = AUTO_TP["tensor_parallel"]
    for shared in (None, True):
        read = read_deepspeed(
            json.dumps({**AUTO_TP, "tensor_parallel": {**section, "vocab_parallel_lm_head": bool(shared)}}),
            LaunchOptions(2),
        )
        assert read.settings["training"].get("loss_parallel") is shared


AUTO_TP: dict[str, Any] = {MICRO: 1, STEPS: 4, "zero_optimization": {"stage": 1}, "tensor_parallel": {"autotp_size": 2}}


def test_deepspeed_counts_tensor_parallel_ranks_in_the_batch() -> None:
    """`DeepSpeedConfig` without an `mpu`: 16 ranks, which read the samples of 8."""
    expected = {"global_batch": 32, "micro_batch": 1, "dp": 8, "tp": 2}
    for batch in ({}, {BATCH: 64}):
        found = read_deepspeed(json.dumps({**AUTO_TP, **batch}), LaunchOptions(2))
        assert found.devices == 16
        assert expected.items() <= {**found.settings["training"], **found.settings["fixed"]}.items()
    assert read_deepspeed(json.dumps({**AUTO_TP, BATCH: 64})).devices == 16
    with pytest.raises(InputError, match="2 tensor-parallel ranks, all of which count"):
        read_deepspeed(json.dumps({**AUTO_TP, BATCH: 32}), LaunchOptions(2))


def test_a_file_beside_auto_tp_leaves_the_batch_to_deepspeed() -> None:
    told = json.loads(deepspeed.export(plan({"dp": 8, "tp": 2, "zero": 1}))[deepspeed.JSON_FILE])
    assert BATCH not in told
    assert told[MICRO] * told[STEPS] * 8 == 32


FP32 = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}


@pytest.mark.parametrize(
    ("keys", "gradients", "told"),
    [
        ({}, "bf16", ()),
        (FP32, "fp32", ()),
        ({"data_types": FP32["data_types"]}, "fp32", ("reduced in fp32", "DeepSpeed does in bf16")),
        ({"communication_data_type": "fp32"}, "bf16", ("reduced in bf16", "DeepSpeed does in fp32")),
        ({"sequence_parallel_size": 2}, "bf16", ("DeepSpeed does in fp32",)),
    ],
)
def test_gradients_are_in_the_format_deepspeed_keeps_them_in(
    keys: dict[str, Any], gradients: str, told: tuple[str, ...]
) -> None:
    content = {BATCH: 32, "bf16": {"enabled": True}, "zero_optimization": {"stage": 1}, **keys}
    found = read_deepspeed(json.dumps(content), LaunchOptions(2))
    assert found.settings["training"]["gradients"] == gradients
    notes = " ".join(found.notes)
    assert all(part in notes for part in told)
    assert bool(told) == ("gradients are priced" in notes)


@pytest.mark.longer
def test_zero_0_with_wider_gradients_does_not_start() -> None:
    with pytest.raises(InputError, match="from ZeRO 1 on"):
        read_deepspeed(json.dumps({BATCH: 32, "bf16": {"enabled": True}, **FP32}), LaunchOptions(2))
    with pytest.raises(InputError, match="adds up gradients of bf16 in fp32 from ZeRO 1 on"):
        deepspeed.export(plan({"dp": 16, "zero": 0}))
    assert json.loads(deepspeed.export(plan({"dp": 16}, gradients="bf16"))["deepspeed.json"])["zero_optimization"] == {
        "stage": 0
    }


@pytest.mark.longer
@pytest.mark.parametrize("training", [{}, {"gradients": "bf16"}, {"precision": "fp16"}])
def test_deepspeed_is_told_the_format_that_was_priced(training: dict[str, Any]) -> None:
    told = json.loads(deepspeed.export(plan({"dp": 16, "zero": 2}, **training))[deepspeed.JSON_FILE])
    gradients = training.get("gradients", "fp16" if training else "fp32")
    assert (told["data_types"]["grad_accum_dtype"], told["communication_data_type"]) == (gradients, gradients)


@pytest.mark.longer
def test_the_deepspeed_stack_keeps_16_bytes_a_parameter_with_narrow_gradients() -> None:
    narrow, wide = (
        nest.evaluate(problem({"dp": 16, "zero": 0}, stack="deepspeed", gradients=gradients))
        for gradients in ("bf16", "fp32")
    )
    parameters = 8 * (2 * 512 * 512 + 2 * 512 * 256 + 3 * 512 * 1536 + 2 * 512) + 2 * 4096 * 512 + 512
    saved = wide.stages[0].memory - narrow.stages[0].memory
    assert saved == pytest.approx(2 * parameters, rel=0.01)


@pytest.mark.parametrize(("kind", "gradients"), [("FSDP", None), ("DEEPSPEED", "fp32"), ("MULTI_GPU", None)])
def test_accelerate_trains_in_single_precision_unless_told(kind: str, gradients: str | None) -> None:
    found = read_accelerate(LAUNCH.format(kind=kind).replace("mixed_precision: bf16\n", ""))
    assert found.settings["training"]["precision"] == "fp32"
    assert found.settings["training"].get("gradients") == gradients
    assert "mixed_precision is left out" in " ".join(found.notes)


def test_what_is_not_understood_is_told() -> None:
    content = {
        "train_batch_size": 8,
        "speed": 3,
        "zero_optimization": {"stage": 3, "mics_shard_size": 4, "speed": 1},
        "optimizer": {"type": "Lamb"},
        "curriculum_learning": {"enabled": True},
    }
    found = read_deepspeed(json.dumps(content))
    told = " ".join(found.notes)
    assert (found.settings["training"]["optimizer"], found.settings["fixed"]["zero_degree"]) == ("adam", 4)
    for part in ("Lamb is priced as Adam", "curriculum_learning.enabled is not priced"):
        assert part in told
    assert "these keys were not read: speed, zero_optimization.speed." in told


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"tensor_parallel": {"tp_size": 2}}, "tensor_parallel.tp_size is 2"),
        ({"tensor_parallel": {"tp": {"tp_size": 2}}}, "give both alike"),
        ({"torch_autocast": {"enabled": True}}, "torch_autocast.enabled is True"),
        ({"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}, "bf16_master_weights_and_grads is True"),
        ({"bf16": {"enabled": True, "bf16_optimizer_states": True}}, "bf16_optimizer_states is True"),
        ({"fp16": {"enabled": True, "fp16_master_weights_and_grads": True}}, "fp16_master_weights_and_grads is True"),
        ({"compile": {"deepcompile": True}}, "compile.deepcompile is True"),
        ({"zero_optimization": {"offload_optimizer": {"device": "cpu", "ratio": 0.3}}}, "ratio is 0.3; nest prices 1"),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}, "offload_param is .* to stay on the"),
        ({"zero_optimization": {"stage": 3, "zero_quantized_weights": True}}, "zero_quantized_weights is True"),
        ({"zero_optimization": {"stage": 3, "zero_quantized_gradients": True}}, "zero_quantized_gradients is True"),
        ({"activation_checkpointing": {"partition_activations": True}}, "partition_activations is True"),
        ({"activation_checkpointing": {"cpu_checkpointing": True}}, "cpu_checkpointing is True"),
        ({"compression_training": {"weight_quantization": {"a": 1}}}, "neither pruned nor quantised"),
        ({"elasticity": {"enabled": True}}, "the batch that the file gives"),
        ({"amp": {"enabled": True}}, "nest reads the sections bf16 and fp16"),
        ({"sparse_attention": {"mode": "fixed", "block": 16}}, "every query to attend to every key"),
        ({"data_efficiency": {"data_routing": {"random_ltd": {"enabled": True}}}}, "all tokens to pass all layers"),
        ({"autotuning": {"enabled": True}}, "the settings of the file"),
        ({"tensor_parallel": {"tp_overlap_comm": True}}, "tp_overlap_comm is True"),
        ({"optimizer": {"type": "OneBitAdam"}}, "OneBitAdam, whose state and step nest does not price"),
    ],
)
def test_what_changes_layout_memory_or_model_and_is_not_priced_is_refused(keys: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_deepspeed(json.dumps({"train_batch_size": 8, **keys}))


LAUNCH = """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: {kind}
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 2
num_processes: 16
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
use_cpu: false
"""


@pytest.mark.parametrize(
    ("config", "fixed"),
    [
        ("fsdp_sharding_strategy: FULL_SHARD", {"zero": 3}),
        ("fsdp_sharding_strategy: 2", {"zero": 2}),
        ("fsdp_reshard_after_forward: false, fsdp_version: 2", {"zero": 2}),
        ("fsdp_reshard_after_forward: SHARD_GRAD_OP", {"zero": 2}),
        ("fsdp_sharding_strategy: HYBRID_SHARD", {"zero": 3, "zero_degree": 8}),
        ("fsdp_sharding_strategy: 4", {"zero": 3, "zero_degree": 8}),
        ("fsdp_sharding_strategy: 5", {"zero": 2, "zero_degree": 8}),
        ("fsdp_activation_checkpointing: true", {"zero": 3, "recompute": "full"}),
    ],
)
def test_fsdp_as_people_write_it(config: str, fixed: dict[str, Any]) -> None:
    found = read_accelerate(LAUNCH.format(kind="FSDP") + f"fsdp_config: {{{config}}}\n")
    assert found.devices == 16
    assert found.settings["training"] == {"precision": "bf16", "stack": "transformers"}
    assert found.settings["fixed"] == {"tp": 1, "sp": False, "cp": 1, "pp": 1, "dp": 16, **fixed}
    assert len(found.notes) == 1


def test_shards_of_accelerate_lie_over_the_ranks_of_context_parallelism_too() -> None:
    sizes = "parallelism_config: {dp_replicate_size: 2, dp_shard_size: 4, cp_size: 2}\n"
    found = read_accelerate(LAUNCH.format(kind="FSDP") + "fsdp_config: {fsdp_version: 2}\n" + sizes)
    assert {"dp": 8, "cp": 2, "zero": 3, "zero_degree": 8}.items() <= found.settings["fixed"].items()


def test_deepspeed_of_accelerate_is_zero_2_unless_said() -> None:
    found = read_accelerate(LAUNCH.format(kind="DEEPSPEED") + "deepspeed_config: {gradient_accumulation_steps: 1}\n")
    assert found.settings["fixed"]["zero"] == 2


def test_state_on_nvme_is_priced_as_on_the_host() -> None:
    zero = {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/local"}}
    found = read_deepspeed(json.dumps({BATCH: 16, MICRO: 2, STEPS: 1, "zero_optimization": zero}))
    assert found.settings["training"]["offload"] == ["optimizer"]
    assert "nvme is priced as cpu" in " ".join(found.notes)


def test_deepspeed_of_accelerate_as_people_write_it() -> None:
    text = LAUNCH.format(kind="DEEPSPEED") + (
        "deepspeed_config:\n  gradient_accumulation_steps: 2\n  offload_optimizer_device: cpu\n"
        "  offload_param_device: none\n  zero3_init_flag: true\n  zero3_save_16bit_model: true\n  zero_stage: 3\n"
    )
    found = read_accelerate(text, LaunchOptions(4))
    assert found.devices == 32
    expected = {"precision": "bf16", "gradients": "bf16", "stack": "deepspeed", "offload": ["optimizer"]}
    assert found.settings["training"] == expected
    assert {"zero": 3, "micro_batches": 2, "dp": 32}.items() <= found.settings["fixed"].items()
    assert len(found.notes) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LAUNCH.format(kind="MEGATRON_LM"), "'MEGATRON_LM', and nest knows"),
        (LAUNCH.format(kind="FSDP") + "parallelism_config: {dp_shard_size: 4, tp_size: 2}", "make 8 processes"),
        (LAUNCH.format(kind="DEEPSPEED") + "deepspeed_config: {zero_stage: 7}", "must be 0, 1, 2 or 3"),
        ("speed: 3", "none of Accelerate's keys"),
    ],
)
def test_mistakes_of_launches_are_told(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_accelerate(text)


def test_a_script_in_place_of_its_file_is_named() -> None:
    with pytest.raises(InputError, match=r"this is a script; give a file with DeepSpeed's keys"):
        read_deepspeed("#!/bin/bash\ndeepspeed main.py --zero_stage 3 --deepspeed\n")
