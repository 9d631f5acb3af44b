"""Megatron-SWIFT: arguments of `megatron sft` and `megatron pt`, in scripts and in the YAML they take in their place.

Arguments and defaults: modelscope/ms-swift 3602360a (after 4.6), swift/megatron/arguments/megatron_args.py and
megatron_base_args.py; YAML and environment: swift/cli/main.py (`parse_yaml_args`, `get_torchrun_args`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve

from nest.deployment import LaunchOptions, Reading
from nest.errors import InputError
from nest.io import read_mapping_text
from nest.spec import PlanDocument
from nest_frameworks.limits import Asked, relatives
from nest_frameworks.limits.relatives import FUSED_MODULES
from nest_frameworks.megatron.notation import Flags
from nest_frameworks.megatron.parallel_flags import FSDP_GRADIENTS
from nest_frameworks.megatron.relatives.core import CHANGES, COSTS, FREE, KERNELS
from nest_frameworks.megatron.relatives.dialect import Dialect, Row, machines

if TYPE_CHECKING:
    from nest_frameworks.keys import Keys


FILE = "megatron_swift.yaml"

VALUES = """
tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size expert-model-parallel-size
expert-tensor-parallel-size micro-batch-size global-batch-size pipeline-model-parallel-layout
decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers recompute-method recompute-num-layers
recompute-modules cp-comm-type optimizer optimizer-offload-fraction exp-avg-dtype exp-avg-sq-dtype sgd-momentum
fp8-format fp8-recipe fp4-format attention-backend cross-entropy-fusion-impl moe-token-dispatcher-type
moe-expert-capacity-factor data-parallel-sharding-strategy
"""
"""Arguments that are flags of Megatron-LM by name, and have a value."""

TRUTHS = """
sequence-parallel use-distributed-optimizer overlap-grad-reduce overlap-param-gather tp-comm-overlap
use-precision-aware-optimizer optimizer-cpu-offload fp8-param-gather fp16 bf16 cross-entropy-loss-fusion
use-megatron-fsdp account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split
moe-pad-expert-input-to-capacity
"""
"""Those that are true or false."""


def _named(names: str, front: str = "") -> dict[str, Row]:
    return {name.replace("-", "_"): f"{front}--{name}" for name in names.split()}


ROWS: Mapping[str, Row] = {
    **_named(VALUES),
    **_named(TRUTHS, "?"),
    "virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
    "recompute_granularity": {
        word: {"--recompute-granularity": None if word == "none" else word} for word in ("none", "selective", "full")
    },
    "main_grads_dtype": {"fp32": {}, "bf16": {"--main-grads-dtype": "bf16", "--grad-reduce-in-bf16": True}},
    "gradient_accumulation_fusion": "!--no-gradient-accumulation-fusion",
}

GENERATES = "most of its time goes to generating"
PREFERENCES = dict.fromkeys(
    ("dpo", "kto", "orpo", "simpo", "cpo"), "its steps read pairs, or have a reference model, which nest does not price"
) | {"gkd": "its steps also run a teacher, which nest does not price"}
"""Why trainings on preferences are refused, by `rlhf_type`."""

SAVED = {"word_embeddings": "embedding", "embedding": "embedding", "embed_tokens": "embedding"}
SAVED |= {"output_layer": "head", "lm_head": "head", "all-embedding": "embedding"}
"""nest's layer by its name in `modules_to_save`."""

ONLY_ALL = "nest does not read which weights that leaves frozen"

HARMLESS = """
ENV.* dataset* val_dataset* cached_* streaming* packing* padding* split_* model_type model_revision model_author
model_name load_from* load_args lora_* target_* merge_lora output_dir add_version report_to wandb_* swanlab_* no_*
num_train_epochs logging_* callbacks system template* use_hf hub_token strict max_epochs *_fusion align_*
batch_p2p_comm manual_gc* ddp_* train_dataloader_* truncation* agent_template use_chat_template
add_non_thinking_prefix attn_impl loss_type enable_*loss* new_special_tokens task_type tuner_type train_type
freeze_aligner bridge_backend *deepep min_lr* perform_initialization torch_dtype experts_impl custom_* external_*
group_by_length use_persistent* interleave* stopping_strategy shuffle* lazy_tokenize response_prefix
"""
"""Patterns of arguments, beside flags of Megatron-LM, that change no cost that nest counts."""

