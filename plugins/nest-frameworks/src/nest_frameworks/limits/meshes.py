"""MaxText, Galvatron and nanotron: what each can run, and why no more.

Sources are named in the modules that write their files.
"""

from itertools import accumulate

from nest.deployment import Limits
from nest.errors import InputError
from nest.spec import Architecture
from nest.spec.architecture import FeedForward, GroupedQueryAttention, LatentAttention
from nest_frameworks.limits import (
    ULYSSES,
    Asked,
    gradient_format,
    like_llama,
    looks_ahead,
    mixture,
    refuse_layers,
    refuse_training,
    shard_groups,
    whole_batches,
)

MAXTEXT = {
    "uniform(zero)": "MaxText shards parameters alike in all stages",
    "uniform(recompute)": "MaxText has one remat policy for all stages",
    "pp == 1 or schedule == 'gpipe'": "MaxText's pipeline runs all micro-batches forward, then all backward, as GPipe",
    "pp == 1 or micro_batches % pp == 0": "MaxText's micro-batches must be a multiple of its stages",
    "zero != 2": "MaxText shards the optimizer's state alone, or parameters, gradients and all",
    "cp == 1 or zero == 3": "MaxText always shards parameters over the ranks of context parallelism",
    "zero in [0, 3] or zero_degree == dp": "MaxText shards the optimizer's state over all data-parallel ranks",
}


STAGES_OUTSIDE = "MaxText puts pipeline stages outside of data parallelism, but for replicas of one slice each"


MAXTEXT_EXPERTS = {
    "etp == tp": "MaxText splits experts over the tensor-parallel ranks, as all else",
    "ep == 1 or zero == 3": "MaxText always shards parameters over the ranks of expert parallelism",
    "ep == 1 or cp == 1": "MaxText's expert parallelism takes no ranks of context parallelism",
    "dp % ep == 0": "MaxText takes the ranks of expert parallelism from the data-parallel ones",
    "ep == 1 or zero_degree == dp or zero_degree % ep == 0": "MaxText shards over whole groups of expert parallelism",
}


def maxtext(asked: Asked) -> Limits:
    """Limits of MaxText.

    Raises:
        InputError: it does not place such layers, or this exporter does not write that precision.
    """
    refuse_layers(asked, "maxtext")
    refuse_training(
        asked.training,
        "maxtext",
        "MaxText",
        precisions=("bf16", "fp32"),
        gradients=("fp32", "bf16", "fp16"),
        optimizers=("adam", "adamw", "sgd"),
    )
    if asked.model is not None and looks_ahead(asked.model):
        raise InputError(f"MaxText trains decoders, and {asked.model.family} is an encoder; export for deepspeed.")
    constraints = MAXTEXT | shard_groups(asked, "MaxText") | whole_batches(asked, "MaxText")
    constraints |= _slices(asked)
    if mixture(asked.model or asked.hybrid) is not None:
        constraints |= MAXTEXT_EXPERTS
    return Limits(
        strategies=("tp", "sp", "cp", "ep", "etp"),
        schedules=("1f1b", "gpipe"),  # Without a pipeline the name of the schedule says nothing.
        zero=(0, 1, 3),
        recompute=("none", "full"),
        zero_degrees=True,
        even_stages=True,
        all_devices=True,
        constraints=constraints,
    )


def _slices(asked: Asked) -> dict[str, str]:
    """Require that every mesh axis lies within slices or over whole ones, the innermost axis first.

    With a pipeline MaxText puts axis `stage` outside of `data` and `fsdp` (configs/types.py, `mesh_axes`), within
    slices and between them, so stages lie inside replicas only if a slice is a replica.
    """
    sizes = asked.fanouts
    order = "rank_order == 'dp-inner' or pp == 1 or replicas == 1"
    if not sizes:
        return {order: STAGES_OUTSIDE}
    within = ["tp", "tp * cp", "tp * cp * ep"]
    slices = [_whole(sizes[0], inner) for inner in within]
    slices.append(f"rank_order == 'dp-inner' or {_whole(sizes[0], 'tp * cp * ep * pp')}")
    shard = "zero == 3 and zero_degree < dp * cp"
    slices.append(f"not ({shard}) or rank_order == 'pp-inner' or {_whole(sizes[0], 'tp * zero_degree')}")
    slices.append(f"not ({shard}) or rank_order == 'dp-inner' or {_whole(sizes[0], 'tp * zero_degree * pp')}")
    slices.append(f"rank_order == 'pp-inner' or {_whole(sizes[0], 'tp * cp * dp')}")
    reason = f"MaxText splits its mesh axes evenly between slices, here of {sizes[0]} devices"
    return dict.fromkeys(slices, reason) | {f"{order} or width * pp == {sizes[0]}": STAGES_OUTSIDE}


def _whole(size: int, inner: str) -> str:
    return f"({size} % ({inner}) == 0 or ({inner}) % {size} == 0)"


def decoder_block(model: Architecture | None) -> str | None:
    """MaxText's name of blocks built so; None: set `model_name` by hand."""
    if model is None or len(set(model.blocks)) != 1 or not like_llama(model):
        return None
    attention, network = model.blocks[0].attention, model.blocks[0].feed_forward
    if isinstance(attention, LatentAttention):
        return None
    if isinstance(network, FeedForward):
        return "qwen3" if attention.normalised else "llama2"
    return None if network.shared_width else "qwen3_moe" if attention.normalised else "mixtral"


