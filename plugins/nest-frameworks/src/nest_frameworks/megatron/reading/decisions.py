"""Decisions in flags of Megatron-LM: `fixed` of a problem.

Sources: `validate_args` (megatron/training/arguments.py), TransformerConfig and parallel_state of core_v0.16.1.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from nest.errors import InputError
from nest.spec import Architecture
from nest_frameworks.limits import PLUGIN, ULYSSES, mixture
from nest_frameworks.megatron.notation import BLOCK, EMBEDDING, FLAG, LOSS, PREDICTION, check_layout, read_layout
from nest_frameworks.megatron.reading.flags import FlagReader

Blocks = list[tuple[int, int]]
"""Transformer blocks of each chunk of the pipeline, those that predict further tokens apart; empty: not known."""

STRATEGY = "--data-parallel-sharding-strategy"
STRATEGIES = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""ZeRO stage by `--data-parallel-sharding-strategy` of Megatron FSDP."""

MUON = {
    "--use-distributed-optimizer": "gives every rank whole matrices of Muon, which nest does not price",
    **dict.fromkeys(("--use-megatron-fsdp", "--use-torch-fsdp2"), "has no Muon"),
}
"""Why Muon is refused with what shards other optimizers (`validate_args`, which forbids Muon with either FSDP)."""