DIALECT = Dialect(
    "Megatron-SWIFT",
    rows=ROWS,
    read_only={
        "train_iters": "--train-iters",
        **KERNELS,
        "overlap_p2p_comm": "!--no-overlap-p2p-communication",
        "accumulate_allreduce_grads_in_fp32": "?--accumulate-allreduce-grads-in-fp32",
    },
    defaults={
        "--bf16": True,
        "--recompute-granularity": "selective",
        "--expert-tensor-parallel-size": "1",
        "--global-batch-size": "16",
        "--micro-batch-size": "1",
        "--use-distributed-optimizer": True,
        "--data-parallel-sharding-strategy": "optim_grads_params",
        "--cross-entropy-loss-fusion": True,
        "--attention-backend": "flash",
        "--optimizer": "adam",
        "--moe-token-dispatcher-type": "alltoall",
    },
    implied=(
        *("--use-tp-pp-dp-mapping", "--seq-length", "--moe-flex-dispatcher-backend", "--ckpt-format", "--fp4-recipe"),
        *("--init-model-with-meta-device", "--reuse-grad-buf-for-mxfp8-param-ag", "--data-parallel-sharding-strategy"),
        *("--expert-tensor-parallel-size", "--moe-token-dispatcher-type", *FSDP_GRADIENTS),
    ),
    refused={key: why for key, why in CHANGES.items() if not key.startswith("lora_")}  # Which `trained` reads.
    | {
        "adapters": ONLY_ALL,
        "mcore_adapter": ONLY_ALL,
        "freeze_llm": ONLY_ALL,
        "target_regex": ONLY_ALL,
        "freeze_parameters": ONLY_ALL,
        "freeze_parameters_regex": ONLY_ALL,
        "freeze_parameters_ratio": ONLY_ALL,
    },
    assumed={
        **COSTS,
        "cp_partition_mode": "",
        "sequence_packing_scheduler": "nest assumes every sequence to be split alike",
        "freeze_vit": "nest assumes the model to be a decoder like GPT's",
        "vit_gradient_checkpointing": "nest assumes the model to be a decoder like GPT's",
    },
    harmless=(*FREE, *HARMLESS.split()),
    aliases={"--seq-length": "max_length"},
)


EXTRA = "megatron_extra_kwargs"
"""Arguments of Megatron Core as JSON, which are read as Megatron-SWIFT's own."""


def read(text: str, options: LaunchOptions | None = None) -> Reading:
    """Read a script of Megatron-SWIFT, or the YAML in place of its arguments.

    `options`: what else is said of the launch; its machines stand in place of the file's.

    Raises:
        InputErrors: arguments contradict each other, or say what nest cannot price.
        InputError: it is neither.
    """
    from nest_frameworks.keys import Keys
    from nest_frameworks.megatron.relatives.commands import scalar
    from nest_frameworks.megatron.relatives.core import trained
    from nest_frameworks.trainers.models import predicted, with_model

    asked = options or LaunchOptions()
    scripted = re.search(r"^[^#\n]*(\bmegatron[ \t]+(sft|pt|rlhf)\b|_megatron[/.](sft|pt|rlhf))", text, re.MULTILINE)
    content, notes = _of_script(text, asked) if scripted else (_of_yaml(text), [])
    if (extra := content.pop(EXTRA, None)) is not None:
        content |= extra if isinstance(extra, Mapping) else _arguments(str(extra))
    variables = content.get("ENV")
    if isinstance(variables, Mapping):
        content["ENV"] = {name: scalar(str(value)) for name, value in variables.items()}
    keys = Keys(content, notes=notes)
    devices = machines(keys, evolve(asked, part=None), "ENV.NNODES", "ENV.NPROC_PER_NODE")
    if devices is None and asked.devices_per_node is None and (each := keys.integer("ENV.NPROC_PER_NODE")):
        devices = each
    tuner = keys.value("tuner_type") or keys.value("train_type") or "full"
    if tuner not in ("full", "lora"):
        keys.problem(f"tuner_type is {tuner!r:.40}, and nest knows full and lora.")
    lora = trained(keys, "lora_rank", "target_modules", tuple(FUSED_MODULES.values()), 8) if tuner == "lora" else None
    if lora is not None and (layers := _saved(keys)):
        lora |= {"layers": layers}
    task, reward = keys.value("task_type"), keys.value("rlhf_type")
    if task not in (None, "causal_lm", "seq_cls"):
        keys.problem(f"task_type is {task!r:.40}: nest prices decoders like GPT's.")
    if reward not in (None, "rm"):
        keys.problem(f"rlhf_type is {reward!r:.40}: {PREFERENCES.get(str(reward), GENERATES)}.")
    if task == "seq_cls" or reward == "rm":
        keys.note("nest assumes the vocabulary projection in place of the head that classifies, which takes longer.")
    name, known = with_model(keys, "model", asked)
    further = keys.integer("mtp_num_layers", 0) or 0
    if further and (name is None or predicted(name) != further):
        keys.problem(f"mtp_num_layers is {further}, and nest knows no model here with as many; delete it.")
    found = DIALECT.read(keys, devices, _extra(keys), known or asked.model)
    settings = {**found.settings, **({"model": name} if name is not None else {})}
    if lora is not None:
        settings["training"] = {**settings["training"], "trainable": lora}
    if further:
        settings["training"] = {**settings["training"], "mtp": True}
    return evolve(found, settings=settings)


def _arguments(text: str) -> Mapping[str, Any]:
    """Arguments in the JSON of `EXTRA`."""
    try:
        return read_mapping_text(text, f"{EXTRA}.json")
    except InputError:
        raise InputError(f"{EXTRA} is {text!r:.60}; it must be a JSON object of arguments.") from None