GALVATRON = {
    "uniform(zero)": "Galvatron reduces gradients either after every micro-batch or once, in all stages",
    "pp == 1 or schedule in ['1f1b', 'gpipe']": "Galvatron's pipelines are GPipe and one forward, one backward",
    f"zero != 1 or micro_batches > 1 or dp * batch * {ULYSSES} * cp == 1": (
        "Galvatron's FSDP keeps whole gradients, as ZeRO 1 does, between micro-batches only"
    ),
    f"tp == 1 or {ULYSSES} == 1": "Galvatron splits a layer over either tensor or Ulysses sequence parallelism",
}


def galvatron(asked: Asked) -> Limits:
    """Limits of Galvatron.

    Raises:
        InputError: it does not place such layers, or does not train in that precision.
    """
    refuse_layers(asked, "galvatron")
    refuse_training(
        asked.training,
        "galvatron",
        "Galvatron",
        precisions=("bf16", "fp16", "fp32"),
        gradients=("fp32", asked.training.precision),
        optimizers=("adam", "adamw"),
    )
    constraints = GALVATRON | whole_batches(asked, "Galvatron")
    if asked.training.key_exchange != "ring":
        constraints["cp == 1"] = "Galvatron's context parallelism passes keys and values on in a ring"
    if mixture(asked.model or asked.hybrid) is not None:
        constraints[f"ep * etp == 1 or {ULYSSES} == 1"] = (
            "nest lays expert ranks over those of Ulysses, Galvatron beside"
        )
    return Limits(
        strategies=("tp", "sp", "cp", "ep", "etp", "batch", ULYSSES),
        recompute=("none", "full"),
        partial_recompute=(("full", "none"),),  # `checkpoint` of its JSON names every block.
        constraints=constraints,
    )


NANOTRON = {
    "uniform(zero)": "nanotron has one ZeRO stage",
    "uniform(recompute)": "nanotron recomputes all layers or none",
    # src/nanotron/parallel/pipeline_parallel/engine.py, `OneForwardOneBackwardPipelineEngine`.
    "schedule != '1f1b' or micro_batches >= pp - 1": "nanotron's 1F1B wants a micro-batch for every stage but one",
}


def nanotron(asked: Asked) -> Limits:
    """Limits of nanotron.

    Raises:
        InputError: the model is not built like Llama, or it does not train in that precision.
    """
    refuse_layers(asked, "nanotron")
    refuse_training(
        asked.training,
        "nanotron",
        "nanotron",
        precisions=("bf16", "fp16", "fp32"),
        gradients=("fp32", "bf16", "fp16"),
        optimizers=("adam", "adamw", "sgd"),
    )
    if gradient_format(asked.training) != "fp32":  # src/nanotron/helpers.py, `init_optimizer_and_grad_accumulator`.
        raise InputError(
            "nanotron keeps single-precision weights only beside gradients that it adds up in single precision; set "
            "training.gradients: fp32."
        )
    model = built_like_llama(asked.model)
    constraints = NANOTRON | whole_batches(asked, "nanotron")
    if asked.training.overlap.tensor:
        constraints["tp == 1 or sp > 1"] = "nanotron overlaps tensor parallelism with reduce-scatter only"
    constraints |= _cut(asked, model)
    return Limits(
        strategies=("tp", "sp", "batch"),
        schedules=("1f1b", "gpipe"),
        zero=(0, 1),
        recompute=("none", "full"),
        constraints=constraints,
    )


def built_like_llama(model: Architecture | None) -> Architecture:
    """`model`, which nanotron builds as Llama.

    Raises:
        InputError: it is built otherwise.
    """
    attention = None if model is None else model.blocks[0].attention
    if (
        model is None
        or decoder_block(model) != "llama2"
        or not isinstance(attention, GroupedQueryAttention)
        or attention.heads * attention.head != model.hidden
    ):
        raise InputError("the exporter for nanotron writes models that are built like Llama, and this is none.")
    return model


def _cut(asked: Asked, model: Architecture) -> dict[str, str]:
    """The cut that nanotron makes by itself into as many stages as the problem fixes; into several others, none."""
    fixed, layers = asked.stages, len(model.blocks)
    pp = fixed if isinstance(fixed, int) and 1 <= fixed <= layers else 1
    stages = split(pp, layers, model.hidden, model.blocks[0].feed_forward.width, model.vocab)
    if pp == 1 or not all(stages):
        return {"pp == 1": "nanotron cuts the model into stages by itself: fix pp, and plans have its cut"}
    reason = f"nanotron cuts the model by itself, for pp {pp} into {', '.join(map(str, stages))} blocks"
    names = iter(f"layers.{number}" for number in range(layers))
    groups = [[repr(next(names)) for _ in range(count)] for count in stages]
    return {f"pp == {pp}": reason} | {f"same_stage({', '.join(each)})": reason for each in groups if len(each) > 1}


def split(pp: int, layers: int, hidden: int, ffn: int, vocab: int) -> list[int]:
    """Blocks of each stage: a stage is full once it has its share of the products."""
    block = 4 * hidden * hidden + 3 * hidden * ffn
    total = layers * block + hidden * vocab
    stages = [0] * pp
    stage = 0
    for done in accumulate([block] * layers):
        stages[stage] += 1
        stage += done * pp > total * (stage + 1)
    return stages
