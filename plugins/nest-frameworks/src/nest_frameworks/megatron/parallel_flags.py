"""Degrees, stages, batches, ZeRO and overlap of a plan, as flags of Megatron-LM.

Sources: megatron/training/arguments.py (`_add_distributed_args`, `validate_args`), megatron/core/parallel_state.py and
megatron/core/distributed/distributed_data_parallel_config.py of Megatron-LM core_v0.16.1.
"""

from nest.deployment import MEGATRON_ORDER, Deployment, Run
from nest.deployment.deployment import ENDS
from nest.errors import InputError
from nest.spec import Architecture, Training
from nest_frameworks.common import samples
from nest_frameworks.limits import gradient_format
from nest_frameworks.limits.megatron import eight_bit_weights, feed_forwards
from nest_frameworks.megatron.notation import (
    BLOCK,
    EMBEDDING,
    FLAG,
    LOSS,
    PREDICTION,
    Flags,
    check_layout,
    write_layout,
)

PIPELINE_INNER_ORDER = ("tp", "cp", "pp", "dp")
"""The order of ranks with `--use-tp-pp-dp-mapping`, the fastest first: `tp-cp-ep-pp-dp`."""

SHARDING = {2: "optim_grads", 3: "optim_grads_params"}
"""`--data-parallel-sharding-strategy` of Megatron FSDP, by ZeRO stage."""

FSDP_GRADIENTS = ("--megatron-fsdp-main-grads-dtype", "--megatron-fsdp-grad-comm-dtype")
"""The types in which Megatron FSDP adds up and reduces gradients."""


def parallel_flags(shape: Deployment, model: Architecture) -> Flags:
    """Degrees and stages."""
    sparse = bool(feed_forwards(model)[1])
    return {
        "--tensor-model-parallel-size": shape.tp,
        **stage_flags(shape, model.predicting),
        "--context-parallel-size": shape.cp,
        "--sequence-parallel": shape.sequence_parallel,
        "--expert-model-parallel-size": shape.ep if sparse else None,
        "--expert-tensor-parallel-size": shape.etp if sparse else None,
        "--use-tp-pp-dp-mapping": order_of(shape, model) == PIPELINE_INNER_ORDER,
    }


def order_of(shape: Deployment, model: Architecture) -> tuple[str, ...]:
    """The order of ranks in which they lie on the plan's devices in theirs, as far as Megatron-LM has it.

    With `--use-tp-pp-dp-mapping` `initialize_model_parallel` wants the pipeline groups of experts to be those of all
    else: `ep * etp` is `tp * cp`, and of models without experts, whose expert ranks it forms all the same, `tp` is.
    """
    inner = shape.rank_order == "pp-inner" and shape.stages > 1 and shape.replicas > 1
    expert_ranks = shape.ep * shape.etp if feed_forwards(model)[1] else shape.tp
    if inner and shape.copies == 1 and expert_ranks == shape.tp * shape.cp:
        return PIPELINE_INNER_ORDER
    return MEGATRON_ORDER


def batch_flags(shape: Deployment) -> Flags:
    """Samples of a micro-batch and of an optimizer step."""
    return {"--micro-batch-size": samples(shape), "--global-batch-size": shape.global_batch}