def _saved(keys: Keys) -> list[str]:
    """Layers that are trained beside adapters."""
    said = keys.value("modules_to_save") or []
    names = said if isinstance(said, list) else [str(said)]
    if strange := [str(name) for name in names if name not in SAVED]:
        keys.problem(f"modules_to_save has {strange[0]:.60}, and nest knows {', '.join(SAVED)}.")
    return list(dict.fromkeys(SAVED[name] for name in names if name in SAVED))


def _of_yaml(text: str) -> dict[str, Any]:
    from nest_frameworks.keys import opened

    try:
        return opened(text, FILE, "Megatron-SWIFT's arguments", ("model", *ROWS))
    except InputError as error:
        if (found := re.search(r"^[^#\n]*\bswift (sft|pt|rlhf)\b", text, re.MULTILINE)) is not None:
            raise InputError(f"`swift {found[1]}` runs Hugging Face's Trainer; nest reads {CALL}.") from None
        raise InputError(f"there is no {CALL} here, and as YAML: {error}") from None


CALL = "call of `megatron sft` or `megatron pt`"


def _of_script(text: str, options: LaunchOptions) -> tuple[dict[str, Any], list[str]]:
    """The arguments of the command, with the environment it is called in, and notes."""
    from nest_frameworks.megatron.reading.flags import read_flags
    from nest_frameworks.megatron.relatives.commands import arguments_of, command, scalar

    words, script, notes = command(text, options, lambda each: _place(each) is not None, CALL)
    place = _place(words) or 0
    rest, content = list(words[place + 1 :]), dict[str, Any]()
    if rest and rest[0].endswith((".yaml", ".yml", ".json")):
        content |= arguments_of(script.files, rest.pop(0))
    given = read_flags(rest).words if rest else {}
    content |= {flag.removeprefix("--").replace("-", "_"): _value(value) for flag, value in given.items()}
    if isinstance(named := content.pop("config", None), str):
        content = {**arguments_of(script.files, named), **content}
    variables = {name: scalar(text) for name, text in script.texts.items() if name.isidentifier()}
    said = {name: variables[name] for name in ("NNODES", "NPROC_PER_NODE") if variables.get(name) is not None}
    return {**content, "ENV": {**(content.get("ENV") or {}), **said}}, notes


def _place(words: Sequence[str]) -> int | None:
    """Index of the word that names Megatron-SWIFT's training; None: none."""
    for place, word in enumerate(words):
        if re.search(r"_megatron[/.](sft|pt|rlhf)(\.py)?$", word):
            return place
        if word.rpartition("/")[2] == "megatron" and {*words[place + 1 : place + 2]} & {"sft", "pt", "rlhf"}:
            return place + 1
    return None


def _value(words: Sequence[str]) -> Any:
    from nest_frameworks.megatron.relatives.commands import scalar

    return True if not words else scalar(words[0]) if len(words) == 1 else [scalar(word) for word in words]


def _extra(keys: Keys) -> Flags:
    """Flags that follow from several arguments."""
    flags: Flags = {}
    length = keys.integer("packing_length") or keys.integer("max_length")
    if length is None:
        keys.note("max_length is not given: sequences are as long as the problem says.")
    else:
        flags["--seq-length"] = str(length)
    if not keys.truth("packing"):
        keys.note("packing is not set: nest assumes all sequences to be as long as they may be.")
    if keys.truth("fp16"):
        flags["--bf16"] = None
    if keys.value("rlhf_type") == "rm" and not keys.truth("packing"):
        keys.note("a reward model reads two answers a sample: batches count both.")
        for name, usual in (("micro-batch-size", 1), ("global-batch-size", 16)):
            flags[f"--{name}"] = str(2 * (keys.integer(name.replace("-", "_")) or usual))
    return flags


def export(plan: PlanDocument) -> Mapping[str, str]:
    """`megatron_swift.yaml`.

    Raises:
        InputError: Megatron-SWIFT cannot run the plan; the text has the reasons.
    """
    from nest.hooks.pipelines import deployed
    from nest.io import yaml_text
    from nest_frameworks.common import even_machines, problem_of
    from nest_frameworks.megatron.parallel_flags import environment
    from nest_frameworks.trainers.models import UNKNOWN, hugging_face_name

    arguments = DIALECT.written(plan, relatives.swift(Asked.of(problem_of(plan))))
    shape, nodes = deployed(plan), even_machines(plan, "Megatron-SWIFT")
    exported, unset = environment(shape)
    variables = {
        **exported,
        **dict.fromkeys(unset, "32"),  # SWIFT sets it to 1 where it is not there.
        "NNODES": nodes,
        "NPROC_PER_NODE": shape.world_size // nodes,
    }
    if arguments.get("moe_token_dispatcher_type") == "flex":
        arguments["moe_enable_deepep"] = True
    given = {key: value for key, value in arguments.items() if value is not None}
    name = hugging_face_name(plan.problem.get("model"))
    model = {} if name == UNKNOWN else {"model": name}
    head = {"ENV": variables, **model, "max_length": shape.sequence_length, "packing": True}
    comment = "# Written by nest for `megatron pt` of Megatron-SWIFT: model and data are yours to add.\n"
    return {FILE: comment + yaml_text({**head, **given})}
