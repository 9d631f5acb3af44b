"""Plans for LLaMA-Factory, Axolotl and Hugging Face's Trainer: batch, precision and checkpointing in their words.

What is sharded is DeepSpeed's file for the first, FSDP2 with Accelerate's mesh for the others. Sources: as in names.py.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from nest.deployment import Deployment
from nest.io import yaml_text
from nest.spec import PlanDocument, Problem
from nest.spec.training import ALL_LINEAR
from nest_frameworks import accelerate, deepspeed
from nest_frameworks.common import check_trained, checked, even_machines, problem_of, samples, shard_ranks
from nest_frameworks.limits import Asked, mixture, sharded
from nest_frameworks.spelling import BY_TOKENS, spelled
from nest_frameworks.trainers.adapters import EXPERTS, NETWORK, PARAMETERS
from nest_frameworks.trainers.models import UNKNOWN, hugging_face_name
from nest_frameworks.trainers.names import (
    AXOLOTL,
    LLAMA_FACTORY,
    STEPS,
    TRANSFORMERS,
    WRITTEN,
    Names,
)
from nest_frameworks.trainers.narrow import written


def export_llama_factory(plan: PlanDocument) -> Mapping[str, str]:
    """`llama_factory.yaml` and `deepspeed.json`.

    Raises:
        InputError: LLaMA-Factory cannot run the plan, and why.
    """
    problem = problem_of(plan)
    shape = checked(plan, sharded.llama_factory(Asked.of(problem)), "LLaMA-Factory")
    configuration = json.loads(deepspeed.export(plan)[deepspeed.JSON_FILE])
    configuration.pop("activation_checkpointing", None)  # LLaMA-Factory checkpoints by itself.
    configuration |= dict.fromkeys(("train_batch_size", "train_micro_batch_size_per_gpu", STEPS), "auto")
    settings = {
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "full",
        **_adapters(LLAMA_FACTORY, problem),
        **_settings(LLAMA_FACTORY, plan, shape, problem),
        "disable_gradient_checkpointing": shape.recompute[0] != "full",
        "deepspeed": deepspeed.JSON_FILE,
    }
    launch = f"FORCE_TORCHRUN=1 NNODES={even_machines(plan, 'LLaMA-Factory')} NODE_RANK=... llamafactory-cli train"
    return {
        LLAMA_FACTORY.file: _commented(LLAMA_FACTORY, launch, shape, settings[LLAMA_FACTORY.model])
        + yaml_text(settings),
        deepspeed.JSON_FILE: json.dumps(configuration, indent=2) + "\n",
    }


def export_axolotl(plan: PlanDocument) -> Mapping[str, str]:
    """`axolotl.yaml`.

    Raises:
        InputError: Axolotl cannot run the plan, and why.
    """
    problem = problem_of(plan)
    shape = checked(plan, sharded.axolotl(Asked.of(problem)), "Axolotl")
    within = shard_ranks(shape, "Axolotl")
    gathers = shape.cp > 1 and problem.training.key_exchange == "all_gather"
    settings = {
        **_settings(AXOLOTL, plan, shape, problem),
        **_adapters(AXOLOTL, problem),
        "sample_packing": gathers,
        "pad_to_sequence_len": True,
        "dp_replicate_size": shape.data_parallel // within,
        "dp_shard_size": within,
        "tensor_parallel_size": shape.tp,
        "context_parallel_size": shape.cp,
        **({"ring_attn_func": "varlen_llama3" if gathers else "batch_ring"} if shape.cp > 1 else {}),
        "gradient_checkpointing": False,
        "accelerator_config": _each_batch(),
        "fsdp_version": 2,
        "fsdp_config": {
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "reshard_after_forward": shape.zero[0] == 3,
            "activation_checkpointing": shape.recompute[0] == "full",
            "offload_params": False,
            "state_dict_type": "SHARDED_STATE_DICT",
        },
    }
    launch = f"on each of {even_machines(plan, 'Axolotl')} machines, by torchrun: axolotl train"
    return {AXOLOTL.file: _commented(AXOLOTL, launch, shape, settings[AXOLOTL.model]) + yaml_text(settings)}


def export_transformers(plan: PlanDocument) -> Mapping[str, str]:
    """`training_args.json` and `accelerate.yaml`; with frozen parts `transformers_trained.py`.

    Raises:
        InputError: the Trainer cannot run the plan, and why.
    """
    problem = problem_of(plan)
    shape = checked(plan, sharded.transformers(Asked.of(problem)), "Hugging Face's Trainer")
    is_sharded = shape.zero[0] > 0 and shape.data_parallel * shape.cp > 1
    said = _settings(TRANSFORMERS, plan, shape, problem)
    for key in (TRANSFORMERS.model, TRANSFORMERS.lengths[0], TRANSFORMERS.attention):  # The script's.
        said.pop(key, None)
    settings = {
        "output_dir": "output",
        **said,
        # Beside FSDP, which checkpoints by itself, it is refused.
        "gradient_checkpointing": shape.recompute[0] == "full" and not is_sharded,
        **({"accelerator_config": _each_batch()} if is_sharded else {}),
    }
    check = check_trained(plan)
    return {
        TRANSFORMERS.file: json.dumps(settings, indent=2) + "\n",
        accelerate.YAML_FILE: accelerate.export(plan)[accelerate.YAML_FILE],
        **({"transformers_trained.py": "\n".join(check[2:]) + "\n"} if check else {}),
    }


def _settings(names: Names, plan: PlanDocument, shape: Deployment, problem: Problem) -> dict[str, Any]:
    """The keys that all of them have."""
    training = problem.training
    unfused = "unfused" if training.stores_scores else "flash"
    attention = next(theirs for theirs, ours in names.attentions.items() if ours == unfused)
    if shape.cp > 1 and unfused == "flash":
        attention = "flash_attention_2"
    return {
        names.model: hugging_face_name(plan.problem.get("model")),
        names.lengths[0]: shape.sequence_length,
        names.micro[0]: samples(shape),
        STEPS: shape.micro_batches,
        "bf16": training.precision == "bf16",
        "fp16": training.precision == "fp16",
        names.optimizer: WRITTEN[training.optimizer],
        names.attention: attention,
    }


def _adapters(names: Names, problem: Problem) -> dict[str, Any]:
    """Settings of adapters; nothing: all parameters are trained."""
    trained, keys = problem.training.trained, names.adapters
    if trained is None or trained.lora is None:
        return {}
    every = ALL_LINEAR in trained.lora.targets
    targets: dict[str, Any]
    if names is LLAMA_FACTORY:
        targets = {keys.targets[0]: keys.linear if every else ",".join(trained.lora.targets)}
    else:
        targets = {keys.linear: True} if every else {keys.targets[0]: list(trained.lora.targets)}
    if mixture(Asked.of(problem).model) is not None and (every or {*NETWORK} <= {*trained.lora.targets}):
        targets[PARAMETERS] = [f"mlp.experts.{each}" for each in EXPERTS]
    return dict([keys.switch]) | {keys.rank[0]: trained.lora.rank} | targets | written(names, trained.stored)


FRAMEWORKS = {"axolotl": AXOLOTL, "llama-factory": LLAMA_FACTORY, "transformers": TRANSFORMERS}
VERL = ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", "actor_rollout_ref.model.enable_gradient_checkpointing")


def keys_of(framework: str, decided: Mapping[str, object], micro_batches: int, text: str) -> str:
    """Lines with the keys of single decisions, as the user's file `text` spells them; empty: it has none for some."""
    names, again = FRAMEWORKS.get(framework), decided.get("recompute")
    file = re.search(r"\bdeepspeed[:= ]+(\S+\.json)", text)
    if {*decided} - {"micro_batch", "recompute", *(["zero"] if names and file else [])}:
        return ""
    if again not in (None, "none", "full") or re.search(r"\bstage[:= ]+rm\b", text):  # A sample has two answers.
        return ""
    section = re.search(r"\b(\w*activation_checkpointing)[:= ]+[Tt]rue", text)
    checkpoints = section[1] if section else "gradient_checkpointing"
    kept = again is not None and (again == "none") == bool(names and names.kept)
    if names is not None:
        values = {names.micro[0]: decided.get("micro_batch"), STEPS: micro_batches}
        values |= {names.kept or checkpoints: None if again is None else kept}
    elif (
        framework == "verl"
        and "megatron" not in text
        and f"{VERL[0]}=" in text
        and not ("micro_batch" in decided and BY_TOKENS.search(text))
    ):
        sides = ((VERL[0], decided.get("micro_batch")), (VERL[1], None if again is None else kept))
        return "\n".join(f"{key}={value}" for key, value in sides if value is not None)
    else:
        return ""
    lines = spelled(yaml_text({key: value for key, value in values.items() if value is not None}), text)
    return lines + (f"\n{file[1]} zero_optimization.stage: {decided['zero']}\n" if file and "zero" in decided else "")


def _each_batch() -> dict[str, Any]:
    """Setting with which FSDP reduces gradients in every micro-batch instead of keeping them whole."""
    return {"gradient_accumulation_kwargs": {"sync_each_batch": True}}


def _commented(names: Names, launch: str, shape: Deployment, model: object) -> str:
    """Comment at the top of a file."""
    lines = [f"{launch} {names.file}", "Data, template and learning rate are yours to add."]
    lines.append(f"The plan has {shape.global_batch} samples a step on {shape.world_size} devices.")
    if model == UNKNOWN:
        lines.append(f"{UNKNOWN} stands for the model, which nest knows by its widths alone.")
    return "".join(f"# {line}\n" for line in lines)
