"""Frameworks that shard with PyTorch's FSDP or DeepSpeed's ZeRO: what each can run, and why no more.

Sources are named in the modules that write their files.
"""

from attrs import evolve

from nest.deployment import Limits
from nest.deployment.pytorch_schedules import RUNS
from nest.spec.architecture import GroupedQueryAttention
from nest_frameworks.limits import (
    ULYSSES,
    Asked,
    even_launch,
    gradient_format,
    mixture,
    refuse_layers,
    refuse_training,
    shard_groups,
    whole_batches,
    whole_states,
)

# torch/distributed/pipelining (2.13): stage.py, `backward_maybe_with_nosync`, reduces gradients once, at the end;
# schedules.py, `Schedule1F1B`. Its other classes ask for no more than the schedules of their names admit.
PIPELINED = {
    "pp == 1 or schedule != '1f1b' or micro_batches >= pp": "PyTorch's 1F1B wants as many micro-batches as stages",
    "dp * batch * cp == 1 or pp == 1 or zero in [0, 1]": (
        "with a pipeline PyTorch keeps gradients and weights whole until the last micro-batch, which is ZeRO 1 at most"
    ),
}


PYTORCH = {
    "uniform(zero)": "one mesh serves all stages, and its dimensions say over which ranks FSDP shards",
    **PIPELINED,
}


def pytorch(asked: Asked) -> Limits:
    """Limits of PyTorch's own FSDP and pipelines.

    Raises:
        InputError: they do not place such layers.
    """
    refuse_layers(asked, "pytorch")
    constraints = PYTORCH | shard_groups(asked, "FSDP") | whole_batches(asked, "PyTorch")
    return Limits(
        strategies=("tp", "sp", "cp", "ep", "etp", "batch"),
        schedules=RUNS,
        recompute=("none", "full"),
        partial_recompute=(("full", "none"),),  # The exported module wraps block by block.
        zero_degrees=True,
        constraints=constraints,
    )


# FSDP with a pipeline: torch/distributed/pipelining/stage.py, `backward_maybe_with_nosync` and `perform_reduce_grad`
# (2.13). FSDP without: torchtitan/train.py (0.2.2) and trainer.py (0.3.0) never switch its synchronisation off.
TORCHTITAN = {
    "uniform(zero)": "torchtitan has one FSDP setting for all stages",
    "uniform(recompute)": "torchtitan has one activation checkpointing mode for all stages",
    **PIPELINED,
    "dp * batch * cp == 1 or pp > 1 or zero != 1": (
        "without a pipeline torchtitan's FSDP shards gradients as soon as they are there, which is ZeRO 2 or 3"
    ),
    "dp * batch * cp == 1 or pp > 1 or zero == 3 or micro_batches == 1": (
        "without a pipeline torchtitan reduces gradients and gathers weights for every micro-batch, as ZeRO 3 does"
    ),
    "zero > 0 or cp == 1": "torchtitan's FSDP always shards over the ranks of context parallelism",
}


TORCHTITAN_EXPERTS = {
    "ep > 1 or etp == tp": "torchtitan splits experts over the tensor-parallel ranks without expert parallelism",
    "ep == 1 or zero > 0 or dp * batch == 1": "torchtitan takes expert-parallel ranks from those FSDP shards over",
}


# torchtitan/distributed/parallel_dims.py: `etp` of 0.2.2; 0.3.0 has none, and its models/common/moe_sharding.py lays
# experts over the ranks of expert parallelism, or without it over those of tensor parallelism.
SPLIT_EXPERTS = {
    "0.2": {"etp == 1 or etp == tp": "torchtitan's experts have the tensor-parallel degree of all else, or none"},
    "0.3": {
        "ep == 1 or etp == 1": (
            "torchtitan 0.3 does not split experts by width beside expert parallelism; 0.2 does (`--for 0.2`)"
        )
    },
}


def torchtitan(asked: Asked) -> Limits:
    """Limits of a release of torchtitan.

    Raises:
        InputError: torchtitan does not train in that precision, or with that optimizer.
    """
    refuse_layers(asked, "torchtitan")
    refuse_training(
        asked.training,
        "torchtitan",
        "torchtitan",
        precisions=("bf16", "fp32"),
        gradients=("fp32",),
        optimizers=("adam", "adamw"),
    )
    from nest_frameworks.releases import releases_of

    architecture = asked.model
    constraints = dict(TORCHTITAN)
    length = asked.training.sequence_length
    if length is not None:
        constraints[f"{length} % tp == 0"] = "torchtitan divides the sequence by the tensor-parallel degree"
        constraints[f"cp == 1 or {length} % (2 * tp * cp) == 0"] = (
            "torchtitan deals every context-parallel rank a chunk from the head of the sequence and one from its tail"
        )
    if architecture is not None:
        attention = architecture.blocks[0].attention
        if isinstance(attention, GroupedQueryAttention):
            constraints[f"{attention.kv_heads} % tp == 0"] = "torchtitan gives every tensor-parallel rank its own heads"
    constraints |= shard_groups(asked, "torchtitan") | whole_batches(asked, "torchtitan")
    release = releases_of("torchtitan").named(asked.release)
    if asked.training.loss_parallel is False and release != "0.2":  # components/loss.py of 0.3.0.
        constraints["tp == 1"] = (
            "torchtitan 0.3 has no switch for loss_parallel; 0.2 gathers the logits on every rank (`--for 0.2`)"
        )
    if mixture(architecture) is not None:
        constraints |= TORCHTITAN_EXPERTS | SPLIT_EXPERTS[release]
    return Limits(
        strategies=("tp", "sp", "cp", "ep", "etp", "batch"),
        # None whose stages end a batch one after the other: torchtitan ends it on all of them at once.
        schedules=RUNS,
        recompute=("none", "full"),
        zero_degrees=True,
        constraints=constraints,
    )