def sharding_flags(shape: Deployment, training: Training) -> Flags:
    """ZeRO: 1 is the distributed optimizer, 2 and 3 are Megatron FSDP."""
    stage = shape.zero[0]
    instances = 1
    if shape.zero_degree is not None and stage:
        instances = max(1, shape.data_parallel * shape.cp // shape.zero_degree)
    flags: Flags = {
        "--use-distributed-optimizer": stage > 0,
        "--num-distributed-optimizer-instances": instances if instances > 1 else None,
        "--overlap-grad-reduce": bool(training.overlap.data),
        "--overlap-param-gather": bool(training.overlap.data) and stage > 0,
    }
    if stage in SHARDING:
        # What Megatron-LM's own script for Megatron FSDP gives with it
        # (docs/discussions/megatron-fsdp-user-guide/example-scripts).
        flags |= {
            "--use-megatron-fsdp": True,
            "--data-parallel-sharding-strategy": SHARDING[stage],
            "--ckpt-format": "fsdp_dtensor",
            "--no-gradient-accumulation-fusion": True,
            "--init-model-with-meta-device": True,
            # Left out, Megatron-Core 0.19 adds up gradients in the type of weights, and 0.18 in fp32
            # (megatron/core/distributed/fsdp/mcore_fsdp_adapter.py).
            **dict.fromkeys(FSDP_GRADIENTS, gradient_format(training)),
        }
    elif training.precision == "mxfp8" and eight_bit_weights(training):
        flags["--reuse-grad-buf-for-mxfp8-param-ag"] = bool(training.overlap.data)
    return flags


def communication_flags(shape: Deployment, training: Training, model: Architecture, domain: int) -> Flags:
    """Flags for the exchanges inside a device group, and for their overlap.

    `domain`: devices that are joined by the scale-up network, beyond which tensor parallelism cannot overlap.
    """
    sparse = feed_forwards(model)[1]
    padded = bool(sparse) and training.expert_capacity > 1
    return {
        "--cp-comm-type": CONTEXT_EXCHANGES[training.key_exchange] if shape.cp > 1 else None,
        "--tp-comm-overlap": bool(training.overlap.tensor) and 1 < shape.tp <= domain,
        "--overlap-moe-expert-parallel-comm": bool(training.overlap.experts) and shape.ep > 1,
        **(dispatcher_flags(shape, training) if sparse else {}),
        "--moe-expert-capacity-factor": training.expert_capacity if padded else None,
        "--moe-pad-expert-input-to-capacity": padded,
    }


def dispatcher_flags(shape: Deployment, training: Training) -> Flags:
    """Flags for the way of tokens to their experts.

    HybridEP forwards tokens within nodes as DeepEP does, on all devices from Ampere on, pads to a capacity, and knows
    domains larger than a node (Megatron-Bridge@067f987d, training/flex_dispatcher_backend.py). The flex dispatcher
    wants several expert ranks (`MoEFlexTokenDispatcher`).
    """
    if training.dispatch == "per-node" and shape.ep * shape.etp > 1:
        return {"--moe-token-dispatcher-type": "flex", "--moe-flex-dispatcher-backend": "hybridep"}
    return {"--moe-token-dispatcher-type": "alltoall"}


CONTEXT_EXCHANGES = {"ring": "p2p", "all_gather": "all_gather"}
"""`--cp-comm-type` by what `training.context_exchange` calls it."""


def environment(shape: Deployment) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables to set, and those that must not be set.

    `validate_args` wants `CUDA_DEVICE_MAX_CONNECTIONS` to be 1 with tensor or context parallelism on devices before
    Blackwell, and not to be 1 with Megatron FSDP. Expandable segments leave few gaps between tensors
    (docs.pytorch.org/docs/stable/notes/cuda.html; docs/performance-guide.md of Megatron-Bridge).
    """
    usual = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    if shape.zero[0] in SHARDING:
        return usual, (name,)
    return {name: "1", **usual}, ()


LETTERS = dict(zip(ENDS, (EMBEDDING, LOSS), strict=True))
"""Letters of the ends of a model in a layout: Megatron Core's loss is the head with everything after it."""


def stage_flags(shape: Deployment, further: int) -> Flags:
    """The stages of a plan: Megatron-LM's own split where that is the plan's, else a layout.

    `further`: of the blocks, the last so many predict further tokens.

    Raises:
        InputError: the layers are no transformer in order.
    """
    chunks = layout_of(shape, further)
    flags: Flags = {"--pipeline-model-parallel-size": shape.stages}
    if list(chunks) == usual_layout(shape.blocks - further, shape.stages, shape.chunks, further):
        return {**flags, "--num-virtual-stages-per-pipeline-rank": shape.chunks if shape.chunks > 1 else None}
    return {**flags, FLAG: write_layout(chunks)}


def layout_of(shape: Deployment, further: int) -> tuple[str, ...]:
    """The letters of each chunk, in the order in which a micro-batch passes them; arguments are those of `stage_flags`.

    Raises:
        InputError: the layers are no transformer in order.
    """
    if [number for run in shape.runs for number in run.blocks] != list(range(shape.blocks)):
        raise InputError("the plan's stages do not hold the transformer blocks in their order, as Megatron-LM needs.")
    blocks = shape.blocks - further
    chunks = tuple(_letters(run, blocks) for run in shape.runs)
    check_layout(chunks, blocks, shape.stages, further)
    return chunks


def _letters(run: Run, blocks: int) -> str:
    """The letters of a run; blocks from number `blocks` on predict further tokens."""
    strange = next((name for name in run.others if name not in LETTERS), None)
    if strange is not None:
        raise InputError(
            f"layer {strange!r} is no transformer block, embedding or head, and Megatron-LM's pipeline ranks hold "
            "nothing else; it cannot run plans of measured layers, operator graphs, or stages cut inside a block."
        )
    further = {f"layers.{number}" for number in run.blocks if number >= blocks}
    return "".join(PREDICTION if name in further else LETTERS.get(name, BLOCK) for name in run.layers)


def usual_layout(blocks: int, stages: int, chunks: int, further: int) -> list[str] | None:
    """Megatron-LM's own split of `blocks`: as many in each chunk; None if they do not come out even.

    Those that predict further tokens come with the last chunk.
    """
    size, left = divmod(blocks, stages * chunks)
    if left or not size:
        return None
    letters = [BLOCK * size] * (stages * chunks)
    letters[0] = EMBEDDING + letters[0]
    letters[-1] += PREDICTION * further + LOSS
    return letters