def read_decisions(flags: FlagReader, model: Architecture | None, devices: int | None) -> dict[str, Any]:
    """The decisions; mistakes are left with `flags`."""
    tp, cp = flags.integer("--tensor-model-parallel-size") or 1, flags.integer("--context-parallel-size") or 1
    pp, ep = flags.integer("--pipeline-model-parallel-size") or 1, flags.integer("--expert-model-parallel-size") or 1
    etp = flags.integer("--expert-tensor-parallel-size") or tp
    sequence_parallel = flags.has("--sequence-parallel") and tp > 1
    stages, blocks = _stages(flags, model, pp)
    decisions: dict[str, Any] = {"tp": tp, "sp": sequence_parallel, "cp": cp, "pp": pp, **stages}
    if ep > 1 or (model is not None and _experts(model)) or flags.has("--expert-tensor-parallel-size"):
        decisions |= {"ep": ep, "etp": etp}
    _check_degrees(flags, model, tp, ep)
    inner = tp * cp * pp
    if devices is not None and devices % inner:
        sizes = {"--tensor-model": tp, "--pipeline-model": pp, "--context": cp}
        split = " x ".join(f"{name}-parallel-size {size}" for name, size in sizes.items() if size > 1)
        flags.problem(
            f"{devices} ranks are no multiple of {inner}, which is {split}; if they are launched on more nodes than "
            "the file says, give --nodes."
        )
    elif devices is not None and devices % (etp * ep * pp):
        usual = "" if flags.has("--expert-tensor-parallel-size") else " (left out: the tensor-parallel size)"
        flags.problem(
            f"{devices} ranks are no multiple of {etp * ep * pp}, the product of --expert-tensor-parallel-size {etp}"
            f"{usual}, --expert-model-parallel-size {ep} and "
            f"--pipeline-model-parallel-size {pp}; if they are launched on more nodes than the file says, give --nodes."
        )
    elif devices is not None:
        decisions["dp"] = devices // inner
    decisions |= {"micro_batch": flags.integer("--micro-batch-size"), **_recompute(flags, blocks)}
    decisions |= _sharding(flags, decisions)
    decisions["rank_order"] = "pp-inner" if flags.has("--use-tp-pp-dp-mapping") else "dp-inner"
    _check_batch(flags, decisions)
    if (ulysses := _exchanging_heads(flags, cp)) > 1:
        flags.note(f"--context-parallel-size {cp} exchanges tokens for heads (a2a), which takes {PLUGIN}")
        decisions |= {"cp": cp // ulysses, ULYSSES: ulysses}
    return {name: value for name, value in decisions.items() if value is not None}


def _exchanging_heads(flags: FlagReader, cp: int) -> int:
    """Context-parallel ranks that exchange tokens for heads (`a2a`, DeepSpeed-Ulysses), of `cp`."""
    kinds, path = {*flags.several("--cp-comm-type")}, "--hierarchical-context-parallel-sizes"
    sizes = [size for word in flags.several(path) for size in word.strip("[]").replace(",", " ").split()]
    if kinds == {"a2a"}:
        return cp
    if kinds != {"a2a+p2p"} or cp == 1:
        return 1
    numbers = [int(size) for size in sizes if size.isdecimal() and len(size) < 7]
    if len(numbers) != 2 or len(sizes) != 2 or prod(numbers) != cp:
        flags.problem(f"{path} must be two sizes whose product is --context-parallel-size {cp}.")
        return 1
    return numbers[0]


def _experts(model: Architecture) -> int:
    experts = mixture(model)
    return 0 if experts is None else experts.experts


def _check_degrees(flags: FlagReader, model: Architecture | None, tp: int, ep: int) -> None:
    if model is None:
        return
    heads = model.blocks[0].attention.heads
    groups = getattr(model.blocks[0].attention, "kv_heads", heads)
    experts = _experts(model)
    if heads % tp:
        flags.problem(f"--tensor-model-parallel-size {tp} does not divide --num-attention-heads {heads}.")
    elif groups % tp and tp % groups:
        flags.problem(
            f"--num-query-groups {groups} is no multiple and no divisor of --tensor-model-parallel-size {tp}."
        )
    if ep > 1 and not experts:
        flags.problem(f"--expert-model-parallel-size {ep} needs --num-experts.")
    elif experts % ep:
        flags.problem(f"--expert-model-parallel-size {ep} does not divide --num-experts {experts}.")
    if experts and tp > 1 and not flags.has("--sequence-parallel"):
        flags.problem("a mixture of experts with --tensor-model-parallel-size above 1 needs --sequence-parallel.")


def _check_batch(flags: FlagReader, decisions: dict[str, Any]) -> None:
    batch, ranks, size = flags.integer("--global-batch-size"), decisions.get("dp"), decisions.get("micro_batch")
    length, cp = flags.integer("--seq-length"), decisions["cp"]
    if batch and ranks and size and batch % (ranks * size):
        flags.problem(
            f"--global-batch-size {batch} is no multiple of --micro-batch-size {size} times the {ranks} data-parallel "
            "ranks."
        )
    if length and cp > 1 and length % (2 * cp):
        flags.problem(f"--seq-length {length} is no multiple of twice --context-parallel-size {cp}.")
    longest = flags.integer("--max-position-embeddings")
    if length and longest and longest < length:
        flags.problem(f"--max-position-embeddings {longest} is less than --seq-length {length}.")


def _sharding(flags: FlagReader, decisions: dict[str, Any]) -> dict[str, Any]:
    distributed, fully = flags.has("--use-distributed-optimizer"), flags.has("--use-megatron-fsdp")
    strategy = flags.choice(STRATEGY, STRATEGIES, STRATEGIES["optim_grads_params"])
    stage = 1 if distributed else 0
    for flag, why in MUON.items():
        if flags.word("--optimizer") == "muon" and flags.has(flag):
            flags.problem(f"{flag} {why}; leave it out with --optimizer muon.")
    if fully and STRATEGY in flags.words:
        stage = strategy
    elif fully:
        said = {"no_shard": ("shards nothing", 0), "optim_grads_params": ("shards everything", 3)}
        stage = flags.assumed(STRATEGY, "--use-megatron-fsdp", said)
    if flags.has("--use-torch-fsdp2"):
        stage = 2 if flags.has("--torch-fsdp2-no-reshard-after-forward") else 3
        if distributed:
            flags.problem("--use-torch-fsdp2 and --use-distributed-optimizer exclude each other.")
        if decisions["pp"] > 1:
            flags.problem("--use-torch-fsdp2 has no pipeline; --pipeline-model-parallel-size must be 1.")
    if flags.has("--overlap-param-gather"):
        if not stage and not distributed and not fully:
            flags.problem("--overlap-param-gather needs --use-distributed-optimizer.")
        if not flags.has("--overlap-grad-reduce"):
            flags.problem("--overlap-param-gather needs --overlap-grad-reduce.")
    elif stage and flags.has("--overlap-grad-reduce") and stage < min(STRATEGIES["optim_grads"], 2):
        flags.note("--overlap-grad-reduce without --overlap-param-gather is priced as if both were given.")
    instances = flags.integer("--num-distributed-optimizer-instances") or 1
    if instances == 1 or not stage or "dp" not in decisions:
        if instances > 1 and stage:
            flags.note(
                f"--num-distributed-optimizer-instances {instances} is priced as 1, as the file does not say how many "
                "ranks there are; give --nodes and --devices-per-node."
            )
        return {"zero": stage}
    ranks = decisions["dp"] * decisions["cp"]
    if ranks % instances:
        flags.problem(f"--num-distributed-optimizer-instances {instances} does not divide the {ranks} ranks there are.")
    return {"zero": stage, "zero_degree": max(ranks // instances, 1)}


def _recompute(flags: FlagReader, blocks: Blocks) -> dict[str, Any]:
    granularity = flags.word("--recompute-granularity")
    if flags.has("--recompute-activations"):
        granularity = "selective"
    method, count = flags.word("--recompute-method"), flags.integer("--recompute-num-layers", minimum=0)
    flags.has("--distribute-saved-activations")
    if granularity is None:
        return {"recompute": "none"}
    if granularity == "selective":
        if method is not None or count is not None:
            flags.problem("--recompute-method and --recompute-num-layers go with --recompute-granularity full only.")
        return {"recompute": "selective"}
    if granularity != "full" or method not in ("uniform", "block") or count is None:
        flags.problem(
            "--recompute-granularity is full or selective; full needs --recompute-method (uniform or block) and "
            "--recompute-num-layers."
        )
        return {"recompute": "none"}
    return _full(flags, method, count, blocks)


PER_RANK = "--enable-recompute-layers-per-pp-rank"
"""MindSpeed's flag to count recomputed layers in a stage, not in a chunk."""


def _full(flags: FlagReader, method: str, count: int, blocks: Blocks) -> dict[str, Any]:
    """Full recomputation of all layers, or of the first of each chunk of the pipeline.

    `TransformerBlock._checkpointed_forward` counts by the chunk, and not by the stage; `block` never runs layers again
    that predict further tokens (megatron/core/transformer/multi_token_prediction.py).
    """
    said = f"--recompute-method {method} --recompute-num-layers {count}"
    most = max((own for own, _ in blocks), default=0)
    parted = len(blocks) > (flags.integer("--pipeline-model-parallel-size") or 1)
    if flags.has(PER_RANK) and parted:
        flags.problem(f"{PER_RANK} is not priced: nest counts {said} in each chunk; delete it to price the run so.")
    if method == "uniform":
        if count == 0:
            flags.problem(f"{said}: it must be at least 1.")
        elif blocks and count > most:
            flags.problem(f"{said}: no pipeline stage, or chunk of one, has more than {most} layers.")
        elif blocks and not parted and 1 < count == most == min(own for own, _ in blocks):
            return {"recompute": "stage"}  # Its activations are all there again at once.
        elif count > 1:
            flags.problem(f"{said} has the activations of {count} layers at once; nest prices 1, or all of a stage.")
        return {"recompute": "full"}
    if count == 0:
        return {"recompute": "none"}
    count = min(count, most) if blocks else count
    beside = [own for own, further in blocks if further]
    again = any(count > own for own in beside)
    if again:
        flags.note(f"{said} runs no layers again that predict further tokens; they are priced as if it did.")
    whole = blocks and count == most and (again or not beside)
    return {"recompute": "full", **({} if whole else {"recompute_layers": count})}


BLOCKS = "layers."
"""Prefix of names of transformer blocks (docs/reference/models.md)."""


def _stages(flags: FlagReader, model: Architecture | None, pp: int) -> tuple[dict[str, Any], Blocks]:
    """Schedule and stages, and the layers of each chunk of the pipeline; mistakes are left with `flags`."""
    text, virtual = flags.word(FLAG), flags.integer("--num-virtual-stages-per-pipeline-rank")
    per_chunk = flags.integer("--num-layers-per-virtual-pipeline-stage")
    ends = {place: flags.integer(f"--decoder-{place}-pipeline-num-layers") for place in ("first", "last")}
    counted = [flags.has(f"--account-for-{end}-in-pipeline-split") for end in ("embedding", "loss")]
    flags.has("--no-overlap-p2p-communication")
    flags.has("--overlap-p2p-communication-warmup-flush")
    if sum(each is not None for each in (text, virtual, per_chunk)) > 1:
        flags.problem(
            f"of {FLAG}, --num-virtual-stages-per-pipeline-rank and --num-layers-per-virtual-pipeline-stage one may be "
            "given."
        )
        return {}, []
    if (text is not None or any(ends.values())) and any(counted):
        flags.problem("--account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split go alone.")
        return {}, []
    if text is not None and any(ends.values()):
        flags.problem(
            f"{FLAG} says what every stage holds; leave --decoder-first-pipeline-num-layers and its like out."
        )
        return {}, []
    if text is not None:
        return _from_layout(flags, text, model, pp)
    if model is None:
        if per_chunk or any(ends.values()) or any(counted):
            flags.problem("the stages are given, but not the model: --num-layers and the other widths are missing.")
        chunked = {"schedule": "interleaved", "chunks": virtual}
        return chunked if (virtual or 1) > 1 else {"schedule": "1f1b"}, []
    return _from_counts(flags, model, pp, virtual, per_chunk, ends, counted)


def _from_layout(flags: FlagReader, text: str, model: Architecture | None, pp: int) -> tuple[dict[str, Any], Blocks]:
    try:
        chunks = read_layout(text)
        letters = "".join(chunks)
        layers, further = letters.count(BLOCK), letters.count(PREDICTION)
        if model is not None:
            layers, further = len(model.blocks) - model.predicting, model.predicting
        check_layout(chunks, layers, pp, further)
    except InputError as error:
        flags.problem(str(error))
        return {}, []
    # Blocks that predict further tokens are the last of the model's.
    blocks = [(chunk.count(BLOCK), chunk.count(PREDICTION)) for chunk in chunks]
    return _from_chunks(flags, [chunk.replace(PREDICTION, BLOCK) for chunk in chunks], pp), blocks


def _from_chunks(flags: FlagReader, chunks: list[str], pp: int) -> dict[str, Any]:
    """Schedule and stages of chunks, each a run of letters, in the order in which a micro-batch passes them."""
    virtual = len(chunks) // pp
    empty = next((index for index, chunk in enumerate(chunks) if not chunk), None)
    if empty is not None:
        which = f"virtual stage {empty // pp + 1} of pipeline stage {empty % pp + 1}"
        which = which if virtual > 1 else f"pipeline stage {empty + 1}"
        flags.problem(f"{which} holds no layers that nest prices, and nest has no empty stages.")
        return {}
    if virtual > 1 and pp == 1:
        flags.problem(f"{virtual} virtual stages need --pipeline-model-parallel-size above 1.")
        return {}
    if virtual > 1:
        return {"schedule": "interleaved", "chunks": virtual, **_interleaved(chunks, pp)}
    if pp == 1:
        return {"schedule": "1f1b"}
    between = [chunks[0].removeprefix(EMBEDDING), *chunks[1:-1], chunks[-1].removesuffix(LOSS)]
    stages = [len(stage) for stage in between] if all(between) else _named(chunks)
    return {"schedule": "1f1b", "stages": stages}


def _interleaved(chunks: list[str], pp: int) -> dict[str, Any]:
    """The layers of each stage, all its chunks together; nothing where chunks are as even as they can be.

    Even are as many blocks in each, or else as many layers, embedding and head counted.
    """
    blocks = [chunk.count(BLOCK) for chunk in chunks]
    if len({*blocks}) == 1 or (len({*map(len, chunks)}) == 1 and sum(blocks) % len(chunks)):
        return {}
    runs = _named(chunks)
    return {"stages": [[name for run in runs[stage::pp] for name in run] for stage in range(pp)]}


def _named(chunks: list[str]) -> list[list[str]]:
    """The names of the layers of each chunk."""
    number = iter(range(sum(map(len, chunks))))
    names = {EMBEDDING: "embedding", LOSS: "head"}
    return [[names.get(letter) or f"{BLOCKS}{next(number)}" for letter in chunk] for chunk in chunks]


def _from_counts(
    flags: FlagReader,
    model: Architecture,
    pp: int,
    virtual: int | None,
    per_chunk: int | None,
    ends: dict[str, int | None],
    counted: list[bool],
) -> tuple[dict[str, Any], Blocks]:
    """Megatron-LM's own split: even, but for ends that are given or counted as a layer.

    Blocks that predict further tokens come with the last stage.
    """
    layers = len(model.blocks) - model.predicting
    shares = _shares(flags, layers, pp, ends, counted)
    if shares is None:
        return {}, []
    chunks = virtual or 1
    if per_chunk is not None:
        if (layers + sum(counted)) % (pp * per_chunk):
            flags.problem(
                f"--num-layers-per-virtual-pipeline-stage {per_chunk} does not divide the "
                f"{(layers + sum(counted)) // pp} layers of a stage."
            )
            return {}, []
        chunks = (layers + sum(counted)) // (pp * per_chunk)
    if chunks == 1:
        blocks = _apart(shares, model.predicting)
        shares[-1] += model.predicting
        return {"schedule": "1f1b", **({"stages": shares} if len({*shares}) > 1 else {})}, blocks
    whole = [shares[0] + counted[0], *shares[1:-1], shares[-1] + counted[1]]
    uneven = next((index for index, share in enumerate(whole) if share % chunks), None)
    if uneven is not None:
        flags.problem(
            f"the {whole[uneven]} layers of pipeline stage {uneven + 1} cannot be split evenly over {chunks} virtual "
            "stages."
        )
        return {}, []
    sizes = [share // chunks for _ in range(chunks) for share in whole]
    sizes[0] -= counted[0]
    sizes[-1] -= counted[1]
    blocks = _apart(sizes, model.predicting)
    sizes[-1] += model.predicting
    letters = [BLOCK * size for size in sizes]
    return _from_chunks(flags, [EMBEDDING + letters[0], *letters[1:-1], letters[-1] + LOSS], pp), blocks


def _apart(sizes: Sequence[int], predicting: int) -> Blocks:
    """`sizes` of chunks, of which the last holds as many blocks more that predict further tokens."""
    return [*((size, 0) for size in sizes[:-1]), (sizes[-1], predicting)]


def _shares(
    flags: FlagReader, layers: int, pp: int, ends: dict[str, int | None], counted: list[bool]
) -> list[int] | None:
    """Layers of each stage; None: they do not come out even."""
    first, last = ends["first"], ends["last"]
    given = [share for share in (first, last) if share is not None]
    if given and pp == 1 and given[-1] != layers:
        flags.problem(
            f"--decoder-{'first' if last is None else 'last'}-pipeline-num-layers {given[-1]} with one pipeline stage "
            f"builds a model of {given[-1]} layers in place of --num-layers {layers}; leave it out, or give both alike."
        )
        return None
    if given and pp > 1:
        rest, middle = layers - sum(given), pp - len(given)
        if rest < 0 or bool(rest) != bool(middle) or (middle and rest % middle):
            flags.problem(
                f"of {layers} layers {rest} are left for {middle} pipeline stages between those that "
                "--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers speak of."
            )
            return None
        between = [rest // middle] * middle if middle else []
        return [*([first] if first is not None else []), *between, *([last] if last is not None else [])]
    size, left = divmod(layers + sum(counted), pp)
    if left or not size:
        counting = " counted with the ends" if any(counted) else ""
        flags.problem(
            f"--num-layers {layers}{counting} is no multiple of --pipeline-model-parallel-size {pp}; {FLAG} is for "
            "stages that differ."
        )
        return None
    shares = [size] * pp
    shares[0] -= counted[0]
    shares[-1] -= counted[1]
    return shares