# Accelerator.no_sync (accelerator.py) leaves gradients whole until the last micro-batch unless `sync_each_batch`.
ACCELERATE = {
    "pp == 1": "Accelerate has no pipeline parallelism",
    "dp * batch * cp == 1 or zero != 1": (
        "Accelerate's FSDP shards gradients as soon as they are there, which is ZeRO 2 or 3"
    ),
    "dp * batch * cp == 1 or zero != 2 or micro_batches == 1": (
        "Accelerate's FSDP gathers the weights again for every micro-batch, which only ZeRO 3 does too"
    ),
    "zero > 0 or dp * batch * cp == 1 or tp * cp == 1": (
        "Accelerate cannot put tensor or context parallelism beside data parallelism without sharding"
    ),
    "zero == 0 or zero_degree == dp * batch or zero_degree > cp": (
        "Accelerate replicates groups of data-parallel ranks that shard, and a group needs two of them"
    ),
}


def accelerate(asked: Asked) -> Limits:
    """Limits of Accelerate.

    Raises:
        InputError: it does not place such layers, or does not train in that precision.
    """
    refuse_layers(asked, "accelerate")
    gradients = (asked.training.precision,)
    refuse_training(
        asked.training, "accelerate", "Accelerate", precisions=("bf16", "fp16", "fp32"), gradients=gradients
    )
    constraints = ACCELERATE | shard_groups(asked, "Accelerate") | whole_batches(asked, "Accelerate")
    constraints |= even_launch(asked, "Accelerate") | _in_bits(asked) | whole_states(asked, "Accelerate")
    if mixture(asked.model or asked.hybrid) is not None:
        constraints["etp == tp"] = "Transformers splits experts over the tensor-parallel ranks, as all else"
    return Limits(
        strategies=("tp", "cp", "etp", "batch"),
        recompute=("none", "full"),
        zero_degrees=True,
        trainable=True,
        stored=BITS_AND_BYTES,
        constraints=constraints,
    )


def transformers(asked: Asked) -> Limits:
    """Limits of Hugging Face's Trainer with Accelerate.

    Raises:
        InputError: it does not place such layers, or does not train in that precision.
    """
    base = accelerate(asked)
    _refuse(asked, "Hugging Face's Trainer", "transformers")
    return base


def axolotl(asked: Asked) -> Limits:
    """Limits of Axolotl with FSDP2.

    Raises:
        InputError: it does not place such layers, or does not train in that precision.
    """
    base = accelerate(asked)
    _refuse(asked, "Axolotl", "axolotl")
    constraints = {
        **base.constraints,
        "zero > 0 and dp * batch * cp > 1": "Axolotl keeps weights in 16 bits alone, unless FSDP shards them",
    }
    if asked.training.key_exchange == "all_gather":
        constraints["cp == 1 or micro_batch == 1"] = "Axolotl gathers keys and values of packed samples, one at a time"
    if asked.training.stores_scores:
        constraints["cp == 1"] = "Axolotl's context parallelism needs flash attention"
    return evolve(base, trainable=_adapted(asked), constraints=constraints)


LIGHTNING = {
    "pp == 1": "Lightning's ModelParallelStrategy has no pipeline parallelism",
    "dp * batch == 1 or zero in [2, 3]": "Lightning's ModelParallelStrategy reduces gradients by FSDP2, as ZeRO 2 or 3",
    "dp * batch == 1 or zero != 2 or micro_batches == 1": (
        "FSDP2 gathers the weights again for every micro-batch, which only ZeRO 3 does too"
    ),
}


def lightning(asked: Asked) -> Limits:
    """Limits of Lightning's `ModelParallelStrategy`.

    Raises:
        InputError: it does not place such layers, or does not train in that precision.
    """
    refuse_layers(asked, "lightning")
    refuse_training(
        asked.training,
        "lightning",
        "Lightning",
        precisions=("bf16", "fp16", "fp32"),
        gradients=("fp32", "bf16", "fp16"),
    )
    constraints = LIGHTNING | whole_batches(asked, "Lightning") | even_launch(asked, "Lightning")
    if mixture(asked.model or asked.hybrid) is not None:
        constraints["etp == tp"] = "Lightning's mesh has one dimension for tensor parallelism, that of all else"
    return Limits(
        strategies=("tp", "sp", "etp", "batch"),
        recompute=("none", "full"),
        partial_recompute=(("full", "none"),),  # As PyTorch.
        constraints=constraints,
    )


DEEPSPEED = {
    "uniform(zero)": "DeepSpeed has one ZeRO stage for all pipeline stages",
    "uniform(recompute)": "DeepSpeed has one activation checkpointing interval for all stages",
    "pp == 1 or schedule == '1f1b'": "DeepSpeed's pipeline runs one forward, one backward",
    "pp == 1 or zero in [0, 1]": "DeepSpeed's pipeline refuses ZeRO 2 and 3",
    "tp == 1 or zero <= 2": "DeepSpeed's tensor parallelism refuses ZeRO 3",  # runtime/engine.py, autotp.
    f"tp == 1 or {ULYSSES} == 1": "DeepSpeed's tensor and Ulysses sequence parallelism exclude each other",
    f"pp == 1 or {ULYSSES} == 1": "DeepSpeed's pipeline has no sequence parallelism",
}


DEEPSPEED_EXPERTS = {
    "ep == 1 or etp == 1": "DeepSpeed does not split experts by width beside expert parallelism",
    "ep > 1 or etp == tp": "DeepSpeed splits experts as all else when there is no expert parallelism",
    "ep == 1 or pp == 1": "DeepSpeed's automatic expert parallelism has no pipeline",
    f"ep == 1 or {ULYSSES} == 1": "DeepSpeed does not lay expert ranks over those of sequence parallelism",
}


def deepspeed(asked: Asked) -> Limits:
    """Limits of DeepSpeed.

    Raises:
        InputError: it does not place such layers, or does not train in that precision.
    """
    refuse_layers(asked, "deepspeed")
    refuse_training(
        asked.training,
        "deepspeed",
        "deepspeed",
        precisions=("bf16", "fp16", "fp32"),
        gradients=("fp32", "bf16", "fp16"),
    )
    constraints = DEEPSPEED | whole_batches(asked, "DeepSpeed") | _in_bits(asked)
    constraints |= whole_states(asked, "DeepSpeed", ULYSSES)
    if (wide := gradient_format(asked.training)) != asked.training.precision:
        # runtime/engine.py, `_do_optimizer_sanity_check`.
        reason = f"DeepSpeed adds up gradients of {asked.training.precision} in {wide} from ZeRO 1 on"
        constraints |= dict.fromkeys(("zero >= 1 or dp * batch == 1", f"zero >= 1 or {ULYSSES} == 1"), reason)
    if mixture(asked.model or asked.hybrid) is not None:
        constraints |= DEEPSPEED_EXPERTS
    if asked.training.trained is not None:
        # runtime/pipe/engine.py, `_exec_recv_activations`.
        constraints["pp == 1"] = "DeepSpeed's pipeline finds gradients of all that passes between stages, frozen or not"
    if "optimizer" in asked.training.offload:
        constraints["zero >= 1"] = "DeepSpeed keeps the optimizer's state in the host's memory from ZeRO 1 on"
    return Limits(
        strategies=("tp", "ep", "etp", "batch", ULYSSES),
        recompute=("none", "full"),
        offload=("optimizer",),
        trainable=True,
        stored=BITS_AND_BYTES,
        constraints=constraints,
    )


def llama_factory(asked: Asked) -> Limits:
    """Limits of LLaMA-Factory with DeepSpeed.

    Raises:
        InputError: it does not place such layers, or does not train in that precision.
    """
    base = deepspeed(asked)
    _refuse(asked, "LLaMA-Factory", "llama-factory")
    constraints = {rule: reason for rule, reason in base.constraints.items() if ULYSSES not in rule}
    constraints["pp == 1"] = "LLaMA-Factory has no pipeline parallelism beside DeepSpeed"
    constraints |= even_launch(asked, "LLaMA-Factory")
    return evolve(base, strategies=("batch",), trainable=_adapted(asked), constraints=constraints)


BITS_AND_BYTES = ("nf4-double", "nf4", "int8")
"""Formats of frozen weights that bitsandbytes has; scripts, or files of LLaMA-Factory and Axolotl, ask for them."""


def _in_bits(asked: Asked) -> dict[str, str]:
    """Constraints of frozen weights in few bits."""
    trained = asked.training.trained
    if trained is None or trained.stored is None:
        return {}
    limits = {"tp == 1": "bitsandbytes does not split weights in 4 or 8 bits"}
    if trained.stored == "int8":
        limits["zero <= 2"] = "ZeRO 3 cannot shard weights in 8 bits"
    return limits


def _adapted(asked: Asked) -> bool:
    """Return whether what is trained are adapters alone, which files of LLaMA-Factory and Axolotl say."""
    trained = asked.training.trained
    return trained is not None and trained.lora is not None and not trained.layers


def _refuse(asked: Asked, framework: str, exporter: str) -> None:
    refuse_training(
        asked.training,
        exporter,
        framework,
        precisions=("bf16", "fp16", "fp32"),
        gradients=("fp32", "bf16", "fp16"),
        optimizers=("sgd", "lion", "adam-8bit", "adamw", "adam"),
    )
